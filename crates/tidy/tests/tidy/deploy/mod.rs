//! The files in `deploy/` can be read, agree with each other, and name nothing that the server does not have.
//!
//! No image is built here, and nothing is started: that needs Docker, a cluster or an init system, which a machine that
//! runs the tests need not have. `deploy/test.sh` (`make test-deploy`) runs what can be run with the real binary alone:
//! the settings, the commands, the health check, the unit through `systemd-analyze`. Alerts have tests of their own for
//! `promtool`, in `deploy/prometheus/abide.tests.yml`.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a file that is not as it must be fails the test, with what is wrong"
)]

mod metrics;

use std::collections::{BTreeMap, BTreeSet};

use abide_tidy::{files, report, yaml};
use serde_json::Value;

const DOCKERFILE: &str = "deploy/docker/Dockerfile";
const UNIT: &str = "deploy/systemd/abide.service";
const KUBERNETES: &str = "deploy/kubernetes/";

/// Images that others keep and that everybody knows.
const BASES: [&str; 2] = ["rust:1-bookworm", "debian:bookworm-slim"];

/// Variables that are not settings: see `crates/server/src/settings/layers.rs`.
const OTHER_VARIABLES: [&str; 3] = ["ABIDE_TOKEN", "ABIDE_TOKEN_FILE", "ABIDE_CONFIG"];

fn of_deploy(ends: &[&str]) -> Vec<String> {
    let mut all = files::all();
    all.retain(|file| file.starts_with("deploy/") && ends.iter().any(|end| file.ends_with(end)));
    all
}

fn read_yaml(file: &str) -> Vec<Value> {
    yaml::documents(&files::read(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn read_json(file: &str) -> Value {
    serde_json::from_str(&files::read(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The first text after each `mark`.
fn texts_after<'t>(source: &'t str, mark: &str) -> Vec<&'t str> {
    let after = source.split(mark).skip(1);
    after.filter_map(|rest| rest.split('"').nth(1)).collect()
}

/// The first word after each `mark`.
fn words_after<'t>(source: &'t str, mark: &str) -> Vec<&'t str> {
    let after = source.split(mark).skip(1).map(str::trim_start);
    after
        .filter_map(|rest| {
            rest.split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
        })
        .collect()
}

fn first<'v>(value: &'v Value, pointer: &str) -> &'v Value {
    value
        .pointer(pointer)
        .unwrap_or_else(|| panic!("there is no {pointer} in {value}"))
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    let found = first(value, pointer);
    found
        .as_str()
        .unwrap_or_else(|| panic!("{pointer} is {found}, not a text"))
}

fn items<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    let found = first(value, pointer);
    found
        .as_array()
        .unwrap_or_else(|| panic!("{pointer} is {found}, not a list"))
}

#[test]
fn every_yaml_and_json_file_can_be_read() {
    let mut problems = Vec::new();
    let all = of_deploy(&[".yml", ".yaml", ".json"]);
    for file in &all {
        let source = files::read(file);
        let read = match file.ends_with(".json") {
            true => serde_json::from_str::<Value>(&source)
                .map(drop)
                .map_err(|e| e.to_string()),
            false => yaml::documents(&source).map(drop),
        };
        problems.extend(read.err().map(|error| format!("{file}: {error}")));
    }
    assert!(!all.is_empty(), "nothing was checked");
    report(
        &problems,
        "write it in the plain part of YAML that crates/tidy/src/yaml.rs describes.",
    );
}

/// The names of all settings.
fn settings() -> BTreeSet<String> {
    let source = files::read("crates/server/src/settings/keys.rs");
    let (_, list) = source.split_once("pub const KEYS").unwrap_or_default();
    let fields = texts_after(list, "field!(").into_iter();
    let others = texts_after(list, " name: ").into_iter();
    let mut names: BTreeSet<String> = fields.chain(others).map(str::to_owned).collect();
    let limits = words_after(list, "limit!(").into_iter();
    names.extend(limits.map(|name| format!("limits.{name}")));
    for known in ["store", "listen", "grace_ms", "limits.state_bytes"] {
        assert!(names.contains(known), "{known} was not found in {names:?}");
    }
    names
}

#[test]
fn variables_are_settings() {
    let mut known: BTreeSet<String> = settings()
        .iter()
        .map(|name| format!("ABIDE_{}", name.to_uppercase().replace('.', "_")))
        .collect();
    known.extend(OTHER_VARIABLES.map(str::to_owned));
    let mut problems = Vec::new();
    for file in of_deploy(&[""]) {
        for (number, line) in (1..).zip(files::read(&file).lines()) {
            for name in words_after(line, "ABIDE_") {
                let name = format!("ABIDE_{name}");
                // A comment may name what is not a setting.
                let is_named = name != "ABIDE_" && !line.trim_start().starts_with('#');
                if is_named && !known.contains(&name) {
                    problems.push(format!("{file}:{number} names {name}"));
                }
            }
        }
    }
    report(
        &problems,
        "name a variable that `abide config --json` shows.",
    );
}

#[test]
fn keys_of_settings_files_exist() {
    let known = settings();
    let mut problems = Vec::new();
    for file in of_deploy(&[".toml"]) {
        for (number, line) in (1..).zip(files::read(&file).lines()) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let key = line.split('=').next().unwrap_or_default().trim();
            if !known.contains(key) {
                problems.push(format!("{file}:{number} sets {key}"));
            }
        }
    }
    report(&problems, "name a key that `abide config` shows.");
}

/// The port that the server listens on unless another is given.
fn port() -> String {
    let source = files::read("crates/server/src/settings/mod.rs");
    let listen = source.split("listen: \"").nth(1);
    let address = listen.and_then(|rest| rest.split('"').next());
    let port = address
        .and_then(|address| address.rsplit_once(':'))
        .map(|(_, port)| port.to_owned());
    port.unwrap_or_else(|| panic!("no default of `listen` was found"))
}

/// The instructions of a Dockerfile, lines that go on joined.
fn instructions() -> Vec<(String, String)> {
    let source = files::read(DOCKERFILE);
    let lines = source.lines().filter(|line| !line.starts_with('#'));
    let joined = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    let parts = joined.lines().filter_map(|line| line.split_once(' '));
    parts
        .map(|(word, rest)| (word.to_owned(), rest.trim().to_owned()))
        .collect()
}

#[test]
fn the_image_is_built_in_stages_and_runs_as_nobody() {
    let all = instructions();
    let of = |word: &str| -> Vec<&str> {
        let found = all.iter().filter(|(name, _)| name == word);
        found.map(|(_, rest)| rest.as_str()).collect()
    };
    let bases: Vec<&str> = of("FROM")
        .iter()
        .filter_map(|from| from.split(' ').next())
        .collect();
    assert_eq!(bases, BASES, "what is built in, and what runs");
    let user = of("USER");
    let last = user.last().copied().unwrap_or_default();
    assert!(
        last.split(':')
            .all(|id| id.parse().is_ok_and(|id: u32| id > 0)),
        "USER {last} must be two numbers that are not 0"
    );
    assert_eq!(of("EXPOSE"), [port()]);
    assert_eq!(of("ENTRYPOINT"), ["[\"abide\"]"]);
    assert!(of("HEALTHCHECK").iter().any(|check| check.contains("CMD")));
    let listen = format!("ABIDE_LISTEN=0.0.0.0:{}", port());
    assert!(of("ENV").iter().any(|env| env.contains(&listen)));

    let build = of("RUN").concat();
    let manifest = files::read("crates/server/Cargo.toml");
    let package = words_after(&build, "-p abide-").concat();
    assert!(manifest.contains(&format!("name = \"abide-{package}\"")));
    for feature in words_after(&build, "--features ") {
        let declared = format!("\n{feature} = [");
        assert!(manifest.contains(&declared), "no feature {feature}");
    }
}

#[test]
fn the_image_copies_what_its_context_has() {
    let ignored = files::read("deploy/docker/Dockerfile.dockerignore");
    let all = files::all();
    for (_, rest) in instructions().iter().filter(|(word, _)| word == "COPY") {
        if rest.contains("--from=") {
            continue;
        }
        let paths = rest.split(' ').filter(|word| !word.starts_with("--"));
        let paths: Vec<&str> = paths.collect();
        let (_, sources) = paths.split_last().unwrap();
        for source in sources {
            let exists = all
                .iter()
                .any(|file| file == source || file.starts_with(&format!("{source}/")));
            assert!(exists, "COPY {source}: there is no such file");
            assert!(
                ignored.lines().any(|line| line == format!("!{source}")),
                "COPY {source}: it is not in the context; add it to Dockerfile.dockerignore"
            );
        }
    }
}

/// The pods of the manifests: of the deployment, and of the job.
fn pods() -> Vec<(String, Value)> {
    let mut pods = Vec::new();
    for file in of_deploy(&[".yaml"]) {
        for document in read_yaml(&file) {
            if let Some(spec) = document.pointer("/spec/template/spec") {
                pods.push((file.clone(), spec.clone()));
            }
        }
    }
    pods
}

fn grace_s() -> u64 {
    let settings = files::read(&format!("{KUBERNETES}abide.toml"));
    let grace = settings
        .lines()
        .find_map(|line| line.strip_prefix("grace_ms = "));
    let grace: u64 = grace.and_then(|ms| ms.parse().ok()).unwrap();
    grace / 1000
}

#[test]
fn pods_run_as_the_user_of_the_image_and_can_write_nowhere() {
    let user = instructions();
    let user = user.iter().find(|(word, _)| word == "USER").unwrap();
    let pods = pods();
    assert_eq!(pods.len(), 2, "the servers and the first token");
    for (file, pod) in pods {
        let context = first(&pod, "/securityContext");
        let ids = [
            first(context, "/runAsUser").to_string(),
            first(context, "/runAsGroup").to_string(),
        ];
        assert_eq!(ids.join(":"), user.1, "{file}");
        assert_eq!(first(context, "/runAsNonRoot"), true, "{file}");
        assert_eq!(first(&pod, "/enableServiceLinks"), false, "{file}");
        for container in items(&pod, "/containers") {
            let context = first(container, "/securityContext");
            assert_eq!(first(context, "/readOnlyRootFilesystem"), true, "{file}");
            assert_eq!(first(context, "/allowPrivilegeEscalation"), false, "{file}");
            assert_eq!(text(context, "/capabilities/drop/0"), "ALL", "{file}");
        }
    }
}

#[test]
fn the_servers_are_two_and_are_probed_where_they_answer() {
    let document = read_yaml(&format!("{KUBERNETES}deployment.yaml"));
    let deployment = document.first().unwrap();
    assert_eq!(first(deployment, "/spec/replicas"), 2);
    let pod = first(deployment, "/spec/template/spec");
    let container = first(pod, "/containers/0");
    assert_eq!(
        first(container, "/ports/0/containerPort").to_string(),
        port()
    );
    let routes = files::read("crates/server/src/http/health.rs");
    for (probe, path) in [
        ("startupProbe", "/healthz"),
        ("livenessProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
    ] {
        assert_eq!(text(container, &format!("/{probe}/httpGet/path")), path);
        assert_eq!(text(container, &format!("/{probe}/httpGet/port")), "http");
        assert!(routes.contains(&format!("\"{path}\"")), "{path} is gone");
    }
    let pause = text(container, "/lifecycle/preStop/exec/command/1");
    let pause: u64 = pause.parse().unwrap();
    let ends = first(pod, "/terminationGracePeriodSeconds")
        .as_u64()
        .unwrap();
    assert!(
        ends > pause + grace_s(),
        "{ends} s is not longer than preStop ({pause} s) and grace_ms together"
    );
    let labels = first(
        pod,
        "/topologySpreadConstraints/0/labelSelector/matchLabels",
    );
    let own = first(deployment, "/spec/template/metadata/labels");
    assert_eq!(labels, own);
    for file in ["service.yaml", "disruption.yaml"] {
        for document in read_yaml(&format!("{KUBERNETES}{file}")) {
            let selector = first(&document, "/spec/selector");
            let selector = selector.get("matchLabels").unwrap_or(selector);
            assert_eq!(selector, own, "{file}");
        }
    }
}

#[test]
fn manifests_name_files_that_are_there_and_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    let kustomization = read_yaml(&format!("{KUBERNETES}kustomization.yaml"));
    let kustomization = kustomization.first().unwrap();
    let resources = items(kustomization, "/resources").iter();
    let settings = items(kustomization, "/configMapGenerator/0/files").iter();
    for file in resources.chain(settings).filter_map(Value::as_str) {
        let path = files::root().join(KUBERNETES).join(file);
        assert!(path.is_file(), "there is no {KUBERNETES}{file}");
    }
    assert_eq!(text(kustomization, "/images/0/newTag"), version);
    let job = read_yaml(&format!("{KUBERNETES}first-token.yaml"));
    let image = text(
        job.first().unwrap(),
        "/spec/template/spec/containers/0/image",
    );
    assert_eq!(image, format!("abide:{version}"));
    for file in of_deploy(&[""]) {
        for (number, line) in (1..).zip(files::read(&file).lines()) {
            for tag in line.split("abide:").skip(1) {
                let is_tag = tag.starts_with(|c: char| c.is_ascii_digit());
                assert!(
                    !is_tag || tag.starts_with(version),
                    "{file}:{number} names another version than {version}"
                );
            }
        }
    }
}

#[test]
fn the_unit_waits_longer_than_the_server_and_may_write_one_directory() {
    let source = files::read(UNIT);
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    let mut section = "";
    for line in source.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = name;
            continue;
        }
        let (key, value) = line
            .split_once('=')
            .unwrap_or_else(|| panic!("{UNIT}: {line} is not KEY=VALUE"));
        assert!(["Unit", "Service", "Install"].contains(&section), "{line}");
        known.insert(key, value);
    }
    let stop = known["TimeoutStopSec"].trim_end_matches('s');
    assert!(stop.parse::<u64>().unwrap() > grace_s());
    assert_eq!(known["ProtectSystem"], "strict");
    assert_eq!(known["StateDirectory"], "abide");
    let settings = files::read("deploy/systemd/abide.toml");
    assert!(settings.contains("sqlite:/var/lib/abide/"));
}
