//! The endpoint and protocol of traces: from abide's own settings first, then from the standard `OTEL_…` variables.

use std::path::PathBuf;
use std::time::Duration;

use super::TraceError;

/// The protocol for sending spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// OTLP/HTTP with protobuf.
    #[default]
    HttpProtobuf,
    /// OTLP/HTTP with JSON.
    HttpJson,
    /// OTLP/gRPC.
    Grpc,
}

impl Protocol {
    const ALL: [Self; 3] = [Self::HttpProtobuf, Self::HttpJson, Self::Grpc];

    /// Returns the protocol with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Its name in the variables of OpenTelemetry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HttpProtobuf => "http/protobuf",
            Self::HttpJson => "http/json",
            Self::Grpc => "grpc",
        }
    }
}

/// The selection of runs to trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sampling {
    /// All runs.
    All,
    /// No runs.
    None,
    /// This fraction of the runs, by the id of their trace, so all servers select the same.
    Part(f64),
}

/// The endpoint of traces, and how to send to it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Target {
    /// The complete address, with the path.
    pub endpoint: String,
    pub protocol: Protocol,
    /// Time limit for one request.
    pub timeout: Duration,
    /// A PEM file of the authorities to trust; if absent, those of the system.
    pub authorities: Option<PathBuf>,
    pub sampling: Sampling,
}

/// The settings of abide for traces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given<'s> {
    /// The endpoint.
    pub endpoint: Option<&'s str>,
    /// The protocol.
    pub protocol: Option<Protocol>,
}

/// The path for traces at a collector with HTTP.
const PATH: &str = "/v1/traces";
/// The method for traces at a collector with gRPC.
const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// Default time limit for one request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Looks up environment variables by name.
pub(super) type Environment<'e> = &'e dyn Fn(&str) -> Option<String>;

/// Determines the target of traces. Returns `None` if neither the settings nor the environment names an endpoint, or if
/// traces are turned off. Values of the environment that are not understood are reported in `warnings`, because they
/// may be meant for other programs too.
pub(super) fn target(
    given: Given<'_>,
    environment: Environment<'_>,
    warnings: &mut Vec<String>,
) -> Result<Option<Target>, TraceError> {
    let read = |name: &str| environment(name).filter(|value| !value.trim().is_empty());
    // The variable for traces takes precedence over the one for all signals.
    let otlp = |name: &str| {
        ["OTEL_EXPORTER_OTLP_TRACES", "OTEL_EXPORTER_OTLP"]
            .iter()
            .find_map(|prefix| read(&format!("{prefix}_{name}")))
    };
    if read("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    let exporter = read("OTEL_TRACES_EXPORTER");
    match exporter.as_deref() {
        None | Some("otlp") => {}
        // A setting of abide takes precedence over a variable that all programs share.
        Some(_) if given.endpoint.is_some() => {}
        Some("none") => return Ok(None),
        Some(other) => {
            warnings.push(format!(
                "OTEL_TRACES_EXPORTER is {other:?}, and traces are sent by otlp alone: none are sent"
            ));
            return Ok(None);
        }
    }
    let protocol = given.protocol.unwrap_or_else(|| {
        let named = otlp("PROTOCOL");
        let known = named.as_deref().map(Protocol::named);
        if let (Some(None), Some(named)) = (known, &named) {
            warnings.push(format!(
                "OTEL_EXPORTER_OTLP_PROTOCOL is {named:?}: write grpc, http/protobuf or http/json; http/protobuf is used"
            ));
        }
        known.flatten().unwrap_or_default()
    });
    let of_traces = read("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    let of_all = read("OTEL_EXPORTER_OTLP_ENDPOINT");
    let insecure = otlp("INSECURE").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let endpoint = match (given.endpoint, of_traces, of_all) {
        (Some(endpoint), _, _) => whole(endpoint, protocol, insecure, true)?,
        (None, Some(endpoint), _) => whole(&endpoint, protocol, insecure, false)?,
        (None, None, Some(endpoint)) => whole(&endpoint, protocol, insecure, true)?,
        (None, None, None) if exporter.is_some() => {
            let port = if protocol == Protocol::Grpc {
                4317
            } else {
                4318
            };
            whole(
                &format!("http://localhost:{port}"),
                protocol,
                insecure,
                true,
            )?
        }
        (None, None, None) => return Ok(None),
    };
    let timeout = otlp("TIMEOUT").and_then(|text| match text.trim().parse() {
        Ok(millis) if millis > 0 => Some(Duration::from_millis(millis)),
        _ => {
            warnings.push(format!(
                "OTEL_EXPORTER_OTLP_TIMEOUT is {text:?}: write milliseconds; {TIMEOUT:?} is used"
            ));
            None
        }
    });
    Ok(Some(Target {
        endpoint,
        protocol,
        timeout: timeout.unwrap_or(TIMEOUT),
        authorities: otlp("CERTIFICATE").map(PathBuf::from),
        sampling: sampling(&read, warnings),
    }))
}

/// Completes the address. With `add_path` and HTTP, adds the path for traces to an address that is for all signals.
fn whole(
    endpoint: &str,
    protocol: Protocol,
    insecure: bool,
    add_path: bool,
) -> Result<String, TraceError> {
    let bad = |problem: &str| TraceError::BadEndpoint {
        endpoint: crate::settings::hidden(endpoint),
        problem: problem.to_owned(),
    };
    let trimmed = endpoint.trim().trim_end_matches('/');
    // For gRPC, a host and a port are enough.
    let with_scheme = match (trimmed.contains("://"), protocol, insecure) {
        (false, Protocol::Grpc, true) => format!("http://{trimmed}"),
        (false, Protocol::Grpc, false) => format!("https://{trimmed}"),
        _ => trimmed.to_owned(),
    };
    let address: axum::http::Uri = with_scheme
        .parse()
        .map_err(|_| bad("it is not an address"))?;
    if !matches!(address.scheme_str(), Some("http" | "https")) {
        return Err(bad("it does not begin with http:// or https://"));
    }
    let Some(authority) = address.authority() else {
        return Err(bad("it names no host"));
    };
    if protocol == Protocol::Grpc {
        let scheme = address.scheme_str().unwrap_or("http");
        return Ok(format!("{scheme}://{authority}{METHOD}"));
    }
    Ok(match add_path && !with_scheme.ends_with(PATH) {
        true => format!("{with_scheme}{PATH}"),
        false => with_scheme,
    })
}

/// Selects the runs to trace. Each run is a trace of its own without a parent, so "parentbased" makes no difference.
fn sampling(read: &dyn Fn(&str) -> Option<String>, warnings: &mut Vec<String>) -> Sampling {
    let Some(sampler) = read("OTEL_TRACES_SAMPLER") else {
        return Sampling::All;
    };
    match sampler.strip_prefix("parentbased_").unwrap_or(&sampler) {
        "always_on" => Sampling::All,
        "always_off" => Sampling::None,
        "traceidratio" => {
            let argument = read("OTEL_TRACES_SAMPLER_ARG");
            let part = argument
                .as_deref()
                .and_then(|text| text.trim().parse().ok());
            match part {
                Some(part) if (0.0..=1.0).contains(&part) => Sampling::Part(part),
                _ => {
                    warnings.push(format!(
                        "OTEL_TRACES_SAMPLER_ARG is {:?}: write a number from 0 to 1; all runs are traced",
                        argument.unwrap_or_default()
                    ));
                    Sampling::All
                }
            }
        }
        _ => {
            warnings.push(format!(
                "OTEL_TRACES_SAMPLER is {sampler:?}: write always_on, always_off, traceidratio, or one of them after \
                 parentbased_; all runs are traced"
            ));
            Sampling::All
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a target from variables. Also returns the warnings.
    fn read(given: Given<'_>, variables: &[(&str, &str)]) -> (Option<Target>, Vec<String>) {
        let mut warnings = Vec::new();
        let environment = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let found = target(given, &environment, &mut warnings);
        (found.unwrap(), warnings)
    }

    fn endpoint(variables: &[(&str, &str)]) -> String {
        read(Given::default(), variables).0.unwrap().endpoint
    }

    const ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    const TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    const PROTOCOL: (&str, &str) = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");

    #[test]
    fn nothing_is_sent_unless_an_endpoint_is_given() {
        assert_eq!(read(Given::default(), &[]), (None, Vec::new()));
        assert_eq!(read(Given::default(), &[(ALL, " ")]).0, None);
        let enabled = [("OTEL_TRACES_EXPORTER", "otlp")];
        assert_eq!(endpoint(&enabled), "http://localhost:4318/v1/traces");
        assert_eq!(
            endpoint(&[enabled[0], PROTOCOL]),
            format!("http://localhost:4317{METHOD}")
        );
    }

    #[test]
    fn the_endpoint_for_all_signals_gets_the_path_of_traces_and_the_one_for_traces_is_unchanged() {
        assert_eq!(
            endpoint(&[(ALL, "http://c:1/x/")]),
            "http://c:1/x/v1/traces"
        );
        assert_eq!(
            endpoint(&[(TRACES, "http://c:1/x"), (ALL, "http://no")]),
            "http://c:1/x"
        );
        for (written, whole) in [
            ("http://c:4317", "http://c:4317"),
            ("c:4317", "https://c:4317"),
            ("https://c:4317/ignored", "https://c:4317"),
        ] {
            let found = endpoint(&[(ALL, written), PROTOCOL]);
            assert_eq!(found, format!("{whole}{METHOD}"));
        }
        let insecure = ("OTEL_EXPORTER_OTLP_INSECURE", "true");
        let found = endpoint(&[(ALL, "c:4317"), PROTOCOL, insecure]);
        assert_eq!(found, format!("http://c:4317{METHOD}"));
    }

    #[test]
    fn abides_own_settings_go_first() {
        let given = Given {
            endpoint: Some("http://own:4318"),
            protocol: Some(Protocol::HttpJson),
        };
        let others = [
            (ALL, "http://theirs"),
            (TRACES, "http://theirs"),
            PROTOCOL,
            ("OTEL_TRACES_EXPORTER", "none"),
        ];
        let found = read(given, &others).0.unwrap();
        assert_eq!(found.endpoint, "http://own:4318/v1/traces");
        assert_eq!(found.protocol, Protocol::HttpJson);
        // The switch that turns everything off takes precedence.
        let off = [("OTEL_SDK_DISABLED", "TRUE")];
        assert_eq!(read(given, &off).0, None);
    }

    #[test]
    fn traces_can_be_turned_off() {
        for off in [
            ("OTEL_SDK_DISABLED", "true"),
            ("OTEL_TRACES_EXPORTER", "none"),
        ] {
            let found = read(Given::default(), &[(ALL, "http://c"), off]);
            assert_eq!(found, (None, Vec::new()));
        }
    }

    #[test]
    fn what_is_not_understood_is_warned_of_and_left_out() {
        for odd in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "udp"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
            ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_EXPORTER", "console"),
        ] {
            let (_, warnings) = read(Given::default(), &[(ALL, "http://c"), odd]);
            assert_eq!(warnings.len(), 1, "{odd:?}");
            assert!(warnings[0].contains(odd.0), "{warnings:?}");
        }
    }

    #[test]
    fn the_rest_is_read() {
        let variables = [
            (ALL, "https://c"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "2500"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ];
        let (found, warnings) = read(Given::default(), &variables);
        let expected = Target {
            endpoint: "https://c/v1/traces".to_owned(),
            protocol: Protocol::HttpProtobuf,
            timeout: Duration::from_millis(2_500),
            authorities: Some(PathBuf::from("/ca.pem")),
            sampling: Sampling::Part(0.25),
        };
        assert_eq!((found, warnings), (Some(expected), Vec::new()));
    }

    #[test]
    fn an_invalid_endpoint_is_refused() {
        for bad in ["c:4318", "ftp://c", "http://", "http:// c"] {
            let given = Given {
                endpoint: Some(bad),
                protocol: None,
            };
            let found = target(given, &|_| None, &mut Vec::new());
            assert!(found.is_err(), "{bad}: {found:?}");
        }
    }
}
