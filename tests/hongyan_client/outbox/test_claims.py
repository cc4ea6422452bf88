"""Claims and marks, the same on every database."""

import time

import pytest

from hongyan_client.outbox import RetryTerms
from hongyan_client.outbox.statements import MOST_BYTES
from hongyan_client.outbox.store import ClaimedBatch, FailedRow, OutboxStore
from tests.hongyan_client.outbox.places import LEASE_MS, OutboxPlace, notice


def taken(place: OutboxPlace, owner: str = "a") -> ClaimedBatch:
    return place.store.claim_due(owner, LEASE_MS, 100)


def failed(batch: ClaimedBatch, delay_ms: int | None, in_doubt: bool = False) -> list[FailedRow]:
    return [FailedRow(row, "no answer", in_doubt, delay_ms) for row in batch.rows]


def test_a_claimed_row_has_all_that_kafka_gets(place: OutboxPlace) -> None:
    message_id = place.add("order-1")
    (row,) = taken(place).rows
    assert row.message_id == message_id
    assert row.topic == "hongyan.dispatch.sms.notice"
    assert row.msg_key == "order-1"
    assert message_id in row.payload
    assert (row.attempt, row.max_attempts) == (1, 20)


def test_a_claimed_row_is_nobody_elses_until_its_lease_ends(place: OutboxPlace) -> None:
    message_id = place.add()
    taken(place)
    assert taken(place, "b").rows == []
    place.end_lease(message_id)
    (row,) = taken(place, "b").rows
    assert row.attempt == 2
    assert place.row(message_id).maybe_sent == 1


def test_a_mark_of_an_old_token_writes_nothing(place: OutboxPlace) -> None:
    message_id = place.add()
    late = taken(place)
    place.end_lease(message_id)
    now = taken(place, "b")
    assert place.store.mark(late.token, late.rows) == 1
    assert place.store.mark(late.token, (), failed(late, None)) == 1
    assert place.states() == {message_id: "SENDING"}
    assert place.rows.untold_alerts() == []
    assert place.store.mark(now.token, now.rows) == 0
    assert place.states() == {message_id: "SENT"}


def test_a_row_is_sent_once_although_its_mark_comes_twice(place: OutboxPlace) -> None:
    place.add()
    batch = taken(place)
    assert place.store.mark(batch.token, batch.rows) == 0
    assert place.store.mark(batch.token, batch.rows) == 1
    assert taken(place).rows == []


def test_a_failed_row_comes_again_after_its_back_off(place: OutboxPlace) -> None:
    message_id = place.add()
    batch = taken(place)
    place.store.mark(batch.token, (), failed(batch, 60_000))
    assert taken(place).rows == []
    place.set(message_id, "next_at = next_at - 60000")
    (row,) = taken(place).rows
    assert row.attempt == 2
    assert place.row(message_id).maybe_sent == 0


def test_a_row_in_doubt_is_known_as_such(place: OutboxPlace) -> None:
    message_id = place.add()
    batch = taken(place)
    place.store.mark(batch.token, (), failed(batch, 0, in_doubt=True))
    assert place.row(message_id).maybe_sent == 1


def test_a_parked_row_has_its_alert_and_never_comes_by_itself(place: OutboxPlace) -> None:
    message_id = place.add(retry=RetryTerms(attempts=1))
    batch = taken(place)
    place.store.mark(batch.token, (), failed(batch, None))
    assert place.states() == {message_id: "PARKED"}
    (alert,) = place.rows.untold_alerts()
    assert alert.message_id == message_id
    assert alert.text == "parked after 1 attempts: no answer"
    place.rows.note_told([alert])
    assert place.rows.untold_alerts() == []
    assert taken(place).rows == []


def test_an_alert_that_cannot_be_written_parks_nothing(place: OutboxPlace) -> None:
    message_id = place.add()
    batch = taken(place)
    with place.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE hongyan_outbox_alerts")
    with pytest.raises(Exception, match="hongyan_outbox"):
        place.store.mark(batch.token, (), failed(batch, None))
    assert place.states() == {message_id: "SENDING"}


def test_given_back_rows_are_due_again_and_lost_no_attempt(place: OutboxPlace) -> None:
    place.add()
    batch = taken(place)
    place.store.give_back(batch.token, batch.rows)
    (row,) = taken(place).rows
    assert row.attempt == 1


def test_a_mark_deletes_rows_that_are_not_kept_and_wakes_their_keys(place: OutboxPlace) -> None:
    first, second = place.add("order-1"), place.add("order-1")
    other = place.add()
    store = OutboxStore(place.engine, keep_sent=False)
    batch = store.claim_due("a", LEASE_MS, 100)
    assert [row.message_id for row in batch.rows] == [first, other]
    assert store.mark(batch.token + 2, batch.rows) == 2
    assert store.mark(batch.token, batch.rows) == 0
    assert place.states() == {second: "PENDING"}
    assert place.claimed() == [second]


def test_a_late_mark_does_not_delete_another_publishers_row(place: OutboxPlace) -> None:
    message_id = place.add()
    store = OutboxStore(place.engine, keep_sent=False)
    late = store.claim_due("a", LEASE_MS, 100)
    place.end_lease(message_id)
    store.claim_due("b", LEASE_MS, 100)
    assert store.mark(late.token, late.rows) == 1
    assert place.states() == {message_id: "SENDING"}


def test_only_the_head_of_a_key_is_in_flight(place: OutboxPlace) -> None:
    first, second, third = (place.add("order-1") for _ in range(3))
    other = place.add("order-2")
    batch = taken(place)
    assert [row.message_id for row in batch.rows] == [first, other]
    assert batch.seen == 4
    assert place.claimed() == []
    place.store.mark(batch.token, batch.rows)
    assert place.claimed() == [second]
    assert place.states()[third] == "PENDING"


def test_the_head_holds_its_key_while_it_waits_for_its_next_attempt(place: OutboxPlace) -> None:
    first, second = place.add("order-1"), place.add("order-1")
    batch = taken(place)
    place.store.mark(batch.token, (), failed(batch, 60_000))
    place.set(second, "next_at = next_at - 1000000")
    assert place.claimed() == []
    place.set(first, "next_at = next_at - 60000")
    assert place.claimed() == [first]


def test_what_follows_a_parked_head_waits_until_it_is_released_or_recalled(
    place: OutboxPlace,
) -> None:
    first, second = place.add("order-1"), place.add("order-1")
    batch = taken(place)
    place.store.mark(batch.token, (), failed(batch, None))
    place.set(second, "next_at = next_at - 1000000")
    assert place.claimed() == []
    assert place.operator.release(first, "li", "the topic is there now") == 1
    place.set(second, "next_at = next_at - 1000000")
    batch = taken(place)
    assert [row.message_id for row in batch.rows] == [first]
    assert batch.rows[0].attempt == 1
    place.store.mark(batch.token, (), failed(batch, None))
    assert place.operator.recall(first, "li", "the order is gone") == 1
    assert place.claimed() == [second]


def test_rows_of_a_blocked_key_do_not_come_up_again_at_once(place: OutboxPlace) -> None:
    ids = [place.add("order-1") for _ in range(5)]
    assert place.store.claim_due("a", LEASE_MS, 100).seen == 5
    assert place.store.claim_due("a", LEASE_MS, 100).seen == 0
    assert {place.row(one).held for one in ids[1:]} == {1}


def test_rows_whose_leases_ended_never_wait_for_each_other(place: OutboxPlace) -> None:
    first, second = place.add("order-1"), place.add("order-1")
    taken(place)
    place.set(second, "state = 'SENDING', next_at = 1")
    place.end_lease(first)
    assert place.claimed() == [first]


def test_a_delayed_row_waits_for_its_time_and_holds_nobody_before(place: OutboxPlace) -> None:
    now = time.time_ns() // 1_000_000
    delayed = place.add("order-1", send_at=now + 3_600_000)
    at_once = place.add("order-1")
    batch = taken(place)
    assert [row.message_id for row in batch.rows] == [at_once]
    place.store.mark(batch.token, batch.rows)
    place.set(delayed, "send_at = send_at - 7200000, next_at = next_at - 7200000")
    later = place.add("order-1")
    batch = taken(place)
    assert [row.message_id for row in batch.rows] == [delayed]
    assert place.states()[later] == "PENDING"


def test_a_claim_by_ids_takes_committed_rows_alone(place: OutboxPlace) -> None:
    with place.engine.begin() as connection:
        queued = place.outbox.add(
            connection,
            {
                "channel": "sms",
                "kind": "notice",
                "receivers": ["+8613800000001"],
                "template": {"id": "t"},
            },
        )
    gone = queued.row_id + 1_000
    batch = place.store.claim_these([queued.row_id, gone], "a", LEASE_MS)
    assert [row.message_id for row in batch.rows] == [queued.id]
    assert place.store.claim_these([queued.row_id], "b", LEASE_MS).rows == []


def test_the_backlog_counts_what_should_have_gone(place: OutboxPlace) -> None:
    old = place.add()
    place.add()
    place.add(send_at=time.time_ns() // 1_000_000 + 3_600_000)
    place.set(old, "created_at = created_at - 90000")
    parked = place.add(retry=RetryTerms(attempts=1))
    place.set(parked, "state = 'PARKED', next_at = NULL")
    found = place.rows.beat("relay-1", "host", 7, "running", 42)
    assert (found.pending, found.parked) == (2, 1)
    assert 90_000 <= found.oldest_ms < 120_000
    place.rows.beat("relay-1", "host", 7, "draining", 43)
    (beat,) = place.rows.heartbeats()
    assert (beat.state, beat.published, beat.pending, beat.parked) == ("draining", 43, 2, 1)
    assert beat.heartbeat_at >= beat.started_at


def test_the_backlog_counts_rows_in_a_long_back_off_or_lease(place: OutboxPlace) -> None:
    tried = place.add(retry=RetryTerms(interval_s=3_600, limit_s=3_600))
    batch = taken(place)
    place.store.mark(batch.token, (), failed(batch, 3_600_000))
    leased = place.add()
    place.store.claim_due("dead", 3_600_000, 1)
    due = time.time_ns() // 1_000_000 + 3_600_000
    delayed, tried_late = place.add(send_at=due), place.add(send_at=due)
    place.set(tried_late, "send_at = 1 + send_at - 7200000, next_at = next_at + 1000")
    for one in (tried, leased):
        place.set(one, "created_at = created_at - 3000000")
    found = place.rows.backlog()
    assert found.pending == 3
    assert 3_600_000 <= found.oldest_ms < 3_700_000
    assert place.row(delayed).state == "PENDING"


def test_an_error_that_a_database_cannot_store_is_written_with_escapes(place: OutboxPlace) -> None:
    """PostgreSQL takes no NUL."""
    message_id = place.add()
    batch = taken(place)
    marks = [FailedRow(row, "bad\0", False, None) for row in batch.rows]
    assert place.store.mark(batch.token, (), marks) == 0
    assert place.states() == {message_id: "PARKED"}


def heavy(place: OutboxPlace, key: str | None = None) -> str:
    """Adds a row of 0.6 MiB."""
    with place.engine.begin() as connection:
        body = {**notice(key), "attributes": {"x": "y" * 600_000}}
        return place.outbox.add(connection, body).id


def test_a_batch_ends_at_its_bytes_and_the_rest_stays_due(place: OutboxPlace) -> None:
    ids = [heavy(place) for _ in range(60)]
    batch = place.store.claim_due("a", LEASE_MS, 500)
    taken_bytes = sum(len(row.payload) for row in batch.rows)
    assert MOST_BYTES <= taken_bytes < MOST_BYTES + 700_000
    first = len(batch.rows)
    assert [row.message_id for row in batch.rows] == ids[:first]
    assert {place.row(one).attempt for one in ids[first:]} == {0}
    assert [row.message_id for row in taken(place).rows] == ids[first:]


def test_large_rows_that_wait_keep_no_other_from_the_next_claim(place: OutboxPlace) -> None:
    head, *waiting = [heavy(place, "order-1") for _ in range(60)]
    other = heavy(place)
    rows = [row for _ in range(2) for row in place.store.claim_due("a", LEASE_MS, 500).rows]
    assert [row.message_id for row in rows] == [head, other]
    assert {place.row(one).held for one in waiting} == {1}


def test_large_and_small_rows_of_a_batch_keep_their_order_and_payload(place: OutboxPlace) -> None:
    ids = [place.add(), heavy(place), place.add()]
    rows = taken(place).rows
    assert [row.message_id for row in rows] == ids
    assert all(row.message_id in row.payload for row in rows)
