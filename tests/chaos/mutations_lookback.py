"""The guards of look-back's ten invariants, for `tests/chaos/mutations.py`."""

from __future__ import annotations

from tests.chaos.mutation import Mutation

_STORE = "tests/lookback/test_store.py::"
_LOOPS = "tests/lookback/test_loops.py::"
_ARCHIVE = "tests/lookback/test_archive.py::"
_MODEL = "tests/lookback/test_model.py::test_the_store_does_what_the_model_says"
_SERVICE = "tests/lookback/test_service_model.py::test_the_service_does_what_the_model_says"
_LITE = "[sqlite]"

LOOKBACK: tuple[Mutation, ...] = (
    Mutation(
        "1: a decision is written once",
        "lookback.decisions:_decide",
        "    if known:\n",
        "    if known == decision:\n",
        (_STORE + "test_a_late_commit_after_a_fenced_rollback_is_a_conflict" + _LITE, _MODEL),
    ),
    Mutation(
        "2: the first body is the one that is forwarded",
        "lookback.decisions:_prepare",
        "row.body_hash != record.body_hash",
        "False",
        (_STORE + "test_a_second_body_is_a_conflict_and_the_first_is_forwarded" + _LITE,),
    ),
    Mutation(
        "2: a body that is not the prepared one is never sent",
        "lookback.forwarder:Forwarder._start",
        "if not opened.body_is_whole:",
        "if False:",
        (_LOOPS + "test_a_body_that_is_not_the_prepared_one_is_never_sent" + _LITE, _SERVICE),
    ),
    Mutation(
        "3: the offset passes only after the commit in the database",
        "lookback.consumer:LookbackConsumer.run_once",
        "        if batch.next_offsets and self._settle(batch):\n"
        "            self._commit(batch.next_offsets)\n",
        "        self._commit(batch.next_offsets)\n        self._settle(batch)\n",
        (_LOOPS + "test_the_offset_passes_only_after_the_commit_in_the_database" + _LITE, _SERVICE),
    ),
    Mutation(
        "4: a message is marked only after its acknowledgement",
        "lookback.forwarder:Forwarder._start",
        "        self._under_way[row.tx_id] = _UnderWay(opened, self._monotonic())\n",
        "        self._under_way[row.tx_id] = _UnderWay(opened, self._monotonic())\n"
        '        self._done.append(Forwarded(row, "t/0/0"))\n',
        (_LOOPS + "test_it_is_marked_only_after_the_acknowledgement" + _LITE, _SERVICE),
    ),
    Mutation(
        "5: an unfenced ROLLBACK counts after the longest business transaction",
        "lookback.decisions:_counted",
        "if reply.fenced or asked_at >= certain_at else None",
        "if True else None",
        (
            _STORE
            + "test_an_unfenced_rollback_counts_only_after_the_longest_business_transaction"
            + _LITE,
            _MODEL,
        ),
    ),
    Mutation(
        "5: an unfenced ROLLBACK counts by the time of its question",
        "lookback.decisions:take_reply",
        "asked_at=held.updated_at",
        "asked_at=now",
        (
            _STORE
            + "test_an_unfenced_rollback_counts_by_the_time_of_its_question_not_of_its_answer"
            + _LITE,
            _MODEL,
        ),
    ),
    Mutation(
        "6: no check is made within the immunity time",
        "lookback.decisions:take_due",
        "    if age < terms.immunity_ms:\n",
        "    if False:\n",
        (_STORE + "test_a_longer_immunity_time_holds_for_what_was_prepared_before" + _LITE, _MODEL),
    ),
    Mutation(
        "6: only checks that were made count",
        "lookback.decisions:take_due",
        "    return _step(row, state=state, lease_token=token, next_at=now + lease_ms, updated_at=now)\n",
        "    return _step(\n        row, state=state, lease_token=token, next_at=now + lease_ms,"
        " updated_at=now, checks=row.checks + 1\n    )\n",
        (
            _STORE + "test_a_check_that_died_is_made_again_and_not_counted" + _LITE,
            _STORE + "test_rocketmq_immunity_time_makes_no_check_and_counts_none" + _LITE,
            _MODEL,
        ),
    ),
    Mutation(
        "6: past the deadline one check is made first",
        "lookback.decisions:_no_answer",
        "(age >= terms.deadline_ms and was_asked)",
        "age >= terms.deadline_ms",
        (_STORE + "test_past_the_deadline_nothing_is_parked_before_somebody_was_asked" + _LITE,),
    ),
    Mutation(
        "7: an early commit without a body waits for a person",
        "lookback.decisions:_grace_over",
        "    if row.state is _S.EARLY_ROLLBACK:\n",
        "    if True:\n",
        (
            _STORE
            + "test_an_early_commit_without_a_body_waits_for_a_person_and_goes_when_its_body_comes"
            + _LITE,
            _SERVICE,
        ),
    ),
    Mutation(
        "8: a check past its lease writes nothing",
        "lookback.decisions:take_reply",
        "row.state is not _S.CHECKING or row.lease_token != held.lease_token",
        "row.state is not _S.CHECKING",
        (_STORE + "test_a_check_past_its_lease_writes_nothing" + _LITE, _MODEL),
    ),
    Mutation(
        "8: a forward past its lease marks nothing",
        "lookback.decisions:take_forwarded",
        "row.lease_token != token or ",
        "",
        (
            _STORE + "test_a_forward_that_was_not_marked_goes_again_with_the_same_message" + _LITE,
            _MODEL,
        ),
    ),
    Mutation(
        "9: an alert that cannot be written changes nothing",
        "lookback.store:LookbackStore._finish",
        "        note_in(connection, [step.alert for step in steps if step.alert is not None], now)\n",
        "        connection.commit()\n"
        "        note_in(connection, [step.alert for step in steps if step.alert is not None], now)\n",
        (_STORE + "test_a_park_or_alert_that_fails_changes_nothing[sqlite-alerts]", _SERVICE),
    ),
    Mutation(
        "10: a day with an open transaction stays (SQLite)",
        "lookback.archive:SqliteTransactions.archive",
        '                if connection.execute(statement, {"day": day}).scalar_one():\n',
        "                if False:\n",
        (_ARCHIVE + "test_a_day_with_an_open_transaction_stays[sqlite-PREPARED]", _SERVICE),
    ),
    Mutation(
        "10: a day with an open transaction stays (PostgreSQL)",
        "idempotency.archive.day_partitions:DayPartitions._refuse_open",
        '        if connection.execute(statement, {"day": day}).scalar_one():\n',
        "        if False:\n",
        (_ARCHIVE + "test_a_day_with_an_open_transaction_stays[postgresql-PREPARED]",),
    ),
    Mutation(
        "a check that fails holds up no other",
        "lookback.scheduler:asked",
        "    except Exception as exc:",
        "    except TimeoutError as exc:",
        (_LOOPS + "test_rocketmq_a_check_that_fails_does_not_stop_the_queue" + _LITE,),
    ),
    Mutation(
        "a commit that comes while a check runs wins",
        "lookback.decisions:take_reply",
        "    if row.state is not _S.CHECKING or row.lease_token != held.lease_token:\n",
        "    if row.state is _S.CHECKING and row.lease_token != held.lease_token:\n",
        (_STORE + "test_rocketmq_a_commit_that_comes_while_a_check_runs_wins" + _LITE,),
    ),
    Mutation(
        "a message goes only to a topic that the configuration allows",
        "lookback.consumer:_check_allowed",
        "    if not terms.allows(record.topic):\n",
        "    if False:\n",
        (
            _LOOPS + "test_a_record_that_is_not_allowed_is_a_dead_letter_before_its_offset_passes"
            "[sqlite-changes1-topic_not_allowed]",
        ),
    ),
)
