//! All settings by name: how each is parsed and shown.

use std::path::{Path, PathBuf};
use std::time::Duration;

use abide::engine::Retention;
use abide::model::Name;

use super::{Given, LogFormat, Settings, hidden};
use crate::hooks;
use crate::telemetry::Protocol;

/// One setting.
pub struct Key {
    /// Its name in the file. In the environment it is `ABIDE_` and the name in capitals, with `_` instead of dots.
    pub name: &'static str,
    /// Its description.
    pub what: &'static str,
    /// Sets a value, or returns what was expected.
    pub(super) set: fn(&mut Settings, &Given) -> Result<(), String>,
    /// The current value, with secrets hidden.
    pub show: fn(&Settings) -> String,
}

impl Key {
    /// The environment variable that sets it.
    pub fn variable(&self) -> String {
        format!("ABIDE_{}", self.name.to_uppercase().replace('.', "_"))
    }
}

const fn key(
    name: &'static str,
    what: &'static str,
    set: fn(&mut Settings, &Given) -> Result<(), String>,
    show: fn(&Settings) -> String,
) -> Key {
    Key {
        name,
        what,
        set,
        show,
    }
}

macro_rules! timeout {
    ($name:ident, $key:literal, $what:literal) => {
        key(
            concat!("postgres.", $key),
            $what,
            |all, given| {
                all.timeouts.$name = given.millis()?;
                Ok(())
            },
            |all| millis(all.timeouts.$name),
        )
    };
}

macro_rules! limit {
    ($name:ident, $what:literal) => {
        key(
            concat!("limits.", stringify!($name)),
            $what,
            |all, given| {
                all.limits.$name = given.count(1)?;
                Ok(())
            },
            |all| all.limits.$name.to_string(),
        )
    };
}

macro_rules! nats_file {
    ($name:ident, $what:literal) => {
        key(
            concat!("nats.", stringify!($name)),
            $what,
            |all, given| {
                all.nats.$name = Some(given.text()?.into());
                Ok(())
            },
            |all| {
                let path = all.nats.$name.as_ref();
                path.map_or_else(|| "none".to_owned(), |path| path.display().to_string())
            },
        )
    };
}

macro_rules! nats_secret {
    ($name:ident, $what:literal) => {
        key(
            concat!("nats.", stringify!($name)),
            $what,
            |all, given| {
                all.nats.$name = Some(given.text()?);
                Ok(())
            },
            |all| all.nats.$name.as_ref().map_or("none", |_| "…").to_owned(),
        )
    };
}

/// All settings, in the order in which they are shown.
pub const KEYS: &[Key] = &[
    key(
        "store",
        "connection string of the store",
        |all, given| {
            all.store = Some(given.text()?);
            Ok(())
        },
        |all| {
            all.store
                .as_deref()
                .map_or_else(|| "none".to_owned(), hidden)
        },
    ),
    key(
        "store_wait_ms",
        "how long a start waits for a store that cannot be reached yet",
        |all, given| {
            all.store_wait = given.millis_or_none()?;
            Ok(())
        },
        |all| millis(all.store_wait),
    ),
    key(
        "listen",
        "address and port to listen on",
        |all, given| {
            all.listen = given.text()?;
            Ok(())
        },
        |all| all.listen.clone(),
    ),
    key(
        "tls.cert",
        "file with the certificate of this server and its chain, in PEM; turns TLS on",
        |all, given| {
            all.tls.cert = Some(given.path()?);
            Ok(())
        },
        |all| path(all.tls.cert.as_deref()),
    ),
    key(
        "tls.key",
        "file with the key of that certificate, in PEM",
        |all, given| {
            all.tls.key = Some(given.path()?);
            Ok(())
        },
        |all| path(all.tls.key.as_deref()),
    ),
    key(
        "tls.ca",
        "file with certificates to trust when the store is a server; those of the system unless given",
        |all, given| {
            all.tls.ca = Some(given.path()?);
            Ok(())
        },
        |all| path(all.tls.ca.as_deref()),
    ),
    key(
        "name",
        "name of this server among the workers; started again under it, it takes back at once what it held",
        |all, given| {
            all.name = Some(given.name()?);
            Ok(())
        },
        |all| match &all.name {
            Some(name) => name.to_string(),
            None => "host and address".to_owned(),
        },
    ),
    key(
        "body_bytes",
        "largest body of a request",
        |all, given| {
            all.body_bytes = given.count(1024)?;
            Ok(())
        },
        |all| all.body_bytes.to_string(),
    ),
    key(
        "request_timeout_ms",
        "how long a request, and its body, may take",
        |all, given| {
            all.request_timeout = given.millis()?;
            Ok(())
        },
        |all| millis(all.request_timeout),
    ),
    key(
        "header_timeout_ms",
        "how long a request's head, or a TLS handshake, may take to arrive",
        |all, given| {
            all.header_timeout = given.millis()?;
            Ok(())
        },
        |all| millis(all.header_timeout),
    ),
    key(
        "connections",
        "most connections at once",
        |all, given| {
            all.connections = given.count(1)?;
            Ok(())
        },
        |all| all.connections.to_string(),
    ),
    key(
        "idle_timeout_ms",
        "how long a connection may be idle",
        |all, given| {
            all.idle_timeout = given.millis()?;
            Ok(())
        },
        |all| millis(all.idle_timeout),
    ),
    key(
        "write_timeout_ms",
        "how long a client may take nothing of an answer",
        |all, given| {
            all.write_timeout = given.millis()?;
            Ok(())
        },
        |all| millis(all.write_timeout),
    ),
    key(
        "in_flight",
        "most requests of one kind and role at once; more are answered 503",
        |all, given| {
            all.in_flight = given.count(1)?;
            Ok(())
        },
        |all| all.in_flight.to_string(),
    ),
    key(
        "long_polls",
        "most long polls, and most streams, of one role at once",
        |all, given| {
            all.long_polls = given.count(1)?;
            Ok(())
        },
        |all| all.long_polls.to_string(),
    ),
    key(
        "receiving_bytes",
        "most bytes of bodies taken in at once",
        |all, given| {
            all.receiving_bytes = given.count(1024)?;
            Ok(())
        },
        |all| all.receiving_bytes.to_string(),
    ),
    key(
        "drain_ms",
        "how long a server that is stopping still answers requests, while it reports not ready",
        |all, given| {
            all.drain = given.millis_or_none()?;
            Ok(())
        },
        |all| millis(all.drain),
    ),
    key(
        "grace_ms",
        "how long a shutdown waits for running requests",
        |all, given| {
            all.grace = given.millis()?;
            Ok(())
        },
        |all| millis(all.grace),
    ),
    key(
        "retention",
        "days that finished instances are kept, or `forever`",
        |all, given| {
            all.retention = given.retention()?;
            Ok(())
        },
        |all| retention(all.retention),
    ),
    key(
        "lease_ms",
        "how long a remote worker's claim lasts without a heartbeat",
        |all, given| {
            all.lease = given.lease()?;
            Ok(())
        },
        |all| millis(all.lease),
    ),
    timeout!(
        lock,
        "lock_timeout_ms",
        "how long a transaction waits for one lock"
    ),
    timeout!(
        idle,
        "idle_timeout_ms",
        "how long a paused process keeps its locks"
    ),
    timeout!(
        transaction,
        "transaction_timeout_ms",
        "how long a transaction, or a read, may take"
    ),
    key(
        "bootstrap_token",
        "token with the role operate that is known from the start",
        |all, given| {
            let token = given.text()?;
            if token.len() < 32 || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(
                    "write 32 printable characters at least, such as `openssl rand -hex 32` prints"
                        .to_owned(),
                );
            }
            all.bootstrap_token = Some(token);
            Ok(())
        },
        |all| {
            all.bootstrap_token
                .as_ref()
                .map_or("none", |_| "…")
                .to_owned()
        },
    ),
    key(
        "log_format",
        "`text` or `json`; text on a terminal, else json",
        |all, given| {
            all.log_format = Some(given.log_format()?);
            Ok(())
        },
        |all| log_format(all.log_format),
    ),
    key(
        "log_level",
        "`error`, `warn`, `info`, `debug`, `trace`, or directives",
        |all, given| {
            all.log_level = given.directives()?;
            Ok(())
        },
        |all| all.log_level.clone(),
    ),
    key(
        "otel_endpoint",
        "OTLP endpoint for traces; default: OTEL_EXPORTER_OTLP_ENDPOINT",
        |all, given| {
            all.otel_endpoint = Some(given.text()?);
            Ok(())
        },
        |all| {
            all.otel_endpoint
                .as_deref()
                .map_or_else(|| "none".to_owned(), hidden)
        },
    ),
    key(
        "otel_protocol",
        "`http/protobuf`, `http/json` or `grpc`; default: OTEL_EXPORTER_OTLP_PROTOCOL",
        |all, given| {
            let found = Protocol::named(&given.text()?);
            let names = "write http/protobuf, http/json or grpc";
            all.otel_protocol = Some(found.ok_or_else(|| names.to_owned())?);
            Ok(())
        },
        |all| {
            let given = all.otel_protocol.map(Protocol::name);
            given.unwrap_or("http/protobuf").to_owned()
        },
    ),
    limit!(state_bytes, "largest state"),
    limit!(result_bytes, "largest result"),
    limit!(error_bytes, "longest error text that is kept"),
    limit!(children_per_barrier, "most children of one spawn"),
    limit!(names_per_wait, "most signals that one wait names"),
    limit!(
        conditions_bytes,
        "largest conditions of one wait for events"
    ),
    limit!(json_depth, "most levels of a JSON document"),
    limit!(batch_entries, "most entries of one batch"),
    limit!(inbox_pending, "most messages pending in one inbox"),
    limit!(inbox_bytes, "most bytes of messages pending in one inbox"),
    limit!(held_per_key, "most signals held for one key"),
    limit!(held_bytes, "most bytes of signals held for one key"),
    limit!(page_bytes, "largest page of a list, in bytes"),
    limit!(claim_bytes, "largest answer to a claim, in bytes"),
    limit!(
        payload_bytes,
        "largest payload of a signal, an update or an event"
    ),
    limit!(waiters_per_type, "most waits for events of one type"),
    limit!(lookback_events, "most events that one wait looks back at"),
    limit!(
        lookback_bytes,
        "largest payloads that one wait looks back at, all together"
    ),
    limit!(
        history_events,
        "number of history events after which a workflow is advised to continue as new"
    ),
    key(
        "hooks",
        "where webhooks come from; in the file only",
        |all, given| {
            all.hooks = hooks::read(given.table()?)?;
            Ok(())
        },
        |all| hooks::shown(&all.hooks),
    ),
    key(
        "nats.url",
        "NATS server whose messages become events; several of a cluster with commas between",
        |all, given| {
            all.nats.url = Some(given.text()?);
            Ok(())
        },
        |all| {
            let url = all.nats.url.as_deref();
            url.map_or_else(|| "none".to_owned(), hidden)
        },
    ),
    key(
        "nats.subjects",
        "subjects to read, with commas between",
        |all, given| {
            let subjects = given.text()?;
            let subjects = subjects.split(',').map(|one| one.trim().to_owned());
            all.nats.subjects = subjects.collect();
            match all.nats.subjects.iter().any(String::is_empty) {
                true => {
                    Err("there is an empty subject: write one, or leave the comma out".to_owned())
                }
                false => Ok(()),
            }
        },
        |all| all.nats.subjects.join(","),
    ),
    key(
        "nats.stream",
        "stream to read; the one that has the subject unless given",
        |all, given| {
            all.nats.stream = Some(given.text()?);
            Ok(())
        },
        |all| {
            all.nats
                .stream
                .clone()
                .unwrap_or_else(|| "by subject".to_owned())
        },
    ),
    key(
        "nats.durable",
        "name of the durable consumers, before the subject",
        |all, given| {
            all.nats.durable = given.text()?;
            Ok(())
        },
        |all| all.nats.durable.clone(),
    ),
    key(
        "nats.prefix",
        "prefix of subjects that is not part of the event's type",
        |all, given| {
            all.nats.prefix = given.plain();
            Ok(())
        },
        |all| all.nats.prefix.clone(),
    ),
    key(
        "nats.user",
        "user to log in as",
        |all, given| {
            all.nats.user = Some(given.text()?);
            Ok(())
        },
        |all| all.nats.user.clone().unwrap_or_else(|| "none".to_owned()),
    ),
    nats_secret!(password, "password of that user"),
    nats_secret!(token, "token to log in with"),
    nats_file!(nkey, "file with the seed of an nkey to log in with"),
    nats_file!(creds, "file of credentials to log in with"),
    nats_file!(
        ca,
        "file with certificates to trust; with it, TLS is required"
    ),
    nats_file!(cert, "file with a certificate to show"),
    nats_file!(key, "file with the key of that certificate"),
];

impl Given {
    fn path(&self) -> Result<PathBuf, String> {
        let text = self.text()?;
        match text.contains("-----BEGIN") {
            true => Err("write the path of the file, not its content".to_owned()),
            false => Ok(text.into()),
        }
    }

    fn name(&self) -> Result<Name, String> {
        Name::new(self.text()?).map_err(|refusal| refusal.to_string())
    }

    fn lease(&self) -> Result<Duration, String> {
        let lease = self.millis()?;
        if lease < Duration::from_secs(1) {
            return Err("a lease is at least 1000 ms".to_owned());
        }
        Ok(lease)
    }

    fn retention(&self) -> Result<Retention, String> {
        const DAY_S: f64 = 24.0 * 3600.0;
        let text = self.plain();
        if text == "forever" {
            return Ok(Retention::Forever);
        }
        let days: f64 = text
            .parse()
            .map_err(|_| "write a number of days, or forever".to_owned())?;
        if !(days > 0.0 && days < 100_000.0) {
            return Err("write more than 0 and less than 100000 days, or forever".to_owned());
        }
        Ok(Retention::For(Duration::from_secs_f64(days * DAY_S)))
    }

    fn log_format(&self) -> Result<LogFormat, String> {
        match self.plain().as_str() {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err("write text or json".to_owned()),
        }
    }

    fn directives(&self) -> Result<String, String> {
        let text = self.text()?;
        // A single word that is not a level would be parsed as a target, and would turn off all other targets.
        let is_slip = |part: &str| {
            !part.contains(['=', '['])
                && part
                    .trim()
                    .parse::<tracing_subscriber::filter::LevelFilter>()
                    .is_err()
        };
        if let Some(part) = text.split(',').find(|part| is_slip(part)) {
            return Err(format!(
                "{part:?} is not a log level: write error, warn, info, debug or trace, or target=level"
            ));
        }
        match text.parse::<tracing_subscriber::EnvFilter>() {
            Ok(_) => Ok(text),
            Err(error) => Err(format!("write error, warn, info, debug or trace ({error})")),
        }
    }
}

fn path(path: Option<&Path>) -> String {
    path.map_or_else(|| "none".to_owned(), |path| path.display().to_string())
}

fn millis(time: Duration) -> String {
    time.as_millis().to_string()
}

fn retention(retention: Retention) -> String {
    match retention {
        Retention::Forever => "forever".to_owned(),
        Retention::For(time) => (time.as_secs_f64() / (24.0 * 3600.0)).to_string(),
    }
}

fn log_format(format: Option<LogFormat>) -> String {
    let format = match format {
        Some(LogFormat::Text) => "text",
        Some(LogFormat::Json) => "json",
        None => "text on a terminal, else json",
    };
    format.to_owned()
}
