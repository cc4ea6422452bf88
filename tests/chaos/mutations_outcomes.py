"""The guards of outcome events, for `tests/chaos/mutations.py`."""

from __future__ import annotations

from tests.chaos.mutation import Mutation

_ANNOUNCING = "tests/idempotency/outcomes/test_announcing.py::"
_PUBLISHER = "tests/recovery/outcomes/test_publisher.py::"
_TOPIC = "tests/recovery/outcomes/test_topic.py::"
_WEBHOOK = "tests/foreign/test_outcome_webhook.py::"
_EVENT = "tests/message/test_outcome_event.py::"
_ATOMIC = _ANNOUNCING + "test_an_end_and_its_event_are_one_transaction"
_STALE = _ANNOUNCING + "test_a_stale_token_announces_nothing"
_REPEAT = _ANNOUNCING + "test_a_repeat_after_a_lost_reply_announces_nothing_new"
_WALK = _ANNOUNCING + "test_whatever_happens_each_end_is_in_one_batch"
_RECALLED = _ANNOUNCING + "test_claims_that_a_recall_drops_are_announced_in_and_out_of_lines"
_DUE = _ANNOUNCING + "test_due_rows_that_recovery_ends_are_announced"
_LITE, _PG = "[sqlite]", "[postgresql]"

OUTCOMES: tuple[Mutation, ...] = (
    # -- written with the end --
    Mutation(
        "an event is written in the transaction of its end",
        "idempotency.claims.sqlite:SqliteBatches._settled",
        "        self._announce(connection.execute, written, now)\n",
        '        connection.execute("COMMIT")\n        connection.execute("BEGIN IMMEDIATE")\n'
        "        self._announce(connection.execute, written, now)\n",
        (_ATOMIC + _LITE,),
    ),
    Mutation(
        "PostgreSQL: an event is written in the statement of its end",
        "idempotency.claims.postgres:PostgresBatches._settled",
        "        parameters |= self._announced.arrays()\n",
        "        connection.execute(SETTLE, parameters, prepare=True)\n"
        "        parameters |= self._announced.arrays()\n",
        (_ATOMIC + _PG,),
    ),
    Mutation(
        "a stale token announces nothing",
        "idempotency.claims.sqlite:SqliteBatches._settled",
        "            if connection.execute(SETTLE, row).rowcount\n",
        "            if connection.execute(SETTLE, row)\n",
        (_STALE + _LITE, _REPEAT + _LITE),
    ),
    Mutation(
        "a claim that made no row announces nothing",
        "idempotency.claims.sqlite:SqliteBatches._enter",
        "                entered = (row.key for row in rows if row.key not in known)\n",
        "                entered = (row.key for row in rows)\n",
        (_REPEAT + _LITE,),
    ),
    Mutation(
        "a claim's own ends are announced",
        "idempotency.claims.sqlite:SqliteBatches._enter",
        "            if announces:\n",
        "            if False:\n",
        (_RECALLED + _LITE,),
    ),
    Mutation(
        "PostgreSQL: a commit with claims announces the ends of both",
        "idempotency.claims.postgres:_BOTH",
        "SELECT * FROM settled UNION ALL {_ENTERED}",
        "SELECT * FROM settled",
        (_ANNOUNCING + "test_ends_and_claims_of_one_statement_are_one_batch" + _PG,),
    ),
    Mutation(
        "due rows that recovery ends are announced",
        "idempotency.recovery.store:SqlRecovering._end",
        "            self._announce(connection.exec_driver_sql, written, now)\n",
        "",
        (_DUE + _LITE, _DUE + _PG),
    ),
    Mutation(
        "moves of recovery and of persons are announced",
        "idempotency.recovery.store:SqlRecovering.move",
        "            self._announce(connection.exec_driver_sql, written, now)\n",
        "",
        (_WALK + "[sqlite-2]",),
    ),
    Mutation(
        "a move on an old version announces nothing",
        "idempotency.recovery.store:SqlRecovering.move",
        "            self._announce(connection.exec_driver_sql, written, now)\n",
        "            self._announce(connection.exec_driver_sql, [m.key for m in moves], now)\n",
        (_ANNOUNCING + "test_a_move_on_an_old_version_announces_nothing" + _LITE,),
    ),
    Mutation(
        "receipts are announced",
        "idempotency.receipts.store:Receipts.match",
        "            self._announce(connection.execute, moved, now)\n",
        "",
        (_WALK + "[sqlite-2]",),
    ),
    # -- published --
    Mutation(
        "no batch is deleted before it is acknowledged",
        "recovery.outcomes.publisher:OutcomePublisher._publish",
        "        done = self._publication.publish(self._ready(batches))\n",
        "        self._outbox.remove([batch.id for batch in batches])\n"
        "        done = self._publication.publish(self._ready(batches))\n",
        (_PUBLISHER + "test_what_is_acknowledged_is_deleted",),
    ),
    Mutation(
        "one recovery at a time publishes",
        "recovery.outcomes.publisher:OutcomePublisher._has_duty",
        "        return held\n",
        "        return True\n",
        (_PUBLISHER + "test_one_process_at_a_time_publishes_and_another_takes_over",),
    ),
    Mutation(
        "a batch in Kafka is done with its last acknowledgement",
        "recovery.outcomes.topic:OutcomeTopic.publish",
        "            if open_events[batch] == 0:\n",
        "            if True:\n",
        (_TOPIC + "test_a_batch_is_done_only_with_every_acknowledgement[lost]",),
    ),
    Mutation(
        "a refused record is not acknowledged",
        "recovery.outcomes.topic:OutcomeTopic.publish",
        "            if error is not None:\n",
        "            if False:\n",
        (_TOPIC + "test_a_batch_is_done_only_with_every_acknowledgement[raised]",),
    ),
    Mutation(
        "a batch in several posts is done with the last",
        "recovery.outcomes.webhook:OutcomeHook.publish",
        "        return {one.batch for one in events} - left\n",
        "        return {one.batch for one in events}\n",
        (_WEBHOOK + "test_a_batch_counts_as_taken_only_when_all_its_posts_were",),
    ),
    Mutation(
        "a refused event holds up no other",
        "recovery.outcomes.webhook:OutcomeHook.publish",
        "                posts.extendleft(reversed(batches))\n",
        "                refused += post\n",
        (_WEBHOOK + "test_a_refused_batch_holds_up_no_other",),
    ),
    Mutation(
        "two ends of one delivery have two ids",
        "message.outcome_event:event_id_of",
        "{_SEPARATOR}{version}",
        "{_SEPARATOR}",
        (_EVENT + "test_an_event_id_repeats_and_differs_by_key_state_and_version",),
    ),
    Mutation(
        "no event names a code of ours as the provider's",
        "message.outcome_event:codes_of",
        " and (not attempt or reason in ADAPTER_REFUSALS)\n",
        " and not attempt\n",
        (_EVENT + "test_no_event_names_a_code_of_ours_as_the_providers",),
    ),
    Mutation(
        "a refusal before the first call is never the provider's",
        "message.outcome_event:codes_of",
        " and (not attempt or reason in ADAPTER_REFUSALS)\n",
        " and reason in ADAPTER_REFUSALS\n",
        (_EVENT + "test_no_event_names_a_code_of_ours_as_the_providers",),
    ),
    Mutation(
        "a refusal by an adapter is no attempt",
        "sending.settlement:after_call",
        "        case Rejected(code=code, before_call=True):\n",
        "        case Rejected(code=code, before_call=None):\n",
        ("tests/sending/test_settlement.py::test_other_outcomes_settle_as_they_are",),
    ),
    Mutation(
        "a person's words are in no event",
        "message.outcome_event:codes_of",
        '    ours, _, rest = reason.partition(":")\n',
        '    ours, _, rest = reason, "", ""\n',
        (_EVENT + "test_a_persons_words_are_in_no_event",),
    ),
)
