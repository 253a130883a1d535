//! Events from NATS: publishes each message of a JetStream stream as an event.

use std::path::PathBuf;

use abide::Abide;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The NATS servers to read from, and the credentials for them.
#[derive(Clone, Debug)]
pub struct Nats {
    /// The server, or several servers of a cluster separated by commas. If absent, nothing is read.
    pub url: Option<String>,
    /// The subjects to read; wildcards are allowed.
    pub subjects: Vec<String>,
    /// The stream; if absent, the one that contains the subject.
    pub stream: Option<String>,
    /// Prefix of the names of the durable consumers; the subject follows.
    pub durable: String,
    /// Prefix that is removed from a subject to get the event type.
    pub prefix: String,
    /// The user.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<String>,
    /// A token, instead of user and password.
    pub token: Option<String>,
    /// A file with the seed of an nkey.
    pub nkey: Option<PathBuf>,
    /// A file of credentials: a JWT and its seed.
    pub creds: Option<PathBuf>,
    /// A file with certificates to trust, in addition to those of the system.
    pub ca: Option<PathBuf>,
    /// A file with the client certificate.
    pub cert: Option<PathBuf>,
    /// A file with the key of that certificate.
    pub key: Option<PathBuf>,
}

impl Default for Nats {
    fn default() -> Self {
        Self {
            url: None,
            subjects: vec!["event.>".to_owned()],
            stream: None,
            durable: "abide".to_owned(),
            prefix: "event.".to_owned(),
            user: None,
            password: None,
            token: None,
            nkey: None,
            creds: None,
            ca: None,
            cert: None,
            key: None,
        }
    }
}

impl Nats {
    /// Checks that the settings do not contradict each other.
    pub fn check(&self) -> Result<(), String> {
        let ways = [
            ("nats.user", self.user.is_some()),
            ("nats.token", self.token.is_some()),
            ("nats.nkey", self.nkey.is_some()),
            ("nats.creds", self.creds.is_some()),
        ];
        let given: Vec<&str> = ways
            .iter()
            .filter(|(_, is)| *is)
            .map(|(way, _)| *way)
            .collect();
        if given.len() > 1 {
            return Err(format!(
                "{} are given: log in in one way",
                given.join(" and ")
            ));
        }
        if self.user.is_some() != self.password.is_some() {
            return Err("nats.user and nats.password belong together: give both".to_owned());
        }
        if self.cert.is_some() != self.key.is_some() {
            return Err("nats.cert and nats.key belong together: give both".to_owned());
        }
        let others =
            self.stream.is_some() || !given.is_empty() || self.ca.is_some() || self.cert.is_some();
        if self.url.is_none() && others {
            return Err("nats.url is missing: nothing is read from NATS without it".to_owned());
        }
        Ok(())
    }
}

/// Tasks that read from NATS until they are stopped. They wait for a server that is unavailable or a stream that does
/// not exist yet; the rest of the server runs meanwhile.
pub struct Sources {
    tasks: Vec<JoinHandle<()>>,
    stop: CancellationToken,
}

impl Sources {
    /// Starts to read, if the settings name a server.
    pub async fn start(abide: &Abide, nats: &Nats) -> Result<Self, String> {
        let stop = CancellationToken::new();
        let tasks = match nats.url {
            None => Vec::new(),
            Some(_) => reading::begin(abide, nats, &stop).await?,
        };
        Ok(Self { tasks, stop })
    }

    /// Stops reading. Messages that were received are published or given back.
    pub async fn shutdown(self) {
        self.stop.cancel();
        for task in self.tasks {
            // A panic of the task was already reported.
            let _ = task.await;
        }
    }
}

#[cfg(not(feature = "nats"))]
mod reading {
    use super::{Abide, CancellationToken, JoinHandle, Nats};

    pub async fn begin(
        _: &Abide,
        _: &Nats,
        _: &CancellationToken,
    ) -> Result<Vec<JoinHandle<()>>, String> {
        Err("nats.url is given, and this binary was built without the feature `nats`".to_owned())
    }
}

#[cfg(feature = "nats")]
mod reading {
    use abide::store::Backoff;
    use abide_nats::async_nats::ConnectOptions;
    use abide_nats::{Error, Source, SourceBuilder};

    use super::{Abide, CancellationToken, JoinHandle, Nats};

    /// Spawns one task for each subject.
    pub async fn begin(
        abide: &Abide,
        nats: &Nats,
        stop: &CancellationToken,
    ) -> Result<Vec<JoinHandle<()>>, String> {
        // A file that cannot be read at the start is an error in the settings.
        options(nats).await?;
        let tasks = nats.subjects.iter().map(|subject| {
            let (abide, nats) = (abide.clone(), nats.clone());
            let (subject, stop) = (subject.clone(), stop.clone());
            tokio::spawn(async move { read(abide, nats, &subject, stop).await })
        });
        Ok(tasks.collect())
    }

    async fn read(abide: Abide, nats: Nats, subject: &str, stop: CancellationToken) {
        let mut backoff = Backoff::reconnect();
        loop {
            let started = async {
                let source = source(&abide, &nats, subject).await?;
                source.start().await.map_err(|error| match error {
                    Error::Refused(problem) => problem,
                    Error::Certificate(problem) => match nats.cert {
                        None => format!("{problem}; set nats.cert and nats.key"),
                        Some(_) => format!(
                            "{problem}, and it does not trust that of nats.cert; check who signed it, and until when it is valid"
                        ),
                    },
                    other => other.to_string(),
                })
            };
            match stop.run_until_cancelled(started).await {
                None => return,
                Some(Ok(source)) => {
                    tracing::info!(subject, "reading events from NATS");
                    stop.cancelled().await;
                    return source.shutdown().await;
                }
                Some(Err(problem)) => {
                    tracing::warn!(subject, problem, "cannot read from NATS: trying again");
                }
            }
            if stop.run_until_cancelled(backoff.pause()).await.is_none() {
                return;
            }
        }
    }

    async fn source(abide: &Abide, nats: &Nats, subject: &str) -> Result<SourceBuilder, String> {
        let url = nats.url.as_deref().unwrap_or_default();
        let prefix = nats.prefix.clone();
        let source = Source::of(abide.clone(), url)
            .options(options(nats).await?)
            .durable(durable(&nats.durable, subject))
            .subject(subject)
            .event_type(move |message| {
                let subject = message.subject();
                subject.strip_prefix(&prefix).unwrap_or(subject).to_owned()
            });
        Ok(match &nats.stream {
            Some(stream) => source.stream(stream),
            None => source,
        })
    }

    /// The name of the consumer for a subject. A consumer has one subject.
    fn durable(name: &str, subject: &str) -> String {
        let written = |c: char| match c {
            '.' => "_".to_owned(),
            '*' => "any".to_owned(),
            '>' => "all".to_owned(),
            c => c.to_string(),
        };
        let subject: String = subject.chars().map(written).collect();
        format!("{name}-{subject}")
    }

    /// The connection options, with the credentials from the files that the settings name.
    async fn options(nats: &Nats) -> Result<ConnectOptions, String> {
        let mut options = ConnectOptions::new().name("abide");
        let unread = |what: &str, path: &std::path::Path, error: std::io::Error| {
            format!("{what} = {}: {error}", path.display())
        };
        if let (Some(user), Some(password)) = (&nats.user, &nats.password) {
            options = options.user_and_password(user.clone(), password.clone());
        }
        if let Some(token) = &nats.token {
            options = options.token(token.clone());
        }
        if let Some(path) = &nats.nkey {
            let seed = tokio::fs::read_to_string(path).await;
            let seed = seed.map_err(|error| unread("nats.nkey", path, error))?;
            options = options.nkey(seed.trim().to_owned());
        }
        if let Some(path) = &nats.creds {
            let logged_in = options.credentials_file(path).await;
            options = logged_in.map_err(|error| unread("nats.creds", path, error))?;
        }
        let files = [
            ("nats.ca", &nats.ca),
            ("nats.cert", &nats.cert),
            ("nats.key", &nats.key),
        ];
        for (what, path) in files {
            if let Some(path) = path {
                let read = tokio::fs::read(path).await;
                read.map_err(|error| unread(what, path, error))?;
            }
        }
        if let Some(ca) = &nats.ca {
            options = options.add_root_certificates(ca.clone()).require_tls(true);
        }
        if let (Some(cert), Some(key)) = (&nats.cert, &nats.key) {
            options = options.add_client_certificate(cert.clone(), key.clone());
        }
        Ok(options)
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn each_subject_has_a_consumer_of_its_own() {
            let durable = |subject| super::durable("abide", subject);
            assert_eq!(durable("event.>"), "abide-event_all");
            assert_eq!(durable("event.*.paid"), "abide-event_any_paid");
        }
    }
}
