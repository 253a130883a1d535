//! Measures abide side by side with the database's own limit, and prints the ratios.

mod args;
mod computer;
mod cost;
mod flows;
mod limits;
mod machines;
mod plots;
mod process;
mod report;
mod rounds;
mod site;
mod table;
mod workloads;

use std::process::ExitCode;

use args::{Mode, Plan, Print};
use report::Report;
use site::Site;
use workloads::Workload;

/// Whatever went wrong, to be printed.
type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, BoxError>;

/// Number of threads of the runtime, and with it of the engine.
const THREADS: usize = 2;

fn main() -> ExitCode {
    let mode = match args::read(std::env::args().skip(1)) {
        Ok(mode) => mode,
        Err(mistake) => {
            eprintln!("abide-bench: {mistake}\n\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    match answer(mode) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("abide-bench: {}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

fn answer(mode: Mode) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()?;
    match mode {
        Mode::Help => println!("{}", args::USAGE),
        Mode::Resident(url, watched) => {
            println!(
                "{}",
                runtime.block_on(workloads::memory::resident(&url, watched))?
            )
        }
        Mode::Listen(url) => runtime.block_on(workloads::w3a::listen(&url))?,
        Mode::Worker(url) => runtime.block_on(workloads::w3a::worker(&url))?,
        Mode::Drain(url) => runtime.block_on(workloads::w8::drain(&url))?,
        Mode::Cached(url, workflows, kept) => {
            let kilobytes = workloads::cache::resident(&url, workflows, kept);
            println!("{}", runtime.block_on(kilobytes)?);
        }
        Mode::Serve(url) => runtime.block_on(workloads::http::serve(&url))?,
        Mode::Run(plan) => {
            let report = runtime.block_on(measure(&plan))?;
            let plots = match &plan.plots {
                Some(directory) => plots::write(&report, directory)?,
                None => Vec::new(),
            };
            println!(
                "{}",
                match plan.print {
                    Print::Table => report.table(),
                    Print::Json => report.json()?,
                    Print::Markdown => report.markdown(&plots),
                }
            );
        }
    }
    Ok(())
}

async fn measure(plan: &Plan) -> Result<Report> {
    let mut report = Report::default();
    report.setting("computer", computer::described()?);
    report.setting("abide", build());
    report.setting(
        "engine",
        format!(
            "{THREADS} threads, {} steps at once, {} outcomes a transaction, history on",
            workloads::CONCURRENCY,
            workloads::BATCH
        ),
    );
    report.setting(
        "measured",
        format!(
            "{} rounds of limit and abide in turn after one to warm up; the round whose ratio is in the middle is shown",
            plan.rounds
        ),
    );
    for store in &plan.stores {
        let site = Site::prepare(*store, plan.postgres.as_deref()).await?;
        report.setting(store.name(), site.described().await?);
        for workload in Workload::ALL {
            if plan.workloads.contains(workload) {
                eprintln!("{} on {} …", workload.name(), store.name());
                let measured = workload.run(&site, plan).await;
                let measured = measured.map_err(|error| {
                    format!(
                        "{} on {}: {}",
                        workload.name(),
                        store.name(),
                        with_causes(&*error)
                    )
                })?;
                report.add(*workload, *store, measured);
            }
        }
        site.leave().await?;
    }
    Ok(report)
}

/// The release, the day, and whether it means anything to measure this build.
fn build() -> String {
    let (version, now) = (env!("CARGO_PKG_VERSION"), machines::now().to_string());
    let (day, _) = now.split_once('T').unwrap_or((&now, ""));
    let optimised = match cfg!(debug_assertions) {
        true => ", built without optimisation, so that no figure means anything",
        false => "",
    };
    format!("{version}, measured on {day}{optimised}")
}

/// An error with what it came from: drivers say the essential thing last.
fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}
