"""The guards of recovery, for `tests/chaos/mutations.py`."""

from __future__ import annotations

from tests.chaos.mutation import Mutation

_ALERTS = "tests/recovery/test_fleet_alerts.py::"
_BOUNDS = "tests/idempotency/test_bounds.py::"
_OUTAGE = "tests/recovery/test_schedule_outage.py::"
_CONCLUSIONS = "tests/recovery/unknown/test_decisions.py::"
_OPERATOR = "tests/recovery/test_operator_actions.py::"
_REPEATING = "tests/recovery/unknown/test_call_replay.py::"
_RESENDING = "tests/recovery/retry/test_stage.py::"
_RESEND_JOBS = "tests/recovery/resend_jobs/test_job.py::"
_MARKS = "tests/recovery/test_marks.py::"
_READING = "tests/producer/gateway/test_reading.py::"
_RECALLS = "tests/idempotency/test_recalls.py::"
_RESOLVING = "tests/recovery/unknown/test_resolver.py::"
_ROUTES = "tests/recovery/retry/test_retry_lane.py::"
_ROWS = "tests/idempotency/recovery/test_contract.py::"
_LINES = "tests/idempotency/test_lines.py::"
_GUARDS = "tests/chaos/test_recovery_guards.py::"
_STATUS = "tests/idempotency/test_status.py::"
_WORKERS = "tests/idempotency/fleet/test_worker_leases.py::"
_PACE = "tests/recovery/retry/test_pace.py::"
_POLICY = "tests/recovery/test_policy.py::"
_LINE_WATCH = "tests/recovery/retry/test_line_watch.py::"
_LITE = "[sqlite]"

RECOVERY: tuple[Mutation, ...] = (
    # -- what is told --
    Mutation(
        "the trace names the dead worker's attempt, and nobody else's",
        "recovery.telemetry:RecoveryTelemetry.resolved",
        "        if doubt.reason == OWNER_DEAD:",
        "        if doubt.reason != OWNER_DEAD:",
        (_RESOLVING + "test_the_attempt_of_a_dead_worker_is_told_when_its_doubt_is_decided",),
    ),
    Mutation(
        "only a key whose rows sleep behind its head is told as held",
        "idempotency.fleet.held_lines:HELD",
        "            WHERE waiting.state = 'RETRY' AND waiting.next_at = {ASLEEP_AT})\n",
        "            WHERE waiting.state <> '')\n",
        (_STATUS + f"test_a_line_of_one_holds_nobody{_LITE}",),
    ),
    Mutation(
        "a worker's given-back delivery is left to its next reader first",
        "idempotency.claims.rows:change",
        "        READER_MS if given_back else settlement.delay_ms",
        "        0 if given_back else settlement.delay_ms",
        (
            _ROWS + f"test_what_was_given_back_is_left_to_kafka_for_a_minute{_LITE}",
            _LINES + "test_no_look_reads_past_what_was_given_back",
        ),
    ),
    Mutation(
        "a time that ends before the call takes no doubt away",
        "recovery.retry.pool:RetryPool._too_late",
        "                return NotStarted(Event.UNKNOWN, TTL_IN_DOUBT)\n",
        "                return NotStarted(Event.BUDGET_SPENT, TTL_IN_DOUBT)\n",
        (
            _RESENDING
            + "test_a_time_that_ends_before_the_call_takes_no_doubt_away[at_most_once-sqlite]",
        ),
    ),
    Mutation(
        "a person makes no other call of what is about to be repeated",
        "recovery.operator_rules:_not_again",
        "    if pick.state is State.RETRY and pick.reason == REPLAY:\n",
        "    if pick.state is State.UNKNOWN and pick.reason == REPLAY:\n",
        (_OPERATOR + "test_a_retry_in_doubt_is_no_plain_retry[sqlite-replay]",),
    ),
    Mutation(
        "a resend job sends nothing that is over by its turn",
        "recovery.resend_jobs.handover:_refusal",
        "    return EXPIRED if over and not job.wanted.expired",
        "    return EXPIRED if over and job.wanted.expired",
        (
            _RESEND_JOBS
            + "test_what_is_over_by_its_turn_is_not_sent_unless_asked_for[sqlite-again]",
        ),
    ),
    Mutation(
        "what was given back and recalled is not taken over",
        "idempotency.claims.sqlite:TAKE",
        "                    WHERE r.until > ? AND (",
        "                    WHERE r.until < ? AND (",
        (_ROWS + "test_what_was_given_back_and_recalled_is_taken_by_nobody[sqlite-message]",),
    ),
    Mutation(
        "PostgreSQL: what was given back and recalled is not taken over",
        "idempotency.claims.postgres:_TAKE",
        "       AND NOT ((SELECT EXISTS",
        "       AND NOT (NOT (SELECT EXISTS",
        (_ROWS + "test_what_was_given_back_and_recalled_is_taken_by_nobody[postgresql-message]",),
    ),
    Mutation(
        "what was recalled in its lane is not claimed to be sent",
        "idempotency.claims.sqlite:_is_recalled",
        "by_lane or ",
        "",
        (_RECALLS + f"test_a_recall_in_lanes_covers_no_delivery_of_another_lane{_LITE}",),
    ),
    Mutation(
        "what was given back and recalled in its lane is not taken over",
        "idempotency.claims.sqlite:TAKE",
        "r.kind = 'lane'",
        "r.kind = ''",
        (_ROWS + "test_what_was_given_back_and_recalled_is_taken_by_nobody[sqlite-lane]",),
    ),
    Mutation(
        "PostgreSQL: what was given back and recalled in its lane is not taken over",
        "idempotency.claims.postgres:_TAKE",
        "d.created_at, d.lane)",
        "d.created_at, '')",
        (_ROWS + "test_what_was_given_back_and_recalled_is_taken_by_nobody[postgresql-lane]",),
    ),
    Mutation(
        "recovery sends nothing that was recalled in its lane",
        "idempotency.recovery.statements:_RECALLED",
        "r.kind = 'lane'",
        "r.kind = ''",
        (_RECALLS + f"test_recovery_sends_nothing_again_that_is_recalled_in_its_lane{_LITE}",),
    ),
    Mutation(
        "a gateway key of some lanes forbids nothing of other lanes",
        "producer.gateway.recall_desk:RecallDesk._lanes",
        "            return lanes\n",
        "            return None\n",
        (_READING + "test_a_recall_of_some_lanes_forbids_nothing_of_others[sqlite-unread]",),
    ),
    Mutation(
        "what only ends or sleeps hides nobody",
        "idempotency.recovery.store:SqlRecovering.take",
        "            if taken or not (done or asleep):\n",
        "            if taken or not asleep:\n",
        (_ROWS + "test_what_only_ends_hides_nobody_however_much_it_is[sqlite-expired]",),
    ),
    Mutation(
        "what no account may send now hides nobody",
        "recovery.retry.stage:RetryStage._run",
        "                if calls or not seen:\n",
        "                if calls or seen or not seen:\n",
        (
            _RESENDING + "test_what_no_account_may_send_now_hides_nobody_however_much_it_is"
            "[at_least_once-sqlite]",
        ),
    ),
    Mutation(
        "no more rows are taken than were asked for",
        "idempotency.recovery.store:SqlRecovering._take_due",
        "for row in _sorted(due, ask, now, ends, early)[: ask.limit]\n",
        "for row in _sorted(due, ask, now, ends, early)\n",
        (_ROWS + f"test_no_more_are_taken_than_asked_after_those_that_ended{_LITE}",),
    ),
    Mutation(
        "what recovery ends has its lane looked at again at once",
        "recovery.retry.settler:RetrySettler.put_in_ledger",
        "            self.on_woken(lane)\n",
        "            pass\n",
        (_LINE_WATCH + f"test_what_recovery_sends_of_one_key_follows_at_once{_LITE}",),
    ),
    # -- rates --
    Mutation(
        "recovery calls nobody through an account that was shut meanwhile",
        "recovery.retry.pool:RetryPool._may_begin",
        "refusal = self._refusal(resend) or self._shut(resend)\n",
        "refusal = self._refusal(resend)\n",
        (
            _RESENDING + "test_what_waits_for_an_account_that_is_shut_goes_back_without_a_call"
            "[at_least_once-sqlite]",
        ),
    ),
    Mutation(
        "what was held is released at the rate of the policy in force",
        "recovery.wiring:_retries",
        "release = RetryPace(lambda lane: routes[lane].policy.release_per_s, core.clock)\n",
        "release = RetryPace(lambda lane: 500.0, core.clock)\n",
        (_POLICY + f"test_what_was_held_is_released_at_the_rate_of_the_policy_in_force{_LITE}",),
    ),
    Mutation(
        "the rate of retries rises only where it is the limit",
        "recovery.retry.pace:RisingPace._follow",
        "        elif now - one.emptied_at >= _STEP_S and now - one.limited_at <= _STEP_S:\n",
        "        elif now - one.emptied_at >= _STEP_S:\n",
        (_PACE + "test_a_lane_without_room_does_not_rise",),
    ),
    Mutation(
        "the rate of retries sinks when nothing is left",
        "recovery.retry.pace:RisingPace._follow",
        "            one.rate, one.changed_at = max(self._base, one.rate / 2), now\n",
        "            one.changed_at = now\n",
        (_PACE + "test_the_rate_rises_while_more_is_due_than_goes_and_sinks_again",),
    ),
    Mutation(
        "an idle recovery has no share of a rate",
        "idempotency.fleet.worker_leases:Workers.sending_lanes",
        " if row.state != IDLE or row.id in self.epochs]",
        "]",
        (_WORKERS + f"test_who_sends_nothing_has_no_share_but_lives{_LITE}",),
    ),
    Mutation(
        "a recovery that begins to send counts itself",
        "idempotency.fleet.worker_leases:Workers.sending_lanes",
        " if row.state != IDLE or row.id in self.epochs]",
        " if row.state != IDLE]",
        (_WORKERS + f"test_who_sends_nothing_has_no_share_but_lives{_LITE}",),
    ),
    # -- what is in doubt: invariant 5 --
    Mutation(
        "what the provider has not is believed only once a late call had its time",
        "recovery.unknown.decisions:conclude",
        "        if doubt.reason != QUEUED and doubt.now < doubt.since + policy.timeout_ms:\n",
        "        if False:\n",
        (_CONCLUSIONS + "test_not_sent_is_not_believed_while_a_call_given_up_may_still_arrive",),
    ),
    Mutation(
        "past its TTL what is in doubt is parked",
        "recovery.unknown.decisions:conclude",
        "    if doubt.now >= doubt.delivery.expires_at:\n",
        "    if False:\n",
        (_CONCLUSIONS + "test_past_its_ttl_a_person_decides",),
    ),
    Mutation(
        "while the provider may still say, the policy waits",
        "recovery.unknown.decisions:conclude",
        "    if found is not None and not found.final and doubt.now < _patience_ends(doubt):\n",
        "    if False:\n",
        (_CONCLUSIONS + "test_a_provider_that_cannot_say_is_asked_again_ever_more_rarely",),
    ),
    Mutation(
        "with its attempts spent what is in doubt is parked",
        "recovery.unknown.decisions:_without_proof",
        "    if doubt.delivery.spent >= policy.retry.attempts:\n",
        "    if False:\n",
        (_CONCLUSIONS + "test_with_its_attempts_spent_a_person_decides",),
    ),
    Mutation(
        "past its horizon what is in doubt is parked",
        "recovery.unknown.decisions:_again",
        "    if doubt.now + delay_ms >= horizon_ends(doubt.delivery, policy.retry):\n",
        "    if False:\n",
        (_CONCLUSIONS + "test_another_call_later_than_its_horizon_is_left_to_a_person",),
    ),
    Mutation(
        "past its horizon a retry is not made",
        "recovery.retry.stage:RetryStage._horizon_over",
        "        return self._context.clock.now_ms() >= horizon_ends(delivery, policy.retry)\n",
        "        return False\n",
        (
            _RESENDING + "test_past_its_horizon_it_is_parked_without_a_call[at_most_once-sqlite]",
            _RESENDING + "test_a_horizon_that_is_over_takes_no_doubt_away[at_most_once-sqlite]",
        ),
    ),
    Mutation(
        "a retry that a person wants knows no horizon",
        "recovery.retry.stage:RetryStage._horizon_over",
        "        if delivery.attempt <= 1 or by_operator(taken.reason):\n",
        "        if delivery.attempt <= 1:\n",
        (
            _RESENDING
            + "test_past_its_horizon_it_goes_if_a_person_wants_it_sent[at_most_once-sqlite]",
        ),
    ),
    Mutation(
        "a first send knows no horizon",
        "recovery.retry.stage:RetryStage._horizon_over",
        "        if delivery.attempt <= 1 or by_operator(taken.reason):\n",
        "        if by_operator(taken.reason):\n",
        (_RESENDING + "test_past_its_horizon_a_first_send_goes[at_most_once-sqlite]",),
    ),
    Mutation(
        "a repeat only while the dedup window is open",
        "recovery.unknown.decisions:_without_proof",
        "    if facts.repeats_until > doubt.now:\n",
        "    if facts.repeats_until >= doubt.now:\n",
        (_CONCLUSIONS + "test_the_end_of_the_window_is_outside_of_it",),
    ),
    Mutation(
        "at_most_once without proof is parked",
        "recovery.unknown.decisions:_without_proof",
        "    if not policy.resends_unproven:\n",
        "    if False:\n",
        (_CONCLUSIONS + "test_half_of_its_time_gone_without_an_answer_the_policy_decides",),
    ),
    Mutation(
        "what one account has not says nothing for another that cannot be asked",
        "recovery.unknown.decisions:together",
        "    if not found or len(found) < len(answers):\n",
        "    if not found:\n",
        (_CONCLUSIONS + "test_several_accounts_say_one_word",),
    ),
    Mutation(
        "a doubt is one recovery's until its lease ends",
        "idempotency.recovery.store:SqlRecovering._leased",
        '        values = {"next_at": now + lease_ms, "source": State.UNKNOWN}\n',
        '        values = {"next_at": now, "source": State.UNKNOWN}\n',
        (_ROWS + "test_a_doubt_is_one_recoverys_until_its_lease_ends" + _LITE,),
    ),
    Mutation(
        "a recovery that died holds doubts up for eight timeouts only",
        "recovery.unknown.resolver:Resolving._batch",
        "self._ledger.doubts(lane, 2 * last_ms, BATCH, ended=ended)",
        "self._ledger.doubts(lane, BATCH * last_ms, BATCH, ended=ended)",
        (
            _RESOLVING
            + "test_what_a_recovery_was_asking_as_it_died_is_asked_again_after_eight_timeouts"
            + _LITE,
        ),
    ),
    Mutation(
        "nobody asks about what its lease no longer covers",
        "recovery.unknown.resolver:Resolving._batch",
        "            if self._stopping() or self._monotonic() > until:\n",
        "            if self._stopping():\n",
        (_RESOLVING + "test_what_was_not_come_to_in_time_is_anothers_at_once" + _LITE,),
    ),
    # -- repeats in the provider's window --
    Mutation(
        "a repeat goes through the account of the call that it repeats",
        "recovery.retry.retry_lane:RetryLane.bound_to",
        "        return delivery.account if same else delivery.notification.account\n",
        "        return delivery.notification.account\n",
        (_ROUTES + "test_a_repeat_goes_through_the_same_account",),
    ),
    Mutation(
        "a repeat begins a margin and a timeout before the window ends",
        "sending.lane_routes:Route.window_ends",
        "called_at + int(window * (1 - MARGIN)) - timeout_ms if window",
        "called_at + window if window",
        (_ROUTES + "test_a_repeat_must_begin_a_margin_and_a_timeout_before_the_window_ends",),
    ),
    Mutation(
        "another body is no repeat",
        "recovery.retry.stage:_unfit",
        "        other = same and not route.repeats([delivery], taken.call_digest)\n",
        "        other = False\n",
        (_RESENDING + "test_a_body_that_changed_while_it_waited_is_no_repeat",),
    ),
    Mutation(
        "the resolver repeats only the very same call",
        "recovery.unknown.resolver:Resolving._repeats_until",
        "        return until if route.repeats([doubt.delivery], doubt.call_digest) else 0\n",
        "        return until\n",
        (_RESENDING + "test_another_body_is_no_repeat",),
    ),
    Mutation(
        "no repeat begins once its window is over",
        "recovery.retry.pool:RetryPool._too_late",
        "        if resend.not_after and now >= resend.not_after:\n",
        "        if False:\n",
        (_GUARDS + "test_no_repeat_begins_once_the_providers_window_is_over",),
    ),
    Mutation(
        "a repeat that was not sent says nothing of the call before it",
        "recovery.retry.settler:settlement_of",
        "    if resend.doubted and isinstance(end, NotSent):\n",
        "    if False:\n",
        (_RESENDING + "test_a_repeat_that_was_not_sent_says_nothing_of_the_call_before_it",),
    ),
    # -- what is due: invariants 2, 3 and 4 --
    Mutation(
        "TTL before a resend is taken",
        "idempotency.recovery.contract:judge",
        "    if row.expires_at <= now:\n",
        "    if False:\n",
        (
            _ROWS + "test_past_its_ttl_a_row_expires_even_if_its_turn_is_later" + _LITE,
            _ROWS + "test_past_its_ttl_a_row_that_may_have_been_sent_is_parked" + _LITE,
        ),
    ),
    Mutation(
        "what may have been sent does not expire",
        "idempotency.recovery.contract:judge",
        "DueVerdict(State.PARKED, TTL_IN_DOUBT) if doubted else DueVerdict(State.EXPIRED, TTL)",
        "DueVerdict(State.EXPIRED, TTL)",
        (_ROWS + "test_past_its_ttl_a_row_that_may_have_been_sent_is_parked" + _LITE,),
    ),
    Mutation(
        "TTL right before a resend",
        "recovery.retry.pool:RetryPool._too_late",
        "        if now >= taken.delivery.expires_at:\n",
        "        if False:\n",
        (_GUARDS + "test_nothing_is_sent_again_past_its_ttl_in_recoverys_queue",),
    ),
    Mutation(
        "the lease right before a resend",
        "recovery.retry.pool:RetryPool._refusal",
        "        return self._too_late(resend) or NotStarted(Event.UNKNOWN, LEASE_LAPSED)\n",
        "        return self._too_late(resend)\n",
        (_GUARDS + "test_nothing_is_sent_again_without_a_lease",),
    ),
    Mutation(
        "a resend carries the end of its lease",
        "sending.call_pool:CallPool._not_after",
        "        return min([self._permit.ends_at(work.term) for work in works])\n",
        '        return float("inf")\n',
        (_RESENDING + "test_a_call_carries_the_end_of_the_lease_it_is_made_under",),
    ),
    Mutation(
        "a recovery that stops begins nothing more",
        "recovery.retry.pool:RetryPool._too_late",
        "        if self._stopping:\n",
        "        if False:\n",
        (_GUARDS + "test_a_recovery_that_stops_gives_back_what_it_has_not_begun",),
    ),
    Mutation(
        "with its attempts spent a row is parked",
        "idempotency.recovery.contract:judge",
        "    if row.attempt - row.refusals >= ask.attempts and not _goes_once_more(row.reason):\n",
        "    if False:\n",
        (_ROWS + "test_with_its_attempts_spent_a_row_is_parked" + _LITE,),
    ),
    Mutation(
        "a person's retry counts no attempts",
        "idempotency.recovery.contract:judge",
        "    if row.attempt - row.refusals >= ask.attempts and not _goes_once_more(row.reason):\n",
        "    if row.attempt - row.refusals >= ask.attempts:\n",
        (_ROWS + "test_a_persons_retry_replaces_the_pending_one" + _LITE,),
    ),
    Mutation(
        "only the head of a line is taken",
        "idempotency.recovery.contract:judge",
        "    if row.ahead:\n",
        "    if False:\n",
        (_ROWS + "test_only_the_head_of_a_line_is_taken" + _LITE,),
    ),
    Mutation(
        "an outcome that ends a head wakes the next of its line",
        "idempotency.claims.sqlite:SqliteBatches._change_in_lines",
        "            self._lines.wake(connection.execute, lines, now)\n",
        "",
        (_ROWS + "test_however_a_worker_ends_a_head_the_next_is_due_at_once[sqlite-Accepted]",),
    ),
    Mutation(
        "PostgreSQL: an outcome that ends a head wakes the next of its line",
        "idempotency.claims.postgres:PostgresBatches._change_in_lines",
        "            self._lines.wake(execute, lines, 0)\n",
        "",
        (_ROWS + "test_however_a_worker_ends_a_head_the_next_is_due_at_once[postgresql-Accepted]",),
    ),
    Mutation(
        "PostgreSQL: who ends a head waits for the claims under way in its line",
        "idempotency.claims.postgres:PostgresBatches._change_in_lines",
        "            self._lines.lock(execute, lines)\n",
        "",
        (_LINES + "test_an_outcome_that_ends_a_head_waits_for_a_claim_under_way_in_its_line",),
    ),
    Mutation(
        "a head whose time is over wakes the next of its line",
        "idempotency.recovery.store:SqlRecovering._end",
        "            written = self._written(connection, self._sql.end, rows, now=now)\n"
        "            self._lines.wake(connection.exec_driver_sql, lines, now)\n",
        "            written = self._written(connection, self._sql.end, rows, now=now)\n",
        (_ROWS + "test_a_head_whose_time_is_over_makes_way" + _LITE,),
    ),
    Mutation(
        "a head that is decided or recalled wakes the next of its line",
        "idempotency.recovery.store:SqlRecovering.move",
        "            written = self._written(connection, self._sql.move, rows, now=now)\n"
        "            self._lines.wake(connection.exec_driver_sql, lines, now)\n",
        "            written = self._written(connection, self._sql.move, rows, now=now)\n",
        (
            _ROWS + "test_a_head_in_doubt_that_is_decided_makes_way" + _LITE,
            _ROWS + "test_a_head_that_is_recalled_makes_way" + _LITE,
        ),
    ),
    Mutation(
        "what is put to sleep wakes its head",
        "idempotency.recovery.store:SqlRecovering._sleep",
        "[_read(row) for row in rows])\n"
        "            self._lines.wake(connection.exec_driver_sql, lines, now)\n",
        "[_read(row) for row in rows])\n",
        (
            _LINES
            + "test_a_head_that_was_claimed_later_is_woken_by_whoever_stands_behind_it"
            + _LITE,
        ),
    ),
    Mutation(
        "a wake cuts no wait short",
        "idempotency.lines:LITE_WAKE",
        "   AND +state = 'RETRY' AND next_at = {ASLEEP_AT}",
        "   AND +state = 'RETRY' AND next_at > :now",
        (_ROWS + "test_a_wake_leaves_receivers_that_wait_alone" + _LITE,),
    ),
    Mutation(
        "a call after a definite non-send has a key of its own",
        "idempotency.recovery.contract:call_key_of",
        "    if attempt <= 1:\n",
        "    if True:\n",
        (_RESENDING + "test_a_call_after_a_definite_non_send_has_a_key_of_its_own",),
    ),
    Mutation(
        "only what is on record is called again",
        "recovery.retry.stage:RetryStage._ours",
        "        return kept\n",
        "        return True\n",
        (_RESENDING + "test_a_row_swept_between_the_take_and_the_call_is_not_sent",),
    ),
    Mutation(
        "a stale token puts nothing on record",
        "idempotency.recovery.statements:_KEEP",
        "policy_version)\n  FROM {given}\n WHERE {its_row} AND d.token = i.its_token"
        " AND d.state || '' = 'IN_FLIGHT'",
        "policy_version)\n  FROM {given}\n WHERE {its_row}",
        (_RESENDING + "test_a_row_swept_between_the_take_and_the_call_is_not_sent",),
    ),
    Mutation(
        "a joint call is repeated only where it is the very same",
        "recovery.unknown.call_replay:Repeating._same",
        "        return route.repeats([one.delivery for one in doubts], doubts[0].call_digest)\n",
        "        return True\n",
        (
            _REPEATING + "test_without_one_of_them_it_is_another_call_and_the_policy_decides",
            _REPEATING + "test_with_another_text_it_is_another_call",
        ),
    ),
    Mutation(
        "a joint call is not repeated before all of it can be in doubt",
        "recovery.unknown.call_replay:_not_before",
        "    return max(quiet_ms(policy.quiet_hours, doubt.now), settling, 0)\n",
        "    return max(quiet_ms(policy.quiet_hours, doubt.now), 0)\n",
        (_REPEATING + "test_it_waits_until_all_of_the_call_can_be_here",),
    ),
    Mutation(
        "a joint call is not repeated past its window",
        "recovery.unknown.call_replay:_in_time",
        "    return doubt.now < min(ends, horizon, doubt.delivery.expires_at)\n",
        "    return ends > 0\n",
        (_REPEATING + "test_once_its_window_is_over_the_policy_decides",),
    ),
    Mutation(
        "a joint call is not repeated past the horizon",
        "recovery.unknown.call_replay:_in_time",
        "    return doubt.now < min(ends, horizon, doubt.delivery.expires_at)\n",
        "    return doubt.now < min(ends, doubt.delivery.expires_at)\n",
        (_REPEATING + "test_past_its_horizon_it_is_not_made",),
    ),
    Mutation(
        "a refused repeat says nothing of the first call",
        "recovery.unknown.call_replay:_move",
        "    if taken and not isinstance(outcome, Unknown):\n",
        "    if not isinstance(outcome, Unknown):\n",
        (_REPEATING + "test_a_call_that_is_refused_says_nothing_of_the_first",),
    ),
    # -- two at once --
    Mutation(
        "a move is made on the version that it was decided on",
        "idempotency.recovery.statements:_MOVE",
        "call_digest = CASE WHEN i.certain THEN NULL ELSE d.call_digest END\n  FROM {given}\n"
        " WHERE {its_row} AND d.version = i.version AND d.state || '' = i.source",
        "call_digest = CASE WHEN i.certain THEN NULL ELSE d.call_digest END\n  FROM {given}\n"
        " WHERE {its_row} AND d.version >= i.version AND d.state || '' = i.source",
        (_ROWS + "test_a_doubt_is_one_recoverys_until_its_lease_ends" + _LITE,),
    ),
    Mutation(
        "a row that went on is moved by nobody who came too late",
        "idempotency.recovery.statements:_MOVE",
        "call_digest = CASE WHEN i.certain THEN NULL ELSE d.call_digest END\n  FROM {given}\n"
        " WHERE {its_row} AND d.version = i.version AND d.state || '' = i.source",
        "call_digest = CASE WHEN i.certain THEN NULL ELSE d.call_digest END\n  FROM {given}\n"
        " WHERE {its_row}",
        (_ROWS + "test_of_a_persons_retry_and_an_automatic_one_the_first_wins" + _LITE,),
    ),
    Mutation(
        "PostgreSQL: a row that another holds is passed by",
        "idempotency.recovery.statements:for_postgres",
        '"lock": "FOR UPDATE OF d SKIP LOCKED"',
        '"lock": "FOR UPDATE OF d"',
        (_GUARDS + "test_a_row_that_another_holds_is_passed_by_and_not_waited_for",),
    ),
    Mutation(
        "a duty has one holder",
        "idempotency.fleet.duties:_HOLD",
        "\n WHERE duties.holder = excluded.holder OR duties.until < :now",
        "",
        (_ROWS + "test_a_duty_has_one_holder_until_its_lease_ends" + _LITE,),
    ),
    Mutation(
        "while Celery is silent the built-in schedule looks",
        "recovery.scheduling.stand_in:StandIn.run_once",
        "        self._loop.run_once(pool)\n",
        "",
        (_OUTAGE + "test_the_built_in_schedule_looks_only_while_celery_is_silent",),
    ),
    Mutation(
        "a Celery worker that reads no queue is ended",
        "recovery.scheduling.deaf_worker:DeafWorkerWatch.look",
        "        elif now - self._since >= DEAF_S:\n",
        "        elif now - self._since >= DEAF_S and not self._waiting():\n",
        (_OUTAGE + "test_a_worker_is_ended_once_its_queue_was_never_empty_in_one_silence",),
    ),
    Mutation(
        "a Celery worker whose queue was empty meanwhile goes on",
        "recovery.scheduling.deaf_worker:DeafWorkerWatch.look",
        "            self._since = None\n        elif self",
        "            pass\n        elif self",
        (_OUTAGE + "test_a_worker_whose_queue_was_empty_meanwhile_goes_on",),
    ),
    Mutation(
        "a Celery worker that ran a task meanwhile goes on",
        "recovery.scheduling.deaf_worker:DeafWorkerWatch.look",
        "        elif self._since is None or self._silent_s() < now - self._since:\n",
        "        elif self._since is None:\n",
        (_OUTAGE + "test_a_worker_that_ran_a_task_between_two_looks_goes_on",),
    ),
    Mutation(
        "a deaf Celery worker is followed by another one",
        "recovery.scheduling.celery_worker:Celery._work",
        "            state.should_stop = None\n",
        "            pass\n",
        (
            _OUTAGE
            + "test_a_worker_that_reads_no_queue_is_replaced_and_recovery_goes_on_meanwhile"
            + "[postgresql]",
        ),
    ),
    Mutation(
        "a key that Celery cannot use is moved aside",
        "backends.redis.client_types:_SCRIPT",
        "found ~= 'none' and found ~= ARGV[i + 1]",
        "false",
        (
            _OUTAGE
            + "test_a_key_of_a_wrong_type_is_named_and_moved_aside_at_the_start[unacked-postgresql]",
        ),
    ),
    Mutation(
        "an alert is told once in its window",
        "idempotency.alerts.windows:AlertWindows.note",
        "row.told_at + window_ms <= now and (row.kept or row.lasting)",
        "(row.kept or row.lasting)",
        (_ALERTS + "test_many_processes_at_once_tell_and_post_exactly_what_came_up" + _LITE,),
    ),
    Mutation(
        "what was kept back is told when the window ends",
        "idempotency.alerts.windows:_kept_up",
        "tail = row.kept > 0 and row.told_at + window_ms <= now",
        "tail = False",
        (_ALERTS + "test_what_was_kept_back_is_told_when_the_window_ends" + _LITE,),
    ),
    Mutation(
        "a post is claimed before it is made",
        "idempotency.alerts.windows:AlertWindows.claim_post",
        '            connection.execute(sql.LEASE_POST, name | {"until": now + lease_ms})\n',
        "",
        (_ALERTS + "test_a_process_that_died_while_it_posted_is_replaced_after_its_lease" + _LITE,),
    ),
    Mutation(
        "after an outage of the ledger nothing is taken for over or lost",
        "sending.alerts.fleet:FleetAlerts._look",
        "settled = self._monotonic() - self._answers_since >= CLEAR_S",
        "settled = True",
        (_ALERTS + "test_after_an_outage_of_the_ledger_nothing_is_taken_for_over" + _LITE,),
    ),
    Mutation(
        "a row at its bound is parked instead of failing its batch",
        "idempotency.recovery.contract:judge",
        "    if not is_usable(row):\n        return DueVerdict(State.PARKED, ROW_UNUSABLE)\n",
        "",
        (
            _BOUNDS
            + "test_a_row_that_cannot_be_counted_on_is_parked_and_the_batch_goes_on[sqlite-version]",
        ),
    ),
    Mutation(
        "one lost worker is counted once",
        "idempotency.fleet.health:_LOST",
        "a.last_at >= w.heartbeat_at",
        "a.last_at < w.heartbeat_at",
        (_ALERTS + "test_one_lost_worker_is_one_alert_counted_once" + _LITE,),
    ),
    Mutation(
        "of all schedulers the one with the duty sends",
        "recovery.scheduling.leader_beat:LeasedScheduler.tick",
        "        if not self._holds():\n            return _ASK_S\n",
        "",
        ("tests/recovery/test_celery.py::test_a_scheduler_without_the_duty_sends_nothing",),
    ),
    # -- live traffic comes first --
    Mutation(
        "a lane takes no more than its threads have room for",
        "recovery.retry.pool:RetryPool.room",
        "        return free if free > self._capacity // 4 else 0\n",
        "        return self._capacity\n",
        (_RESENDING + "test_a_lane_takes_no_more_than_its_threads_and_its_rate_have_room_for",),
    ),
    Mutation(
        "a receiver at its limit waits in the ledger",
        "recovery.retry.stage:RetryStage._held_back",
        "        delays = self._delays(pairs)\n",
        "        delays = [0] * len(pairs)\n",
        (_RESENDING + "test_a_receiver_at_its_limit_waits_in_the_ledger_with_its_attempt",),
    ),
    # -- marks of the gates --
    Mutation(
        "what may have been sent keeps its marks",
        "recovery.retry.stage:RetryStage._report_ended",
        "for row in ended if not row.doubted])\n",
        "for row in ended])\n",
        (_MARKS + "test_what_may_have_been_sent_keeps_its_marks",),
    ),
    Mutation(
        "a worker forgets what another process gave back, and nothing else",
        "sending.receiver_marks:GateMarks._remembered",
        "        back = [Returned(m, 0) for m, gone in zip(makers, answers, strict=True) if gone]\n",
        "        back = [Returned(m, 0) for m, _ in zip(makers, answers, strict=True)]\n",
        (
            "tests/dispatcher/pipeline/test_gates.py::test_a_redis_that_forgot_marks_nothing_that_is_dropped",
        ),
    ),
    # -- a person's word --
    Mutation(
        "a person's word about one call is not taken for another's",
        "recovery.operator_actions:Operator._moved_later",
        "            if now is None or _doubt(now) != _doubt(pick):\n",
        "            if now is None:\n",
        (_OPERATOR + "test_a_doubt_of_another_call_is_looked_at_again" + _LITE,),
    ),
    Mutation(
        "what surely was not sent is not said to have arrived",
        "recovery.operator_rules:_not_decided",
        "    if pick.state is State.UNKNOWN or (pick.state is State.PARKED and pick.doubted):\n",
        "    if pick.state is State.UNKNOWN or pick.state is State.PARKED:\n",
        (_OPERATOR + "test_what_surely_was_not_sent_is_not_decided_by_hand",),
    ),
)
