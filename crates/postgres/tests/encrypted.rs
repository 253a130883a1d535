//! Connections over TLS: to a proxy that speaks it in front of a server that does not, and to servers that speak it
//! themselves.

#![cfg(feature = "tls")]

use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{database, start, start_all};
use crate::tls::{acceptor, file};
use abide_kernel::{Error, Store};
use abide_pgtest::{Server, psql};
use abide_postgres::{Options, Postgres};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The URL of a database behind a proxy that speaks TLS, by that host's name.
async fn behind_tls(host: &str) -> String {
    let url = database();
    let (role, rest) = url.split_once('@').unwrap();
    let (server, database) = rest.split_once('/').unwrap();
    let (server, acceptor) = (server.to_owned(), acceptor());
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = proxy.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = proxy.accept().await {
            let (server, acceptor) = (server.clone(), acceptor.clone());
            tokio::spawn(async move {
                // A client asks for TLS by a length and a number, and is answered by one byte.
                let mut request = [0; 8];
                client.read_exact(&mut request).await.unwrap();
                assert_eq!(request, [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]);
                client.write_all(b"S").await.unwrap();
                let Ok(mut client) = acceptor.accept(client).await else {
                    return;
                };
                let mut server = TcpStream::connect(server).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    format!("{role}@{host}:{port}/{database}?sslmode=verify-full")
}

fn trusting() -> Options {
    Options {
        authorities: Some(file("ca.pem")),
        ..Options::default()
    }
}

#[tokio::test]
async fn a_url_that_asks_for_tls_gets_it() {
    let store = Postgres::connect(&behind_tls("localhost").await, trusting())
        .await
        .unwrap();
    start_all(&store, vec![start("m"); 1000]).await;
    assert_eq!(store.depths().await.unwrap()[0].count, 1000);
    store.close().await;
}

#[tokio::test]
async fn a_server_without_a_trusted_certificate_is_not_used() {
    let url = behind_tls("localhost").await;
    let stranger = Postgres::connect(&url, Options::default())
        .await
        .unwrap_err();
    assert!(stranger.to_string().contains("certificate"), "{stranger}");
    let misnamed = Postgres::connect(&behind_tls("127.0.0.1").await, trusting())
        .await
        .unwrap_err();
    assert!(misnamed.to_string().contains("certificate"), "{misnamed}");
    let absent = Options {
        authorities: Some(file("absent.pem")),
        ..Options::default()
    };
    let Err(Error::Broken(text)) = Postgres::connect(&url, absent).await else {
        panic!()
    };
    assert!(text.contains("absent.pem"), "{text}");
}

/// A server that speaks TLS as `localhost`, and accepts the clients that its `pg_hba.conf` names.
fn server(hba: &str) -> Server {
    let read = |name| std::fs::read(file(name)).unwrap();
    let settings = [
        ("ssl", "on"),
        ("ssl_cert_file", "server.crt"),
        ("ssl_key_file", "server.key"),
    ];
    let hba = format!("{hba} all all 127.0.0.1/32 trust\n");
    Server::private_with(
        &settings,
        &[
            ("server.crt", &read("server.pem")),
            ("server.key", &read("server.key")),
            ("pg_hba.conf", hba.as_bytes()),
        ],
    )
}

/// Connects as parameters of the URL say; whether the connections are encrypted, or what went wrong.
async fn connected(database: &str, host: &str, parameters: &str) -> Result<bool, String> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("ssl-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let separator = if parameters.is_empty() { "" } else { "&" };
    let address = database.replace("127.0.0.1", host);
    let url = format!("{address}?application_name={name}{separator}{parameters}");
    let store = Postgres::connect(&url, Options::default()).await;
    let store = store.map_err(|error| error.to_string())?;
    let seen = psql(
        database,
        &format!(
            "select distinct ssl from pg_stat_ssl join pg_stat_activity using (pid) where application_name = '{name}'"
        ),
    );
    store.close().await;
    match seen.as_str() {
        "t" => Ok(true),
        "f" => Ok(false),
        other => panic!("{parameters}: {other:?}"),
    }
}

fn root(name: &str) -> String {
    // As in a URL, where `/` may be written as it is.
    format!("sslrootcert={}", file(name).display())
}

#[tokio::test]
async fn each_sslmode_does_what_it_does_in_libpq_where_the_server_has_tls() {
    let server = server("host");
    let database = server.fresh_database();
    let (ca, other) = (root("ca.pem"), root("renewed.pem"));
    for (host, parameters, encrypted) in [
        ("127.0.0.1", String::new(), true),
        ("127.0.0.1", "sslmode=disable".into(), false),
        ("127.0.0.1", "sslmode=allow".into(), false),
        // An untrusted certificate is accepted, and its name is not checked.
        ("127.0.0.1", "sslmode=prefer".into(), true),
        ("127.0.0.1", "sslmode=require".into(), true),
        ("127.0.0.1", format!("sslmode=require&{ca}"), true),
        ("127.0.0.1", format!("sslmode=verify-ca&{ca}"), true),
        ("localhost", format!("sslmode=verify-full&{ca}"), true),
        // What cannot be trusted is not used, and `prefer` goes on without.
        ("127.0.0.1", format!("sslmode=prefer&{other}"), false),
    ] {
        let found = connected(&database, host, &parameters).await;
        assert_eq!(found, Ok(encrypted), "{host} {parameters}");
    }
    for (host, parameters) in [
        ("127.0.0.1", format!("sslmode=require&{other}")),
        ("127.0.0.1", format!("sslmode=verify-ca&{other}")),
        ("127.0.0.1", format!("sslmode=verify-full&{ca}")),
        ("localhost", format!("sslmode=verify-full&{other}")),
    ] {
        let found = connected(&database, host, &parameters).await;
        let text = found.unwrap_err();
        assert!(text.contains("certificate"), "{parameters}: {text}");
    }
}

#[tokio::test]
async fn each_sslmode_does_what_it_does_in_libpq_where_the_server_has_no_tls() {
    let database = database();
    for parameters in ["", "sslmode=disable", "sslmode=allow", "sslmode=prefer"] {
        let found = connected(&database, "127.0.0.1", parameters).await;
        assert_eq!(found, Ok(false), "{parameters}");
    }
    let ca = root("ca.pem");
    for parameters in [
        "sslmode=require".to_owned(),
        format!("sslmode=verify-ca&{ca}"),
        format!("sslmode=verify-full&{ca}"),
    ] {
        let found = connected(&database, "localhost", &parameters).await;
        let text = found.unwrap_err();
        assert!(text.contains("does not support TLS"), "{text}");
    }
}

#[tokio::test]
async fn a_login_that_is_refused_is_tried_the_other_way_where_the_mode_leaves_it_open() {
    let encrypted = server("hostssl");
    let database = encrypted.fresh_database();
    assert_eq!(
        connected(&database, "127.0.0.1", "sslmode=allow").await,
        Ok(true)
    );
    let text = connected(&database, "127.0.0.1", "sslmode=disable").await;
    let text = text.unwrap_err();
    assert!(text.contains("no encryption"), "{text}");

    let plain = server("hostnossl");
    let database = plain.fresh_database();
    assert_eq!(
        connected(&database, "127.0.0.1", "sslmode=prefer").await,
        Ok(false)
    );
    let text = connected(&database, "127.0.0.1", "sslmode=require").await;
    let text = text.unwrap_err();
    assert!(text.contains("SSL encryption"), "{text}");
}
