//! Every way to log in, and TLS, at a nats-server that asks for it.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use async_nats::ConnectOptions;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde_json::{Value, json};

use super::{NatsServer, events, send};
use crate::common::{self, Setup};

/// Sends a message through a server that asks for something, and expects it as an event; without what is asked for,
/// nothing comes, and the server serves all the same.
async fn comes_through(nats: &NatsServer, setup: Setup, without: Setup) {
    let context = nats.with_stream("EVENTS", "event.>").await;
    send(&context, "event.paid", &json!(1)).await;
    let outside = without.start();
    let inside = setup.start();
    assert_eq!(events(&inside, 1).await, [("paid".to_owned(), json!(1))]);
    outside.logs("cannot read from NATS", 1).await;
    let (status, none) = outside.get("/v1/events").await;
    assert_eq!((status, &none["items"]), (200, &json!([])));
}

fn at(nats: &NatsServer) -> Setup {
    common::server().set("nats.url", nats.url())
}

#[tokio::test]
async fn a_user_and_a_password() {
    let options = || ConnectOptions::with_user_and_password("me".into(), "geheim".into());
    let config = "authorization { user: me, password: geheim }";
    let nats = NatsServer::start_with(config, options).await;
    let setup = at(&nats)
        .set("nats.user", "me")
        .env("ABIDE_NATS_PASSWORD", "geheim");
    let without = at(&nats)
        .set("nats.user", "me")
        .env("ABIDE_NATS_PASSWORD", "other");
    comes_through(&nats, setup, without).await;
}

#[tokio::test]
async fn a_token() {
    let options = || ConnectOptions::with_token("geheim".into());
    let nats = NatsServer::start_with("authorization { token: geheim }", options).await;
    let setup = at(&nats).env("ABIDE_NATS_TOKEN", "geheim");
    comes_through(&nats, setup, at(&nats)).await;
}

static USER: LazyLock<KeyPair> = LazyLock::new(KeyPair::new_user);

#[tokio::test]
async fn an_nkey() {
    let options = || ConnectOptions::with_nkey(USER.seed().unwrap());
    let config = format!(
        "authorization {{ users: [{{nkey: {}}}] }}",
        USER.public_key()
    );
    let nats = NatsServer::start_with(&config, options).await;
    let home = common::home();
    let seed = written(home.path(), "seed", &USER.seed().unwrap());
    let setup = at(&nats).set("nats.nkey", seed.display());
    comes_through(&nats, setup, at(&nats)).await;
}

/// An operator, an account of theirs and a user of that account, as files and keys.
struct Realm {
    config: String,
    creds: String,
}

static REALM: LazyLock<Realm> = LazyLock::new(|| {
    let (operator, system) = (KeyPair::new_operator(), KeyPair::new_account());
    let (account, user) = (KeyPair::new_account(), KeyPair::new_user());
    let limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
        "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
    });
    let operator_jwt = jwt(
        &operator,
        &operator,
        json!({"type": "operator", "version": 2}),
    );
    let of_account = json!({"type": "account", "version": 2, "limits": limits});
    let account_jwt = jwt(&operator, &account, of_account);
    let plain = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
    });
    let system_jwt = jwt(
        &operator,
        &system,
        json!({"type": "account", "version": 2, "limits": plain}),
    );
    let user_jwt = jwt(
        &account,
        &user,
        json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1}),
    );
    let config = format!(
        "operator: {operator_jwt}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {account_jwt}, {}: {system_jwt} }}",
        system.public_key(),
        account.public_key(),
        system.public_key(),
    );
    let creds = format!(
        "-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
        user.seed().unwrap()
    );
    Realm { config, creds }
});

/// A signed statement of an issuer about a subject.
fn jwt(issuer: &KeyPair, subject: &KeyPair, nats: Value) -> String {
    let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let claims = json!({
        "jti": subject.public_key(), "iat": 1_700_000_000, "iss": issuer.public_key(), "sub": subject.public_key(),
        "name": "abide", "nats": nats,
    });
    let header = json!({"typ": "JWT", "alg": "ed25519-nkey"});
    let signed = format!("{}.{}", encode(&header), encode(&claims));
    let signature = issuer.sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[tokio::test]
async fn a_file_of_credentials() {
    let options = || ConnectOptions::with_credentials(&REALM.creds).unwrap();
    let nats = NatsServer::start_with(&REALM.config, options).await;
    let home = common::home();
    let creds = written(home.path(), "creds", &REALM.creds);
    let setup = at(&nats).set("nats.creds", creds.display());
    comes_through(&nats, setup, at(&nats)).await;
}

#[tokio::test]
async fn tls_with_a_certificate_of_ones_own_authority() {
    let options = || ConnectOptions::new().add_root_certificates(file("ca.pem"));
    let config = format!(
        "tls {{ cert_file: {:?}, key_file: {:?} }}",
        file("server.pem"),
        file("server.key")
    );
    let nats = NatsServer::start_with(&config, options).await;
    let setup = at(&nats).set("nats.ca", file("ca.pem").display());
    comes_through(&nats, setup, at(&nats)).await;
}

#[tokio::test]
async fn a_client_certificate() {
    let options = || {
        ConnectOptions::new()
            .add_root_certificates(file("ca.pem"))
            .add_client_certificate(file("client.pem"), file("client.key"))
    };
    let config = format!(
        "tls {{ cert_file: {:?}, key_file: {:?}, ca_file: {:?}, verify: true }}",
        file("server.pem"),
        file("server.key"),
        file("client-ca.pem")
    );
    let nats = NatsServer::start_with(&config, options).await;
    let trusting = || at(&nats).set("nats.ca", file("ca.pem").display());
    let showing = |name: &str| {
        trusting()
            .set("nats.cert", file(&format!("{name}.pem")).display())
            .set("nats.key", file(&format!("{name}.key")).display())
    };
    comes_through(&nats, showing("client"), trusting()).await;
    // What is wrong is said plainly, again and again: a certificate that is put right is found at the next attempt.
    let required =
        "cannot connect to NATS: the server requires a client certificate that it trusts";
    let cases = [
        (trusting(), "; set nats.cert and nats.key"),
        (
            showing("renewed"),
            ", and it does not trust that of nats.cert; check",
        ),
    ];
    for (setup, cure) in cases {
        let outside = setup.start();
        outside.logs(required, 3).await;
        outside.logs(cure, 3).await;
        assert_eq!(outside.get("/v1/events").await.0, 200);
    }
}

/// Certificates that are good for a hundred years: `server`, for `localhost`, signed by `ca`; `client`, signed by
/// `client-ca`; and `renewed`, self-signed.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../postgres/tests/tls")
        .join(name)
}

fn written(home: &Path, name: &str, text: &str) -> PathBuf {
    let path = home.join(name);
    std::fs::write(&path, text).unwrap();
    path
}
