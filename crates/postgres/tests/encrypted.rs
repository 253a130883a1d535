//! Connections over TLS: to a proxy that speaks it, in front of a server that does not.

#![cfg(feature = "tls")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod common;
mod tls;

use abide_kernel::{Error, Store};
use abide_postgres::{Options, Postgres};
use common::{start, start_all};
use tls::{acceptor, file};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The URL of a database behind a proxy that speaks TLS, by that host's name.
async fn behind_tls(host: &str) -> String {
    let url = abide_pgtest::server().fresh_database();
    let (role, rest) = url.split_once('@').unwrap();
    let (server, database) = rest.split_once('/').unwrap();
    let (server, acceptor) = (server.to_owned(), acceptor());
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = proxy.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = proxy.accept().await {
            let (server, acceptor) = (server.clone(), acceptor.clone());
            tokio::spawn(async move {
                // A client asks for TLS by a length and a number, and is answered by one letter.
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
async fn a_server_that_nobody_vouches_for_is_not_spoken_to() {
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
