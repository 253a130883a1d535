//! Engines and clients that know nothing but a server: machines, workflows and signals, and a server that is started
//! again under them.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Server, routes};
use abide::client::new_start;
use abide::machine::Messages;
use abide::{Abide, BoxError, Flow, Job, Signal, Workflow};
use abide_kernel::Store;
use abide_sqlite::{Options, Sqlite};

const DOUBLE: Job<u32, u32> = Job::new("double");
const PAID: Signal<u32> = Signal::new("paid");
const ORDER: Flow<u32, u32> = Flow::new("order").messages(|| Messages::new().signal(PAID));

async fn order(flow: Workflow, number: u32) -> Result<u32, BoxError> {
    let paid = flow.signal(PAID).await?;
    let doubled = flow.child(new_start(DOUBLE, number + paid)).await?;
    Ok(doubled)
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(Duration::from_secs(60), what).await;
    done.expect("it was not over within a minute")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_runs_on_a_server_and_goes_on_when_it_is_started_again() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> =
        Sqlite::open(dir.path().join("abide.db"), Options::default()).unwrap();
    let server = Server::of(store.clone()).await;
    let address = server.address;

    let abide = Abide::open(&server.url()).await.unwrap();
    let engine = abide
        .engine()
        .job(DOUBLE, |number| async move { Ok(number * 2) })
        .workflow(ORDER, order)
        .start()
        .await
        .unwrap();
    let client = Abide::open(&server.url()).await.unwrap();
    let job = client.start(DOUBLE, 21).await.unwrap();
    assert_eq!(within(job.result()).await.unwrap(), 42);

    let first = client.start(ORDER, 1).key("order:1").await.unwrap();
    client.signal("order:1", PAID, &2).await.unwrap();
    assert_eq!(within(first.result()).await.unwrap(), 6);

    let second = client.start(ORDER, 10).key("order:2").await.unwrap();
    drop(server);
    let _again = Server::with(routes(store.clone()), address).await;
    within(client.signal("order:2", PAID, &5).into_future())
        .await
        .unwrap();
    assert_eq!(within(second.result()).await.unwrap(), 30);

    within(engine.shutdown()).await;
    assert!(
        store.workers().await.unwrap().is_empty(),
        "it has signed off"
    );
    client.close().await;
    abide.close().await;
    store.close().await;
}
