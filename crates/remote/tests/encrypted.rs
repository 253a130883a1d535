//! Servers over TLS: a proxy that speaks it, in front of a server that does not.

use std::sync::Arc;

use crate::common::Server;
use crate::tls::{acceptor, file};
use abide_kernel::memory::Memory;
use abide_kernel::{Error, Store};
use abide_remote::{Options, Remote};
use tokio::net::{TcpListener, TcpStream};

/// The port of a proxy that speaks TLS.
async fn before(server: &Server) -> u16 {
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = proxy.local_addr().unwrap().port();
    let (to, acceptor) = (server.address, acceptor());
    tokio::spawn(async move {
        while let Ok((client, _)) = proxy.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut client) = acceptor.accept(client).await else {
                    return;
                };
                let mut server = TcpStream::connect(to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    port
}

fn trusting() -> Options {
    Options {
        authorities: Some(file("ca.pem")),
        ..Options::default()
    }
}

#[tokio::test]
async fn a_server_is_spoken_to_encrypted_when_its_certificate_is_good() {
    let server = Server::of(Arc::new(Memory::default())).await;
    let port = before(&server).await;
    let url = format!("https://localhost:{port}");
    let remote = Remote::connect(&url, trusting()).await.unwrap();
    assert!(remote.depths().await.unwrap().is_empty());
    remote.close().await;
}

#[tokio::test]
async fn a_certificate_of_another_name_or_an_unknown_issuer_is_refused() {
    let server = Server::of(Arc::new(Memory::default())).await;
    let port = before(&server).await;
    for (host, options) in [("127.0.0.1", trusting()), ("localhost", Options::default())] {
        let url = format!("https://{host}:{port}");
        let error = Remote::connect(&url, options).await.unwrap_err();
        assert!(
            matches!(&error, Error::Unavailable(why) if why.contains("certificate"))
                || error.to_string().contains("ca-certificates"),
            "{error:?}"
        );
    }
    let plain = Remote::connect(&format!("http://localhost:{port}"), trusting()).await;
    assert!(plain.is_err());
}

#[tokio::test]
async fn an_error_names_the_file_of_authorities_that_cannot_be_read() {
    let options = Options {
        authorities: Some(file("absent.pem")),
        ..Options::default()
    };
    let error = Remote::connect("https://localhost", options)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, Error::Broken(why) if why.contains("absent.pem")),
        "{error:?}"
    );
}
