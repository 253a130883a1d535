//! Tests of the suite that every store must pass, on a store behind a server: enough of them that every operation and
//! every query crosses the network. The whole suite runs on the same format without a network, in the tests of the kernel.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::common::{CALLER, Server};
use abide_kernel::conformance::{self, Setup, Subject};
use abide_kernel::memory::Memory;
use abide_kernel::{Answer, Clock, Listener, Op, Query, QueryResult, Result, Store};
use abide_remote::{Options, Remote};
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Not sent by clients: the process that has the database open takes the rows of its outbox.
const LOCAL: [&str; 3] = ["outbox", "refused", "outbox_depth"];

async fn make(setup: Setup) -> Subject {
    behind_a_server(setup, |store| store).await
}

async fn behind_a_server(
    setup: Setup,
    with: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>,
) -> Subject {
    let store = Arc::new(Memory::new(setup.clock.clone(), setup.limits));
    let server = Server::of(with(store)).await;
    let options = Options {
        clock: Some(setup.clock),
        ..Options::default()
    };
    let remote = Remote::connect(&server.url(), options).await.unwrap();
    Subject::of(remote).known_as(CALLER).with(server)
}

/// The tests of the suite that run here: each becomes a test, and all of them together one more.
macro_rules! tests {
    ($($group:ident { $($test:ident,)* })*) => {
        $(
            mod $group {
                $(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn $test() {
                        super::conformance::check(super::make, super::conformance::$group::$test).await;
                    }
                )*
            }
        )*

        async fn all(noted: &Noted) {
            $($(
                let make = async |setup: Setup| behind_a_server(setup, |store| noted.on(store)).await;
                conformance::check(make, conformance::$group::$test).await;
            )*)*
        }
    };
}

tests! {
    starting {
        a_started_instance_is_one_row_with_all_that_it_was_given,
        one_refused_entry_touches_no_other,
        a_hundred_thousand_are_started_in_one_call,
    }
    claiming {
        a_queue_is_served_by_priority_then_due_time_then_id,
    }
    committing {
        next_moves_on_and_is_runnable_at_once,
        stop_ends_with_an_error,
    }
    waiting {
        a_wait_for_signals_is_parked_until_its_deadline,
    }
    deaths {
        giving_back_in_good_order_does_not_count_as_a_death,
    }
    workers {
        a_worker_is_known_as_it_registered,
        a_worker_that_renews_keeps_what_it_holds,
        a_worker_that_comes_back_under_its_name_takes_up_its_claims_at_once,
    }
    children {
        spawn_starts_the_children_and_parks_the_parent_in_one_commit,
    }
    passing {
        what_is_passed_over_is_not_fired_and_the_next_is,
    }
    remote_claims {
        a_heartbeat_keeps_the_claims_that_it_names_and_no_others,
        listeners_are_notified_when_a_lease_will_expire,
    }
    enlisting {
        many_workers_are_renewed_together,
        a_worker_is_signed_off_by_its_name,
    }
    timers {
        the_next_due_time_is_the_earliest_of_all_kinds,
    }
    once {
        every_kind_of_write_is_carried_out_once,
        what_was_refused_is_refused_again_in_the_same_words,
    }
    sweeping {
        what_ended_before_that_moment_is_deleted_with_its_history,
    }
    reading {
        an_instance_is_found_by_id_and_by_key,
        a_list_can_be_filtered_by_each_thing_and_by_all,
        endings_tell_who_has_ended_and_who_is_not_there,
        depths_count_what_has_not_ended_queue_by_queue,
        lanes_are_named_once_each_while_something_of_them_is_ready,
        what_is_blocked_failing_or_ended_is_counted,
        a_closed_store_says_so,
    }
    documents {
        a_document_is_kept_as_it_was_written_replaced_and_deleted,
        a_document_is_found_by_its_kind_and_its_whole_name,
        documents_are_listed_page_by_page,
        what_is_declared_is_listed_page_by_page,
    }
    history {
        a_run_is_recorded_from_its_first_step_to_its_end,
    }
    messages {
        received_opened_and_applied_show_the_id_of_the_wait,
    }
    contracts {
        a_contract_can_be_read_back,
        contracts_that_nothing_names_any_more_are_deleted,
    }
    updates {
        an_update_is_recorded_like_a_signal,
        a_parked_instance_handles_it_and_goes_back_to_its_wait,
    }
    runs {
        the_runs_of_a_chain_are_numbered_and_listed,
    }
    reserving {
        a_start_opens_what_was_reserved_with_the_same_id,
    }
    cancelling {
        it_can_be_cancelled_from_every_status,
    }
    restarting {
        a_failed_one_goes_on_where_it_ended,
    }
    repairing {
        nothing_healthy_needs_repair,
        an_examination_is_paged_and_finds_nothing,
        each_position_has_its_liveness,
    }
    blocking {
        those_with_code_are_released_page_by_page,
    }
    publishing {
        an_event_is_kept_as_it_was_published,
    }
    event_lists {
        events_are_listed_newest_first_page_by_page,
        waiters_are_listed_page_by_page,
    }
    differential {
        a_random_program_leaves_the_same_as_in_memory,
    }
}

/// The names of the operations and queries that a store was called with.
#[derive(Clone, Default)]
struct Noted {
    ops: Arc<Mutex<BTreeSet<String>>>,
    queries: Arc<Mutex<BTreeSet<String>>>,
}

impl Noted {
    fn on(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        let noted = self.clone();
        Arc::new(Noting { noted, store })
    }
}

/// The name of a variant, as it is written.
fn name(one: &impl Serialize) -> String {
    match serde_json::to_value(one).unwrap() {
        Value::Object(object) => object.keys().next().unwrap().clone(),
        other => other.as_str().unwrap().to_owned(),
    }
}

/// The names of all variants: serde lists them when it reads another.
fn names<T: DeserializeOwned>() -> BTreeSet<String> {
    let error = serde_json::from_str::<T>("\"another\"").err().unwrap();
    let error = error.to_string();
    let listed = error.split('`').skip(3).step_by(2);
    listed.map(str::to_owned).collect()
}

struct Noting {
    noted: Noted,
    store: Arc<dyn Store>,
}

impl Store for Noting {
    fn run(&self, ops: Arc<[Op]>) -> BoxFuture<'_, Result<Vec<Answer>>> {
        let mut noted = self.noted.ops.lock().unwrap();
        for op in &*ops {
            noted.insert(name(op));
            // A client sends what may arrive twice inside of this one.
            if let Op::Once(requests) = op {
                let inside = requests.iter().flat_map(|one| one.ops.iter());
                noted.extend(inside.map(name));
            }
        }
        drop(noted);
        self.store.run(ops)
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Result<QueryResult>> {
        self.noted.queries.lock().unwrap().insert(name(&query));
        self.store.read(query)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.store.clock()
    }

    fn listen(&self) -> Listener {
        self.store.listen()
    }

    fn writers(&self) -> usize {
        self.store.writers()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.store.close()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_and_every_query_is_among_them() {
    let noted = Noted::default();
    all(&noted).await;
    let missing = |all: BTreeSet<String>, noted: &Mutex<BTreeSet<String>>| {
        let mut missing = &all - &*noted.lock().unwrap();
        missing.retain(|name| !LOCAL.contains(&name.as_str()));
        missing
    };
    let ops = missing(names::<Op>(), &noted.ops);
    let queries = missing(names::<Query>(), &noted.queries);
    assert!(
        ops.is_empty() && queries.is_empty(),
        "never sent: {ops:?}, {queries:?}"
    );
}
