//! Makes connections.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use abide_kernel::{Error, Result};
use futures_util::future::poll_fn;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, Error as DriverError, NoTls, SimpleQueryMessage,
    Socket,
};
use tokio_util::task::TaskTracker;

use crate::error::{Fate, classify, describe};
#[cfg(feature = "tls")]
use crate::tls::Tls;
use crate::{Options, Timeouts};

/// How long the other side may be silent before it is asked whether it is still there, and how long it has to answer.
const SILENCE: Duration = Duration::from_secs(30);
const ANSWER: Duration = Duration::from_secs(10);

/// Where the server believes that it was connected to; nowhere by a socket of its own computer.
const SERVER: &str =
    "select host(inet_server_addr()), coalesce(inet_server_port(), current_setting('port')::int)";

/// What a caller whose URL cannot be used is told to write.
const EXAMPLE: &str = "expected something like postgres://role:password@host:5432/database";

/// Makes connections to one database.
#[derive(Debug)]
pub(crate) struct Connector {
    config: Config,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
    timeout: Duration,
    /// How long what is asked over its connections may take.
    pub timeouts: Timeouts,
    /// The connections' own tasks.
    tasks: TaskTracker,
}

impl Connector {
    /// Reads a URL. The error says what is wrong with it and does not repeat it: there may be a password in it.
    pub fn new(url: &str, options: &Options) -> Result<Self> {
        let unusable = |why: String| {
            Error::Broken(format!("the database URL cannot be used: {why}; {EXAMPLE}"))
        };
        let (url, timeouts) = Timeouts::taken_from(url, options.timeouts)?;
        // The driver knows no more than `require`, and we check certificates and names at that already.
        let url = url.replace("sslmode=verify-full", "sslmode=require");
        let url = url.replace("sslmode=verify-ca", "sslmode=require");
        let mut config = Config::from_str(&url).map_err(|error| unusable(describe(&error)))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(unusable("it names no host".into()));
        }
        let encrypted = config.get_ssl_mode() == SslMode::Require;
        if encrypted && cfg!(not(feature = "tls")) {
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
            tls: encrypted
                .then(|| Tls::new(options.authorities.as_deref()))
                .transpose()?,
            timeout,
            timeouts,
            tasks: TaskTracker::new(),
        })
    }

    /// Makes a connection, and what ends it at once: a driver that is dropped waits for what it has asked for. What is
    /// notified to it goes to `notices`.
    pub async fn connect(
        &self,
        notices: Option<UnboundedSender<String>>,
    ) -> Result<(Client, AbortHandle)> {
        #[cfg(feature = "tls")]
        let connecting = async {
            match self.tls.clone() {
                Some(tls) => self.connect_with(tls, notices).await,
                None => self.connect_with(NoTls, notices).await,
            }
        };
        #[cfg(not(feature = "tls"))]
        let connecting = self.connect_with(NoTls, notices);
        match tokio::time::timeout(self.timeout, connecting).await {
            Ok(connected) => connected.map_err(|error| classify(&error, Fate::Open)),
            Err(_) => Err(Error::Unavailable(format!(
                "no connection within {:?}",
                self.timeout
            ))),
        }
    }

    async fn connect_with<T>(
        &self,
        tls: T,
        notices: Option<UnboundedSender<String>>,
    ) -> std::result::Result<(Client, AbortHandle), DriverError>
    where
        T: MakeTlsConnect<Socket>,
        T::Stream: Send + 'static,
    {
        let (client, connection) = self.config.connect(tls).await?;
        let driven = self.tasks.spawn(drive(connection, notices));
        Ok((client, driven.abort_handle()))
    }

    /// Whether a connection leads to the server itself, and not to something before it that may give every transaction
    /// another connection: the server is asked for its address and port, which are those that were connected to. Where
    /// that cannot be told, it is taken not to.
    pub async fn is_direct(&self, client: &Client) -> bool {
        // Asked so that nothing is prepared: it may be another that answers.
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

    /// Waits until all connections that were made have ended.
    pub async fn wait(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Moves what comes and goes over a connection, until it ends.
async fn drive<S>(mut connection: Connection<Socket, S>, notices: Option<UnboundedSender<String>>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
        match (message, &notices) {
            (Ok(AsyncMessage::Notification(notice)), Some(notices)) => {
                // Who does not listen any more is about to close the connection.
                let _ = notices.send(notice.payload().to_owned());
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
    fn all_ways_to_ask_for_tls_are_understood() {
        for mode in ["disable", "prefer", "require", "verify-ca", "verify-full"] {
            let url = format!("postgres://u@h/d?sslmode={mode}");
            assert!(Connector::new(&url, &Options::default()).is_ok(), "{mode}");
        }
    }
}
