//! Makes connections to the server.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use abide_kernel::{Error, Result};
use futures_util::future::poll_fn;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;
use tokio_postgres::config::{Host, SslMode as DriverMode};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, Error as DriverError, NoTls, SimpleQueryMessage,
    Socket,
};
use tokio_util::task::TaskTracker;

use crate::counted::Counted;
use crate::error::{Fate, classify, describe};
use crate::notify::{OUTBOX_CHANNEL, OUTBOX_NOTICE};
use crate::ssl::{Ssl, SslMode};
#[cfg(feature = "tls")]
use crate::tls::{HandshakeFailed, Tls};
use crate::{Options, Timeouts};

/// Idle time before a TCP keepalive probe, and the interval between probes.
const SILENCE: Duration = Duration::from_secs(30);
const ANSWER: Duration = Duration::from_secs(10);

/// The server's own address and port of this connection; the address is null over a Unix socket.
const SERVER: &str =
    "select host(inet_server_addr()), coalesce(inet_server_port(), current_setting('port')::int)";

/// Example in the error message for an invalid URL.
const EXAMPLE: &str = "expected something like postgres://role:password@host:5432/database";

/// Makes connections to one database.
#[derive(Debug)]
pub(crate) struct Connector {
    config: Config,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
    /// The first way to connect, and the second one if the server refuses the first.
    attempts: (DriverMode, Option<DriverMode>),
    timeout: Duration,
    /// Time limits for requests over its connections.
    pub timeouts: Timeouts,
    /// The tasks that drive the connections.
    tasks: TaskTracker,
}

impl Connector {
    /// Parses a URL. The error says what is wrong with it, but does not repeat it, because it may contain a password.
    pub fn new(url: &str, options: &Options) -> Result<Self> {
        let unusable = |why: String| {
            Error::Broken(format!("the database URL cannot be used: {why}; {EXAMPLE}"))
        };
        let (url, timeouts) = Timeouts::taken_from(url, options.timeouts)?;
        let (url, ssl) = Ssl::taken_from(&url, options.authorities.as_deref())?;
        let mut config = Config::from_str(&url).map_err(|error| unusable(describe(&error)))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(unusable("it names no host".into()));
        }
        let attempts = attempts(ssl.mode, &config);
        if attempts.0 == DriverMode::Require && cfg!(not(feature = "tls")) {
            return Err(unusable(
                "it asks for TLS, and this program was built without: add the feature `tls` of abide-postgres".into(),
            ));
        }
        if config.get_application_name().is_none() {
            config.application_name("abide");
        }
        let timeout = options.connect_timeout;
        config
            .connect_timeout(timeout)
            .keepalives_idle(SILENCE)
            .keepalives_interval(ANSWER);
        config
            .keepalives_retries(3)
            .tcp_user_timeout(SILENCE + ANSWER);
        Ok(Self {
            config,
            #[cfg(feature = "tls")]
            tls: match attempts == (DriverMode::Disable, None) {
                true => None,
                false => Some(Tls::new(&ssl.check)?),
            },
            attempts,
            timeout,
            timeouts,
            tasks: TaskTracker::new(),
        })
    }

    /// Creates a connector to the same database that tracks only its own connections.
    pub fn another(&self) -> Self {
        Self {
            config: self.config.clone(),
            #[cfg(feature = "tls")]
            tls: self.tls.clone(),
            attempts: self.attempts,
            timeout: self.timeout,
            timeouts: self.timeouts,
            tasks: TaskTracker::new(),
        }
    }

    /// Makes a connection. Also returns a handle that ends it at once: a dropped driver would first wait for running
    /// requests. Notifications go to `notices`.
    pub async fn connect(
        &self,
        notices: Option<UnboundedSender<String>>,
    ) -> Result<(Client, AbortHandle)> {
        match tokio::time::timeout(self.timeout, self.attempt_all(&notices)).await {
            Ok(connected) => connected.map_err(|error| classify(&error, Fate::Open)),
            Err(_) => Err(Error::Unavailable(format!(
                "no connection within {:?}",
                self.timeout
            ))),
        }
    }

    /// Connects in the first way that the server accepts. If it accepts none, returns the error of the first attempt,
    /// unless another error says more.
    async fn attempt_all(
        &self,
        notices: &Option<UnboundedSender<String>>,
    ) -> std::result::Result<(Client, AbortHandle), DriverError> {
        let (first, second) = self.attempts;
        let error = match (self.attempt(first, notices.clone()).await, second) {
            (Err(error), Some(_)) if is_refused_so(&error) => error,
            (connected, _) => return connected,
        };
        let connected = self.attempt(second.unwrap_or(first), notices.clone()).await;
        // A server that refuses the login reports that in both attempts; for one without TLS only the second error is
        // useful.
        connected.map_err(|again| match (error.code(), again.code()) {
            (Some(_), Some(_)) => error,
            _ => again,
        })
    }

    async fn attempt(
        &self,
        mode: DriverMode,
        notices: Option<UnboundedSender<String>>,
    ) -> std::result::Result<(Client, AbortHandle), DriverError> {
        let mut config = self.config.clone();
        config.ssl_mode(mode);
        #[cfg(feature = "tls")]
        if let (true, Some(tls)) = (mode != DriverMode::Disable, self.tls.clone()) {
            return self.connect_with(&config, tls, notices).await;
        }
        self.connect_with(&config, NoTls, notices).await
    }

    async fn connect_with<T>(
        &self,
        config: &Config,
        tls: T,
        notices: Option<UnboundedSender<String>>,
    ) -> std::result::Result<(Client, AbortHandle), DriverError>
    where
        T: MakeTlsConnect<Socket>,
        T::Stream: Send + 'static,
    {
        let (client, connection) = config.connect(tls).await?;
        let open = Counted::open();
        let driven = self.tasks.spawn(async move {
            drive(connection, notices).await;
            drop(open);
        });
        Ok((client, driven.abort_handle()))
    }

    /// `true` if the connection leads directly to the server, not to a pooler that may assign connections per
    /// transaction: the address and port that the server reports are those that were connected to. `false` if this
    /// cannot be determined.
    pub async fn is_direct(&self, client: &Client) -> bool {
        // A simple query, so that nothing is prepared: behind a pooler another server process may run it.
        let answer = client.simple_query(SERVER).await.unwrap_or_default();
        let Some((address, port)) = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                let port: u16 = row.get(1)?.parse().ok()?;
                Some((row.get(0).map(str::to_owned), port))
            }
            _ => None,
        }) else {
            return false;
        };
        let wanted = self.config.get_ports().first().copied().unwrap_or(5432);
        if self.config.get_hosts().len() != 1 || port != wanted {
            return false;
        }
        match (self.config.get_hosts().first(), address) {
            (Some(Host::Tcp(host)), Some(address)) => {
                let Ok(address) = address.parse::<IpAddr>() else {
                    return false;
                };
                let found = tokio::net::lookup_host((host.as_str(), port)).await;
                found.is_ok_and(|mut found| found.any(|found| found.ip() == address))
            }
            #[cfg(unix)]
            (Some(Host::Unix(_)), None) => true,
            _ => false,
        }
    }

    /// Waits until all connections of this connector have ended.
    pub async fn wait(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// The text of a notification. Inserts into the outbox notify a channel of their own, with any payload.
fn heard<'n>(channel: &str, payload: &'n str) -> &'n str {
    match channel {
        OUTBOX_CHANNEL => OUTBOX_NOTICE,
        _ => payload,
    }
}

/// The first way to connect, and the second one if the server refuses the first, as in libpq. The driver's own `prefer`
/// continues without TLS if the server has none, but not if the handshake or the login fails.
fn attempts(mode: SslMode, config: &Config) -> (DriverMode, Option<DriverMode>) {
    // Local connections are not encrypted.
    let is_local = |host: &Host| !matches!(host, Host::Tcp(_));
    if config.get_hostaddrs().is_empty() && config.get_hosts().iter().all(is_local) {
        return (DriverMode::Disable, None);
    }
    match mode {
        SslMode::Disable => (DriverMode::Disable, None),
        SslMode::Allow => (DriverMode::Disable, Some(DriverMode::Require)),
        SslMode::Prefer => (DriverMode::Prefer, Some(DriverMode::Disable)),
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => (DriverMode::Require, None),
    }
}

/// `true` if the server might accept the same login with TLS instead of without, or the reverse: it refused this one,
/// or the handshake failed.
fn is_refused_so(error: &DriverError) -> bool {
    #[cfg(feature = "tls")]
    if let Some(source) = std::error::Error::source(error)
        && source.is::<HandshakeFailed>()
    {
        return true;
    }
    let code = error.code().map(|code| code.code());
    code.is_some_and(|code| code.starts_with("28"))
}

/// Drives a connection until it ends.
async fn drive<S>(mut connection: Connection<Socket, S>, notices: Option<UnboundedSender<String>>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
        match (message, &notices) {
            (Ok(AsyncMessage::Notification(notice)), Some(notices)) => {
                // If the receiver is gone, the connection is about to be closed.
                let _ = notices.send(heard(notice.channel(), notice.payload()).to_owned());
            }
            (Ok(_), _) => {}
            (Err(error), _) => {
                tracing::debug!(error = describe(&error), "a connection ended");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_url_is_refused_with_an_example_and_without_its_password() {
        for url in [
            "",
            "mysql://u:secret@h/d",
            "postgres://u:secret@h:port/d",
            "postgres:///d",
        ] {
            let error = Connector::new(url, &Options::default())
                .unwrap_err()
                .to_string();
            assert!(error.contains("postgres://role:password@host"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn what_does_not_leave_the_computer_is_not_encrypted() {
        let config = |url: &str| Config::from_str(url).unwrap();
        let socket = config("postgres:///d?host=/run/postgresql");
        let plain = (DriverMode::Disable, None);
        assert_eq!(attempts(SslMode::Require, &socket), plain);
        let network = config("postgres://h/d");
        let encrypted = (DriverMode::Require, None);
        assert_eq!(attempts(SslMode::Require, &network), encrypted);
        let either = (DriverMode::Prefer, Some(DriverMode::Disable));
        assert_eq!(attempts(SslMode::Prefer, &network), either);
    }
}
