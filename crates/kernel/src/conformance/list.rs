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
                one_that_lives_and_holds_its_key_is_found_by_it,
                a_key_can_be_an_address_and_nothing_more,
                a_scope_is_the_statuses_it_names,
                a_unique_key_excludes_and_does_not_address,
                what_a_start_is_a_duplicate_of_was_there_before_it,
                a_unique_key_is_any_bytes,
                a_unique_key_has_a_scope_of_its_own,
                a_key_may_be_long_and_in_any_script,
            }
            taken_batches {
                a_run_goes_on_after_the_batch_in_which_another_leaves_its_key,
                a_child_finds_a_key_taken_that_another_of_its_batch_was_granted,
                a_child_that_ends_under_its_key_is_told_to_its_parent_once,
                a_parent_that_wakes_into_the_key_of_the_child_that_woke_it_fails,
                who_gives_its_key_up_leaves_it_to_its_holder,
                a_run_that_goes_on_keeps_the_key_that_it_holds,
            }
            taken_keys {
                an_outcome_that_would_take_a_key_is_refused_with_its_holder,
                of_three_that_would_end_under_one_key_the_first_does,
                a_stop_is_never_refused_and_gives_the_key_up,
                a_failure_that_may_not_be_tried_again_ends_with_both_reasons,
                two_commits_of_one_batch_take_a_key_once,
                who_leaves_a_key_makes_room_for_who_takes_it_in_the_same_batch,
                a_next_step_that_is_due_goes_on_without_its_key,
                a_claim_that_is_returned_goes_back_without_the_key,
                a_claim_of_a_dead_worker_goes_back_without_the_key,
                a_claim_whose_lease_lapsed_goes_back_without_the_key,
                what_gave_its_key_up_is_still_judged_at_its_end,
                a_cancel_always_succeeds,
                a_restart_into_a_taken_key_is_refused,
                a_run_that_goes_on_into_a_taken_key_is_refused,
                a_run_that_went_on_holds_no_key_whatever_its_scope,
                a_unique_key_is_taken_as_a_key_is,
                who_may_not_have_one_key_does_not_take_the_other,
                a_workflow_that_would_end_under_a_taken_key_is_refused,
            }
            taken_wakes {
                of_two_timers_with_one_key_the_first_to_be_due_fires_and_all_others_do,
                a_timer_that_would_take_a_key_fails_its_instance_whole,
                a_deadline_that_would_take_a_key_fails_its_instance,
                a_signal_that_would_take_a_key_is_received_and_its_target_fails,
                an_event_that_would_take_a_key_fails_who_waits_and_reaches_the_others,
                an_update_that_would_take_a_key_fails_its_target,
                who_comes_back_from_its_updates_into_a_taken_key_fails,
                a_child_that_ends_fails_a_parent_that_would_take_a_key,
                a_barrier_that_opens_at_once_into_a_taken_key_fails_its_parent,
                failures_are_told_to_parents_to_any_depth,
                a_cancelled_workflow_that_cannot_be_woken_is_cancelled,
                a_workflow_that_is_released_into_a_taken_key_fails,
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
                a_late_wait_for_a_signal_beside_it_in_a_batch_ends_no_other_wait,
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
                the_dead_are_taken_from_all_at_once,
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
            passing {
                what_is_passed_over_is_not_fired_and_the_next_is,
                what_is_only_named_is_not_touched,
                what_is_passed_over_is_not_taken_back_and_the_next_is,
            }
            remote_claims {
                a_claim_whose_lease_runs_out_is_taken_back_once,
                a_heartbeat_keeps_the_claims_that_it_names_and_no_others,
                a_claim_that_has_run_out_is_not_extended,
                what_nobody_has_taken_back_may_still_be_committed,
                the_next_due_time_knows_of_leases,
                a_lease_is_told_to_those_who_keep_time,
                a_worker_is_believed_in_as_long_as_what_it_holds,
                a_heartbeat_makes_no_lease_shorter,
                the_end_of_a_hold_ends_its_lease,
                a_hold_that_is_kept_keeps_its_lease,
                what_comes_while_a_claim_is_held_leaves_its_lease,
                a_cancelled_instance_is_lost_to_its_remote_worker,
                a_partition_is_freed_with_the_lease,
                taking_leases_back_is_bounded_and_goes_before_what_is_due,
                the_death_of_an_engine_takes_nothing_from_a_remote_worker,
                a_claim_that_nobody_was_granted_is_lost_and_harms_nothing,
            }
            failing {
                a_step_that_fails_is_tried_again_as_its_machine_declares,
                the_attempts_of_a_step_are_counted_anew,
                a_step_that_fails_without_a_policy_ends_its_instance,
                a_failure_goes_by_the_newest_declaration_of_its_version,
                a_policy_is_kept_as_it_was_declared,
                a_policy_that_cannot_be_followed_is_refused,
                a_step_that_fails_is_handed_its_signals_again,
                a_failure_may_follow_the_answers_to_updates,
                a_failure_over_updates_alone_fails_the_first_of_them,
                a_failure_that_is_sent_again_changes_nothing,
                a_step_that_passes_its_time_limit_fails_though_it_is_still_named,
                a_step_that_passes_its_time_limit_without_a_policy_ends_its_instance,
                a_child_whose_parent_was_deleted_keeps_its_time_limit,
                a_worker_that_dies_before_the_time_limit_has_not_passed_it,
                what_a_dead_worker_held_to_its_time_limit_has_failed,
                a_time_limit_is_that_of_one_step,
                an_engine_keeps_its_own_time_limits,
            }
            enlisting {
                a_worker_that_is_enlisted_twice_is_one,
                a_worker_that_has_died_is_enlisted_as_another,
                a_worker_that_is_enlisted_by_many_at_once_is_one,
                many_workers_are_renewed_together,
                a_worker_is_signed_off_by_its_name,
            }
            timers {
                the_next_due_time_is_the_earliest_of_all_kinds,
                what_is_due_fires_at_its_moment_and_not_before,
                what_is_overdue_fires_at_once_oldest_first,
                firing_is_bounded,
                the_far_future_is_no_trouble,
                what_executes_has_no_deadline,
            }
            once {
                a_request_that_arrives_again_is_carried_out_once_and_answered_alike,
                every_kind_of_write_is_carried_out_once,
                the_same_key_with_another_request_is_refused,
                the_keys_of_two_callers_never_meet,
                the_parts_of_a_request_are_told_apart,
                requests_in_one_batch_are_answered_entry_by_entry_in_order,
                one_that_comes_twice_in_a_batch_is_carried_out_once,
                what_was_refused_is_refused_again_in_the_same_words,
                of_many_at_once_one_is_carried_out,
                what_was_rolled_back_is_not_remembered,
                an_answer_too_large_to_be_kept_is_never_carried_out_twice,
                a_request_is_remembered_for_a_day_and_then_forgotten,
                requests_are_forgotten_a_batch_at_a_time,
            }
            sweeping {
                what_ended_before_that_moment_is_deleted_with_its_history,
                what_has_not_ended_is_never_deleted,
                sweeping_is_bounded_and_goes_on_where_it_stopped,
                a_child_is_spared_while_its_parent_is_waiting_to_join_it,
                those_that_are_spared_do_not_hold_up_the_pass,
                a_child_of_an_earlier_barrier_is_spared_while_its_parent_lives,
                the_children_of_a_workflow_are_spared_while_it_lives,
                a_grandchild_is_spared_while_anybody_above_it_lives,
                runs_that_others_follow_are_not_spared,
                a_family_goes_when_its_head_does_and_in_batches,
                a_deep_family_goes_in_batches,
                dedup_keys_outlive_the_runs_of_their_chain,
                a_long_life_is_deleted_in_several_batches,
                a_pass_goes_on_until_nothing_that_has_expired_is_left,
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
            documents {
                a_document_is_kept_as_it_was_written_replaced_and_deleted,
                documents_are_listed_by_name_and_those_of_another_kind_are_not,
                a_document_is_found_by_its_kind_and_its_whole_name,
                the_last_word_on_a_document_counts,
                a_document_over_the_limit_is_refused_with_all_that_came_with_it,
                all_that_is_declared_is_listed_by_machine_and_version,
                those_who_wait_are_found_by_the_kind_of_wait_and_by_what_for,
                who_runs_for_nothing_but_updates_waits_all_the_same,
                depths_tell_what_is_waited_for_and_since_when_the_oldest_is_ready,
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
            signals {
                a_signal_wakes_who_waits_for_it,
                only_a_signal_that_is_waited_for_wakes,
                what_did_not_match_stays_for_a_later_wait,
                a_signal_that_comes_before_the_wait_is_not_lost,
                a_signal_that_comes_while_the_step_runs_is_found_when_it_parks,
                a_signal_and_the_park_in_one_transaction_meet_in_either_order,
                a_signal_wakes_nothing_that_does_not_wait_for_signals,
                signals_are_numbered_in_the_order_in_which_they_came,
                a_refused_signal_takes_no_number,
                a_signal_finds_its_target_by_key,
                one_wake_for_all_signals_of_a_batch,
                a_signal_in_a_transaction_that_fails_was_never_there,
                a_stale_step_consumes_nothing,
                a_commit_that_is_sent_again_consumes_once,
                who_is_woken_in_a_partition_stands_in_line,
                a_step_that_is_tried_again_keeps_what_it_was_handed,
                a_signal_does_not_open_a_barrier,
                an_inbox_is_read_by_sequence_and_records_newest_first,
            }
            deciding {
                nothing_at_that_id_or_key_leaves_no_record,
                the_same_message_again_is_answered_with_the_first,
                a_duplicate_is_known_after_the_instance_has_ended,
                the_same_dedup_key_for_something_else_is_refused,
                duplicates_in_one_batch_are_judged_like_those_across,
                dedup_keys_are_each_instances_own,
                a_signal_and_an_update_may_share_a_dedup_key,
                a_refused_message_does_not_use_up_its_dedup_key,
                what_is_reserved_takes_no_message,
                an_old_run_refuses_and_names_the_newest,
                what_has_ended_takes_no_message,
                a_signal_that_is_not_declared_is_refused,
                a_machine_that_declares_no_signals_takes_any,
                arguments_that_break_the_contract_are_refused,
                an_inbox_takes_as_many_as_the_limit_says_and_no_more,
                an_inbox_fills_up_in_the_middle_of_a_batch,
                a_payload_over_the_limit_is_refused_and_not_kept,
                the_first_line_that_applies_decides,
                a_record_tells_who_sent_it_and_when,
                what_a_sender_claims_to_be_is_kept_beside_its_source,
                a_claim_that_is_long_or_unclean_is_refused_and_touches_no_other,
                one_refused_message_touches_no_other,
                a_batch_of_deliveries_over_the_limit_is_refused_as_a_whole,
            }
            packs {
                a_woken_step_is_handed_all_that_it_waited_for_in_order,
                next_consumes_exactly_what_was_handed,
                spawn_consumes_what_was_handed,
                continue_as_new_consumes_what_was_handed,
                retry_and_wait_consume_nothing,
                a_terminal_outcome_applies_what_was_handed_and_discards_the_rest,
                a_step_that_was_handed_nothing_consumes_nothing,
                what_was_handed_is_handed_once,
                a_pack_accumulates_until_all_have_come,
                waiting_again_on_what_was_handed_parks_quietly,
                a_partial_pack_is_well,
                a_signal_that_came_while_the_step_ran_wakes_it_when_it_waits_again,
                a_signal_that_came_between_the_wake_and_the_claim_is_handed_too,
                waiting_for_another_name_is_woken_by_what_was_buffered,
                what_was_handed_for_one_name_wakes_a_later_wait_for_it,
                a_worker_that_dies_with_a_pack_leaves_it_whole,
                a_kept_step_is_handed_nothing_of_the_one_before,
                a_stale_commit_beside_the_good_one_does_not_consume_twice,
                a_wait_that_names_a_signal_twice_is_handed_it_once,
                each_of_a_batch_consumes_its_own,
            }
            timeouts {
                a_wait_that_nothing_matched_times_out,
                a_timeout_hands_over_the_partial_pack,
                a_signal_before_the_deadline_fires_wins,
                a_signal_after_the_deadline_stays_in_the_inbox,
                a_late_signal_is_not_handed_to_a_retry_of_the_step_that_timed_out,
                a_late_signal_is_not_handed_to_a_claim_in_its_own_transaction,
                a_late_signal_wakes_a_step_that_waits_again,
                a_signal_and_the_deadline_in_one_transaction_are_judged_in_their_order,
                what_was_buffered_before_the_wait_needs_no_deadline,
                a_signal_does_not_wake_what_only_sleeps,
                a_wait_that_a_signal_ended_has_no_deadline_left,
            }
            messages {
                received_opened_and_applied_show_the_id_of_the_wait,
                a_wait_adopts_the_id_of_the_signal_that_was_there_before_it,
                a_wait_for_a_set_keeps_its_own_id,
                each_wait_has_an_id_of_its_own,
                what_ends_unread_keeps_its_own_id,
                the_cursor_is_the_highest_sequence_that_was_consumed,
                what_is_discarded_does_not_move_the_cursor,
                an_update_moves_the_cursor_too,
                a_signals_life_is_told_in_order,
                an_update_is_told_from_its_coming_to_its_answer,
                a_continuation_is_told_by_the_run_that_ends,
                a_refused_message_is_no_part_of_the_history,
            }
            holding {
                a_signal_for_nobody_is_held_for_whoever_starts,
                held_signals_are_handed_over_in_order,
                a_held_signal_is_checked_by_the_contract_when_somebody_starts,
                what_was_held_too_long_is_judged_by_the_clock_when_it_is_used,
                sweeping_marks_what_was_held_too_long,
                a_held_signal_sent_again_is_the_same,
                held_duplicates_in_one_batch_are_one,
                an_expired_one_does_not_stand_for_the_same_sent_again,
                a_signal_for_a_key_whose_last_run_has_ended_is_held,
                a_signal_to_somebody_who_is_there_is_not_held,
                nothing_is_held_for_an_id_or_as_an_update,
                a_held_payload_over_the_limit_is_refused,
                a_child_and_what_starts_later_take_what_is_held_too,
                a_start_that_is_a_duplicate_takes_nothing,
                more_than_fits_into_the_inbox_is_refused_when_it_is_handed_over,
            }
            with_start {
                it_starts_one_with_the_signal_in_its_inbox,
                it_is_delivered_to_the_one_that_lives,
                it_starts_anew_when_the_last_one_has_ended,
                it_opens_what_was_reserved,
                if_the_signal_would_be_refused_nothing_starts,
                a_start_that_cannot_be_made_is_refused_and_leaves_nothing,
                two_of_one_batch_start_one,
                what_one_of_a_batch_could_not_start_another_may,
                a_unique_key_that_is_taken_is_told,
                it_comes_after_what_was_held,
                it_starts_a_machine_in_its_partition,
            }
            contracts {
                the_contract_of_an_instance_is_the_one_it_started_under,
                a_contract_can_be_read_back,
                declaring_a_contract_again_changes_nothing,
                a_contract_that_makes_no_sense_is_refused_with_the_declaration,
                a_start_may_name_its_contract_or_none,
                arguments_are_stored_by_parameter,
                all_errors_are_told_at_once_and_kept,
                nothing_is_coerced,
                without_a_contract_an_object_is_one_value,
                a_run_that_continues_takes_the_newest_contract_of_its_version,
                a_wait_for_what_the_contract_does_not_declare_is_refused,
                a_run_of_what_is_not_declared_keeps_its_contract,
                contracts_that_nothing_names_any_more_are_deleted,
                a_contract_that_is_sent_again_stays,
                what_a_machine_declared_until_now_stays_for_a_day,
            }
            bounds {
                a_document_that_is_nested_too_deeply_is_refused_at_every_entrance,
                conditions_that_are_too_large_are_refused,
                an_inbox_takes_so_many_bytes_and_no_more,
                bytes_that_were_consumed_make_room_again,
                a_key_has_so_much_held_for_it_and_no_more,
                a_page_has_so_many_bytes_and_says_where_the_next_begins,
                a_claim_has_so_many_bytes_and_the_rest_is_there_for_the_next,
                children_and_endings_and_records_come_in_pages_of_so_many_bytes,
            }
            validating {
                a_message_that_takes_long_to_validate_is_judged_all_the_same,
                a_validation_that_takes_too_long_is_refused_and_says_so,
                what_follows_a_message_that_is_judged_outside_stays_behind_it,
                held_signals_that_take_long_to_validate_are_judged_before_the_start,
                a_signal_that_starts_is_judged_outside_too,
                a_slow_validation_keeps_nobody_else_from_writing,
            }
            updates {
                an_update_is_recorded_like_a_signal,
                only_declared_updates_are_taken,
                a_parked_instance_handles_it_and_goes_back_to_its_wait,
                its_deadline_still_stands_afterwards,
                a_scheduled_instance_handles_it_and_is_due_when_it_was,
                a_parent_handles_it_and_waits_on_for_its_children,
                children_that_end_while_it_is_aside_are_counted,
                a_signal_that_comes_while_it_is_aside_wakes_it_afterwards,
                a_signal_of_another_name_lets_it_go_back,
                an_instance_that_runs_handles_it_when_its_step_is_done,
                a_runnable_instance_handles_it_before_its_step,
                a_worker_may_keep_its_claim_and_go_on_with_the_step,
                a_kept_claim_yields_to_an_update_that_came_meanwhile,
                a_request_id_makes_it_one_update,
                updates_and_signals_apply_in_the_order_in_which_they_came,
                a_buffered_signal_that_nobody_waits_for_holds_no_update_up,
                an_update_waits_for_its_partition,
                a_step_that_timed_out_handles_an_update_and_still_knows_it,
            }
            answering {
                an_answer_can_go_on_to_something_else,
                what_follows_an_answer_consumes_no_signal,
                an_update_does_not_consume_a_partial_pack,
                a_failing_handler_changes_nothing,
                several_are_answered_in_one_commit_each_for_itself,
                what_is_not_answered_comes_again,
                an_answer_to_what_is_no_update_here_is_refused_and_the_claim_stays,
                what_came_after_the_claim_can_be_answered_under_it,
                an_answer_over_the_limit_is_refused_and_the_claim_stays,
                a_run_that_ends_fails_its_pending_updates,
                a_worker_that_dies_in_the_middle_leaves_the_update_to_the_next,
                a_claim_that_is_given_back_in_the_middle_leaves_it_too,
                an_answer_that_is_sent_again_counts_once,
                an_answer_is_told_to_who_waits_for_it,
            }
            runs {
                a_run_closes_and_the_next_opens_in_one_commit,
                the_runs_of_a_chain_are_numbered_and_listed,
                pending_messages_move_to_the_new_run_in_order,
                the_sequence_goes_on_and_the_cursor_is_inherited,
                dedup_keys_belong_to_the_chain,
                a_key_stays_taken_while_its_chain_goes_on,
                a_run_without_a_key_continues_too,
                continued_is_no_end_for_a_parent,
                a_child_continues_beside_its_siblings,
                an_old_run_can_neither_be_cancelled_nor_repaired_nor_restarted,
                a_key_stands_for_the_newest_run_of_whatever_chain,
                a_run_that_continues_keeps_what_its_chain_was_not_handed,
                a_continuation_that_is_sent_again_opens_one_run,
                a_continuation_with_a_bad_version_is_refused,
                a_chain_goes_on_after_many_runs_with_its_inbox,
                an_update_by_key_reaches_the_newest_run,
            }
            reserving {
                a_reserved_instance_has_a_key_and_no_run,
                a_start_opens_what_was_reserved_with_the_same_id,
                what_is_opened_may_be_due_later_or_stand_in_a_partition,
                a_start_of_another_machine_does_not_open_it,
                of_two_starts_one_opens_it,
                a_start_whose_unique_key_is_taken_does_not_open_it,
                a_key_is_reserved_once,
                signals_to_it_are_refused_until_it_is_started,
                what_was_held_before_is_handed_over_when_it_starts,
                a_reserved_one_can_be_cancelled_and_frees_its_key,
                a_reserved_one_is_not_repaired_or_restarted,
                a_child_opens_what_was_reserved_and_is_waited_for,
                a_restart_does_not_open_what_was_reserved,
            }
            cancelling {
                it_can_be_cancelled_from_every_status,
                it_wins_over_a_step_that_runs,
                a_cancel_in_the_transaction_of_the_commit_is_judged_in_its_order,
                what_has_ended_is_not_cancelled,
                it_closes_the_inbox,
                it_cascades_over_generations,
                it_cascades_to_the_run_that_a_child_has_gone_on_as,
                children_can_be_left,
                children_of_an_earlier_barrier_are_cancelled_too,
                a_parents_barrier_sees_it_as_an_end,
                it_frees_the_partition,
                it_frees_the_key,
                a_long_reason_is_cut,
                its_end_is_told,
                an_update_that_is_pending_when_it_is_cancelled_is_told_to_its_sender,
                a_child_that_waits_is_cancelled_with_its_signals,
            }
            restarting {
                a_failed_one_goes_on_where_it_ended,
                a_cancelled_one_goes_on_too_and_at_the_step_named,
                what_was_discarded_stays_so,
                what_is_neither_failed_nor_cancelled_is_refused,
                a_run_that_was_restarted_is_not_the_newest_any_more,
                a_key_that_was_taken_meanwhile_is_told,
                a_key_that_is_held_for_good_passes_to_the_new_run,
                a_restart_that_is_refused_for_its_unique_key_changes_nothing,
                a_parent_that_still_waits_waits_for_the_child_once_more,
                a_child_restarted_after_the_barrier_opened_is_counted_and_opens_nothing,
                a_child_of_a_parent_that_has_ended_is_restarted_alone,
                a_stale_worker_of_the_old_run_changes_nothing,
                a_chain_that_continued_is_restarted_from_its_last_run,
                what_was_held_is_handed_to_the_new_run,
                what_is_held_under_a_dedup_key_that_the_chain_knows_is_refused,
                several_are_restarted_in_one_call,
            }
            repairing {
                nothing_healthy_needs_repair,
                repair_refuses_like_a_delivery,
                an_examination_is_paged_and_finds_nothing,
                each_position_has_its_liveness,
                what_is_aside_for_an_update_still_waits,
                a_buffered_signal_that_nobody_waits_for_is_healthy,
                a_step_that_is_tried_again_waits_for_nothing,
            }
            workflows {
                what_a_turn_did_is_told_in_order_in_one_commit,
                it_goes_on_under_the_kept_claim_and_is_told_of_its_inbox,
                it_does_not_go_on_under_a_claim_that_it_would_not_keep,
                a_pending_update_takes_the_claim_unless_steps_are_running,
                more_urgent_work_takes_the_claim_unless_steps_are_running,
                a_turn_that_breaks_a_rule_changes_nothing,
                a_lost_claim_drops_all_of_a_turn,
                a_turn_that_is_sent_again_is_answered_as_before,
                its_state_stays_what_it_began_with,
                a_workflow_always_keeps_its_history,
                a_turn_of_one_that_keeps_no_history_is_refused,
                one_that_nobody_declared_is_a_workflow_from_its_first_turn_on,
                a_declared_workflow_is_started_as_one,
                its_end_closes_the_inbox,
                a_step_that_failed_is_tried_again_in_its_time,
            }
            workflow_waits {
                it_waits_for_a_signal_and_takes_it,
                any_of_several_signals_wakes_it_and_others_do_not,
                a_condition_waits_for_updates_and_not_for_a_signal_of_its_name,
                a_condition_without_a_key_waits_too_and_has_its_deadline,
                time_alone_is_scheduled_and_wakes_it,
                of_a_signal_children_and_a_deadline_each_wakes_it,
                a_signal_that_came_while_the_turn_ran_wakes_it,
                a_wait_for_one_signal_that_is_there_has_its_id,
                it_takes_exactly_what_it_names,
                who_waits_again_for_the_same_goes_on_with_its_wait,
                of_a_signal_and_the_deadline_the_first_committed_wins,
                an_update_runs_aside_and_the_turn_restates_the_wait,
                what_comes_while_an_update_is_handled_is_not_lost,
                a_turn_that_parks_does_not_sleep_while_an_update_is_pending,
            }
            workflow_runs {
                it_continues_as_new_with_all_that_is_pending,
                it_may_go_on_in_another_version,
                children_that_it_leaves_behind_wake_nobody,
                a_failed_one_is_restarted_from_what_it_began_with,
                what_was_reserved_is_opened_as_what_it_is_started_as,
                a_key_that_was_freed_is_started_anew_as_what_it_is_started_as,
            }
            broods {
                children_of_several_operations_are_started_in_one_commit,
                a_workflow_may_leave_children_behind_with_its_last_turn,
                ends_are_counted_over_all_operations,
                siblings_that_end_together_are_one_wake,
                ends_between_the_look_and_the_park_are_not_lost,
                a_child_that_ends_in_the_batch_of_the_park_is_not_lost,
                of_new_and_earlier_children_the_nearest_wakes_it,
                a_brood_of_taken_keys_wakes_it_at_once,
                a_child_that_continues_as_new_ends_once,
                a_workflow_child_that_continues_as_new_keeps_its_place,
                a_child_that_is_restarted_is_counted_once_more,
                an_end_is_not_hidden_behind_a_restart,
                however_children_end_and_are_restarted_the_parent_sees_them_all,
                a_childs_end_while_the_code_runs_or_sleeps_wakes_nobody,
                a_join_has_its_deadline,
                a_child_of_a_child_counts_for_its_own_parent,
                the_children_go_with_a_workflow_that_is_ended_by_force,
                a_child_may_be_a_workflow_of_another_name,
            }
            blocking {
                code_that_does_not_fit_parks_and_says_both_sides,
                nothing_wakes_it_and_nothing_is_lost,
                a_turn_that_blocks_does_nothing_else,
                a_repair_lets_it_be_tried_again_and_says_so,
                those_with_code_are_released_page_by_page,
                nothing_but_what_is_blocked_is_released,
                a_cancel_ends_it_at_once,
                it_holds_up_nobody_in_its_partition,
                its_parent_waits_for_it,
                who_dies_while_it_is_tried_again_does_not_block_it,
            }
            cancelling_code {
                a_cancel_is_handed_to_the_code_which_then_ends,
                however_often_it_is_cancelled_the_code_is_told_once,
                a_code_that_runs_is_told_too,
                a_turn_that_did_not_see_it_is_committed_and_the_next_is_told,
                force_ends_it_at_once,
                one_that_never_ran_ends_at_once,
                one_that_a_dead_worker_began_is_known_to_have_begun_by_its_commits,
                it_reaches_workflows_and_machines_below_it,
                the_barrier_of_a_machine_opens_when_the_code_below_it_has_ended,
                a_machine_that_is_cancelled_asks_the_code_below_it,
                a_pending_cancel_moves_to_the_next_run,
                one_that_ends_before_it_heard_of_it_says_so,
                a_full_inbox_does_not_keep_a_cancel_out,
                a_cancel_comes_in_its_place_among_updates,
                a_code_that_blocks_with_a_cancel_pending_is_ended_by_the_next,
                a_machine_is_never_asked,
            }
            concurrency {
                eight_workers_run_every_step_exactly_once,
                eight_workers_keep_partitions_apart,
                eight_workers_join_every_family_once,
                of_many_starts_with_one_key_exactly_one_is_new,
                of_many_commits_of_one_claim_one_counts,
            }
            interleaving {
                of_deliver_and_park_every_interleaving_ends_runnable,
                updates_and_signals_come_through_together,
                of_many_messages_with_one_dedup_key_one_is_accepted,
                of_many_signals_that_would_start_one_exactly_one_does,
                a_signal_for_who_is_just_starting_is_held_or_delivered_and_never_lost,
            }
            publishing {
                an_event_is_kept_as_it_was_published,
                an_event_id_is_one_event_of_a_type,
                an_event_id_is_one_event_in_one_batch_too,
                an_event_without_an_id_is_never_known_already,
                entries_are_answered_in_order_and_one_that_is_refused_stops_no_other,
                a_batch_over_the_limit_publishes_nothing,
                all_who_match_get_it_who_waits_longest_first,
                of_several_events_a_wait_takes_the_first_that_matches,
                a_type_matches_exactly,
                long_names_and_any_script_are_taken,
                a_payload_may_be_any_json,
                conditions_are_looked_at_in_every_kind_of_place,
                a_transaction_sees_its_own_waiters_and_events,
                a_transaction_that_fails_publishes_nothing,
                who_is_woken_stands_in_its_queue_and_partition,
                what_a_step_took_is_told_by_its_record,
            }
            event_lists {
                events_are_listed_newest_first_page_by_page,
                waiters_are_listed_page_by_page,
                events_are_kept_for_a_time_and_then_forgotten,
                what_was_forgotten_stays_in_the_inbox,
            }
            event_waits {
                a_machine_waits_for_an_event_and_takes_it,
                a_step_that_is_tried_again_keeps_its_event,
                events_come_together_like_signals,
                a_signal_or_one_of_several_events_ends_the_wait,
                a_wait_for_an_event_needs_a_timeout,
                all_that_is_wrong_with_a_wait_is_told_at_once,
                nobody_can_send_what_stands_for_an_event,
                an_update_is_answered_while_the_wait_stands,
                an_event_that_comes_while_an_update_is_answered_wakes_it_afterwards,
                an_answer_may_let_it_wait_for_something_else,
                a_workflow_waits_for_events_each_under_its_operation,
                a_workflow_waits_for_an_event_a_signal_and_children_at_once,
                a_workflow_that_answers_an_update_waits_on,
                an_event_that_a_workflow_was_sent_and_did_not_take_is_handed_again,
            }
            event_endings {
                a_wait_that_times_out_is_over,
                a_wait_that_was_matched_does_not_time_out,
                whatever_ends_a_wait_leaves_no_waiter_and_takes_none_but_its_own,
                a_workflow_that_ends_leaves_no_waiter,
                a_family_that_waits_for_events,
                a_child_that_ends_in_the_commit_in_which_its_parent_parks_leaves_no_waiter,
                no_more_may_wait_for_a_type_than_the_limit,
                one_wait_for_too_many_of_a_type_is_refused,
                however_waits_come_and_go_their_number_is_known,
                a_commit_of_a_wait_that_is_sent_again_opens_nothing_twice,
            }
            lookback {
                an_event_before_the_wait_is_not_in_it,
                the_newest_within_the_time_is_taken,
                of_several_waits_that_look_back_the_newest_event_counts,
                it_is_found_behind_many_that_do_not_match,
                what_it_finds_is_told_like_any_other_match,
                it_waits_when_nothing_was_there,
                what_is_duplicate_is_not_newer,
                a_workflow_looks_back_too,
            }
            look_ups {
                the_newest_is_found_behind_any_number_that_do_not_match,
                a_path_that_is_looked_back_on_for_the_first_time_covers_the_newest,
                without_an_equality_the_newest_are_read,
                of_one_type_sixteen_paths_are_indexed,
                all_conditions_are_checked_of_what_the_index_finds,
                whatever_events_say_is_found,
                what_is_duplicate_is_indexed_once,
                the_time_is_looked_at_event_by_event,
                what_is_published_in_the_commit_that_looks_back_is_indexed,
                what_is_read_is_bounded_in_bytes,
                what_is_swept_is_not_looked_back_at,
                a_path_that_is_not_used_is_forgotten,
            }
            event_races {
                of_publish_and_wait_every_interleaving_is_before_or_in_it,
                who_looks_back_misses_nothing,
                of_many_who_publish_one_event_id_one_does,
                a_wait_is_ended_by_one_of_event_signal_and_deadline,
                of_many_who_would_wait_no_more_do_than_the_limit,
                what_is_published_while_many_work_comes_to_everyone_once,
            }
            attending {
                the_first_that_matched_meanwhile_is_found,
                a_publisher_that_was_held_up_is_not_missed,
                what_was_published_before_it_began_is_not_in_it,
                a_wait_begins_with_the_commit_that_tells_of_it,
                two_waits_for_one_event_have_it_once_each,
                a_crash_and_code_that_does_not_fit_lose_no_event,
                a_park_that_is_woken_at_once_loses_no_event,
                a_new_run_begins_anew,
                whatever_comes_between_the_first_match_ends_the_wait,
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
