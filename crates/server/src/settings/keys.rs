//! All settings by name: how each is parsed and shown.

use std::path::PathBuf;
use std::time::Duration;

use abide::engine::Retention;
use abide::model::Name;
use abide_kernel::rules::leases;

use super::{Given, LogFormat, Settings, hidden};
use crate::hooks;
use crate::telemetry::Protocol;

/// One setting.
pub struct SettingKey {
    /// Its name in the file. In the environment it is `ABIDE_` and the name in capitals, with `_` instead of dots.
    pub name: &'static str,
    /// Its description.
    pub what: &'static str,
    /// Sets a value, or returns what was expected.
    pub(super) set: fn(&mut Settings, &Given) -> Result<(), String>,
    /// The current value, with secrets hidden.
    pub show: fn(&Settings) -> String,
}

impl SettingKey {
    /// The environment variable that sets it.
    pub fn variable(&self) -> String {
        format!("ABIDE_{}", self.name.to_uppercase().replace('.', "_"))
    }
}

/// A setting that is one field: its name, its description, the field, and how a value is parsed and shown.
macro_rules! field {
    ($name:expr, $what:literal, $($field:ident).+ = $parse:path, $show:path) => {
        SettingKey {
            name: $name,
            what: $what,
            set: |all, given| {
                all.$($field).+ = $parse(given)?.into();
                Ok(())
            },
            show: |all| $show(&all.$($field).+),
        }
    };
}

macro_rules! limit {
    ($name:ident, $what:literal) => {
        field!(
            concat!("limits.", stringify!($name)),
            $what,
            limits.$name = Given::count::<1>,
            usize::to_string
        )
    };
}

/// All settings, in the order in which they are shown.
pub const KEYS: &[SettingKey] = &[
    field!(
        "store",
        "connection string of the store",
        store = Given::text,
        url
    ),
    field!(
        "store_wait_ms",
        "how long a start waits for a store that cannot be reached yet",
        store_wait = Given::millis_or_none,
        millis
    ),
    field!(
        "listen",
        "address and port to listen on",
        listen = Given::text,
        String::clone
    ),
    field!(
        "tls.cert",
        "file with the certificate of this server and its chain, in PEM; turns TLS on",
        tls.cert = Given::path,
        path
    ),
    field!(
        "tls.key",
        "file with the key of that certificate, in PEM",
        tls.key = Given::path,
        path
    ),
    field!(
        "tls.ca",
        "file with certificates to trust when the store is a server; those of the system unless given",
        tls.ca = Given::path,
        path
    ),
    field!(
        "name",
        "name of this server among the workers; started again under it, it takes back at once what it held",
        name = Given::name,
        server_name
    ),
    field!(
        "body_bytes",
        "largest body of a request",
        body_bytes = Given::count::<1024>,
        usize::to_string
    ),
    field!(
        "request_timeout_ms",
        "how long a request, and its body, may take",
        request_timeout = Given::millis,
        millis
    ),
    field!(
        "header_timeout_ms",
        "how long a request's head, or a TLS handshake, may take to arrive",
        header_timeout = Given::millis,
        millis
    ),
    field!(
        "connections",
        "most connections at once",
        connections = Given::count::<1>,
        usize::to_string
    ),
    field!(
        "idle_timeout_ms",
        "how long a connection may be idle",
        idle_timeout = Given::millis,
        millis
    ),
    field!(
        "write_timeout_ms",
        "how long a client may take nothing of an answer",
        write_timeout = Given::millis,
        millis
    ),
    field!(
        "in_flight",
        "most requests of one kind and role at once; more are answered 503",
        in_flight = Given::count::<1>,
        usize::to_string
    ),
    field!(
        "long_polls",
        "most long polls, and most streams, of one role at once",
        long_polls = Given::count::<1>,
        usize::to_string
    ),
    field!(
        "receiving_bytes",
        "most bytes of bodies taken in at once",
        receiving_bytes = Given::count::<1024>,
        usize::to_string
    ),
    field!(
        "drain_ms",
        "how long a server that is stopping still answers requests, while it reports not ready",
        drain = Given::millis_or_none,
        millis
    ),
    field!(
        "grace_ms",
        "how long a shutdown waits for running requests",
        grace = Given::millis,
        millis
    ),
    field!(
        "retention",
        "days that finished instances are kept, or `forever`",
        retention = Given::retention,
        retention
    ),
    field!(
        "lease_ms",
        "how long a remote worker's claim lasts without a heartbeat",
        lease = Given::lease,
        millis
    ),
    field!(
        "postgres.lock_timeout_ms",
        "how long a transaction waits for one lock",
        timeouts.lock = Given::millis,
        millis
    ),
    field!(
        "postgres.idle_timeout_ms",
        "how long a paused process keeps its locks",
        timeouts.idle = Given::millis,
        millis
    ),
    field!(
        "postgres.transaction_timeout_ms",
        "how long a transaction, or a read, may take",
        timeouts.transaction = Given::millis,
        millis
    ),
    SettingKey {
        name: "bootstrap_token",
        what: "token with the role operate that is known from the start",
        set: |all, given| {
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
        show: |all| secret(&all.bootstrap_token),
    },
    field!(
        "log_format",
        "`text` or `json`; text on a terminal, else json",
        log_format = Given::log_format,
        log_format
    ),
    field!(
        "log_level",
        "`error`, `warn`, `info`, `debug`, `trace`, or directives",
        log_level = Given::directives,
        String::clone
    ),
    field!(
        "otel_endpoint",
        "OTLP endpoint for traces; default: OTEL_EXPORTER_OTLP_ENDPOINT",
        otel_endpoint = Given::text,
        url
    ),
    SettingKey {
        name: "otel_protocol",
        what: "`http/protobuf`, `http/json` or `grpc`; default: OTEL_EXPORTER_OTLP_PROTOCOL",
        set: |all, given| {
            let found = Protocol::named(&given.text()?);
            let names = "write http/protobuf, http/json or grpc";
            all.otel_protocol = Some(found.ok_or_else(|| names.to_owned())?);
            Ok(())
        },
        show: |all| {
            let given = all.otel_protocol.map(Protocol::name);
            given.unwrap_or("http/protobuf").to_owned()
        },
    },
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
    SettingKey {
        name: "hooks",
        what: "where webhooks come from; in the file only",
        set: |all, given| {
            all.hooks = hooks::read(given.table()?)?;
            Ok(())
        },
        show: |all| hooks::shown(&all.hooks),
    },
    field!(
        "nats.url",
        "NATS server whose messages become events; several of a cluster with commas between",
        nats.url = Given::text,
        url
    ),
    SettingKey {
        name: "nats.subjects",
        what: "subjects to read, with commas between",
        set: |all, given| {
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
        show: |all| all.nats.subjects.join(","),
    },
    field!(
        "nats.stream",
        "stream to read; the one that has the subject unless given",
        nats.stream = Given::text,
        stream
    ),
    field!(
        "nats.durable",
        "name of the durable consumers, before the subject",
        nats.durable = Given::text,
        String::clone
    ),
    SettingKey {
        name: "nats.prefix",
        what: "prefix of subjects that is not part of the event's type",
        set: |all, given| {
            all.nats.prefix = given.plain();
            Ok(())
        },
        show: |all| all.nats.prefix.clone(),
    },
    field!(
        "nats.user",
        "user to log in as",
        nats.user = Given::text,
        text_or_none
    ),
    field!(
        "nats.password",
        "password of that user",
        nats.password = Given::text,
        secret
    ),
    field!(
        "nats.token",
        "token to log in with",
        nats.token = Given::text,
        secret
    ),
    field!(
        "nats.nkey",
        "file with the seed of an nkey to log in with",
        nats.nkey = Given::file,
        path
    ),
    field!(
        "nats.creds",
        "file of credentials to log in with",
        nats.creds = Given::file,
        path
    ),
    field!(
        "nats.ca",
        "file with certificates to trust; with it, TLS is required",
        nats.ca = Given::file,
        path
    ),
    field!(
        "nats.cert",
        "file with a certificate to show",
        nats.cert = Given::file,
        path
    ),
    field!(
        "nats.key",
        "file with the key of that certificate",
        nats.key = Given::file,
        path
    ),
];

impl Given {
    fn file(&self) -> Result<PathBuf, String> {
        self.text().map(PathBuf::from)
    }

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
        if lease < leases::CLAIM_MIN {
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

fn text_or_none(text: &Option<String>) -> String {
    text.clone().unwrap_or_else(|| "none".to_owned())
}

fn url(url: &Option<String>) -> String {
    text_or_none(&url.as_deref().map(hidden))
}

fn secret(secret: &Option<String>) -> String {
    secret.as_ref().map_or("none", |_| "…").to_owned()
}

fn server_name(name: &Option<Name>) -> String {
    let name = name.as_ref().map(Name::to_string);
    name.unwrap_or_else(|| "host and address".to_owned())
}

fn stream(stream: &Option<String>) -> String {
    let stream = stream.clone();
    stream.unwrap_or_else(|| "by subject".to_owned())
}

fn path(path: &Option<PathBuf>) -> String {
    text_or_none(&path.as_ref().map(|path| path.display().to_string()))
}

fn millis(time: &Duration) -> String {
    time.as_millis().to_string()
}

fn retention(retention: &Retention) -> String {
    match retention {
        Retention::Forever => "forever".to_owned(),
        Retention::For(time) => (time.as_secs_f64() / (24.0 * 3600.0)).to_string(),
    }
}

fn log_format(format: &Option<LogFormat>) -> String {
    let format = match format {
        Some(LogFormat::Text) => "text",
        Some(LogFormat::Json) => "json",
        None => "text on a terminal, else json",
    };
    format.to_owned()
}
