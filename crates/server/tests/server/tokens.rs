//! Access control: everybody on loopback until there is a token, and then only callers with a token of the right role.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Server, abide, answer, first_line, home, postgres, server};

/// Sends a request with a token, if there is one.
async fn send_request(
    server: &Server,
    method: &str,
    path: &str,
    token: Option<&str>,
) -> (u16, Value) {
    let mut request = server
        .http
        .request(method.to_uppercase().parse().unwrap(), server.at(path));
    if method != "get" {
        request = request
            .header("content-type", "application/json")
            .body("{}");
    }
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    answer(request).await
}

/// Makes one token of each role, and waits until the server asks for them.
async fn guarded(server: &Server) -> BTreeMap<&'static str, String> {
    let tokens: BTreeMap<_, _> = ["read", "send", "work", "operate"]
        .map(|role| (role, server.token(role)))
        .into();
    let began = Instant::now();
    while send_request(server, "get", "/v1/queues", None).await.0 != 401
        || send_request(server, "get", "/v1/queues", Some(&tokens["operate"]))
            .await
            .0
            == 401
    {
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "the tokens are not known after {:?}",
            began.elapsed()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokens
}

/// The roles that may use a route, `operate` beside them; `open` needs none.
fn roles(method: &str, path: &str) -> &'static [&'static str] {
    match (method, path) {
        ("get", "/healthz" | "/readyz") | ("post", "/v1/hooks/{source}") => &["open"],
        ("get", "/v1/updates/{id}") => &["read", "send"],
        ("get", _) => &["read"],
        (
            "post",
            "/v1/instances/{target}/signals/{name}" | "/v1/instances/{target}/updates/{name}",
        ) => &["send"],
        ("post", "/v1/events" | "/v1/events/batch") => &["send"],
        ("post", path) if path.starts_with("/v1/workers/") => &["work"],
        ("delete", "/v1/workers/{worker}") => &["work"],
        ("put", "/v1/machines/{name}/{version}") => &["work"],
        ("put", "/v1/graphs/{name}") => &[],
        ("post", "/v1/outbox/refused/{id}/discard" | "/v1/outbox/refused/{id}/retry") => &[],
        ("post", "/v1/instances" | "/v1/instances/batch" | "/v1/signal-with-start") => &[],
        (
            "post",
            "/v1/instances/{target}/cancel"
            | "/v1/instances/{target}/restart"
            | "/v1/instances/{target}/repair",
        ) => &[],
        _ => panic!("which role is {method} {path} for? Say it here"),
    }
}

async fn every_route_asks_for_its_role(server: Server) {
    let (_, api) = server.get("/openapi.json").await;
    let tokens = guarded(&server).await;
    let mut routes = 0;
    for (path, methods) in api["paths"].as_object().unwrap() {
        let url_path = ["target", "name", "id", "worker", "source"]
            .iter()
            .fold(path.clone(), |path, part| {
                path.replace(&format!("{{{part}}}"), "1")
            });
        let url_path = url_path.replace("{version}", "1");
        for method in methods.as_object().unwrap().keys() {
            let allowed = roles(method, path);
            if path == "/v1/stream" {
                continue;
            }
            routes += 1;
            let open = allowed.contains(&"open");
            let (status, body) = send_request(&server, method, &url_path, None).await;
            assert_eq!(
                status == 401,
                !open,
                "{method} {path} without a token: {status} {body}"
            );
            let (status, body) =
                send_request(&server, method, &url_path, Some("abide_nonsense")).await;
            assert_eq!(
                status == 401,
                !open,
                "{method} {path} with a wrong token: {status} {body}"
            );
            for (role, token) in &tokens {
                let may = open || *role == "operate" || allowed.contains(role);
                let (status, body) = send_request(&server, method, &url_path, Some(token)).await;
                assert_eq!(
                    status != 403 && status != 401,
                    may,
                    "{method} {path} as {role}: {status} {body}"
                );
                assert!(status < 500, "{method} {path} as {role}: {status} {body}");
                if !may {
                    let needed = allowed.last().copied().unwrap_or("operate");
                    assert_eq!(body["role"], needed, "{method} {path} as {role}: {body}");
                    assert!(body["detail"].as_str().unwrap().contains(needed), "{body}");
                }
            }
        }
    }
    assert!(routes > 20, "only {routes} routes");
}

#[tokio::test]
async fn every_route_asks_for_its_role_on_sqlite() {
    every_route_asks_for_its_role(server().start()).await;
}

#[tokio::test]
async fn every_route_asks_for_its_role_on_postgres() {
    every_route_asks_for_its_role(server().over(postgres()).start()).await;
}

#[tokio::test]
async fn without_any_token_loopback_is_open() {
    let server = server().start();
    assert_eq!(
        send_request(&server, "get", "/v1/queues", None).await.0,
        200
    );
    assert_eq!(send_request(&server, "get", "/metrics", None).await.0, 200);
}

#[tokio::test]
async fn an_open_server_takes_nothing_that_came_through_a_proxy() {
    // Everyone who reaches the proxy would be taken for somebody of this machine, who may do everything.
    let server = server().start();
    let through = |header: &'static str| {
        let request = server.http.get(server.at("/v1/instances"));
        answer(request.header(header, "10.1.2.3"))
    };
    for header in [
        "forwarded",
        "via",
        "x-real-ip",
        "x-forwarded-for",
        "X-Forwarded-Proto",
        "x-forwarded-host",
    ] {
        let (status, problem) = through(header).await;
        assert_eq!(
            (status, problem["type"].as_str()),
            (403, Some("/problems/proxied")),
            "{header}: {problem}"
        );
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains("abide token create") && detail.contains(&header.to_lowercase()),
            "{detail}"
        );
    }
    let rpc = server
        .http
        .post(server.at("/rpc/v1"))
        .json("now")
        .header("via", "1.1 proxy");
    assert_eq!(answer(rpc).await.0, 403);
    for path in ["/healthz", "/readyz"] {
        let request = server.http.get(server.at(path)).header("via", "1.1 proxy");
        assert_eq!(answer(request).await.0, 200, "{path}");
    }
    // With a token the caller is known. The server notices the first one within a few seconds.
    let token = server.token("read");
    let enters = async || {
        let request = server.http.get(server.at("/v1/instances"));
        let request = request.bearer_auth(&token).header("via", "1.1 proxy");
        answer(request).await.0 == 200
    };
    server.until("the token is known", enters).await;
}

#[tokio::test]
async fn a_request_without_a_token_is_answered_how_to_send_one() {
    let server = server().start();
    let tokens = guarded(&server).await;
    let response = server.http.get(server.at("/metrics")).send().await.unwrap();
    assert_eq!(response.status(), 401);
    assert!(
        response.headers()["www-authenticate"]
            .to_str()
            .unwrap()
            .starts_with("Bearer")
    );
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+json"
    );
    assert_eq!(
        send_request(&server, "get", "/metrics", Some(&tokens["read"]))
            .await
            .0,
        200
    );
    assert_eq!(
        send_request(&server, "get", "/v1/stream", None).await.0,
        401
    );
    // Another scheme, or no token after it.
    for value in [
        "Basic eDp5",
        "Bearer",
        "Bearer ",
        "bearer\tx",
        &format!("Token {}", tokens["read"]),
    ] {
        let request = server
            .http
            .get(server.at("/v1/queues"))
            .header("authorization", value);
        assert_eq!(answer(request).await.0, 401, "{value}");
    }
    let request = server
        .http
        .get(server.at("/v1/queues"))
        .header("authorization", format!("bearer {}", tokens["read"]));
    assert_eq!(answer(request).await.0, 200);
}

#[tokio::test]
async fn a_revoked_token_is_out_within_three_seconds() {
    let server = server().start();
    let tokens = guarded(&server).await;
    assert!(server.cli(&["token", "revoke", "read-1"]).status.success());
    let began = Instant::now();
    while send_request(&server, "get", "/v1/queues", Some(&tokens["read"]))
        .await
        .0
        != 401
    {
        // A second more for the machine that this runs on.
        assert!(began.elapsed() < Duration::from_secs(4));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let again = server.cli(&["token", "revoke", "read-1"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("abide token list"));
}

#[tokio::test]
async fn the_last_token_that_is_revoked_does_not_open_the_door() {
    let server = server().start();
    let tokens = guarded(&server).await;
    for role in tokens.keys() {
        let revoked = server.cli(&["token", "revoke", &format!("{role}-1")]);
        assert!(revoked.status.success());
    }
    let began = Instant::now();
    while send_request(&server, "get", "/v1/queues", Some(&tokens["operate"]))
        .await
        .0
        != 401
    {
        assert!(began.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(
        send_request(&server, "get", "/v1/queues", None).await.0,
        401
    );
    assert_eq!(
        send_request(&server, "post", "/v1/instances", None).await.0,
        401
    );
}

#[tokio::test]
async fn a_page_of_another_site_can_make_a_browser_do_nothing() {
    let server = server().start();
    let from = |origin: &str| {
        let request = server.http.post(server.at("/v1/instances/1/cancel"));
        request.header("origin", origin.to_owned())
    };
    for foreign in [
        "https://evil.example",
        "null",
        "http://127.0.0.1.evil.example",
    ] {
        let (status, problem) = answer(from(foreign)).await;
        assert_eq!(status, 403, "{foreign} {problem}");
    }
    for own in [
        "http://localhost:7070",
        "http://127.0.0.1:3000",
        "http://[::1]:7070",
    ] {
        assert_eq!(answer(from(own)).await.0, 404, "{own}");
    }
    // What a page may send without a preflight request is not JSON.
    let request = server.http.post(server.at("/rpc/v1"));
    let request = request.header("content-type", "text/plain").body("\"now\"");
    assert_eq!(answer(request).await.0, 415);
}

/// A client that resolves a name to the server, as a browser does after DNS rebinding.
fn rebound(server: &Server, name: &str, two: bool) -> (reqwest::Client, String) {
    let address: std::net::SocketAddr = server.address().parse().unwrap();
    let client = reqwest::Client::builder().resolve(name, address);
    let client = if two {
        client.http2_prior_knowledge()
    } else {
        client
    };
    (
        client.build().unwrap(),
        format!("http://{name}:{}", address.port()),
    )
}

#[tokio::test]
async fn a_page_whose_name_was_made_to_lead_here_can_read_nothing() {
    let server = server().start();
    for two in [false, true] {
        for foreign in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
        ] {
            let (client, url) = rebound(&server, foreign, two);
            for path in [
                "/v1/instances",
                "/openapi.json",
                "/metrics",
                "/v1/stream",
                "/rpc/v1/notifications",
            ] {
                let (status, problem) = answer(client.get(format!("{url}{path}"))).await;
                assert_eq!(status, 421, "{foreign} {path} {problem}");
                let detail = problem["detail"].as_str().unwrap();
                assert!(
                    detail.contains("localhost") && detail.contains("abide token create"),
                    "{detail}"
                );
            }
            let start = client
                .post(format!("{url}/v1/instances"))
                .json(&serde_json::json!({"machine": "m"}));
            assert_eq!(answer(start).await.0, 421, "{foreign}");
            let request = client
                .post(format!("{url}/rpc/v1"))
                .json(&serde_json::json!("now"));
            assert_eq!(answer(request).await.0, 421, "{foreign}");
            // A route that reveals nothing is open to all.
            assert_eq!(answer(client.get(format!("{url}/healthz"))).await.0, 200);
        }
        for own in ["localhost", "LOCALHOST", "shop.localhost"] {
            let (client, url) = rebound(&server, own, two);
            assert_eq!(
                answer(client.get(format!("{url}/v1/queues"))).await.0,
                200,
                "{own}"
            );
        }
    }
    let (_, port) = server
        .address()
        .rsplit_once(':')
        .map(|(host, port)| (host.to_owned(), port.to_owned()))
        .unwrap();
    for (host, expected) in [
        ("127.0.0.1".to_owned(), 200),
        ("127.8.9.1:1".to_owned(), 200),
        ("[::1]".to_owned(), 200),
        (format!("[::1]:{port}"), 200),
        ("localhost:99".to_owned(), 200),
        ("192.168.1.5".to_owned(), 421),
        ("[::2]".to_owned(), 421),
        ("128.0.0.1".to_owned(), 421),
        ("xlocalhost".to_owned(), 421),
        ("a b".to_owned(), 421),
    ] {
        let request = server
            .http
            .get(server.at("/v1/queues"))
            .header("host", &host);
        assert_eq!(answer(request).await.0, expected, "{host}");
    }
    // HTTP/1.0 has no name to go by, and no browser speaks it.
    let mut raw = crate::server::raw::Raw::to(&server).await;
    raw.send("GET /v1/queues HTTP/1.0\r\n\r\n").await;
    assert_eq!(raw.rest().await.status, Some(200));
    let mut raw = crate::server::raw::Raw::to(&server).await;
    raw.send("GET http://evil.example/v1/queues HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
    assert_eq!(raw.rest().await.status, Some(421));
}

#[tokio::test]
async fn with_a_token_a_server_answers_to_every_name() {
    let server = server().start();
    let tokens = guarded(&server).await;
    for two in [false, true] {
        let (client, url) = rebound(&server, "shop.example", two);
        let request = client.get(format!("{url}/v1/queues"));
        assert_eq!(answer(request.bearer_auth(&tokens["read"])).await.0, 200);
        assert_eq!(answer(client.get(format!("{url}/v1/queues"))).await.0, 401);
    }
}

#[tokio::test]
async fn a_token_that_only_sends_hears_of_answers_and_not_of_other_work() {
    use futures_util::StreamExt;
    let server = server().start();
    let tokens = guarded(&server).await;
    let call = |method: &str, path: &str, role: &str, body: Value| {
        let request = server
            .http
            .request(method.parse().unwrap(), server.at(path));
        answer(request.bearer_auth(&tokens[role]).json(&body))
    };
    let listen = async |role: &str| {
        let request = server
            .http
            .get(server.at("/rpc/v1/notifications"))
            .bearer_auth(&tokens[role]);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200, "{role}");
        response.bytes_stream()
    };
    let declare = serde_json::json!({"updates": [{"name": "add"}]});
    assert_eq!(
        call("PUT", "/v1/machines/m/1", "work", declare).await.0,
        200
    );
    let mut heard: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    let mut streams = Vec::new();
    for role in ["read", "send", "work", "operate"] {
        streams.push((role, listen(role).await));
    }
    let start = serde_json::json!({"machine": "m", "key": "k"});
    assert_eq!(call("POST", "/v1/instances", "operate", start).await.0, 201);
    let update = serde_json::json!({"wait_for": "accepted"});
    let (_, update) = call("POST", "/v1/instances/k/updates/add", "send", update).await;
    let claim = serde_json::json!({"worker": "w", "queue": "default", "machines": [{"name": "m", "version": 1}]});
    let (_, claims) = call("POST", "/v1/workers/claim", "work", claim).await;
    let outcome = serde_json::json!({"answer": {"updates": [{"update_id": update["update_id"]}], "then": {"done": {"result": 1}}}});
    let commit = serde_json::json!({"worker": "w", "outcomes": [{"claim": claims["claims"][0]["claim"], "outcome": outcome}]});
    let (_, committed) = call("POST", "/v1/workers/commit", "work", commit).await;
    assert_eq!(
        committed["results"][0]["status"], "committed",
        "{committed}"
    );
    for (role, stream) in &mut streams {
        let mut text = String::new();
        // What comes before the answer has come when it comes.
        while !text.contains("\"answered\"") {
            let piece = tokio::time::timeout(crate::common::PATIENCE, stream.next())
                .await
                .unwrap();
            text.push_str(std::str::from_utf8(&piece.unwrap().unwrap()).unwrap());
        }
        let data_lines = text.lines().filter_map(|line| line.strip_prefix("data:"));
        heard.insert(
            role,
            data_lines
                .map(|data| serde_json::from_str(data.trim()).unwrap())
                .collect(),
        );
    }
    let has = |role: &str, what: &str| {
        heard[role]
            .iter()
            .any(|effects| effects.get(what).is_some())
    };
    for role in ["read", "work", "operate"] {
        assert!(
            has(role, "ready") && has(role, "ended"),
            "{role}: {heard:?}"
        );
    }
    let answered = serde_json::json!({"answered": [update["update_id"]]});
    assert_eq!(heard["send"], [answered]);
    // A program with such a token goes on sending, and waits for its answers.
    let options = abide::store::OpenOptions::default().token(&tokens["send"]);
    let abide = options.open(&server.url).await.unwrap();
    let start = serde_json::json!({"machine": "m", "key": "l"});
    assert_eq!(call("POST", "/v1/instances", "operate", start).await.0, 201);
    let sent = abide.signal("l", "go", abide::message::Arguments::default());
    assert!(sent.await.is_ok());
    abide.close().await;
}

#[tokio::test]
async fn a_token_is_shown_once_and_never_stored() {
    let server = server().start();
    let made = server.cli(&["token", "create", "--role", "send", "--name", "shop"]);
    let token = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    // 256 bits, and no other like it.
    assert!(
        token.len() >= 43 && token != server.token("send"),
        "{token}"
    );
    let taken = server.cli(&["token", "create", "--role", "read", "--name", "shop"]);
    assert_eq!(taken.status.code(), Some(1));
    let listed = server.cli(&["token", "list", "--json"]);
    let items: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let shop = items["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|item| item["name"] == "shop")
        .unwrap();
    assert_eq!(shop["role"], "send");
    let wrong = server.cli(&["token", "create", "--role", "admin"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert_eq!(
        send_request(&server, "get", "/v1/updates/1", Some(&token))
            .await
            .0,
        404
    );
    server.logs("\"status\":404", 1).await;
    let log = server.log();
    let files: Vec<u8> = ["abide.db", "abide.db-wal"]
        .iter()
        .flat_map(|file| std::fs::read(server.home().join(file)).unwrap_or_default())
        .collect();
    assert!(
        !files
            .windows(token.len())
            .any(|bytes| bytes == token.as_bytes()),
        "the token is in the file"
    );
    assert!(!log.contains(&token), "the token is in the log");
}

#[tokio::test]
async fn listening_for_others_without_a_token_is_refused_with_what_to_do() {
    let home = home();
    let store = format!("sqlite:{}", home.path().join("a.db").display());
    let serve = || {
        let mut command = abide(home.path());
        command.args(["serve", "--listen", "0.0.0.0:0", "--store", &store]);
        command
    };
    let refused = serve().output().unwrap();
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("abide token create --role"), "{stderr}");
    // A webhook without proof is refused there, too.
    let made = abide(home.path())
        .args(["token", "create", "--role", "read", "--store", &store])
        .output()
        .unwrap();
    assert!(made.status.success());
    let file = home.path().join("abide.toml");
    std::fs::write(
        &file,
        "[[hooks]]\nsource = \"a\"\nscheme = \"none\"\nevent = \"x\"\n",
    )
    .unwrap();
    let refused = serve().arg("--config").arg(&file).output().unwrap();
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && stderr.contains("scheme none"),
        "{stderr}"
    );
    let line = first_line(serve().stderr(std::process::Stdio::null()));
    assert!(line.starts_with("listening on http://0.0.0.0:"), "{line}");
}

#[tokio::test]
async fn a_token_of_the_settings_is_known_from_the_start_and_replaced_by_the_next() {
    for setup in [|| server(), || server().over(postgres())] {
        let first = "first-0123456789abcdef0123456789abcdef";
        let second = "second-0123456789abcdef0123456789abcdef";
        let secrets = home();
        let file = secrets.path().join("token");
        std::fs::write(&file, format!("{first}\n")).unwrap();
        let path = file.display().to_string();
        let running = setup().env("ABIDE_BOOTSTRAP_TOKEN_FILE", &path).start();
        assert_eq!(
            send_request(&running, "get", "/v1/queues", None).await.0,
            401
        );
        assert_eq!(
            send_request(&running, "get", "/v1/queues", Some(first))
                .await
                .0,
            200
        );
        let store = running.store.clone();
        let kept = running.stop();
        std::fs::write(&file, second).unwrap();
        let again = server()
            .over(crate::common::Over::Url(store))
            .env("ABIDE_BOOTSTRAP_TOKEN_FILE", &path)
            .start();
        assert_eq!(
            send_request(&again, "get", "/v1/queues", Some(second))
                .await
                .0,
            200
        );
        assert_eq!(
            send_request(&again, "get", "/v1/queues", Some(first))
                .await
                .0,
            401
        );
        drop(kept);
    }
}
