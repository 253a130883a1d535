//! All metrics: names, units and help texts.

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge};

/// Buckets for waits and requests: from half a millisecond to a minute.
const SECONDS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];
/// Buckets for steps: up to an hour.
const LONG_SECONDS: &[f64] = &[
    0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0,
];
/// Buckets for runs, which may last for weeks.
const RUN_SECONDS: &[f64] = &[
    0.01,
    0.1,
    1.0,
    10.0,
    60.0,
    600.0,
    3_600.0,
    21_600.0,
    86_400.0,
    604_800.0,
    2_592_000.0,
];
const SIZES: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0,
];

/// The buckets of each histogram.
pub(super) const BUCKETS: &[(&str, &[f64])] = &[
    ("abide_claim_latency_seconds", SECONDS),
    ("abide_step_seconds", LONG_SECONDS),
    ("abide_run_seconds", RUN_SECONDS),
    ("abide_pool_wait_seconds", SECONDS),
    ("abide_commit_batch_size", SIZES),
    ("abide_commit_seconds", SECONDS),
    ("abide_http_request_seconds", SECONDS),
];

pub(super) fn describe() {
    describe_histogram!(
        "abide_claim_latency_seconds",
        Unit::Seconds,
        "From the moment an instance was ready until a worker had it, by queue"
    );
    describe_histogram!(
        "abide_step_seconds",
        Unit::Seconds,
        "How long a step ran, from claim to outcome, by machine and step"
    );
    describe_counter!(
        "abide_instances_started_total",
        Unit::Count,
        "Instances that this process has started, children and the runs that follow another too, by machine"
    );
    describe_counter!(
        "abide_instances_ended_total",
        Unit::Count,
        "Instances whose end this process has committed, by machine and status"
    );
    describe_histogram!(
        "abide_run_seconds",
        Unit::Seconds,
        "From the start of an instance to its end, by machine"
    );
    describe_counter!(
        "abide_step_attempts_total",
        Unit::Count,
        "Attempts at steps that ended with an outcome, by machine"
    );
    describe_counter!(
        "abide_step_failures_total",
        Unit::Count,
        "Attempts at steps that failed, by machine"
    );
    describe_histogram!(
        "abide_commit_batch_size",
        Unit::Count,
        "Outcomes, messages or starts that shared one transaction, by kind"
    );
    describe_histogram!(
        "abide_commit_seconds",
        Unit::Seconds,
        "How long a transaction took, by kind"
    );
    describe_counter!(
        "abide_claimed_total",
        Unit::Count,
        "Instances claimed, by queue"
    );
    describe_counter!("abide_committed_total", Unit::Count, "Outcomes committed");
    describe_counter!(
        "abide_stale_total",
        Unit::Count,
        "Outcomes dropped because their claim had been lost"
    );
    describe_counter!(
        "abide_refused_total",
        Unit::Count,
        "Outcomes refused because they broke a rule"
    );
    describe_counter!(
        "abide_failed_transactions_total",
        Unit::Count,
        "Attempts at a transaction that failed, by class of the error"
    );
    describe_counter!(
        "abide_failed_reads_total",
        Unit::Count,
        "Reads that failed, by class of the error"
    );
    describe_gauge!(
        "abide_pool_size",
        Unit::Count,
        "Maximum size of the PostgreSQL connection pool, without the connections of steps and listeners"
    );
    describe_gauge!(
        "abide_pool_open",
        Unit::Count,
        "Connections to PostgreSQL that are open, whatever they are for"
    );
    describe_gauge!(
        "abide_pool_in_use",
        Unit::Count,
        "Connections of the pool that are in use"
    );
    describe_histogram!(
        "abide_pool_wait_seconds",
        Unit::Seconds,
        "How long a connection of the pool was waited for"
    );
    describe_counter!(
        "abide_separated_total",
        Unit::Count,
        "Entries that were committed one by one because a transaction that they shared had failed"
    );
    describe_counter!(
        "abide_given_up_total",
        Unit::Count,
        "Entries that failed alone, as often as they are tried"
    );
    describe_counter!(
        "abide_stuck_total",
        Unit::Count,
        "Instances whose failure could not be stored when it was first tried"
    );
    describe_counter!(
        "abide_passed_over_total",
        Unit::Count,
        "Times that an instance was passed over because it could not be fired or taken back"
    );
    describe_counter!(
        "abide_reclaimed_total",
        Unit::Count,
        "Instances handed out again because the worker that had them died or let its lease lapse"
    );
    describe_counter!(
        "abide_fired_total",
        Unit::Count,
        "Timers and deadlines that came due, and leases that lapsed"
    );
    describe_counter!(
        "abide_outcomes_total",
        Unit::Count,
        "Outcomes of remote workers that were committed, by outcome"
    );
    describe_counter!(
        "abide_swept_total",
        Unit::Count,
        "Finished instances deleted"
    );
    describe_counter!(
        "abide_signals_total",
        Unit::Count,
        "Signals and updates sent, by kind and outcome (the words of the decision table)"
    );
    describe_counter!(
        "abide_events_total",
        Unit::Count,
        "Events published, by outcome: matched, unmatched, duplicate, refused"
    );
    describe_gauge!(
        "abide_queue_depth",
        Unit::Count,
        "Instances that are not finished, by queue and status"
    );
    describe_gauge!(
        "abide_queue_oldest_ready_seconds",
        Unit::Seconds,
        "For how long the oldest instance has been ready that no worker has, by queue"
    );
    describe_gauge!(
        "abide_waits",
        Unit::Count,
        "Waiting instances, by queue and kind of wait"
    );
    describe_gauge!(
        "abide_blocked",
        Unit::Count,
        "Instances that no build could run, by queue"
    );
    describe_gauge!(
        "abide_unserved",
        Unit::Count,
        "Versions of a machine with instances that are ready and that no live worker can run, by queue and machine"
    );
    describe_gauge!("abide_build_info", "1, with the version of this server");
    describe_gauge!("abide_workers", Unit::Count, "Live workers");
    describe_gauge!(
        "abide_depths_age_seconds",
        Unit::Seconds,
        "How old the figures of queues, waits and workers are: more than a few seconds when the store does not answer"
    );
    describe_counter!(
        "abide_http_requests_total",
        Unit::Count,
        "Requests answered, by method, route and status"
    );
    describe_histogram!(
        "abide_http_request_seconds",
        Unit::Seconds,
        "How long requests took, long polls too, by route"
    );
    describe_gauge!(
        "abide_http_long_polls",
        Unit::Count,
        "Long polls and streams that are open"
    );
    // Counters that were not incremented yet are reported as 0, instead of left out.
    for name in [
        "abide_committed_total",
        "abide_stale_total",
        "abide_refused_total",
        "abide_separated_total",
        "abide_given_up_total",
        "abide_stuck_total",
        "abide_passed_over_total",
        "abide_reclaimed_total",
        "abide_fired_total",
        "abide_swept_total",
    ] {
        counter!(name).absolute(0);
    }
    gauge!("abide_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
}
