//! What an operator can measure. Names, units and help are in `names`; the library writes to the same ones.

mod depths;
mod names;
mod record;

use std::sync::OnceLock;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

pub use depths::Depths;
pub(crate) use record::label;
pub use record::{long_poll, outcome, request, step};

static EXPORTER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// Makes this process keep what is measured. Again is allowed, and does nothing.
pub fn install() {
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

/// All that was measured, as Prometheus reads it.
pub fn render() -> String {
    match EXPORTER.get() {
        Some(Some(exporter)) => {
            exporter.run_upkeep();
            exporter.render()
        }
        _ => String::new(),
    }
}
