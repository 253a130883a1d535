//! DISK: what a finished instance takes on disk, with its history.

use abide::Abide;
use abide::client::new_start;
use abide::engine::EngineBuilder;

use super::{drain, w1};
use crate::Result;
use crate::args::Plan;
use crate::cost::Meter;
use crate::machines::{Order, Ten};
use crate::report::{Figure, Measured};
use crate::site::{Site, connect};

/// Number of instances of ten steps.
const OF_TEN: usize = 2_000;

pub async fn run(site: &Site, plan: &Plan) -> Result<Measured> {
    // As `docs/sizing.md` says to reckon with, of instances that do more.
    let allowed = match site {
        Site::Postgres(_) => 4_000.0,
        Site::Sqlite(_) => 2_000.0,
    };
    let url = site.fresh().await?;
    Abide::open(&url).await?.close().await;
    let empty = bytes(&url).await?;
    let meter = Meter::new(site);
    w1::rate(&meter, &url, plan).await?;
    let one = (bytes(&url).await? - empty) / plan.of(w1::INSTANCES) as f64;
    let (url, start) = (site.fresh().await?, |order| {
        new_start(Ten, Order::new(order))
    });
    let with = |engine: EngineBuilder| engine.machine(Ten);
    drain(&meter, &url, plan.of(OF_TEN), Ten::STEPS, start, with).await?;
    let ten = (bytes(&url).await? - empty) / plan.of(OF_TEN) as f64;
    let figure = Figure::new(one, allowed, "bytes");
    Ok(figure.detail("of ten steps", ten, "bytes").into())
}

/// Size of a store that is closed.
async fn bytes(url: &str) -> Result<f64> {
    const SIZE: &str = "select sum(pg_total_relation_size(oid))::float8 from pg_class \
        where relnamespace = 'abide'::regnamespace and relkind = 'r'";
    match url.strip_prefix("sqlite:") {
        Some(path) => Ok(std::fs::metadata(path)?.len() as f64),
        None => {
            let client = connect(url).await?;
            client.batch_execute("vacuum").await?;
            Ok(client.query_one(SIZE, &[]).await?.try_get(0)?)
        }
    }
}
