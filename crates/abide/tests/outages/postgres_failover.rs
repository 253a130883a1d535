//! A PostgreSQL that fails over to a standby which lacks the last commits, under workers that keep code in memory.

use std::net::SocketAddr;
use std::time::Instant;

use abide::engine::Engine;
use abide::time::{millis, secs};
use abide::{Abide, BoxError, Flow, InstanceId, Signal, Status, Workflow};
use abide_pgtest::{Server, psql};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::common::eventually;

const ORDER: Flow<(), Vec<u32>> = Flow::new("order");
const FIRST: Signal<u32> = Signal::new("first");
const SECOND: Signal<u32> = Signal::new("second");

/// Takes two signals.
async fn order(wf: Workflow, _: ()) -> Result<Vec<u32>, BoxError> {
    let first = wf.signal(FIRST).await?;
    let second = wf.signal(SECOND).await?;
    Ok(vec![first, second])
}

async fn engine(abide: &Abide) -> Engine {
    let engine = abide.engine().workflow(ORDER, order).lease(secs(2));
    engine.start().await.unwrap()
}

/// An address that leads to one server, to another, or nowhere.
struct Address {
    leads: watch::Sender<Option<SocketAddr>>,
    port: u16,
}

impl Address {
    async fn of(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let leads = watch::Sender::new(Some(address(server)));
        let led = leads.subscribe();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut led = led.clone();
                tokio::spawn(async move {
                    let Some(to) = *led.borrow_and_update() else {
                        return;
                    };
                    let Ok(mut server) = TcpStream::connect(to).await else {
                        return;
                    };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        _ = led.changed() => {}
                    }
                });
            }
        });
        Self { leads, port }
    }

    /// The URL of a database there.
    fn url(&self, server: &Server, database: &str) -> String {
        let port = format!(":{}/", address(server).port());
        let through = format!(":{}/", self.port);
        server.url(database).replace(&port, &through)
    }

    fn leads_to(&self, server: Option<&Server>) {
        self.leads.send_replace(server.map(address));
    }
}

fn address(server: &Server) -> SocketAddr {
    let url = server.url("work");
    let (_, rest) = url.split_once('@').unwrap();
    let (address, _) = rest.split_once('/').unwrap();
    address.parse().unwrap()
}

/// Has a standby receive all there is, and nothing after that.
fn cut_off(primary: &Server, standby: &Server) {
    let at = psql(&primary.url("work"), "select pg_current_wal_flush_lsn()");
    let has = format!("select pg_last_wal_replay_lsn() >= '{at}'");
    until("the standby to catch up", || {
        psql(&standby.url("work"), &has) == "t"
    });
    standby.cut_off();
    let receives = "select count(*) from pg_stat_wal_receiver";
    until("the standby to be cut off", || {
        psql(&standby.url("work"), receives) == "0"
    });
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + secs(30);
    while !is() {
        assert!(Instant::now() < end, "waited for {what}");
        std::thread::sleep(millis(10));
    }
}

/// Waits until a run waits for that signal.
async fn waits_for(abide: &Abide, id: InstanceId, signal: &str) {
    eventually(signal, async || {
        let Ok(Some(run)) = abide.get(id).await else {
            return false;
        };
        run.status == Status::AwaitingSignal
            && run.awaited().iter().any(|name| name.as_str() == signal)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_that_is_kept_in_memory_does_not_survive_a_failover() {
    // rule 1.6: what the kept code has seen was committed, and is lost.
    let servers = tokio::task::spawn_blocking(|| {
        let primary = Server::private(&[]);
        psql(&primary.url("postgres"), "create database work");
        let standby = primary.standby();
        (primary, standby)
    });
    let (primary, standby) = servers.await.unwrap();
    let address = Address::of(&primary).await;
    let one = Abide::open(&address.url(&primary, "work")).await.unwrap();
    let keeps = engine(&one).await;
    let run = one.start(ORDER, ()).await.unwrap();
    waits_for(&one, run.id(), "first").await;
    cut_off(&primary, &standby);
    one.signal(run.id(), FIRST, &1).await.unwrap();
    waits_for(&one, run.id(), "second").await;

    // The worker is cut off, and another goes on with what the standby has.
    address.leads_to(None);
    primary.kill();
    standby.promote();
    let other = Abide::open(&standby.url("work")).await.unwrap();
    waits_for(&other, run.id(), "first").await;
    let goes_on = engine(&other).await;
    other.signal(run.id(), FIRST, &2).await.unwrap();
    waits_for(&other, run.id(), "second").await;
    goes_on.shutdown().await;

    // The first worker is back, with code that waits for the second signal too.
    address.leads_to(Some(&standby));
    other.signal(run.id(), SECOND, &3).await.unwrap();
    let result = tokio::time::timeout(secs(60), run.result()).await;
    assert_eq!(result.unwrap().unwrap(), [2, 3]);
    keeps.shutdown().await;
}
