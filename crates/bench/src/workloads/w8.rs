//! W8: the instances of W1 run by several engines, each in a process of its own, on one PostgreSQL.

use std::time::{Duration, Instant};

use abide::Abide;
use abide::client::new_start;

use super::{PATIENCE, set, start_all};
use crate::Result;
use crate::args::{DRAIN, Plan};
use crate::machines::{One, Order};
use crate::process::{Other, wait_to_go};
use crate::report::{Figure, Floor, Measured};
use crate::rounds::middle;
use crate::site::{Databases, Site};

const INSTANCES: usize = 40_000;
/// Numbers of engines: the first is the limit, and the last what it is compared with.
const ENGINES: [usize; 4] = [1, 2, 4, 8];
/// Interval at which an engine says how much it has committed.
const INTERVAL: Duration = Duration::from_millis(2);

/// Instances a second of eight engines, against those of one.
pub async fn run(site: &Site, plan: &Plan) -> Result<Measured> {
    let Site::Postgres(databases) = site else {
        return Ok(Measured::Skipped(
            "SQLite is for one worker process".to_owned(),
        ));
    };
    let [one, between @ .., most] = ENGINES;
    let (mut rates, mut deadlocks) = (between.map(|engines| (engines, 0.0)), 0.0);
    let single = async || Ok(rate(databases, site, plan, one).await?.0);
    let many = async || {
        let (rate, locked) = rate(databases, site, plan, most).await?;
        deadlocks += locked;
        Ok(rate)
    };
    let round = middle(plan, single, many).await?;
    for (engines, reached) in &mut rates {
        let (rate, locked) = rate(databases, site, plan, *engines).await?;
        *reached = rate;
        deadlocks += locked;
    }
    let mut figure = round.figure("instances/s");
    let (single, most_rate) = (figure.limit, figure.ours);
    figure = figure.detail("1 engine", single, "/s");
    for (engines, rate) in rates {
        figure = figure.detail(format!("{engines} engines"), rate, "/s");
    }
    figure = figure.detail(format!("{most} engines"), most_rate, "/s");
    let deadlocks = Figure {
        part: "deadlocks",
        floor: Some(Floor::AtMost(0.0)),
        ..Figure::new(deadlocks, 1.0, "deadlocks")
    };
    Ok(Measured::Figures(vec![figure, deadlocks]))
}

/// Instances a second of so many engines together, and the deadlocks meanwhile.
async fn rate(
    databases: &Databases,
    site: &Site,
    plan: &Plan,
    engines: usize,
) -> Result<(f64, f64)> {
    let (url, instances) = (site.fresh().await?, plan.of(INSTANCES));
    let abide = Abide::open(&url).await?;
    start_all(&abide, instances, |order| new_start(One, Order::new(order))).await?;
    abide.close().await;
    let mut workers = Vec::with_capacity(engines);
    for _ in 0..engines {
        workers.push(Other::start(DRAIN, &url).await?);
    }
    let begun = Instant::now();
    for worker in &mut workers {
        worker.go().await?;
    }
    let (sender, mut committed) = tokio::sync::mpsc::unbounded_channel();
    let counts = workers.into_iter().map(|mut worker| {
        let sender = sender.clone();
        // Ends with its worker, or when the receiver is gone.
        tokio::spawn(async move {
            while let Ok(line) = worker.line().await {
                if sender.send(line.parse::<usize>()).is_err() {
                    return;
                }
            }
        })
    });
    let counts: Vec<_> = counts.collect();
    let mut left = instances;
    while left > 0 {
        let heard = tokio::time::timeout(PATIENCE, committed.recv()).await;
        let more = heard.map_err(|_| format!("the engines hang: {left} are left"))?;
        left = left.saturating_sub(more.ok_or("the engines are gone")??);
    }
    let took = begun.elapsed();
    counts.iter().for_each(tokio::task::JoinHandle::abort);
    drop(committed);
    for count in counts {
        // It was ended, or had ended.
        let _ = count.await;
    }
    databases.left_alone(&url).await?;
    Ok((
        instances as f64 / took.as_secs_f64(),
        databases.deadlocks(&url).await?,
    ))
}

/// The process of an engine: says now and then how many steps it has committed since it last said so.
pub async fn drain(url: &str) -> Result<()> {
    let abide = Abide::open(url).await?;
    println!("ready");
    wait_to_go()?;
    let engine = set(abide.engine()).machine(One).start().await?;
    let mut said = 0;
    loop {
        let committed = engine.stats().committed;
        if committed > said {
            println!("{}", committed - said);
            said = committed;
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
