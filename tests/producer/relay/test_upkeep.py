"""The table stays small: days are made ahead and dropped once all their rows have ended."""

import threading
import time
from datetime import date, timedelta

import pytest
from sqlalchemy import text

from hongyan_client.outbox import partitions
from hongyan_client.outbox.errors import OutboxForbidden
from hongyan_client.outbox.partitions import AHEAD_DAYS, day_statement, partitions_of
from hongyan_client.outbox.store import FailedRow, OutboxStore
from producer.relay import past_days
from producer.relay.upkeep import BATCH, OutboxUpkeep
from tests.hongyan_client.outbox.places import OutboxPlace, notice

KEEP_HOURS = 24
HOUR_MS = 3_600_000


@pytest.fixture
def today(postgres_place: OutboxPlace) -> date:
    with postgres_place.engine.begin() as connection:
        found: date = connection.execute(
            text("SELECT (statement_timestamp() AT TIME ZONE 'utc')::date")
        ).scalar_one()
    return found


def upkeep(place: OutboxPlace) -> OutboxUpkeep:
    return OutboxUpkeep(place.store, KEEP_HOURS, threading.Event())


def days_of(place: OutboxPlace) -> list[date]:
    with place.engine.begin() as connection:
        return [one.day for one in partitions_of(connection, place.store.name)]


def old_day(place: OutboxPlace, day: date, states: tuple[str, ...]) -> None:
    """Adds a past day with a row in each of these states."""
    with place.engine.begin() as connection:
        connection.execute(text(day_statement("hongyan_outbox", day)))
    for state in states:
        message_id = place.add()
        done = "done_at = 1, next_at = NULL, " if state in ("SENT", "RECALLED") else ""
        place.set(message_id, f"{done}state = '{state}', created_day = '{day}'")


def test_days_are_made_ahead_and_only_once(postgres_place: OutboxPlace, today: date) -> None:
    last = today + timedelta(days=AHEAD_DAYS)
    with postgres_place.engine.begin() as connection:
        connection.execute(text(f'DROP TABLE "hongyan_outbox_d{last:%Y%m%d}"'))
    upkeep(postgres_place).run_once()
    upkeep(postgres_place).run_once()
    assert days_of(postgres_place) == [today + timedelta(days=n) for n in range(AHEAD_DAYS + 1)]


def test_a_day_whose_rows_lie_in_the_default_partition_is_left_there(
    postgres_place: OutboxPlace, today: date
) -> None:
    with postgres_place.engine.begin() as connection:
        connection.execute(text(f'DROP TABLE "hongyan_outbox_d{today:%Y%m%d}"'))
    message_id = postgres_place.add()
    upkeep(postgres_place).run_once()
    assert today not in days_of(postgres_place)
    assert postgres_place.claimed() == [message_id]


def test_a_past_day_goes_once_every_row_has_ended(postgres_place: OutboxPlace, today: date) -> None:
    day = today - timedelta(days=5)
    old_day(postgres_place, day, ("SENT", "RECALLED"))
    upkeep(postgres_place).run_once()
    assert day not in days_of(postgres_place)
    assert postgres_place.states() == {}


@pytest.mark.parametrize("state", ["PENDING", "SENDING"])
def test_a_past_day_with_a_row_that_is_due_or_in_flight_stays_and_loses_its_old_rows(
    postgres_place: OutboxPlace, today: date, state: str
) -> None:
    day = today - timedelta(days=5)
    old_day(postgres_place, day, ("SENT", state))
    upkeep(postgres_place).run_once()
    assert day in days_of(postgres_place)
    assert list(postgres_place.states().values()) == [state]


def test_a_parked_row_moves_to_today_and_can_be_released(
    postgres_place: OutboxPlace, today: date
) -> None:
    day = today - timedelta(days=5)
    old_day(postgres_place, day, ("SENT", "PARKED"))
    ((parked, _),) = (one for one in postgres_place.states().items() if one[1] == "PARKED")
    postgres_place.set(parked, "next_at = NULL")
    before = postgres_place.row(parked)
    upkeep(postgres_place).run_once()
    assert day not in days_of(postgres_place)
    assert postgres_place.row(parked)._asdict() == {**before._asdict(), "created_day": today}
    assert postgres_place.operator.release(parked, "li", "the topic is there now") == 1
    assert postgres_place.claimed() == [parked]


def test_a_delayed_row_moves_to_today_goes_at_its_time_and_is_kept_after_it(
    postgres_place: OutboxPlace, today: date
) -> None:
    day = today - timedelta(days=5)
    old_day(postgres_place, day, ())
    delayed = postgres_place.add("order-1", send_at=time.time_ns() // 1_000_000 + 3_600_000)
    later = postgres_place.add("order-1", send_at=time.time_ns() // 1_000_000 + 3_600_000)
    for one in (delayed, later):
        postgres_place.set(one, f"created_day = '{day}'")
    upkeep(postgres_place).run_once()
    assert day not in days_of(postgres_place)
    for one in (later, delayed):
        postgres_place.set(one, "send_at = 1, next_at = 1")
    batch = postgres_place.store.claim_due("r", 30_000, 10)
    assert [row.message_id for row in batch.rows] == [delayed]
    assert postgres_place.store.mark(batch.token, batch.rows) == 0
    upkeep(postgres_place).run_once()
    assert postgres_place.states() == {delayed: "SENT", later: "PENDING"}


def test_a_row_that_ended_just_now_keeps_its_old_day(
    postgres_place: OutboxPlace, today: date
) -> None:
    """As after an outage of days: its rows are sent where they were written."""
    day = today - timedelta(days=5)
    old_day(postgres_place, day, ("SENT", "PENDING"))
    batch = postgres_place.store.claim_due("r", 30_000, 10)
    assert postgres_place.store.mark(batch.token, batch.rows) == 0
    mine = upkeep(postgres_place)
    for _ in range(2):
        mine.run_once()
        assert len(postgres_place.states()) == 2
    postgres_place.set(batch.rows[0].message_id, "done_at = 1")
    upkeep(postgres_place).run_once()
    assert day not in days_of(postgres_place)


def test_one_look_moves_a_bounded_number_of_rows(
    postgres_place: OutboxPlace, today: date, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_days, "MOST_MOVED", 2)
    day = today - timedelta(days=5)
    old_day(postgres_place, day, ("PARKED", "PARKED", "PARKED"))
    for parked in postgres_place.states():
        postgres_place.set(parked, "next_at = NULL")
    mine = upkeep(postgres_place)
    mine.run_once()
    days = sorted(postgres_place.row(one).created_day for one in postgres_place.states())
    assert days == [day, today, today]
    mine.run_once()
    assert day not in days_of(postgres_place)


def test_ended_rows_are_deleted_page_by_page_and_young_ones_stay(
    postgres_place: OutboxPlace, today: date, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_days, "PAGE_ROWS", 2)
    monkeypatch.setattr(partitions, "PAGE_ROWS", 2)
    monkeypatch.setattr(past_days, "MOST_PAGES", 2)
    day = today - timedelta(days=5)
    old_day(postgres_place, day, ("SENT", "SENT", "SENT", "SENDING", "RECALLED", "SENT"))
    young = next(iter(postgres_place.states()))
    postgres_place.set(young, "done_at = created_at")
    mine = upkeep(postgres_place)
    mine.run_once()
    assert sorted(postgres_place.states().values()) == ["RECALLED", "SENDING", "SENT", "SENT"]
    mine.run_once()
    assert sorted(postgres_place.states().values()) == ["SENDING", "SENT"]
    assert young in postgres_place.states()


def test_a_move_waits_for_a_recall_and_hinders_none(
    postgres_place: OutboxPlace, today: date
) -> None:
    day = today - timedelta(days=5)
    old_day(postgres_place, day, ())
    delayed = postgres_place.add(send_at=time.time_ns() // 1_000_000 + 3_600_000)
    postgres_place.set(delayed, f"created_day = '{day}'")
    mine = upkeep(postgres_place)
    with postgres_place.engine.begin() as business:
        assert postgres_place.outbox.recall(business, delayed)
        mine.run_once()
    assert postgres_place.row(delayed).created_day == day
    assert postgres_place.states() == {delayed: "RECALLED"}


def test_a_recall_during_a_move_waits_for_it_and_finds_the_row(
    postgres_place: OutboxPlace, today: date
) -> None:
    place, day = postgres_place, today - timedelta(days=5)
    old_day(place, day, ())
    delayed = place.add(send_at=time.time_ns() // 1_000_000 + 3_600_000)
    place.set(delayed, f"created_day = '{day}'")
    waiting = text(
        "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'hongyan_outbox'::regclass"
    )
    recalled: list[bool] = []

    def recall() -> None:
        with place.engine.begin() as business:
            recalled.append(place.outbox.recall(business, delayed))

    business = threading.Thread(target=recall)
    with place.store.transaction() as moving:
        (one,) = (one for one in partitions_of(moving, "hongyan_outbox") if one.day == day)
        assert partitions.lock_for_move(moving, "hongyan_outbox")
        ids = partitions.movable_rows(moving, one, 10)
        assert partitions.move_to_day(moving, "hongyan_outbox", one, today, ids) == 1
        business.start()
        until = time.monotonic() + 2
        while moving.execute(waiting).first() is None and time.monotonic() < until:
            time.sleep(0.01)
    business.join(30)
    assert recalled == [True]
    assert place.row(delayed).created_day == today


def test_a_drop_locks_the_table_before_the_day(postgres_place: OutboxPlace, today: date) -> None:
    """Transactions of the business hold the table and ask for its days: the other order is a deadlock."""
    day = today - timedelta(days=5)
    old_day(postgres_place, day, ("SENT",))
    locks = text(
        "SELECT relation::regclass::text, granted FROM pg_locks WHERE mode = 'AccessExclusiveLock'"
        " AND relation IS NOT NULL AND database = (SELECT oid FROM pg_database"
        " WHERE datname = current_database())"
    )
    looking = threading.Thread(target=upkeep(postgres_place).run_once)
    with postgres_place.engine.begin() as business, postgres_place.engine.connect() as watching:
        postgres_place.outbox.add(business, notice())
        looking.start()
        until, seen = time.monotonic() + 30, dict[str, bool]()
        while False not in seen.values() and time.monotonic() < until:
            seen = {row[0]: row[1] for row in watching.execute(locks)}
        assert seen == {"hongyan_outbox": False}
        assert not postgres_place.outbox.recall(business, "another one")
    looking.join(30)
    upkeep(postgres_place).run_once()
    assert day not in days_of(postgres_place)


def test_a_persons_partition_without_a_day_ends_nothing(
    postgres_place: OutboxPlace, today: date
) -> None:
    with postgres_place.engine.begin() as connection:
        connection.execute(
            text(
                "CREATE TABLE hongyan_outbox_d99999999 PARTITION OF hongyan_outbox"
                " FOR VALUES FROM ('2001-01-01') TO ('2001-01-02')"
            )
        )
    upkeep(postgres_place).run_once()
    assert days_of(postgres_place) == [today + timedelta(days=n) for n in range(AHEAD_DAYS + 1)]


def test_a_recent_day_stays(postgres_place: OutboxPlace, today: date) -> None:
    day = today - timedelta(days=1)
    old_day(postgres_place, day, ("SENT",))
    upkeep(postgres_place).run_once()
    assert day in days_of(postgres_place)


def test_a_user_that_owns_no_table_deletes_ended_rows_and_leaves_the_days(
    postgres_place: OutboxPlace,
    plain_store: OutboxStore,
    today: date,
    capsys: pytest.CaptureFixture[str],
) -> None:
    day = today - timedelta(days=5)
    old_day(postgres_place, day, ("SENT", "PARKED"))
    elsewhere = postgres_place.add()  # a day without a partition
    postgres_place.set(
        elsewhere, "state = 'SENT', next_at = NULL, done_at = 1, created_day = '2001-01-01'"
    )
    recent = postgres_place.add()
    postgres_place.set(recent, "state = 'SENT', next_at = NULL, done_at = created_at")
    days = days_of(postgres_place)
    plain = OutboxUpkeep(plain_store, KEEP_HOURS, threading.Event())
    plain.run_once()
    plain.run_once()
    assert sorted(postgres_place.states().values()) == ["PARKED", "SENT"]
    assert recent in postgres_place.states()
    assert days_of(postgres_place) == days
    assert capsys.readouterr().out.count("does not own") == 1


def test_a_user_that_owns_no_table_claims_and_marks(
    postgres_place: OutboxPlace, plain_store: OutboxStore
) -> None:
    sent, parked = postgres_place.add(), postgres_place.add("order-1")
    batch = plain_store.claim_due("plain", 30_000, 10)
    failed = FailedRow(batch.rows[1], "too large", False, None)
    assert plain_store.mark(batch.token, batch.rows[:1], [failed]) == 0
    assert postgres_place.states() == {sent: "SENT", parked: "PARKED"}


def test_a_user_without_a_right_is_told_once_and_stops_nothing(
    postgres_place: OutboxPlace, plain_store: OutboxStore, capsys: pytest.CaptureFixture[str]
) -> None:
    with plain_store.engine.begin() as connection:
        role = connection.execute(text("SELECT current_user")).scalar_one()
    with postgres_place.engine.begin() as connection:
        connection.execute(text(f"REVOKE DELETE ON hongyan_outbox FROM {role}"))
    message_id = postgres_place.add()
    postgres_place.set(
        message_id, "state = 'SENT', next_at = NULL, done_at = 1, created_day = '2001-01-01'"
    )
    plain = OutboxUpkeep(plain_store, KEEP_HOURS, threading.Event())
    plain.run_once()
    plain.run_once()
    assert postgres_place.states() == {message_id: "SENT"}
    assert capsys.readouterr().out.count("upkeep_not_permitted") == 1
    with pytest.raises(OutboxForbidden, match="permission denied"):
        plain.delete_batch()


def test_ended_rows_without_a_day_of_their_own_are_deleted_in_batches(place: OutboxPlace) -> None:
    ids = [place.add() for _ in range(4)]
    day = ", created_day = '2001-01-01'"  # a day without a partition
    place.set(ids[0], f"state = 'SENT', next_at = NULL, done_at = 1{day}")
    place.set(ids[1], f"state = 'RECALLED', next_at = NULL, done_at = 1{day}")
    place.set(ids[2], f"state = 'PARKED', next_at = NULL{day}")
    place.set(ids[3], f"state = 'SENT', next_at = NULL, done_at = created_at{day}")
    assert BATCH > 2
    assert upkeep(place).delete_batch() == 2
    assert place.states() == {ids[2]: "PARKED", ids[3]: "SENT"}
