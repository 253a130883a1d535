//! `/openapi.json`: what is committed is what is served, and it says all of it.

use serde_json::Value;

/// The description as it is committed.
fn path() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json")
}

#[test]
fn the_committed_description_is_that_of_the_code() {
    let now = abide_server::http::description().to_pretty_json().unwrap() + "\n";
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path(), &now).unwrap();
    }
    let committed = std::fs::read_to_string(path()).unwrap_or_default();
    assert!(
        committed == now,
        "openapi.json is not what the code says: run this test with UPDATE=1, and look at the difference"
    );
}

#[test]
fn every_operation_says_what_it_does_and_all_its_answers() {
    let api: Value =
        serde_json::from_str(&abide_server::http::description().to_json().unwrap()).unwrap();
    let mut ids = std::collections::BTreeSet::new();
    for (path, item) in api["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let at = format!("{method} {path}");
            let id = operation["operationId"]
                .as_str()
                .unwrap_or_else(|| panic!("{at} has no operationId"));
            assert!(ids.insert(id.to_owned()), "{at}: {id} comes twice");
            assert!(
                operation["summary"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty()),
                "{at} has no summary"
            );
            for (status, answer) in operation["responses"].as_object().unwrap() {
                let content = answer["content"].as_object();
                let schemas = content
                    .into_iter()
                    .flatten()
                    .all(|(_, content)| content["schema"].is_object());
                assert!(schemas, "{at} {status} has no schema");
                if status.starts_with(['4', '5']) {
                    let problem =
                        answer["content"]["application/problem+json"]["schema"]["$ref"].as_str();
                    assert_eq!(
                        problem,
                        Some("#/components/schemas/Problem"),
                        "{at} {status}"
                    );
                }
            }
        }
    }
    assert_eq!(
        api["components"]["securitySchemes"]["token"]["scheme"],
        "bearer"
    );
}

#[tokio::test]
async fn it_is_served() {
    let server = crate::common::server().start();
    let (status, served) = server.get("/openapi.json").await;
    let committed: Value = serde_json::from_str(&std::fs::read_to_string(path()).unwrap()).unwrap();
    assert_eq!(status, 200);
    assert!(served == committed, "what is served is what is committed");
}
