//! Metrics. Names, units and help texts are in `names`; the library writes to the same names.

mod depths;
mod names;
mod process;
mod record;

use std::sync::OnceLock;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

pub use depths::Depths;
pub use record::{long_poll, outcome, request, step};

static EXPORTER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// Installs the recorder in this process. Further calls have no effect.
pub fn install() {
    process::begin();
    EXPORTER.get_or_init(|| {
        let mut builder = PrometheusBuilder::new();
        for (name, buckets) in names::BUCKETS {
            let matcher = Matcher::Full((*name).to_owned());
            builder = builder.set_buckets_for_metric(matcher, buckets).ok()?;
        }
        let handle = builder.install_recorder().ok()?;
        names::describe();
        Some(handle)
    });
}

/// Returns all metrics in the text format of Prometheus.
pub fn render() -> String {
    match EXPORTER.get() {
        Some(Some(exporter)) => {
            exporter.run_upkeep();
            let mut text = exporter.render();
            process::write(&mut text);
            text
        }
        _ => String::new(),
    }
}
