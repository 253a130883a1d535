//! Tests of the precedence of values, and of values that are refused.

use std::ffi::OsString;
use std::time::Duration;

use abide::engine::Retention;

use super::*;

fn load(
    flags: &[(&str, &str)],
    environment: &[(&str, &str)],
    file: Option<&str>,
) -> Result<Settings, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("abide.toml");
    std::fs::write(&path, file.unwrap_or_default()).unwrap();
    let values = flags
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned(), "--set"));
    let flags = Flags {
        config: Some(path),
        values: values.collect(),
    };
    let environment = environment
        .iter()
        .map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Settings::from(&flags, environment).map_err(|error| error.to_string())
}

fn source(settings: &Settings, name: &str) -> String {
    let source = settings.source(KEYS.iter().find(|key| key.name == name).unwrap());
    source.to_string().split(' ').next().unwrap().to_owned()
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file_and_that_over_the_defaults() {
    let file = Some("listen = \"f:1\"\nconnections = 1\nin_flight = 1\n");
    let environment = [("ABIDE_CONNECTIONS", "2"), ("ABIDE_IN_FLIGHT", "2")];
    let settings = load(&[("in_flight", "3")], &environment, file).unwrap();
    assert_eq!(
        (
            settings.listen.as_str(),
            settings.connections,
            settings.in_flight
        ),
        ("f:1", 2, 3)
    );
    assert_eq!(settings.body_bytes, 16 << 20);
    let sources =
        ["listen", "connections", "in_flight", "body_bytes"].map(|name| source(&settings, name));
    assert_eq!(sources, ["file", "environment", "flag", "default"]);
}

#[test]
fn every_key_can_be_given_in_the_environment_and_in_the_file() {
    for key in KEYS.iter().filter(|key| key.name != "hooks") {
        let value = match key.name {
            "store" | "otel_endpoint" => "http://x",
            "listen" => "x:1",
            "name" => "one",
            "retention" => "3",
            "log_format" => "json",
            "log_level" => "debug",
            "bootstrap_token" => "0123456789abcdef0123456789abcdef",
            "otel_protocol" => "grpc",
            name if name.starts_with("nats.") || name.starts_with("tls.") => "word",
            _ => "2000000",
        };
        // A setting that must not be below another is raised with it, and settings that belong together are set together.
        let mut beside = vec![("body_bytes", "90000000")];
        let together = [
            ("nats.user", "nats.password"),
            ("nats.cert", "nats.key"),
            ("tls.cert", "tls.key"),
        ];
        for (one, other) in together {
            beside.extend((key.name == one).then_some((other, "x")));
            beside.extend((key.name == other).then_some((one, "x")));
        }
        let needs_url = key.name.starts_with("nats.") && key.name != "nats.url";
        beside.extend(needs_url.then_some(("nats.url", "nats://x")));
        let settings = load(&beside, &[(&key.variable(), value)], None);
        let shown = (key.show)(&settings.unwrap_or_else(|error| panic!("{}: {error}", key.name)));
        let expected = match key.name {
            "nats.password" | "nats.token" | "bootstrap_token" => "…",
            _ => value,
        };
        assert!(
            key.name == "body_bytes" || shown == expected,
            "{}: {shown}",
            key.name
        );
        let number = value.parse::<u64>().is_ok();
        let written = if number {
            value.to_owned()
        } else {
            format!("{value:?}")
        };
        load(&beside, &[], Some(&format!("{} = {written}", key.name))).unwrap();
    }
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_known_one() {
    let error = load(&[], &[], Some("retentoin = 3")).unwrap_err();
    assert!(
        error.contains("\"retentoin\"")
            && error.contains("retention")
            && error.contains("abide.toml"),
        "{error}"
    );
    let error = load(&[], &[], Some("[limits]\nstate_byte = 3")).unwrap_err();
    assert!(error.contains("limits.state_bytes"), "{error}");
    let error = load(&[], &[("ABIDE_LISTN", "x")], None).unwrap_err();
    assert!(
        error.contains("ABIDE_LISTN") && error.contains("ABIDE_LISTEN"),
        "{error}"
    );
    let error = load(&[("inflight", "3")], &[], None).unwrap_err();
    assert!(error.contains("in_flight"), "{error}");
    // These variables are not settings of the server.
    let settings = load(
        &[],
        &[
            ("ABIDE_TOKEN", "x"),
            ("ABIDE_TOKEN_FILE", "/nowhere"),
            ("ABIDE_TEST_POSTGRES", "x"),
            ("PATH", "x"),
        ],
        None,
    )
    .unwrap();
    assert!(settings.ignored_variables.is_empty());
}

/// Kubernetes gives every pod of a namespace variables of its services. A service that is named `abide` kept the server
/// from starting.
#[test]
fn variables_that_the_platform_sets_are_ignored_and_named() {
    let set_by_kubernetes = [
        ("ABIDE_SERVICE_PORT_HTTP", "7070"),
        ("ABIDE_SERVICE_HOST", "10.0.0.7"),
        ("ABIDE_PORT", "tcp://10.0.0.7:7070"),
        ("ABIDE_PORT_7070_TCP_ADDR", "10.0.0.7"),
        ("ABIDE_STORE_PORT_5432_TCP", "tcp://10.0.0.8:5432"),
    ];
    let settings = load(&[], &set_by_kubernetes, None).unwrap();
    let mut names: Vec<&str> = set_by_kubernetes.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    assert_eq!(settings.ignored_variables, names);
    assert_eq!(settings.store, Settings::default().store);
    // A name that differs from a setting by one character is a mistake.
    for near in [
        "ABIDE_STORES",
        "ABIDE_LISTN",
        "ABIDE_LOG_LEVELS",
        "ABIDE_TOKENS",
    ] {
        let error = load(&[], &[(near, "x")], None).unwrap_err();
        assert!(error.contains(near) && error.contains("nearest"), "{error}");
    }
}

#[test]
fn a_value_that_makes_no_sense_is_refused_with_what_to_write() {
    for (key, value, expected) in [
        ("connections", "none", "whole number"),
        ("connections", "0", "1 at least"),
        ("connections", "-1", "1 at least"),
        ("request_timeout_ms", "0", "milliseconds"),
        ("lease_ms", "999", "1000"),
        ("retention", "-1", "days"),
        ("retention", "NaN", "days"),
        ("log_format", "xml", "text or json"),
        ("log_level", "a=b=c", "debug"),
        ("log_level", "debgu", "debug"),
        ("body_bytes", "2048", "payload_bytes"),
        ("store", "", "empty"),
        ("hooks", "x", "[[hooks]]"),
        ("otel_protocol", "udp", "http/protobuf"),
        (
            "tls.cert",
            "-----BEGIN CERTIFICATE-----",
            "path of the file",
        ),
        ("tls.key", "/k.pem", "belong together"),
    ] {
        let problem = load(&[(key, value)], &[], None).unwrap_err();
        assert!(
            problem.contains(expected) && problem.contains(key),
            "{key}={value}: {problem}"
        );
    }
    let error = load(&[], &[], Some("listen = 7")).unwrap_err();
    assert!(error.contains("in quotes"), "{error}");
    let error = load(&[], &[], Some("listen = ")).unwrap_err();
    assert!(error.contains("TOML"), "{error}");
}

#[test]
fn retention_is_days_or_forever() {
    assert_eq!(
        load(&[("retention", "0.5")], &[], None).unwrap().retention,
        Retention::For(Duration::from_secs(43_200))
    );
    assert_eq!(
        load(&[("retention", "forever")], &[], None)
            .unwrap()
            .retention,
        Retention::Forever
    );
    assert_eq!(
        load(&[], &[], Some("retention = 2")).unwrap().retention,
        Retention::For(Duration::from_secs(172_800))
    );
}

#[test]
fn two_hooks_of_one_source_are_refused() {
    let hook = "[[hooks]]\nsource = \"a\"\nscheme = \"none\"\nevent = \"x\"\n";
    let error = load(&[], &[], Some(&format!("{hook}{hook}"))).unwrap_err();
    assert!(error.contains("two [[hooks]]"), "{error}");
}

#[test]
fn passwords_are_not_shown() {
    assert_eq!(
        hidden("postgres://me:secret@host:5/db?password=x"),
        "postgres://me:…@host:5/db?…"
    );
    assert_eq!(hidden("postgres://me@host/db"), "postgres://me@host/db");
    assert_eq!(hidden("sqlite:/tmp/a.db"), "sqlite:/tmp/a.db");
    let settings = load(&[("store", "postgres://me:secret@host/db")], &[], None).unwrap();
    let shown: Vec<String> = KEYS.iter().map(|key| (key.show)(&settings)).collect();
    assert!(
        shown.iter().all(|text| !text.contains("secret")),
        "{shown:?}"
    );
}

#[test]
fn a_value_can_be_read_from_a_file_as_secrets_are_mounted() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let url = write("url", "postgres://abide:secret@db/abide\n");
    let token = write("token", "0123456789abcdef0123456789abcdef\r\n");
    let environment = [
        ("ABIDE_STORE_FILE", url.as_str()),
        ("ABIDE_BOOTSTRAP_TOKEN_FILE", token.as_str()),
    ];
    let settings = load(&[], &environment, None).unwrap();
    assert_eq!(
        settings.store.as_deref(),
        Some("postgres://abide:secret@db/abide")
    );
    assert_eq!(
        settings.bootstrap_token.as_deref(),
        Some("0123456789abcdef0123456789abcdef")
    );
    let short = write("short", "secret-text");
    let error = load(&[], &[("ABIDE_BOOTSTRAP_TOKEN_FILE", &short)], None).unwrap_err();
    assert!(
        error.contains("32 printable") && !error.contains("secret-text"),
        "{error}"
    );
    let absent = directory.path().join("absent").display().to_string();
    let error = load(&[], &[("ABIDE_STORE_FILE", &absent)], None).unwrap_err();
    assert!(
        error.contains("ABIDE_STORE_FILE") && error.contains("cannot be read"),
        "{error}"
    );
    let huge = write("huge", &"x".repeat(70_000));
    let error = load(&[], &[("ABIDE_STORE_FILE", &huge)], None).unwrap_err();
    assert!(error.contains("65536 bytes"), "{error}");
}
