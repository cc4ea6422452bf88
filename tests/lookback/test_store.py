"""The transactions in both databases: moves, leases, leases that are over, alerts."""

from base64 import b64encode

import pytest
from msgspec.structs import replace

from idempotency.ledger import LedgerUnavailable
from lookback import sql
from lookback.decisions import LOOK_MS
from lookback.operator import NotResolvable, TxDecision
from lookback.store import Forwarded
from message.lookback import LookbackRecord
from tests.idempotency.making import World
from tests.lookback.making import (
    CHECK,
    COMMIT,
    DEADLINE,
    FENCED,
    GRACE,
    IMMUNITY,
    KIND,
    LEASE,
    LONGEST,
    ROLLBACK,
    TERMS,
    UNKNOWN,
    Ground,
)


def test_a_prepare_and_its_commit_are_forwarded_once(ground: Ground) -> None:
    tx_id = ground.tx()
    ground.take(ground.prepare(tx_id, b"hello"), ground.commit(tx_id))
    (row,) = ground.forward()
    assert ground.store.opened(row).body == b"hello"
    shown = ground.shown(tx_id)
    assert (shown.state, shown.decided_by, shown.forwarded_to) == ("FORWARDED", "business", "t/0/1")
    assert ground.forward() == []


def test_a_rollback_forwards_nothing(ground: Ground) -> None:
    tx_id = ground.prepared()
    ground.take(ground.rollback(tx_id))
    assert ground.state(tx_id) == "ROLLED_BACK"
    assert ground.forward() == []


@pytest.mark.parametrize("apart", [True, False])
def test_a_commit_before_its_prepare_is_kept_and_forwarded(ground: Ground, apart: bool) -> None:
    tx_id = ground.tx()
    records: list[LookbackRecord] = [ground.commit(tx_id), ground.prepare(tx_id, b"late")]
    for some in [[one] for one in records] if apart else [records]:
        ground.take(*some)
    (row,) = ground.forward()
    assert ground.store.opened(row).body == b"late"
    assert ground.state(tx_id) == "FORWARDED"


def test_a_rollback_before_its_prepare_forwards_nothing(ground: Ground) -> None:
    tx_id = ground.tx()
    ground.take(ground.rollback(tx_id))
    ground.take(ground.prepare(tx_id))
    assert ground.state(tx_id) == "ROLLED_BACK"
    assert ground.forward() == []


def test_records_read_again_change_nothing(ground: Ground) -> None:
    tx_id = ground.tx()
    records: list[LookbackRecord] = [ground.prepare(tx_id), ground.commit(tx_id)]
    ground.take(*records)
    ground.forward()
    before = ground.world.rows("SELECT * FROM lookback_transactions")
    assert ground.take(*records) == {"repeat": 2}
    assert ground.world.rows("SELECT * FROM lookback_transactions") == before
    assert ground.alerts() == {}


@pytest.mark.parametrize("first", ["commit", "rollback"])
@pytest.mark.parametrize("when", ["early", "prepared", "one batch"])
def test_the_first_decision_wins_and_the_opposite_is_a_conflict(
    ground: Ground, first: str, when: str
) -> None:
    """Invariant 1."""
    tx_id = ground.tx()
    one, other = (
        getattr(ground, first),
        getattr(ground, {"commit": "rollback"}.get(first, "commit")),
    )
    prepare = ground.prepare(tx_id)
    if when == "one batch":
        ground.take(prepare, one(tx_id), other(tx_id))
    else:
        records = [one(tx_id), other(tx_id)]
        for record in [*records, prepare] if when == "early" else [prepare, *records]:
            ground.take(record)
    shown = ground.shown(tx_id)
    assert shown.decision == first.upper()
    assert shown.conflict == f"{'ROLLBACK' if first == 'commit' else 'COMMIT'} by business"
    assert len(ground.forward()) == (first == "commit")
    assert ground.alerts() == {"lookback_conflict": 1}


def test_a_second_body_is_a_conflict_and_the_first_is_forwarded(ground: Ground) -> None:
    """Invariant 2."""
    tx_id = ground.tx()
    ground.take(ground.prepare(tx_id, b"first"))
    assert ground.take(ground.prepare(tx_id, b"second")) == {"conflict": 1}
    ground.take(ground.commit(tx_id))
    (row,) = ground.forward()
    assert ground.store.opened(row).body == b"first"
    assert ground.alerts() == {"lookback_conflict": 1}


def test_the_opposite_decision_is_told_of_a_transaction_with_another_conflict(
    ground: Ground,
) -> None:
    """The first contradiction hid each later one."""
    tx_id = ground.tx()
    ground.take(ground.prepare(tx_id, b"first"), ground.commit(tx_id))
    both = ground.prepare(tx_id, b"second"), ground.rollback(tx_id)
    assert ground.take(*both) == {"conflict": 2}
    assert ground.take(*both) == {"repeat": 2}, "records that are read again"
    assert ground.shown(tx_id).conflict == "another body by business; ROLLBACK by business"
    assert ground.alerts() == {"lookback_conflict": 2}


def test_a_mark_for_another_body_writes_nothing(ground: Ground) -> None:
    """Invariant 2."""
    tx_id = ground.prepared()
    ground.take(ground.commit(tx_id))
    (row,) = ground.store.claim_forwards(1, LEASE)
    other = replace(row, body_hash=b"x" * 32)
    assert ground.store.mark_forwarded([Forwarded(other, "t/0/1")]) == 0
    assert ground.state(tx_id) == "COMMITTED"


def test_a_tx_id_of_another_business_transaction_is_poison(ground: Ground) -> None:
    tx_id = ground.prepared()
    taken = ground.store.take([ground.prepare(tx_id, biz_id="other"), ground.commit(ground.tx())])
    assert list(taken.poison) == [0]
    assert ground.state(tx_id) == "PREPARED"


def test_a_record_that_the_database_cannot_keep_is_poison_and_the_others_are_taken(
    ground: Ground,
) -> None:
    """PostgreSQL has no NUL in its texts, SQLite has."""
    first, bad, last = (ground.tx() for _ in range(3))
    prepares = [ground.prepare(first), ground.prepare(bad, key="\0*")]
    taken = ground.store.take([*prepares, ground.commit(last)])
    if ground.world.is_postgres:
        assert taken.poison == {1: ("not_storable", "the database cannot keep it (DataError)")}
        assert ground.desk.find(bad) == []
    else:
        assert taken.poison == {}
    assert (ground.state(first), ground.state(last)) == ("PREPARED", "EARLY_COMMIT")
    assert taken.did == {"PREPARED": 2 - len(taken.poison), "EARLY_COMMIT": 1}


def test_an_early_commit_without_a_body_waits_for_a_person_and_goes_when_its_body_comes(
    ground: Ground,
) -> None:
    """Invariant 7."""
    tx_id = ground.tx()
    ground.take(ground.commit(tx_id))
    ground.world.advance(GRACE - 1)
    ground.store.sweep()
    assert ground.state(tx_id) == "EARLY_COMMIT"
    ground.world.advance(1)
    assert ground.store.sweep() == 1
    assert ground.alerts() == {"lookback_unresolved": 1}
    with pytest.raises(NotResolvable, match="no body"):
        ground.desk.resolve(tx_id, TxDecision.COMMIT, person="ann", reason="sure")
    ground.take(ground.prepare(tx_id))
    assert [row.tx_id for row in ground.forward()] == [tx_id]


def test_an_early_rollback_without_a_body_ends(ground: Ground) -> None:
    tx_id = ground.tx()
    ground.take(ground.rollback(tx_id))
    ground.world.advance(GRACE)
    ground.store.sweep()
    assert ground.state(tx_id) == "ROLLED_BACK"
    ground.take(ground.prepare(tx_id))
    assert ground.state(tx_id) == "ROLLED_BACK"
    assert ground.forward() == []
    assert ground.alerts() == {}


def test_rocketmq_immunity_time_makes_no_check_and_counts_none(ground: Ground) -> None:
    """Invariant 6. RocketMQ counted looks within the immunity time as checks, and discarded messages that
    nobody was asked about."""
    tx_id = ground.prepared()
    for _ in range(9):
        ground.world.advance(IMMUNITY // 10)
        assert ground.claim() == []
    assert ground.shown(tx_id).checks == 0
    ground.world.advance(IMMUNITY // 10)
    (row,) = ground.claim()
    assert ground.shown(tx_id).checks == 0, "it counts once it was made"
    ground.store.reply(row, UNKNOWN)
    assert ground.shown(tx_id).checks == 1


def test_a_longer_immunity_time_holds_for_what_was_prepared_before(ground: Ground) -> None:
    tx_id = ground.prepared()
    longer = Ground(ground.world, {KIND: replace(TERMS, immunity_ms=2 * IMMUNITY)})
    ground.world.advance(IMMUNITY)
    assert longer.claim() == []
    assert longer.shown(tx_id).checks == 0
    ground.world.advance(IMMUNITY)
    assert len(longer.claim()) == 1


def test_a_check_that_died_is_not_made_again_within_a_longer_immunity_time(ground: Ground) -> None:
    row = ground.checking()
    longer = Ground(ground.world, {KIND: replace(TERMS, immunity_ms=2 * IMMUNITY)})
    ground.world.advance(LEASE)
    assert longer.claim() == []
    ground.world.advance(IMMUNITY)
    (again,) = longer.claim()
    assert again.lease_token != row.lease_token


def test_unknown_backs_off_and_ends_unresolved_after_the_last_check(ground: Ground) -> None:
    row = ground.checking()
    for checks in (1, 2):
        assert ground.store.reply(row, UNKNOWN) == "unknown"
        shown = ground.shown(row.tx_id)
        assert (shown.state, shown.checks, shown.last_error) == ("PREPARED", checks, "it is 500")
        ground.world.advance(CHECK - 1)
        assert ground.claim() == []
        ground.world.advance(1)
        (row,) = ground.claim()
    assert ground.store.reply(row, UNKNOWN) == "UNRESOLVED"
    assert ground.shown(row.tx_id).reason.startswith("checks_spent")
    assert ground.alerts() == {"lookback_unresolved": 1}


def test_a_check_that_its_endpoint_kept_back_is_no_attempt(ground: Ground) -> None:
    row = ground.checking()
    for _ in range(TERMS.max_checks + 1):
        assert ground.store.reply(row, UNKNOWN._replace(made=False)) == "unknown"
        ground.world.advance(CHECK)
        (row,) = ground.claim()
    assert ground.shown(row.tx_id).checks == 0


def test_a_check_that_its_endpoint_kept_back_goes_again_after_the_first_pause(
    world: World,
) -> None:
    """It waited as long as after a check that was made: for an hour after the seventh."""
    terms = replace(TERMS, longest_pause_ms=8 * CHECK, max_checks=9, deadline_ms=100 * CHECK)
    ground = Ground(world, {KIND: terms})
    row = ground.checking()
    for pause in (1, 2, 4):
        ground.store.reply(row, UNKNOWN)
        ground.world.advance(pause * CHECK)
        (row,) = ground.claim()
    ground.store.reply(row, UNKNOWN._replace(made=False))
    ground.world.advance(CHECK)
    assert len(ground.claim()) == 1


def test_the_deadline_ends_it_with_an_alert_and_after_one_check_at_least(ground: Ground) -> None:
    tx_id = ground.prepared()
    ground.world.advance(DEADLINE)
    (row,) = ground.claim()
    assert ground.store.reply(row, UNKNOWN) == "UNRESOLVED"
    assert ground.shown(tx_id).reason.startswith("deadline_over")
    assert ground.alerts() == {"lookback_unresolved": 1}


def test_past_the_deadline_nothing_is_parked_before_somebody_was_asked(ground: Ground) -> None:
    """Invariant 6. The service was away past the deadline; then the endpoint keeps checks back."""
    tx_id = ground.prepared()
    ground.world.advance(DEADLINE)
    for _ in range(TERMS.max_checks + 1):
        (row,) = ground.claim()
        assert ground.store.reply(row, UNKNOWN._replace(made=False)) == "unknown"
        assert ground.state(tx_id) == "PREPARED"
        ground.world.advance(CHECK)
    (row,) = ground.claim()
    assert ground.store.reply(row, UNKNOWN) == "UNRESOLVED"
    assert ground.shown(tx_id).checks == 1


def test_a_check_that_died_is_made_again_and_not_counted(ground: Ground) -> None:
    row = ground.checking()
    assert ground.claim() == []
    ground.world.advance(LEASE)
    (again,) = ground.claim()
    assert again.tx_id == row.tx_id
    assert ground.shown(row.tx_id).checks == 0


def test_a_check_past_its_lease_writes_nothing(ground: Ground) -> None:
    """Invariant 8."""
    row = ground.checking()
    ground.world.advance(LEASE)
    (again,) = ground.claim()
    assert ground.store.reply(row, COMMIT) == "late"
    assert ground.state(row.tx_id) == "CHECKING"
    assert ground.store.reply(again, UNKNOWN) == "unknown"
    assert ground.store.reply(again, COMMIT) == "late"
    assert ground.state(row.tx_id) == "PREPARED"


def test_a_check_that_says_commit_commits(ground: Ground) -> None:
    row = ground.checking()
    assert ground.store.reply(row, COMMIT) == "COMMITTED"
    assert ground.shown(row.tx_id).decided_by == "check"
    assert len(ground.forward()) == 1


def test_an_unfenced_rollback_counts_only_after_the_longest_business_transaction(
    ground: Ground,
) -> None:
    """Invariant 5."""
    row = ground.checking()
    assert ground.store.reply(row, ROLLBACK) == "unknown"
    ground.world.advance(LONGEST - IMMUNITY - 1)
    assert ground.claim() == []
    ground.world.advance(1)
    (row,) = ground.claim()
    assert ground.store.reply(row, ROLLBACK) == "ROLLED_BACK"


def test_an_unfenced_rollback_counts_by_the_time_of_its_question_not_of_its_answer(
    ground: Ground,
) -> None:
    """Invariant 5. The business commits after it was asked, within its longest transaction."""
    tx_id = ground.prepared()
    ground.world.advance(LONGEST - 1)
    (row,) = ground.claim()
    ground.take(ground.prepare(tx_id, b"another body"))  # a conflict, which writes the row
    ground.world.advance(LEASE - 1)
    assert ground.store.reply(row, ROLLBACK) == "unknown"
    ground.take(ground.commit(tx_id))
    assert [row.tx_id for row in ground.forward()] == [tx_id]


def test_a_late_unfenced_rollback_is_no_conflict_if_it_was_asked_too_early(ground: Ground) -> None:
    tx_id = ground.prepared()
    ground.world.advance(LONGEST - 1)
    (row,) = ground.claim()
    ground.take(ground.commit(tx_id))
    ground.world.advance(1)
    assert ground.store.reply(row, ROLLBACK) == "late"
    assert ground.alerts() == {}


def test_a_fenced_rollback_counts_at_once(ground: Ground) -> None:
    row = ground.checking()
    assert ground.store.reply(row, FENCED) == "ROLLED_BACK"
    assert ground.shown(row.tx_id).decided_by == "check"


def test_rocketmq_a_commit_that_comes_while_a_check_runs_wins(ground: Ground) -> None:
    row = ground.checking()
    ground.take(ground.commit(row.tx_id))
    assert ground.store.reply(row, UNKNOWN) == "late"
    shown = ground.shown(row.tx_id)
    assert (shown.state, shown.decided_by, shown.checks) == ("COMMITTED", "business", 0)
    assert shown.conflict == ""


def test_a_fenced_rollback_of_a_check_that_a_commit_overtook_is_a_conflict(ground: Ground) -> None:
    row = ground.checking()
    ground.take(ground.commit(row.tx_id))
    assert ground.store.reply(row, FENCED) == "conflict"
    shown = ground.shown(row.tx_id)
    assert (shown.state, shown.conflict) == ("COMMITTED", "ROLLBACK by check")
    assert ground.alerts() == {"lookback_conflict": 1}


def test_a_late_commit_after_a_fenced_rollback_is_a_conflict(ground: Ground) -> None:
    row = ground.checking()
    ground.store.reply(row, FENCED)
    assert ground.take(ground.commit(row.tx_id)) == {"conflict": 1}
    assert ground.state(row.tx_id) == "ROLLED_BACK"
    assert ground.alerts() == {"lookback_conflict": 1}


def test_a_late_decision_ends_an_unresolved_one(ground: Ground) -> None:
    tx_id = _unresolved(ground)
    ground.take(ground.commit(tx_id))
    assert len(ground.forward()) == 1
    assert ground.state(tx_id) == "FORWARDED"


def _unresolved(ground: Ground) -> str:
    row = ground.checking()
    ground.world.advance(DEADLINE)
    ground.claim()
    assert ground.state(row.tx_id) == "UNRESOLVED"
    return row.tx_id


@pytest.mark.parametrize("decision", list(TxDecision))
def test_a_person_decides_once(ground: Ground, decision: TxDecision) -> None:
    tx_id = _unresolved(ground)
    shown = ground.desk.resolve(tx_id, decision, person="ann", reason="asked the shop")
    assert (shown.decision, shown.decided_by) == (decision, "operator")
    assert (shown.person, shown.why) == ("ann", "asked the shop")
    with pytest.raises(NotResolvable, match="only unresolved"):
        ground.desk.resolve(tx_id, TxDecision.COMMIT, person="bob", reason="no")
    assert len(ground.forward()) == (decision is TxDecision.COMMIT)


def test_the_queue_is_paged_the_oldest_first(ground: Ground) -> None:
    names = [ground.tx() for _ in range(5)]
    ground.take(*[ground.commit(name) for name in names])
    ground.world.advance(GRACE)
    ground.store.sweep()
    first = ground.desk.unresolved(limit=3)
    rest = ground.desk.unresolved(limit=3, after=first.after)
    assert [row.tx_id for row in [*first.rows, *rest.rows]] == sorted(names)
    assert rest.after == ""
    assert ground.desk.unresolved_counts() == {"order": 5}
    assert ground.desk.unresolved(biz_type="other").rows == []


def test_a_forward_that_was_not_marked_goes_again_with_the_same_message(ground: Ground) -> None:
    """Invariant 4."""
    tx_id = ground.prepared()
    ground.take(ground.commit(tx_id))
    (first,) = ground.store.claim_forwards(10, LEASE)
    assert ground.store.claim_forwards(10, LEASE) == []
    ground.world.advance(LEASE)
    (second,) = ground.store.claim_forwards(10, LEASE)
    assert (second.msg_key, second.body, second.tx_id) == (first.msg_key, first.body, tx_id)
    assert ground.store.mark_forwarded([Forwarded(first, "t/0/1")]) == 0, "its lease is over"
    assert ground.store.mark_forwarded([Forwarded(second, "t/0/2")]) == 1
    assert ground.shown(tx_id).forwarded_to == "t/0/2"


def test_a_forward_that_failed_goes_again_later(ground: Ground) -> None:
    tx_id = ground.prepared()
    ground.take(ground.commit(tx_id))
    (row,) = ground.store.claim_forwards(10, LEASE)
    assert ground.store.not_forwarded(row, "no such topic", 500) == "not_forwarded"
    assert ground.store.claim_forwards(10, LEASE) == []
    ground.world.advance(500)
    (row,) = ground.store.claim_forwards(10, LEASE)
    assert (row.tries, ground.shown(tx_id).last_error) == (1, "no such topic")


def test_a_damaged_body_is_parked_and_the_same_prepare_mends_it(ground: Ground) -> None:
    tx_id = ground.prepared()
    ground.take(ground.commit(tx_id))
    (row,) = ground.store.claim_forwards(10, LEASE)
    assert ground.store.damaged(row) == "UNRESOLVED"
    assert ground.alerts() == {"lookback_unresolved": 1}
    with pytest.raises(NotResolvable, match="same prepare"):
        ground.desk.resolve(tx_id, TxDecision.ROLLBACK, person="ann", reason="x")
    assert ground.take(ground.commit(tx_id)) == {"repeat": 1}
    ground.take(ground.prepare(tx_id))
    assert len(ground.forward()) == 1


@pytest.mark.parametrize("broken", ["alerts", "lookback_transactions"])
def test_a_park_or_alert_that_fails_changes_nothing(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """Invariant 9."""
    row = ground.checking()
    ground.world.advance(DEADLINE)

    def fail(*_: object) -> None:
        raise LedgerUnavailable("away")

    place = (
        "lookback.store.note_in" if broken == "alerts" else "lookback.store.LookbackStore._write"
    )
    with monkeypatch.context() as patch:
        patch.setattr(place, fail)
        with pytest.raises(LedgerUnavailable):
            ground.claim()
    assert ground.state(row.tx_id) == "CHECKING"
    assert ground.alerts() == {}
    ground.claim()
    assert ground.state(row.tx_id) == "UNRESOLVED"
    assert ground.alerts() == {"lookback_unresolved": 1}


def test_a_kind_that_is_no_longer_configured_waits_for_a_person(ground: Ground) -> None:
    """Invariant 7."""
    tx_id = ground.prepared()
    other = Ground(ground.world, {})
    ground.world.advance(IMMUNITY)
    other.store.sweep()
    assert ground.state(tx_id) == "PREPARED"
    ground.world.advance(86_400_000)
    other.store.sweep()
    assert ground.state(tx_id) == "UNRESOLVED"


@pytest.mark.parametrize("stored_by_it", [True, False])
def test_a_check_that_the_configuration_gets_later_is_made_soon(
    ground: Ground, stored_by_it: bool
) -> None:
    """While the configuration changes, a process without the kind's check put it off until the deadline."""
    day = 86_400_000
    before = Ground(ground.world, {KIND: replace(TERMS, check="", deadline_ms=day)})
    tx_id = (before if stored_by_it else ground).prepared()
    ground.world.advance(IMMUNITY)
    before.store.sweep()
    ground.world.advance(LOOK_MS)
    after = Ground(ground.world, {KIND: replace(TERMS, deadline_ms=day)})
    assert [row.tx_id for row in after.claim()] == [tx_id]


def test_spent_transactions_hold_up_no_check(ground: Ground) -> None:
    """A round moved as many as there are threads, and then waited."""
    for _ in range(7):
        ground.prepared()
    ground.world.advance(IMMUNITY)
    for row in ground.claim():
        ground.store.reply(row, UNKNOWN)
    ground.world.advance(DEADLINE)
    fresh = ground.prepared()
    ground.world.advance(IMMUNITY)
    assert [row.tx_id for row in ground.claim(2)] == [fresh]
    assert ground.desk.unresolved_counts() == {KIND: 7}


def test_the_kinds_that_wait_are_found_without_reading_each_row(ground: Ground) -> None:
    for kind in ("a", "b", "b", "c"):
        ground.take(replace(ground.prepare(ground.tx()), biz_type=kind))
    assert ground.store._kinds() == ["a", "b", "c"]
    if ground.world.is_postgres:
        plan = str(ground.world.rows(f"EXPLAIN {sql.KINDS}"))
        assert ("Limit" in plan, "Aggregate" in plan, "Unique" in plan) == (True, False, False)
    else:
        plan = str(ground.world.rows(f"EXPLAIN QUERY PLAN {sql.KINDS}"))
        assert "SCAN lookback_transactions" not in plan


def test_bodies_are_sealed_with_the_key(world: World) -> None:
    ground = Ground(world, key=b64encode(b"k" * 32).decode())
    tx_id = ground.tx()
    ground.take(ground.prepare(tx_id, b"13800000001"), ground.commit(tx_id))
    ((body,),) = world.rows("SELECT body FROM lookback_transactions")
    assert b"138" not in bytes(body)
    (row,) = ground.store.claim_forwards(1, LEASE)
    assert ground.store.opened(row).body == b"13800000001"
    assert ground.store.opened(row).body_is_whole


def test_the_age_of_the_oldest_committed_message_is_known(ground: Ground) -> None:
    assert ground.store.oldest_committed() == 0
    tx_id = ground.prepared()
    ground.take(ground.commit(tx_id))
    ground.world.advance(7_000)
    assert ground.store.oldest_committed() == 7_000
