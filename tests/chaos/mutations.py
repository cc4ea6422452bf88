"""Mutation checks of the guards: each is switched off in a copy of the tree, and the quick
tests named beside it must fail. A guard whose test stays green is guarded by nobody.

    make mutation                 all of them
    make mutation ARGS="lease"    those whose name or place has this in it
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path

from rich.console import Console

from deploy.local.layout import REPOSITORY
from tests.chaos.mutation import Misplaced, Mutation, section_of
from tests.chaos.mutations_console import CONSOLE
from tests.chaos.mutations_control import CONTROL
from tests.chaos.mutations_doctor import DOCTOR
from tests.chaos.mutations_faults import FAULTS
from tests.chaos.mutations_http2 import HTTP2
from tests.chaos.mutations_lookback import LOOKBACK
from tests.chaos.mutations_lost import LOST
from tests.chaos.mutations_outcomes import OUTCOMES
from tests.chaos.mutations_recovery import RECOVERY
from tests.chaos.mutations_relay import RELAY
from tests.chaos.mutations_resolvers import RESOLVERS
from tests.chaos.mutations_spark import SPARK
from tests.chaos.mutations_spark_lost import SPARK_LOST

_LIMIT_S = 180
_OUTCOME = re.compile(r"^(FAILED|ERROR) (\S+)", re.MULTILINE)


class Fate(StrEnum):
    """What became of a mutation."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    """Some killer stayed green."""
    UNFIT = "UNFIT"
    """The table does not fit the source: the text is not there, or the tests could not run."""


_ENGINE = "tests/channels/test_engine.py::"
_ENVELOPE = "tests/message/test_envelope.py::test_what_is_no_envelope_is_named_at_the_root"
_LIMITS = "tests/receipts/test_connection_limits.py::"
_PULLER = "tests/receipts/test_puller.py::"
_REASONS = "tests/dispatcher/test_reasons.py::"
_GUARDS = "tests/chaos/test_guards.py::"
_SOURCE = "tests/dispatcher/kafka/test_source.py::"
_REMOVED = "tests/dispatcher/kafka/test_removed_records.py::"
_DEAD = "tests/dispatcher/test_dead_letters.py::"
_MEMBER = "tests/dispatcher/kafka/test_group_member.py::"
_RUNS = "tests/dispatcher/kafka/test_offset_metadata.py::"
_RIDING = "tests/dispatcher/pipeline/test_combined_commit.py::"
_CLAIMS = "tests/dispatcher/pipeline/test_claims.py::"
_AFTERMATH = "tests/dispatcher/pipeline/test_completion.py::"
_AGAIN = "tests/dispatcher/pipeline/test_immediate_retry.py::"
_LANES = "tests/dispatcher/pipeline/test_lanes.py::"
_ANSWERS = "tests/channels/http_client/test_answer_reader.py::"
_DEAD_READER = "test_what_the_thread_dies_of_leaves_its_calls_in_doubt_and_the_next_are_read"
_LEASE = "tests/sending/runtime/test_lease.py::"
_LEDGER = "tests/idempotency/test_ledger_conformance.py::"
_RACES = "tests/idempotency/test_ledger_races.py::"
_POSTGRES = "tests/idempotency/test_ledger_postgres.py::"
_BACKLOG = "tests/dispatcher/pipeline/test_backlog.py::"
_OUTCOMES = "tests/channels/judging/test_outcomes.py::"
_ACCOUNTS = "tests/sending/accounts/test_selector.py::"
_DECIDE = "tests/sending/test_settlement.py::"
_BATCHING = "tests/dispatcher/pipeline/test_batching.py::"
_PACES = "tests/sending/accounts/test_paces.py::"
_RESENDING = "tests/recovery/retry/test_stage.py::"
_RECEIVERS = "tests/sending/accounts/test_receiver_limits.py::"
_TLS = "tests/channels/tls/test_tls_socket.py::"
_TRANSPORT = "tests/channels/http_client/test_transport.py::"

MUTATIONS: tuple[Mutation, ...] = (
    # -- what strangers write --
    Mutation(
        "a record is UTF-8 in the fields that nobody reads, too",
        "message.envelope:decode",
        '            str(value, "utf-8")\n',
        "            pass\n",
        (
            _ENVELOPE + "[bad-utf8-unread]",
            _ENVELOPE + "[surrogate-bytes-unread]",
            _ENVELOPE + "[overlong-unread]",
        ),
    ),
    Mutation(
        "a request's head is bounded before anything of it is kept",
        "receipts.process:_opened",
        "        h11_max_incomplete_event_size=HEAD_BYTES,\n",
        "        h11_max_incomplete_event_size=1 << 40,\n",
        (_LIMITS + "test_what_never_ends_is_cut_off_and_not_kept",),
    ),
    Mutation(
        "a form has a bounded number of fields, whoever signed it",
        "receipts.push:Push.form",
        "            return parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)\n",
        "            return parse_qsl(text, keep_blank_values=True)\n",
        ("tests/receipts/test_parsers.py::test_a_form_beyond_its_bounds_is_not_read[fields]",),
    ),
    Mutation(
        "pulled receipts are held, whatever error their storing meets",
        "receipts.puller:Puller._keep",
        "            except Exception as exc:  # nobody",
        "            except ZeroDivisionError as exc:  # nobody",
        (_PULLER + "test_what_was_given_out_is_held_until_the_database_is_back[bug]",),
    ),
    Mutation(
        "the death of a puller ends the process",
        "receipts.puller:Puller.start",
        '        self._thread = threads.start(f"pull-{self._account.name}", self.run)\n',
        "        self._thread = threading.Thread(target=self.run)\n        self._thread.start()\n",
        ("tests/receipts/test_process.py::test_the_death_of_a_loop_ends_the_process[Puller]",),
    ),
    Mutation(
        "a reason that no table names is counted, and ends nothing",
        "dispatcher.pipeline.gates:SendGates.__init__",
        "        self._dropped = Counter(dict.fromkeys(GATE_REASONS, 0))\n",
        "        self._dropped = dict.fromkeys(GATE_REASONS, 0)\n",
        (_REASONS + "test_a_reason_that_nobody_entered_is_counted_under_its_own_name",),
    ),
    Mutation(
        "a refusal counts for the account whose adapter was asked, and for no other",
        "dispatcher.pipeline.binding:refusal_by",
        "    if work.asked is None or work.asked[0] != account.name:\n",
        "    if work.asked is None:\n",
        (_BATCHING + "test_the_refusal_of_one_account_does_not_follow_a_work_to_another[asked]",),
    ),
    Mutation(
        "an account that comes while the fleet is asked for its paces waits for the next question",
        "sending.accounts.paces:AccountPaces.tick",
        "        self._follow(served, paces)\n",
        "        self._follow(self._served, paces)\n",
        (
            _PACES + "test_an_account_may_be_added_while_the_fleet_is_asked[False]",
            _PACES + "test_an_account_may_be_added_while_the_fleet_is_asked[True]",
        ),
    ),
    # -- offsets and commits: invariants 1, 9 and 10 --
    Mutation(
        "the lowest completed offset is committed, not the highest",
        "dispatcher.kafka.commits:Commits._dirty",
        "        watermark = assignment.offsets.watermark\n",
        "        watermark = assignment.offsets._next\n",
        (_SOURCE + "test_the_lowest_contiguous_completed_offset_is_what_gets_committed",),
    ),
    Mutation(
        "what was given back keeps its offset",
        "dispatcher.kafka.source:Source._complete",
        "if assignment.state is not PartitionState.LOST and not given_back:",
        "if assignment.state is not PartitionState.LOST:",
        (_SOURCE + "test_a_record_given_back_keeps_its_offset",),
    ),
    Mutation(
        "nothing is committed for a partition that is gone (PartitionState.LOST)",
        "dispatcher.kafka.source:Source._complete",
        "        if assignment.state is not PartitionState.LOST and not given_back:\n"
        "            assignment.offsets.complete(record.offset)\n",
        "        if not given_back:\n"
        "            place = (assignment.topic, assignment.partition)\n"
        "            self._assignments.get(place, assignment).offsets.complete(record.offset)\n",
        (_SOURCE + "test_old_work_of_a_partition_lost_and_regained_moves_no_offset",),
    ),
    Mutation(
        "a partition let go is forgotten by the commits",
        "dispatcher.kafka.source:Source._let_go",
        "            assignment.state = PartitionState.LOST\n"
        "            self._commits.forget(assignment)\n"
        "            self._assignments.pop((assignment.topic, assignment.partition), None)\n",
        "            self._commits.forget(assignment)\n",
        (
            _SOURCE + "test_nothing_is_committed_for_a_partition_that_was_revoked",
            _SOURCE + "test_a_lost_partition_is_not_committed_at_all",
        ),
    ),
    Mutation(
        "a member that its group refused has nothing any more",
        "dispatcher.kafka.source:Source._on_refused",
        "        lost = self.assignments\n        self._let_go(lost)\n",
        "        lost = self.assignments\n",
        (_SOURCE + "test_what_a_refused_member_held_is_not_committed_by_its_successor",),
    ),
    Mutation(
        "what a refused member held is let go before its consumer closes",
        "dispatcher.kafka.group_member:GroupMember._give_up",
        "        self._on_refused()\n",
        "        pass\n",
        (_MEMBER + "test_what_it_held_is_let_go_before_the_refused_consumer_closes",),
    ),
    Mutation(
        "an instance id in use is waited for",
        "dispatcher.kafka.group_member:GroupMember._refused",
        "        elif code == _ID_IN_USE:\n            self._wait_for_id()\n",
        "",
        (_MEMBER + "test_it_waits_for_its_instance_id_a_second_at_a_time_and_says_why",),
    ),
    Mutation(
        "a gap of offsets is looked into",
        "dispatcher.kafka.offsets:Offsets.register",
        "                self._on_gap(self._next, offset)\n",
        "                pass\n",
        (_REMOVED + "test_the_source_tells_of_gaps_and_of_committed_offsets",),
    ),
    Mutation(
        "poison that fits nowhere becomes a stub",
        "dispatcher.dead_letters.writer:DeadLetterWriter._too_large",
        "        if by_itself:\n            poison.shrink()\n",
        "",
        (_DEAD + "test_what_is_too_large_in_any_form_becomes_a_stub",),
    ),
    Mutation(
        "what shared a batch with what is too large is kept whole",
        "dispatcher.dead_letters.writer:DeadLetterWriter._too_large",
        "        if by_itself:\n            poison.shrink()\n",
        "        poison.shrink()\n",
        (_DEAD + "test_what_only_shared_a_batch_with_what_is_too_large_is_kept_whole",),
    ),
    Mutation(
        "an unreadable batch is tried several times, apart from each other",
        "dispatcher.kafka.unreadable:UnreadableBatches.give_up",
        "        if now - known.last_at < APART_S:\n            return False\n",
        "",
        (_SOURCE + "test_reports_of_an_unreadable_batch_that_come_at_once_are_one_try",),
    ),
    Mutation(
        "a failed commit leaves the position dirty",
        "dispatcher.kafka.commits:Commits.acknowledged",
        "            failure = place.error or error\n",
        "            failure = None\n",
        (_SOURCE + "test_a_failed_commit_leaves_the_position_dirty_and_it_is_committed_again",),
    ),
    Mutation(
        "never two commits at a time",
        "dispatcher.kafka.commits:Commits.commit_if_due",
        "        if self._sent or (not now and moment - self._last_at < INTERVAL_S):\n",
        "        if not now and moment - self._last_at < INTERVAL_S:\n",
        (_SOURCE + "test_an_unanswered_commit_is_given_up_and_sent_again",),
    ),
    Mutation(
        "poison holds its offset until the dead letter is acknowledged",
        "dispatcher.kafka.source:Source._read",
        "            self._put_poison(_poison(message, assignment, offset, exc, headers or []))\n",
        "            self._put_poison(_poison(message, assignment, offset, exc, headers or []))\n"
        "            assignment.offsets.complete(offset)\n",
        (_SOURCE + "test_poison_goes_to_the_dead_letters_and_holds_its_offset",),
    ),
    Mutation(
        "damaged metadata skips nothing",
        "dispatcher.kafka.offset_metadata:decode",
        '    if crc32(body).to_bytes(_CRC_BYTES, "big") != data[:_CRC_BYTES]:\n        return []\n',
        "",
        (_RUNS + "test_foreign_damaged_or_stale_metadata_reads_as_no_runs",),
    ),
    Mutation(
        "metadata of another commit skips nothing",
        "dispatcher.kafka.offset_metadata:decode",
        "    if not numbers or numbers[0] != watermark or len(numbers) % 2 == 0:\n",
        "    if not numbers or len(numbers) % 2 == 0:\n",
        (_RUNS + "test_foreign_damaged_or_stale_metadata_reads_as_no_runs",),
    ),
    Mutation(
        "a lane at its limit pauses its partitions",
        "dispatcher.kafka.backpressure:LaneFlow.wants_pause",
        "        return full or self.bytes >= self.max_bytes * share\n",
        "        return False\n",
        (
            _SOURCE + "test_partitions_pause_at_the_limit_and_resume_at_half",
            _SOURCE + "test_bytes_pause_a_lane_as_records_do",
        ),
    ),
    # -- claim: invariants 2 and 3 --
    Mutation(
        "a claim is durable before a lane gets the delivery",
        "dispatcher.pipeline.intake:Intake.admit",
        "        try:\n            to_send, ended = self._gate.admit(works)\n",
        "        for work in works:\n"
        "            self._pools[work.delivery.lane].put([work])\n"
        "        try:\n"
        "            to_send, ended = self._gate.admit(works)\n",
        (_GUARDS + "test_nothing_is_handed_to_a_lane_before_its_claim_is_durable",),
    ),
    Mutation(
        "a claim that nobody answered is not won",
        "dispatcher.pipeline.claims:LedgerClaims._claim",
        '        answers = self._outage.until_available("intake", enter)\n',
        "        try:\n"
        "            answers = enter()\n"
        "        except LedgerUnavailable:\n"
        "            answers = [Claimed(True, State.IN_FLIGHT)] * len(works)\n",
        (_GUARDS + "test_a_claim_that_the_ledger_did_not_answer_is_not_won",),
    ),
    Mutation(
        "only what this claim won is sent",
        "dispatcher.pipeline.claims:_divide",
        "        if answer.won and answer.state is State.IN_FLIGHT:\n",
        "        if answer.state is State.IN_FLIGHT:\n",
        (_GUARDS + "test_what_is_not_ours_to_send_does_not_reach_a_lane",),
    ),
    Mutation(
        "what stands behind an open one of its key is not sent",
        "dispatcher.pipeline.claims:_divide",
        "        if answer.won and answer.state is State.IN_FLIGHT:\n",
        "        if answer.won:\n",
        (_GUARDS + "test_what_is_not_ours_to_send_does_not_reach_a_lane",),
    ),
    Mutation(
        "quiet hours that begin in an outage hold for what waited to be claimed",
        "dispatcher.pipeline.claims:_ClaimTries.next",
        "        if self.claims:\n",
        "        if False:\n",
        (_CLAIMS + "test_quiet_hours_that_begin_in_an_outage_hold_for_what_waited_to_be_claimed",),
    ),
    Mutation(
        "what a try without a reply entered is won by a repeat with a later verdict",
        "idempotency.claims.rows:_entered_by",
        "    if state is State.IN_FLIGHT:\n",
        "    if False:\n",
        (
            _LEDGER
            + "test_a_claim_whose_reply_was_lost_is_won_by_a_repeat_with_a_later_verdict[sqlite-HOLD]",
        ),
    ),
    Mutation(
        "what a try without a reply entered is not sent in quiet hours",
        "dispatcher.pipeline.claims:_divide",
        "            if claim.event in _NOT_TO_SEND:",
        "            if False:",
        (
            _CLAIMS
            + "test_what_the_try_before_the_outage_entered_goes_back_to_the_ledger_in_quiet_hours",
        ),
    ),
    Mutation(
        "TTL is checked at intake",
        "dispatcher.pipeline.claims:_claim_of",
        "    if now >= work.delivery.expires_at:\n        return Claim(",
        "    if False:\n        return Claim(",
        (_GUARDS + "test_what_is_past_its_ttl_at_intake_is_entered_as_expired",),
    ),
    Mutation(
        "a lane claims only what it has room for",
        "dispatcher.pipeline.intake:Intake._take",
        "        room = min(pool.room + freed, limit)\n",
        "        room = limit\n",
        (_GUARDS + "test_a_lane_claims_no_more_than_it_has_room_for",),
    ),
    # -- the lane: invariants 2, 4 and 12 --
    Mutation(
        "TTL is checked right before each send",
        "dispatcher.pipeline.lanes:LanePool._too_late",
        "        if self._clock.now_ms() >= work.delivery.expires_at:\n",
        "        if False:\n",
        (_GUARDS + "test_nothing_is_sent_past_its_ttl_in_the_lanes_queue",),
    ),
    Mutation(
        "the lease is checked right before the first byte",
        "dispatcher.pipeline.lanes:LanePool._refusal",
        "        if reason is not None or not self.leased:\n            return reason\n",
        "        return reason\n",
        (_GUARDS + "test_nothing_is_sent_without_a_lease",),
    ),
    Mutation(
        "a worker that slept past its lease claims nothing",
        "dispatcher.pipeline.claims:LedgerClaims._claim.enter",
        "            if not self._lease_holds():\n                raise",
        "            if False:\n                raise",
        (_GUARDS + "test_a_worker_that_slept_past_its_lease_claims_nothing",),
    ),
    Mutation(
        "no more claims ride along than places are freed",
        "dispatcher.pipeline.intake:Intake._take",
        "        room = min(pool.room + freed, limit)\n",
        "        room = min(pool.room + freed + 1, limit)\n",
        (_RIDING + "test_as_many_are_claimed_as_the_commit_frees_places",),
    ),
    Mutation(
        "claims that lock their lines do not hold up outcomes",
        "dispatcher.pipeline.claims:LedgerClaims.rides",
        "        return lane not in self._ordered\n",
        "        return True\n",
        (_RIDING + "test_lanes_that_lock_their_lines_do_not_ride",),
    ),
    Mutation(
        "nothing is claimed with an outcome under a lapsed lease",
        "dispatcher.pipeline.claims:LedgerClaims.settle_and_claim.enter",
        "                return self._ledger.settle(settlements, self._ordered), None\n",
        "                pass\n",
        (_RIDING + "test_with_a_lapsed_lease_the_outcomes_are_written_and_intake_claims_later",),
    ),
    Mutation(
        "what is in doubt is not called again at once",
        "dispatcher.pipeline.immediate_retry:may_work_at_once",
        "    if not isinstance(outcome, NotSent) or is_paced(outcome):\n",
        "    if type(outcome).__name__ == 'Unknown':\n        return True\n"
        "    if not isinstance(outcome, NotSent) or is_paced(outcome):\n",
        (_AGAIN + "test_what_is_in_doubt_after_the_second_call_is_not_called_a_third_time",),
    ),
    Mutation(
        "only what is on record is called again at once",
        "sending.attempts:on_record",
        "        if ours and may(one):\n",
        "        if may(one):\n",
        (_AGAIN + "test_what_lost_its_claim_is_not_called_again",),
    ),
    Mutation(
        "a call made again at once is an attempt like any other",
        "sending.settlement:may_call_again",
        "    return delivery.spent < retry.attempts and at < horizon_ends(delivery, retry)\n",
        "    return at < horizon_ends(delivery, retry)\n",
        (_AGAIN + "test_it_is_no_more_than_the_attempts",),
    ),
    Mutation(
        "past its horizon no delivery is called again at once",
        "sending.settlement:may_call_again",
        "    return delivery.spent < retry.attempts and at < horizon_ends(delivery, retry)\n",
        "    return delivery.spent < retry.attempts\n",
        (
            _AGAIN + "test_one_past_its_horizon_by_then_is_not_called_again",
            _RESENDING
            + "test_past_its_horizon_it_goes_through_no_other_account[at_most_once-sqlite]",
        ),
    ),
    Mutation(
        "a joint refusal over one delivery parks none of them",
        "sending.settlement:_not_sent",
        "        if not outcome.joint:\n",
        "        if True:\n",
        (_DECIDE + "test_a_joint_refusal_over_one_delivery_parks_none_of_them",),
    ),
    Mutation(
        "what a joint refusal left without an attempt has one call of its own",
        "idempotency.recovery.contract:_goes_once_more",
        "in (OPERATOR, JOINT_REFUSAL)",
        "in (OPERATOR,)",
        (
            _RESENDING
            + "test_what_a_joint_refusal_left_without_an_attempt_has_one_call_of_its_own"
            + "[at_most_once-sqlite]",
        ),
    ),
    Mutation(
        "a refusal for pace spends no attempt",
        "sending.attempts:note_refusals",
        "            one.delivery.refusals += 1\n",
        "            pass\n",
        (
            _LANES
            + "test_what_waits_in_the_queue_of_an_account_that_is_shut_goes_back_without_a_call",
        ),
    ),
    Mutation(
        "a provider that asks to be left alone is",
        "sending.accounts.selector:AccountSelector.record",
        "            self._heed(account, outcomes, begun_at)\n",
        "            pass\n",
        (_ACCOUNTS + "test_a_provider_that_asks_to_be_left_alone_is_not_called_until_then",),
    ),
    Mutation(
        "a provider is never asked again before the time that it named",
        "sending.settlement:_paced",
        "    delay = asked + spread_ms(policy.retry, delivery.refusals, luck())\n",
        "    delay = spread_ms(policy.retry, delivery.refusals, luck())\n",
        (_DECIDE + "test_it_never_waits_for_less_than_the_provider_asked",),
    ),
    Mutation(
        "no thread is held that another delivery waits for",
        "dispatcher.pipeline.immediate_retry:ImmediateRetry._worth_it",
        "        if self._stopping.is_set() or self._others_wait():\n",
        "        if self._stopping.is_set():\n",
        (_AGAIN + "test_a_thread_that_another_delivery_waits_for_goes_on_to_it",),
    ),
    Mutation(
        "a lane that stops begins nothing more",
        "dispatcher.pipeline.lanes:LanePool._too_late",
        "        if self._stopping and self.leased:\n",
        "        if False:\n",
        (_GUARDS + "test_a_lane_that_stops_gives_back_what_it_has_not_begun",),
    ),
    Mutation(
        "a call whose token was refused is repeated only while its deliveries may start",
        "dispatcher.pipeline.lanes:LanePool._follow",
        "                starting = self._starting(starting)",
        "                starting = list(starting)",
        (
            _LANES
            + "test_a_call_whose_token_was_refused_is_repeated_only_while_its_delivery_may_start",
        ),
    ),
    Mutation(
        "a call that was withdrawn while a token was renewed is not made",
        "channels.engine:Engine.send",
        "        return _withdrawn(renewed) or self.send_renewed(",
        "        return self.send_renewed(",
        (_ENGINE + "test_a_call_that_is_withdrawn_while_it_waits_for_a_token_is_not_made[True]",),
    ),
    Mutation(
        "a call that was withdrawn while it waited for a token is not made",
        "channels.engine:Engine._with_token",
        "        return _withdrawn(call) or _with(call, token)\n",
        "        return _with(call, token)\n",
        (_ENGINE + "test_a_call_that_is_withdrawn_while_it_waits_for_a_token_is_not_made[False]",),
    ),
    Mutation(
        "a lane thread that dies leaves its delivery in doubt",
        "dispatcher.pipeline.lanes:LanePool._doubt",
        '                work.end = Unknown(code="thread_died", detail=repr(cause))\n',
        "                pass\n",
        (
            _GUARDS + "test_a_lane_thread_that_dies_leaves_its_delivery_in_doubt_and_is_replaced",
            _LANES
            + "test_an_answer_that_nobody_can_note_leaves_its_call_in_doubt_and_the_lane_at_work",
        ),
    ),
    Mutation(
        "a thread that dies of a second call leaves that in doubt",
        "dispatcher.pipeline.lanes:LanePool._call",
        "            work.end = None  # the end of the call before\n",
        "            pass\n",
        (_LANES + "test_a_thread_that_dies_of_the_second_call_leaves_it_in_doubt",),
    ),
    Mutation(
        "no more calls are under way than the policy has threads",
        "sending.runtime.work_queue:SlottedQueue._next",
        "        self._slots.pop()\n        try:\n            return super()",
        "        try:\n            return super()",
        (
            _LANES
            + "test_a_thread_goes_on_and_no_more_calls_are_under_way_than_the_policy_has_threads",
            "tests/sending/runtime/test_work_queue.py::test_no_more_is_taken_than_there_are_slots",
        ),
    ),
    Mutation(
        "the thread that reads answers makes no call",
        "dispatcher.pipeline.lanes:LanePool._answered",
        "                self._queue.put_first(begun)\n",
        "                self._follow(begun)\n                self._end(begun.works)\n",
        (_LANES + "test_the_thread_that_reads_answers_makes_no_call",),
    ),
    Mutation(
        "an answer that does not come ends at its deadline",
        "channels.http_client.answer_reader:AnswerReader._expire",
        "            if now >= exchange.deadline:\n",
        "            if False:\n",
        (_ANSWERS + "test_one_that_hangs_ends_at_its_deadline_and_holds_up_nobody",),
    ),
    Mutation(
        "a deadline is looked at whoever is at rest",
        "channels.http_client.answer_reader:AnswerReader.add",
        "        if self._idle:\n            self._wake()\n",
        "",
        (_ANSWERS + "test_a_deadline_is_kept_by_a_thread_that_was_at_rest",),
    ),
    Mutation(
        "who adds a call wakes no thread that has ended",
        "channels.http_client.answer_reader:AnswerReader._wake",
        "            if self._epoll is not None and not self._epoll.closed:\n",
        "            if self._epoll is not None:\n",
        (_ANSWERS + "test_who_adds_wakes_nobody_once_the_thread_has_ended",),
    ),
    Mutation(
        "calls whose answers nobody reads any more are in doubt",
        "channels.http_client.answer_reader:AnswerReader._run",
        '                    self._give_up(descriptor, "thread_died", exc)\n',
        "                    pass\n",
        (_ANSWERS + _DEAD_READER,),
    ),
    Mutation(
        "a late answer is never taken for the next call's",
        "channels.http_client.connection:Connection._ended",
        "        if not clean and self._wire is not None:\n",
        "        if False:\n",
        (_TRANSPORT + "test_an_answer_that_comes_too_late_is_not_the_next_calls",),
    ),
    Mutation(
        "the beginning of a stray answer over TLS is seen",
        "channels.tls.tls_socket:TlsWire.silent",
        "            return self.receive_now() is None and not self._part\n",
        "            return self.receive_now() is None\n",
        (_TLS + "test_the_beginning_of_a_stray_answer_ends_the_silence",),
    ),
    Mutation(
        "a stray answer over TLS is seen",
        "channels.tls.tls_socket:TlsWire.silent",
        "            return self.receive_now() is None and not self._part\n",
        "            return True\n",
        (_TLS + "test_a_stray_answer_in_tls_ends_the_silence",),
    ),
    Mutation(
        "an answer over TLS ends with TLS's own end alone",
        "channels.tls.tls_socket:TlsWire._decrypted",
        "            found = self._records.read(_RECORD)\n",
        "            found = b'' if self._incoming.eof else self._records.read(_RECORD)\n",
        (_TLS + "test_an_end_that_tls_did_not_say_is_no_end",),
    ),
    Mutation(
        "the lease is used less a margin",
        "sending.runtime.lease:WorkerLease.__init__",
        "        self._usable_s = self._lease_s * (1 - MARGIN)\n",
        "        self._usable_s = self._lease_s\n",
        (_LEASE + "test_no_send_begins_in_the_last_part_of_a_lease",),
    ),
    Mutation(
        "what was claimed under an earlier term is not sent under a later one",
        "sending.runtime.lease:WorkerLease.wait_valid",
        "        return term == self.term\n",
        "        return True\n",
        (_LEASE + "test_what_was_claimed_before_a_lapse_may_not_be_sent_after_it",),
    ),
    Mutation(
        "nobody is called dead by one that has not seen the database for a whole lease",
        "sending.runtime.lease:WorkerLease._sweep",
        "        if self._clock.monotonic() - self._healthy_since < self._lease_s:\n"
        "            return\n",
        "",
        (_GUARDS + "test_nobody_is_called_dead_right_after_an_outage",),
    ),
    # -- settle and what follows: invariants 4, 6 and 7 --
    Mutation(
        "the ledger is written before Redis",
        "dispatcher.pipeline.settle:Settle.settle",
        "        settled = self._commit(batch, pairs, places) if pairs else SettledBatch(batch)\n"
        "        self._free_room(places)\n"
        "        self._on_settled(settled)\n",
        "        self._on_settled(SettledBatch(batch, pairs, [True] * len(pairs)))\n"
        "        settled = self._commit(batch, pairs, places) if pairs else SettledBatch(batch)\n"
        "        self._free_room(places)\n",
        (_GUARDS + "test_the_ledger_comes_first_then_room_then_redis_then_the_source",),
    ),
    Mutation(
        "a mark in Redis is the body's digest, whoever made it",
        "dispatcher.pipeline.completion:_mark",
        "    return delivery.key, delivery.body_digest or body_digest(delivery.payload)\n",
        "    return delivery.key, delivery.body_digest\n",
        (_AFTERMATH + "test_a_mark_is_the_digest_that_the_claim_put_on_record_or_the_same",),
    ),
    Mutation(
        "Redis is marked only with what the ledger has settled",
        "dispatcher.pipeline.completion:_marks",
        "        if ours and after(State.IN_FLIGHT, settlement.event) in SETTLED\n",
        "        if ours\n",
        (_GUARDS + "test_redis_is_told_nothing_that_the_ledger_has_not_settled",),
    ),
    Mutation(
        "a fenced outcome marks nothing",
        "dispatcher.pipeline.completion:_marks",
        "        if ours and after(State.IN_FLIGHT, settlement.event) in SETTLED\n",
        "        if after(State.IN_FLIGHT, settlement.event) in SETTLED\n",
        (_GUARDS + "test_a_fenced_outcome_marks_nothing",),
    ),
    Mutation(
        "an outcome that could not be written keeps its offset",
        "dispatcher.pipeline.settle:Settle._leave",
        "        for work, _ in pairs:\n            work.record.given_back = True\n",
        "",
        (_GUARDS + "test_an_outcome_that_could_not_be_written_keeps_its_offset",),
    ),
    Mutation(
        "a delivery that was given back keeps its record's offset",
        "dispatcher.pipeline.settle:Settle._settlement",
        "        if settlement.event is Event.GIVEN_BACK:\n            work.record.given_back = True\n",
        "",
        (_GUARDS + "test_what_was_given_back_keeps_its_offset",),
    ),
    Mutation(
        "a record is done with its last delivery",
        "dispatcher.pipeline.completion:CompletionStage._complete",
        "            if record.open_deliveries == 0:\n",
        "            if record.open_deliveries >= 0:\n",
        (_GUARDS + "test_a_record_is_done_with_its_last_delivery_and_not_before",),
    ),
    # -- the ledger: invariants 4 and 5 --
    Mutation(
        "a stale token writes nothing",
        "idempotency.claims.sqlite:SETTLE",
        ' WHERE delivery_key = ? AND token = ? AND state = \'IN_FLIGHT\'"""',
        ' WHERE delivery_key = ? AND ? <> 0 AND state = \'IN_FLIGHT\'"""',
        (_LEDGER + "test_a_stale_token_writes_nothing[sqlite]",),
    ),
    Mutation(
        "an outcome is recorded once, and only while the row is in flight",
        "idempotency.claims.sqlite:SETTLE",
        ' WHERE delivery_key = ? AND token = ? AND state = \'IN_FLIGHT\'"""',
        ' WHERE delivery_key = ? AND token = ?"""',
        (
            _LEDGER
            + "test_what_a_dead_worker_left_becomes_unknown_and_its_late_outcome_is_refused[sqlite]",
        ),
    ),
    Mutation(
        "only what was given back unstarted is taken over",
        "idempotency.claims.sqlite:TAKE",
        " AND state = 'RETRY' AND reason = 'given_back'\n",
        " AND state = 'RETRY'\n",
        (_LEDGER + "test_what_waits_for_another_reason_is_left_to_recovery[sqlite]",),
    ),
    Mutation(
        "in doubt is never taken over",
        "idempotency.claims.sqlite:TAKE",
        " AND state = 'RETRY' AND reason = 'given_back'\n",
        " AND (state = 'UNKNOWN' OR reason = 'given_back')\n",
        (_GUARDS + "test_what_is_in_doubt_or_ended_is_never_claimed_again",),
    ),
    Mutation(
        "another body takes nothing over",
        "idempotency.claims.sqlite:TAKE",
        " WHERE delivery_key = ? AND body_digest = ? AND",
        " WHERE delivery_key = ? AND ? IS NOT NULL AND",
        (_LEDGER + "test_another_body_takes_nothing_over[sqlite]",),
    ),
    Mutation(
        "an open row holds up its line",
        "idempotency.claims.sqlite:_placed",
        "        heads[line] = row.message_id if ahead is None else None\n",
        "        heads[line] = row.message_id\n",
        (_LEDGER + "test_an_open_row_of_any_worker_holds_up_its_line[sqlite-None]",),
    ),
    Mutation(
        "a worker that a sweep called dead does not renew its lease",
        "idempotency.fleet.worker_leases:_RENEW",
        " AND epoch = :epoch AND state NOT IN ('DEAD', 'RETIRED')\"\"\")",
        ' AND epoch = :epoch""")',
        (_LEDGER + "test_a_lease_that_was_swept_is_never_renewed[sqlite]",),
    ),
    Mutation(
        "what an earlier life of a name claims late is swept",
        "idempotency.fleet.worker_leases:_ORPHAN",
        " AND w.epoch = deliveries.owner_epoch",
        "",
        (_LEDGER + "test_what_an_earlier_life_claims_late_is_swept_though_the_name_lives[sqlite]",),
    ),
    Mutation(
        "registering settles what the earlier life left",
        "idempotency.fleet.worker_leases:Workers.register",
        "            connection.execute(_ORPHAN_OF_ONE, earlier)\n",
        "",
        (_LEDGER + "test_registering_again_settles_what_the_earlier_life_left[sqlite]",),
    ),
    Mutation(
        "a name is refused while another lives under it",
        "idempotency.fleet.worker_leases:Workers.register",
        "            if known is not None and _lives(known, now) and not _left_by_us(known, worker):\n",
        "            if False:\n",
        (_LEDGER + "test_a_name_is_refused_while_another_lives_under_it[sqlite]",),
    ),
    # -- the same on PostgreSQL --
    Mutation(
        "PostgreSQL: a stale token writes nothing",
        "idempotency.claims.postgres:SETTLE",
        " AND d.day = s.day AND d.token = s.token\n",
        " AND d.day = s.day\n",
        (_LEDGER + "test_a_stale_token_writes_nothing[postgresql]",),
    ),
    Mutation(
        "PostgreSQL: an outcome is recorded only while the row is in flight",
        "idempotency.claims.postgres:SETTLE",
        "\n   AND d.state || '' = 'IN_FLIGHT'\"\"\"",
        '"""',
        (
            _LEDGER + "test_what_a_dead_worker_left_becomes_unknown_and_its_late_outcome_is_refused"
            "[postgresql]",
        ),
    ),
    Mutation(
        "PostgreSQL: in doubt is never taken over",
        "idempotency.claims.postgres:_TAKE",
        " AND d.state || '' = 'RETRY' AND d.reason = 'given_back'\n",
        " AND (d.state || '' = 'UNKNOWN' OR d.reason = 'given_back')\n",
        (_GUARDS + "test_what_is_in_doubt_or_ended_is_never_claimed_again_on_postgresql",),
    ),
    Mutation(
        "PostgreSQL: only what was given back unstarted is taken over",
        "idempotency.claims.postgres:_TAKE",
        " AND d.state || '' = 'RETRY' AND d.reason = 'given_back'\n",
        " AND d.state || '' = 'RETRY'\n",
        (_LEDGER + "test_what_waits_for_another_reason_is_left_to_recovery[postgresql]",),
    ),
    Mutation(
        "PostgreSQL: another body takes nothing over",
        "idempotency.claims.postgres:_TAKE",
        "       AND d.body_digest = i.digest AND",
        "       AND",
        (_LEDGER + "test_another_body_takes_nothing_over[postgresql]",),
    ),
    Mutation(
        "PostgreSQL: an open row holds up its line",
        "idempotency.claims.postgres:_FRESH_IN_LINE",
        "                  AND d.state IN ('IN_FLIGHT', 'RETRY', 'UNKNOWN'))) AS waits\n",
        "                  AND d.state IN ('NONE'))) AS waits\n",
        (_LEDGER + "test_an_open_row_of_any_worker_holds_up_its_line[postgresql-None]",),
    ),
    Mutation(
        "PostgreSQL: two that claim in one line come one after the other",
        "idempotency.claims.postgres:PostgresBatches._enter",
        "                    self._lines.lock(prepared(connection), lines)\n",
        "",
        (_RACES + "test_of_two_that_claim_in_one_line_at_once_one_is_sent[postgresql]",),
    ),
    Mutation(
        "PostgreSQL: a claim is on disk when it is answered",
        "backends.sql.database:_prepare",
        "SELECT set_config('synchronous_commit', 'on', false)",
        "SELECT set_config('synchronous_commit', 'off', false)",
        (_POSTGRES + "test_commits_are_synchronous_whatever_the_database_says",),
    ),
    # -- order --
    Mutation(
        "one record per key at a time",
        "dispatcher.pipeline.backlog:KeyedBacklog.add",
        "        elif key in self._waiting:\n",
        "        elif False:\n",
        (_BACKLOG + "test_one_record_per_key_at_a_time_and_other_keys_are_not_held_up",),
    ),
    # -- outcomes --
    Mutation(
        "a call that was written and not answered is in doubt",
        "channels.judging.outcomes:of_failure",
        "    return Unknown(failure.code, failure.detail)\n",
        "    return NotSent(failure.code, failure.detail)\n",
        (_OUTCOMES + "test_a_failure_is_judged_by_its_phase_alone",),
    ),
    Mutation(
        "a status outside of our own protocol is in doubt",
        "channels.judging.outcomes:_promised",
        "    return refused_by_status(status, code, detail, wait_ms) or Unknown(code, detail)\n",
        "    return refused_by_status(status, code, detail, wait_ms) or NotSent(code, detail)\n",
        (_OUTCOMES + "test_in_our_own_protocol_every_status_has_one_class",),
    ),
    Mutation(
        "a provider's status that nobody knows is in doubt",
        "channels.judging.outcomes:refusal",
        "    return found or Unknown(code, detail)\n",
        "    return found or NotSent(code, detail)\n",
        (_OUTCOMES + "test_every_status_has_one_class",),
    ),
    Mutation(
        "an adapter that fails after the write leaves the call in doubt",
        "channels.engine:Engine._read",
        '            return for_all(call, Unknown("adapter_error", detail))\n',
        '            return for_all(call, Rejected("adapter_error", detail))\n',
        ("tests/channels/test_engine.py::test_a_fault_after_the_write_is_in_doubt",),
    ),
    # -- the first byte --
    Mutation(
        "the end of an earlier lease is past",
        "sending.runtime.lease:WorkerLease.ends_at",
        '        return end if term == self.term else float("-inf")\n',
        "        return end\n",
        (_LEASE + "test_the_end_of_an_earlier_lease_is_past_whatever_holds_now",),
    ),
    Mutation(
        "a call carries the end of its lease",
        "sending.call_pool:CallPool._not_after",
        "        return min([self._permit.ends_at(work.term) for work in works])\n",
        "        return inf\n",
        (_GUARDS + "test_a_call_carries_the_end_of_the_lease_it_is_made_under",),
    ),
    Mutation(
        "no first byte leaves once the lease is over",
        "channels.http_client.exchange:Exchange.write",
        '            if monotonic() > self._request.extensions.get("not_after", inf):\n',
        "            if False:\n",
        (_TRANSPORT + "test_no_first_byte_leaves_once_the_right_to_send_is_over",),
    ),
    # -- accounts and receivers --
    Mutation(
        "an account whose breaker is open is passed over",
        "sending.accounts.selector:AccountSelector._take",
        "        if route.breaker.take(self._monotonic()):\n",
        "        if True:\n",
        (_ACCOUNTS + "test_only_the_probes_go_through_a_half_open_account",),
    ),
    Mutation(
        "an account sends no more than it has tokens",
        "sending.accounts.selector:AccountSelector._take",
        "        if not self._rates.take(route.account.name):\n            return False\n",
        "",
        (_ACCOUNTS + "test_of_many_threads_at_once_no_more_choose_than_there_are_tokens",),
    ),
    Mutation(
        "after Unknown no other account is tried",
        "sending.accounts.selector:AccountSelector.failover",
        "        if not may_fail_over(delivery, outcome):\n",
        "        if delivery.notification.account is not None:\n",
        (
            _ACCOUNTS
            + "test_another_account_is_tried_only_when_nothing_was_sent_and_the_account_is_why",
        ),
    ),
    Mutation(
        "what names its account leaves a joint call to no other account",
        "sending.accounts.selector:may_fail_over",
        "    if delivery.notification.account is not None:\n        return False\n",
        "",
        (
            _LANES
            + "test_what_names_its_account_leaves_a_joint_call_to_no_other_and_holds_no_other_back"
            + "[at_once-u2]",
            _RESENDING + "test_what_names_its_account_leaves_a_joint_call_to_no_other[sqlite-1]",
        ),
    ),
    Mutation(
        "each delivery of a joint call that is made again has a token",
        "sending.attempts:permitted",
        "    going = some[: held + accounts.reacquire(account, len(some) - held)]\n",
        "    going = some\n",
        (
            _LANES
            + "test_no_more_of_a_joint_call_go_through_another_account_than_its_rate_has_room_for",
            _AGAIN + "test_no_more_of_a_joint_call_go_again_than_the_rate_has_room_for",
            _RESENDING
            + "test_no_more_of_a_joint_call_go_through_another_account_than_its_rate_has_room_for"
            + "[sqlite]",
        ),
    ),
    Mutation(
        "a further call keeps to its receiver's limit, too",
        "sending.attempts:permitted",
        " if not delay_ms]",
        "]",
        (
            _LANES + "test_a_receiver_at_its_limit_of_the_other_account_keeps_its_outcome",
            _AGAIN + "test_a_receiver_at_its_limit_is_not_called_again",
            _RESENDING
            + "test_a_receiver_at_its_limit_of_the_other_account_keeps_its_outcome"
            + "[at_most_once-sqlite]",
        ),
    ),
    Mutation(
        "what its receiver's limit holds back waits",
        "sending.accounts.receiver_limits:ReceiverLimits.delays",
        "                delays[place] = delay\n",
        "                delays[place] = 0\n",
        (
            _RECEIVERS
            + "test_so_many_a_minute_go_and_the_rest_waits_a_little_longer_than_the_window",
        ),
    ),
    *DOCTOR,
    *FAULTS,
    *RECOVERY,
    *CONTROL,
    *OUTCOMES,
    *LOST,
    *LOOKBACK,
    *SPARK_LOST,
    *CONSOLE,
    *RESOLVERS,
    *RELAY,
    *SPARK,
    *HTTP2,
)


def misfit(mutation: Mutation, root: Path = REPOSITORY) -> str:
    """Why the table does not fit the source; empty when it does."""
    try:
        times = section_of(mutation.place, root).text().count(mutation.old)
    except Misplaced as exc:
        return str(exc)
    if times != 1:
        return f"the text to replace occurs {times} times in {mutation.place}"
    return "" if mutation.killers else "no test is named"


class Laboratory:
    """A copy of the tree in which one mutation at a time is tried."""

    def __init__(self, root: Path) -> None:
        self._root = root
        for name in (*_tracked(), *_vendored()):
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(REPOSITORY / name, target)

    def healthy(self, killers: Sequence[str]) -> str:
        """Run the tests on the copy as it is; what fails, empty when nothing does."""
        code, output = self._run(killers)
        return "" if code == 0 else output

    def attempt(self, mutation: Mutation) -> tuple[Fate, str]:
        """Its fate, and why where it was not killed."""
        reason = misfit(mutation, self._root)
        if reason:
            return Fate.UNFIT, reason
        section = section_of(mutation.place, self._root)
        original = section.path.read_text()
        section.path.write_text(section.replaced(mutation.old, mutation.new))
        try:
            code, output = self._run(mutation.killers)
        finally:
            section.path.write_text(original)
        return _fate(mutation, code, output)

    def _run(self, tests: Sequence[str]) -> tuple[int, str]:
        command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=no", "--timeout=30"]
        try:
            done = subprocess.run(
                [*command, "-p", "no:cacheprovider", *tests],
                cwd=self._root,
                env=_environment(),
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return -1, f"not within {_LIMIT_S} s"
        return done.returncode, (done.stdout + done.stderr)[-4_000:]


def _fate(mutation: Mutation, code: int, output: str) -> tuple[Fate, str]:
    if code not in (0, 1):
        return Fate.UNFIT, f"pytest ended with {code}: {output[-400:]}"
    red = {name for _, name in _OUTCOME.findall(output)}
    green = [k for k in mutation.killers if not any(_names(k, test) for test in red)]
    return (Fate.SURVIVED, f"green: {', '.join(green)}") if green else (Fate.KILLED, "")


def _names(killer: str, test: str) -> bool:
    """Whether that test is the killer, or one of its cases."""
    return test == killer or test.startswith(f"{killer}[")


def _environment() -> dict[str, str]:
    """The copy's tests use this tree's stack: what `make mutation` brought up."""
    stack = os.environ.get("HONGYAN_STACK_DIR") or str(REPOSITORY / ".stack")
    ours = {"HONGYAN_STACK_DIR": stack, "HONGYAN_REQUIRE_STACK": "1", "HONGYAN_STACK_KEEP": "1"}
    return {**os.environ, **ours, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "300"}


def _tracked() -> Iterator[Path]:
    """The files of the working tree that git knows or would take."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    names = (Path(name) for name in listed.stdout.split("\0") if name)
    return (name for name in names if (REPOSITORY / name).is_file())


def _vendored() -> Iterator[Path]:
    """The files that the build puts beside the console's own, without which it serves no page."""
    for path in (REPOSITORY / "admin" / "static" / "vendor").glob("*"):
        yield path.relative_to(REPOSITORY)


def main(wanted: Sequence[str]) -> int:
    """Try those whose guard or place has one of the words; 1 when one was not killed, 2 when none has."""
    console = Console()
    chosen = [
        m for m in MUTATIONS if not wanted or any(w in m.guard or w in m.place for w in wanted)
    ]
    if not chosen:
        console.print(f"no guard and no place has {' or '.join(wanted)} in it", markup=False)
        return 2
    with tempfile.TemporaryDirectory(prefix="hongyan-mutation-") as folder:
        laboratory = Laboratory(Path(folder))
        sick = laboratory.healthy(sorted({k for m in chosen for k in m.killers}))
        if sick:
            console.print(f"the tests fail without any mutation:\n{sick}", markup=False)
            return 1
        fates = []
        for mutation in chosen:
            fate, why = laboratory.attempt(mutation)
            fates.append(fate)
            colour = "green" if fate is Fate.KILLED else "red"
            line = f"{fate:<9} {mutation.place:<40} {mutation.guard}  {why}"
            console.print(line, style=colour, markup=False, highlight=False, soft_wrap=True)
    killed = fates.count(Fate.KILLED)
    console.print(f"{killed} of {len(fates)} mutations killed")
    return 0 if killed == len(fates) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
