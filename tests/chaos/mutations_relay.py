"""The guards of the relay, for `tests/chaos/mutations.py`."""

from __future__ import annotations

from tests.chaos.mutation import Mutation

_MARKER = "tests/producer/relay/test_marker.py::"
_OUTAGE = "tests/producer/relay/test_outage.py::"
_RELAY = "tests/producer/relay/test_relay.py::"
_RIGHTS = "tests/producer/relay/test_rights.py::"
_LEDGER = "tests/producer/relay/test_ledger.py::"
_LITE = "[sqlite]"

RELAY: tuple[Mutation, ...] = (
    # -- the marker --
    Mutation(
        "the claiming threads do not wait for a marker that has ended",
        "producer.relay.marker:RelayMarker.run",
        "        finally:\n            self._ended.set()\n",
        "        finally:\n            self._ended.clear()\n",
        (_MARKER + "test_a_relay_whose_marker_dies_ends_with_its_exit_code",),
    ),
    Mutation(
        "a late batch is marked in parts",
        "producer.relay.marker:RelayMarker._mark_ended",
        "is_due = now >= one.part_at and one.rows.news",
        "is_due = False",
        (_MARKER + "test_the_rows_of_a_late_batch_are_marked_as_they_are_acknowledged",),
    ),
    Mutation(
        "a batch is open no longer than its lease",
        "producer.relay.marker:RelayMarker._mark_ended",
        "last = one.rows.all_ended or now >= one.until",
        "last = one.rows.all_ended",
        (_MARKER + "test_the_rows_of_a_late_batch_are_marked_as_they_are_acknowledged",),
    ),
    Mutation(
        "open rows are bounded by number",
        "producer.relay.marker:RelayMarker._has_room",
        "rows < MOST_ROWS and ",
        "",
        (_MARKER + "test_open_rows_hold_up_claims_once_they_are_too_many[MOST_ROWS]",),
    ),
    Mutation(
        "open rows are bounded by size",
        "producer.relay.marker:RelayMarker._has_room",
        "return rows < MOST_ROWS and sum(one.rows.size for one in self._open) < MOST_CHARACTERS",
        "return rows < MOST_ROWS",
        (_MARKER + "test_open_rows_hold_up_claims_once_they_are_too_many[MOST_CHARACTERS]",),
    ),
    Mutation(
        "a repeated mark counts no row as another relay's",
        "producer.relay.marker:RelayMarker._mark",
        "                repeated = True\n",
        "                repeated = False\n",
        (_RELAY + "test_a_mark_whose_answer_was_lost_is_no_mark_of_another_relay",),
    ),
    # -- an outage of Kafka --
    Mutation(
        "a refusal of one topic is no outage",
        "hongyan_client.delivery_errors:is_of_one_topic",
        "return isinstance(failure, NotDelivered) and failure.code != _OF_ALL_TOPICS",
        "return False",
        (_OUTAGE + "test_what_kafka_says_of_one_topic_is_no_outage[sqlite-unknown_topic_or_part]",),
    ),
    Mutation(
        "a producer that may write nowhere is an outage",
        "hongyan_client.delivery_errors:is_of_one_topic",
        " and failure.code != _OF_ALL_TOPICS",
        "",
        (_OUTAGE + "test_a_producer_without_any_right_is_an_outage",),
    ),
    Mutation(
        "a probe takes a row of each topic",
        "producer.relay.outage:probe_of",
        "first.setdefault(row.topic, row)",
        'first.setdefault("", row)',
        (_OUTAGE + f"test_a_topic_whose_records_time_out_keeps_no_other_one_waiting{_LITE}",),
    ),
    Mutation(
        "a probe gives back what it does not try",
        "producer.relay.relay:Relay._probe",
        "            self._store.give_back(batch.token, others)\n",
        "",
        (_OUTAGE + f"test_a_topic_whose_records_time_out_keeps_no_other_one_waiting{_LITE}",),
    ),
    Mutation(
        "a probe looks past rows that must wait",
        "producer.relay.relay:Relay._probe",
        "if tried or not seen or self._ends():",
        "if True:",
        (
            _OUTAGE
            + "test_rows_behind_the_head_of_their_key_keep_no_row_waiting_after_an_outage"
            + _LITE,
        ),
    ),
    Mutation(
        "the end of an outage ends the pause",
        "producer.relay.relay:Relay._pause",
        "while self._outage.lasts and not self._ends()",
        "while not self._ends()",
        (_OUTAGE + "test_a_mark_that_ends_the_outage_ends_the_pause",),
    ),
    # -- start and end --
    Mutation(
        "SIGTERM ends the wait for the next look",
        "producer.relay.process:run_relay",
        "        parts.signals.wake.set()\n",
        "",
        (_OUTAGE + "test_a_relay_that_is_told_to_end_waits_for_no_look",),
    ),
    Mutation(
        "no wait begins after the end was told",
        "producer.relay.relay:Relay._rest",
        "        if self._ends():\n            return\n",
        "",
        (_OUTAGE + "test_a_wait_that_begins_after_the_end_was_told_ends_at_once",),
    ),
    Mutation(
        "a right that marks need is tried at the start",
        "producer.relay.process:run_relay",
        "        try_rights(opened.store, settings.relay.keep_hours)\n",
        "",
        (_RIGHTS + "test_a_relay_without_a_right_does_not_start",),
    ),
    Mutation(
        "a ledger that is away is tried again",
        "producer.relay.ledger:RelayLedger.start",
        "        if not self._opens():\n",
        "        if not self._opens() and False:\n",
        (_LEDGER + "test_a_ledger_that_is_away_at_the_start_gets_the_heartbeat_when_it_answers",),
    ),
)
