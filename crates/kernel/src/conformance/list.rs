//! The list of all tests of the suite: the only one there is.

/// Calls a macro with the list of all tests of the suite, group by group:
/// `callback! { (arguments) group { test, test, } group { … } }`.
///
/// For a harness of another kind than [`conformance_tests!`](crate::conformance_tests), which is made of this.
#[macro_export]
macro_rules! for_each_conformance_test {
    ($callback:path, $($arguments:tt)*) => {
        $callback! {
            ($($arguments)*)
            starting {
                a_started_instance_is_one_row_with_all_that_it_was_given,
                what_a_start_leaves_out_comes_from_the_newest_declaration,
                a_declaration_takes_the_place_of_the_one_before,
                a_machine_that_nobody_has_declared_can_be_started,
                what_is_due_later_is_scheduled_and_what_was_due_before_is_runnable,
                a_batch_is_answered_entry_by_entry_in_order,
                one_refused_entry_touches_no_other,
                an_empty_batch_starts_nothing,
                a_batch_over_the_limit_is_refused_as_a_whole,
                a_hundred_thousand_are_started_in_one_call,
                states_are_kept_as_they_were_written,
                a_state_of_exactly_the_limit_is_taken,
                a_start_without_a_state_begins_with_null,
            }
            keys {
                a_key_that_is_taken_is_refused_with_its_holder,
                a_key_stays_taken_in_every_status_that_is_not_terminal,
                a_key_is_free_again_when_its_holder_has_ended,
                a_key_can_be_held_as_long_as_the_row_exists,
                a_key_can_be_an_address_and_nothing_more,
                a_scope_is_the_statuses_it_names,
                a_key_that_would_come_to_be_held_twice_is_a_conflict_and_changes_nothing,
                a_unique_key_excludes_and_does_not_address,
                what_a_start_is_a_duplicate_of_was_there_before_it,
                a_unique_key_is_any_bytes,
                a_unique_key_has_a_scope_of_its_own,
                a_key_may_be_long_and_in_any_script,
            }
            claiming {
                a_queue_is_served_by_priority_then_due_time_then_id,
                the_order_holds_across_machines_and_versions,
                a_worker_is_given_only_what_it_has_code_for,
                a_queue_gives_only_what_is_in_it,
                nothing_is_claimed_twice,
                what_is_not_due_is_not_claimed,
                a_claim_of_nothing_or_without_code_takes_nothing,
                a_claim_carries_all_that_the_step_needs,
                a_transaction_sees_what_it_has_done_itself,
                what_is_claimed_runs_even_when_the_clock_went_back,
            }
            committing {
                next_moves_on_and_is_runnable_at_once,
                next_with_a_delay_is_scheduled_until_then,
                retry_runs_the_same_step_one_attempt_on,
                done_ends_with_a_result,
                stop_ends_with_an_error,
                nothing_happens_to_what_has_ended,
                an_error_that_was_handled_is_shown_until_the_next_step_is_done,
                a_long_error_text_is_cut,
                a_refused_outcome_leaves_the_claim_as_it_was,
                results_and_states_of_exactly_the_limit_are_taken,
                a_batch_of_commits_is_answered_one_by_one,
                an_empty_batch_of_commits_is_answered_with_nothing,
            }
            waiting {
                a_wait_for_time_alone_is_scheduled_and_then_times_out,
                a_wait_for_signals_is_parked_until_its_deadline,
                a_wait_without_a_deadline_is_due_never,
                a_step_that_timed_out_and_is_tried_again_still_knows_it,
            }
            keeping {
                a_next_that_is_due_at_once_keeps_the_claim,
                no_other_outcome_keeps_the_claim,
                a_kept_claim_yields_to_more_urgent_work,
                a_kept_claim_does_not_yield_to_other_work,
                a_kept_claim_does_not_yield_to_what_its_transaction_has_claimed,
                a_kept_claim_keeps_its_partition,
                a_kept_claim_that_is_lost_ends_as_any_other,
            }
            fencing {
                a_commit_that_is_sent_again_changes_nothing_and_is_answered_as_before,
                a_commit_that_kept_its_claim_and_is_sent_again_is_handed_the_same_claim,
                a_commit_that_is_sent_again_does_not_take_what_was_claimed_anew,
                a_commit_twice_in_one_batch_counts_once,
                a_stale_commit_changes_nothing,
                the_end_of_a_child_under_a_lost_claim_does_not_move_its_parent,
                an_expired_claim_that_nobody_took_over_can_still_be_committed,
                a_claim_of_another_worker_is_worth_nothing,
                a_transaction_that_fails_leaves_nothing,
            }
            workers {
                a_worker_is_known_as_it_registered,
                what_a_dead_worker_held_is_runnable_again_one_attempt_on,
                a_worker_that_renews_keeps_what_it_holds,
                a_worker_whose_lease_ran_out_is_lost,
                a_worker_that_comes_back_under_its_name_takes_up_its_claims_at_once,
                reclaiming_is_bounded,
                what_a_dead_worker_claims_afterwards_is_taken_back_too,
                a_claim_that_is_given_back_does_not_raise_the_attempt,
                a_claim_whose_answer_got_lost_is_given_back,
                a_worker_that_signs_off_leaves_nothing_behind,
            }
            children {
                spawn_starts_the_children_and_parks_the_parent_in_one_commit,
                children_take_what_they_leave_out_from_their_machine,
                children_that_are_duplicates_are_not_counted,
                a_parent_whose_children_are_all_duplicates_goes_straight_on,
                the_parent_goes_on_when_the_last_child_has_ended,
                a_parent_that_joins_is_handed_its_children,
                a_step_that_joins_is_handed_its_children_again_when_it_runs_again,
                each_parent_of_a_batch_is_handed_its_own_children,
                siblings_that_end_in_one_commit_lower_the_count_together,
                a_child_that_ends_twice_is_counted_once,
                a_scheduled_child_is_waited_for,
                a_family_of_exactly_the_limit_is_taken,
                children_have_children_to_any_depth,
            }
            joining {
                a_barrier_opens_early_when_at_least_k_have_ended,
                at_least_more_than_there_are_means_all_of_them,
                at_least_none_goes_straight_on_with_its_children_running,
                a_barrier_with_a_deadline_wakes_its_parent_with_what_there_is,
                a_barrier_that_opened_in_time_does_not_time_out,
                a_child_that_ends_late_is_told_and_opens_nothing,
                a_child_of_an_earlier_barrier_does_not_count_for_a_later_one,
                a_late_child_and_its_parent_can_commit_together,
                a_child_may_outlive_its_parent,
                a_parent_waits_for_its_partition_when_its_barrier_opens,
            }
            partitions {
                of_one_partition_one_executes_at_a_time_in_order,
                different_partitions_and_none_run_side_by_side,
                a_partition_is_one_across_queues_machines_and_workers,
                a_thousand_that_wait_do_not_hide_the_others,
                the_more_urgent_passes_one_that_has_not_begun,
                every_outcome_frees_the_partition,
                what_goes_on_at_once_goes_behind_who_was_there_before,
                a_partition_is_freed_when_its_holder_dies,
                a_partition_is_freed_when_its_holder_gives_it_back,
                what_becomes_due_takes_its_place,
                several_that_become_due_together_stand_in_order,
                children_keep_to_their_partitions,
                two_steps_of_a_partition_in_one_transaction_are_two_claims,
                a_partition_may_have_any_name,
            }
            timers {
                the_next_due_time_is_the_earliest_of_all_kinds,
                what_is_due_fires_at_its_moment_and_not_before,
                what_is_overdue_fires_at_once_oldest_first,
                firing_is_bounded,
                the_far_future_is_no_trouble,
                what_executes_has_no_deadline,
            }
            sweeping {
                what_ended_before_that_moment_is_deleted_with_its_history,
                what_has_not_ended_is_never_deleted,
                sweeping_is_bounded_and_goes_on_where_it_stopped,
                a_child_is_spared_while_its_parent_is_waiting_to_join_it,
                those_that_are_spared_do_not_hold_up_the_pass,
                a_child_of_an_earlier_barrier_is_not_spared,
                a_child_whose_parent_was_deleted_ends_quietly,
                deleting_frees_a_key_that_was_held_for_good,
            }
            reading {
                an_instance_is_found_by_id_and_by_key,
                a_key_stands_for_the_newest_that_has_it,
                a_list_is_paged_newest_first_without_loss_or_doubles,
                an_empty_store_lists_nothing,
                a_list_can_be_filtered_by_each_thing_and_by_all,
                a_key_prefix_is_taken_letter_by_letter,
                endings_tell_who_has_ended_and_who_is_not_there,
                depths_count_what_has_not_ended_queue_by_queue,
                a_closed_store_says_so,
            }
            history {
                a_run_is_told_from_its_first_step_to_its_end,
                a_wait_and_its_deadline_are_told,
                children_are_told_to_their_parent,
                errors_are_told_with_what_was_answered_for_them,
                a_reclaim_is_told_and_giving_back_is_not,
                a_kept_claim_is_told_step_by_step,
                a_machine_can_switch_its_history_off,
                a_history_is_read_from_where_one_stopped,
            }
            waking {
                work_that_becomes_runnable_is_told_at_once,
                what_is_due_later_is_told_with_its_time,
                an_end_is_told,
                the_next_of_a_partition_is_told_when_it_is_freed,
            }
            concurrency {
                eight_workers_run_every_step_exactly_once,
                eight_workers_keep_partitions_apart,
                eight_workers_join_every_family_once,
                of_many_starts_with_one_key_exactly_one_is_new,
                of_many_commits_of_one_claim_one_counts,
            }
            differential {
                a_random_program_leaves_the_same_as_in_memory,
            }
        }
    };
}

/// Makes one `#[tokio::test]` of each test of the suite. The argument is a function that makes a new, empty store:
/// `async fn make(setup: Setup) -> Subject`. The crate that calls it needs tokio with its macros.
///
/// ```no_run
/// use abide_kernel::conformance::{Setup, Subject};
/// use abide_kernel::memory::Memory;
///
/// async fn make(setup: Setup) -> Subject {
///     Subject::new(Memory::new(setup.clock, setup.limits))
/// }
///
/// abide_kernel::conformance_tests!(make);
/// ```
#[macro_export]
macro_rules! conformance_tests {
    ($make:ident) => {
        $crate::for_each_conformance_test!($crate::__conformance_tests, $make);
    };
}

/// Makes the tests; called with the list.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    (($make:ident) $($group:ident { $($test:ident,)* })*) => {
        $(
            mod $group {
                $(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn $test() {
                        $crate::conformance::check(super::$make, $crate::conformance::$group::$test).await;
                    }
                )*
            }
        )*
    };
}
