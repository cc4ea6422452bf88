"""Days that are over leave the ledger: whole, with their names, and never with a row that is still open."""

import gzip
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from backends.sql.database import Database
from idempotency.archive.contract import Archive, DayOpen, least_days
from idempotency.archive.postgres import PostgresArchive
from idempotency.archive.sqlite import SqliteArchive
from idempotency.claims.store import MS_PER_DAY
from idempotency.error_mapping import connected
from idempotency.ledger import LedgerUnavailable
from idempotency.partitions import ensure_partitions, partition_name
from idempotency.sql_ledger import SqlLedger
from message.delivery import Delivery
from message.states import Event, State
from policy.schema import LanePolicy, Policy
from tests.harness.operator_moves import operator_retry
from tests.idempotency.making import (
    NOON,
    World,
    claimed,
    claims,
    deliveries,
    delivery,
    settle,
    wait_until,
    worker,
)

DAY = NOON // MS_PER_DAY
KEEP = 90


@pytest.fixture
def ledger(world: World) -> SqlLedger:
    ledger = world.open()
    ledger.register(worker())
    return ledger


@pytest.fixture
def archive(ledger: SqlLedger, tmp_path: Path) -> Archive:
    return ledger.archive(str(tmp_path / "archive"))


def sent(ledger: SqlLedger, count: int) -> list[Delivery]:
    made = claimed(ledger, *[delivery() for _ in range(count)])
    for one in made:
        settle(ledger, one, Event.ACCEPTED, provider_id="p")
    return made


def years_later(world: World, ledger: SqlLedger) -> None:
    world.advance((KEEP + 1) * MS_PER_DAY)
    ensure_partitions(ledger.database)


def count(world: World, table: str) -> int:
    return int(world.rows(f"SELECT count(*) FROM {table}")[0][0])


def left(world: World, where: str) -> list[dict[str, Any]]:
    """What stands in the archive, by whichever way it went."""
    if world.is_postgres:
        names = ("delivery_key", "state")
        found = world.rows(f"SELECT delivery_key, state FROM {where}")
        return [dict(zip(names, row, strict=True)) for row in found]
    lines = gzip.decompress(Path(where).read_bytes()).splitlines()
    return [line for line in map(msgspec.json.decode, lines) if line["kind"] == "delivery"]


def test_a_day_leaves_with_its_rows_its_payloads_and_its_names(
    world: World, ledger: SqlLedger, archive: Archive
) -> None:
    items = sent(ledger, 7)
    shared = claimed(ledger, *deliveries(receivers=("+8613800000001", "+8613800000002")))
    for one in shared:
        settle(ledger, one, Event.REJECTED, reason="bad_number")
    years_later(world, ledger)
    young = sent(ledger, 3)
    assert DAY in archive.days(KEEP)
    done = archive.archive(DAY)
    assert done.rows == 9
    assert {row["delivery_key"] for row in left(world, done.where)} == {
        one.key for one in [*items, *shared]
    }
    assert world.states() == {one.key: "SENT" for one in young}
    assert count(world, "payloads") == 0
    if world.is_postgres:
        assert count(world, "delivery_keys") == 3
    assert DAY not in archive.days(KEEP)
    assert archive.finish() == 0


@pytest.mark.parametrize("event", [Event.NOT_SENT, Event.UNKNOWN, None])
def test_with_one_open_row_the_whole_day_stays(
    world: World, ledger: SqlLedger, archive: Archive, event: Event | None
) -> None:
    sent(ledger, 5)
    (one,) = claimed(ledger, delivery())
    if event is not None:
        settle(ledger, one, event, reason="x")
    years_later(world, ledger)
    before = world.states()
    with pytest.raises(DayOpen, match="open rows"):
        archive.archive(DAY)
    assert world.states() == before
    assert archive.survey(DAY)[1:] == (6, 1, 0)


def test_a_row_that_was_opened_after_the_look_keeps_its_day(
    world: World, ledger: SqlLedger, archive: Archive
) -> None:
    (one,) = claimed(ledger, delivery())
    settle(ledger, one, Event.BUDGET_SPENT, reason="attempts_spent")
    years_later(world, ledger)
    assert archive.survey(DAY).open == 0
    found = ledger.recovering().version_of(one.key)
    assert found is not None
    later = world.now + 60_000
    move = operator_retry(one.key, found[0], found[1], State.PARKED, expires_at=later)
    assert ledger.recovering().move([move]) == [True]
    with pytest.raises(DayOpen):
        archive.archive(DAY)
    assert world.states() == {one.key: "RETRY"}


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_row_that_is_being_opened_at_that_moment_keeps_its_day(
    world: World, ledger: SqlLedger, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive waits for who writes, and looks when nobody can write any more."""
    monkeypatch.setattr("idempotency.archive.day_partitions.LOCK_WAIT", "9s")
    (one,) = sent(ledger, 1)
    years_later(world, ledger)
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
    with (
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(world.url.replace("+psycopg", "")) as other,
    ):
        other.execute("UPDATE deliveries SET state = 'RETRY' WHERE delivery_key = %s", (one.key,))
        leaving = pool.submit(archive.archive, DAY)
        wait_until(lambda: world.rows(waiting) != [(0,)])
        other.commit()
        with pytest.raises(DayOpen):
            leaving.result(20)
    assert world.states() == {one.key: "RETRY"}


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_claims_go_on_while_somebody_keeps_the_day_from_leaving(
    world: World, ledger: SqlLedger, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idempotency.archive.day_partitions.LOCK_WAIT", "100ms")
    (one,) = sent(ledger, 1)
    years_later(world, ledger)
    with psycopg.connect(world.url.replace("+psycopg", "")) as other:
        other.execute("UPDATE deliveries SET reason = 'y' WHERE delivery_key = %s", (one.key,))
        with pytest.raises(LedgerUnavailable):
            archive.archive(DAY)
        assert len(sent(ledger, 3)) == 3
    assert archive.archive(DAY).rows == 1


def test_what_is_young_is_not_named(world: World, ledger: SqlLedger, archive: Archive) -> None:
    sent(ledger, 1)
    assert DAY not in archive.days(KEEP)
    world.advance(KEEP * MS_PER_DAY)
    assert DAY not in archive.days(KEEP), "so many whole days are kept"
    world.advance(MS_PER_DAY)
    assert DAY in archive.days(KEEP)


def test_a_record_that_is_read_again_later_is_entered_anew(
    world: World, ledger: SqlLedger, archive: Archive
) -> None:
    item = delivery()
    (one,) = claimed(ledger, item)
    settle(ledger, one, Event.ACCEPTED)
    years_later(world, ledger)
    archive.archive(DAY)
    again = claims([item], Event.TTL_AT_INTAKE, reason="ttl_at_intake")
    (answer,) = ledger.claim(again, "w1")
    assert answer.won
    assert answer.state is State.EXPIRED


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_crash_after_the_detach_is_finished_by_the_next(
    world: World, ledger: SqlLedger, archive: Archive
) -> None:
    assert isinstance(archive, PostgresArchive)
    item = sent(ledger, 5)[0]
    years_later(world, ledger)
    archive._detach(DAY)
    assert count(world, "delivery_keys") == 5
    with pytest.raises(LedgerUnavailable):  # a name without a row: wait, claim nothing twice
        ledger.claim(claims([item]), "w1")
    assert archive.finish() == 5
    assert count(world, "delivery_keys") == 0
    assert archive.finish() == 0


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_name_that_came_back_meanwhile_is_not_removed(
    world: World, ledger: SqlLedger, archive: Archive
) -> None:
    assert isinstance(archive, PostgresArchive)
    item = sent(ledger, 1)[0]
    years_later(world, ledger)
    archive._detach(DAY)
    world.run("DELETE FROM delivery_keys")
    ledger.claim(claims([item], Event.TTL_AT_INTAKE), "w1")
    archive.finish()
    assert count(world, "delivery_keys") == 1


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_rows_of_the_default_partition_leave_too(
    world: World, ledger: SqlLedger, archive: Archive
) -> None:
    assert isinstance(archive, PostgresArchive)
    world.advance(40 * MS_PER_DAY)  # no partition was made for that day
    day = world.now // MS_PER_DAY
    items = sent(ledger, 5)
    world.advance((KEEP + 1) * MS_PER_DAY)
    assert day in archive.days(KEEP)
    done = archive.archive(day)
    assert {row["delivery_key"] for row in left(world, done.where)} == {one.key for one in items}
    assert count(world, "deliveries") == count(world, "delivery_keys") == 0


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_the_default_partition_too_stays_with_an_open_row(
    world: World, ledger: SqlLedger, archive: Archive
) -> None:
    assert isinstance(archive, PostgresArchive)
    world.advance(40 * MS_PER_DAY)
    day = world.now // MS_PER_DAY
    sent(ledger, 2)
    claimed(ledger, delivery())
    world.advance((KEEP + 1) * MS_PER_DAY)
    with pytest.raises(DayOpen):
        archive.archive(day)
    assert count(world, "deliveries") == 3


def shared_pair(ledger: SqlLedger) -> list[Delivery]:
    """Two settled deliveries that share their payload."""
    pair = claimed(ledger, *deliveries(receivers=("+8613800000001", "+8613800000002")))
    for one in pair:
        settle(ledger, one, Event.ACCEPTED, provider_id="p")
    return pair


def dies(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_crash_before_the_shared_payloads_is_finished_by_the_next(
    world: World,
    ledger: SqlLedger,
    archive: Archive,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    pair = shared_pair(ledger)
    years_later(world, ledger)
    sent(ledger, 1)
    with monkeypatch.context() as patched:
        patched.setattr(SqliteArchive, "_payloads", dies)
        with pytest.raises(KeyboardInterrupt):
            archive.archive(DAY)
    assert (count(world, "deliveries"), count(world, "payloads")) == (1, 1)
    assert archive.days(KEEP) == [DAY]
    assert archive.archive(DAY).rows == 0
    assert archive.days(KEEP) == []
    assert count(world, "payloads") == 0
    archived = ledger.archived(str(tmp_path / "archive"))
    found = archived.find(pair[0].notification.id)
    assert [archived.kept(row).payload for row in found] == [pair[0].payload] * 2


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_crash_before_the_default_partitions_payloads_is_finished_by_the_next(
    world: World, ledger: SqlLedger, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.advance(40 * MS_PER_DAY)  # no partition was made for that day
    day = world.now // MS_PER_DAY
    pair = shared_pair(ledger)
    world.advance((KEEP + 1) * MS_PER_DAY)
    move_some = PostgresArchive._move_some
    with monkeypatch.context() as patched:
        steps: Iterator[Callable[..., Any]] = iter([move_some, dies])
        patched.setattr(PostgresArchive, "_move_some", lambda *given: next(steps)(*given))
        with pytest.raises(KeyboardInterrupt):
            archive.archive(day)
    assert (count(world, "deliveries"), count(world, "payloads")) == (0, 1)
    archive.finish()
    assert day in archive.days(KEEP)
    archive.archive(day)
    assert day not in archive.days(KEEP)
    assert count(world, "payloads") == 0
    archived = ledger.archived()
    found = archived.find(pair[0].notification.id)
    assert [archived.kept(row).payload for row in found] == [pair[0].payload] * 2


@pytest.mark.parametrize("left_behind", [False, True])
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_payloads_in_a_partition_leave_with_rows_of_the_default_one(
    world: World, ledger: SqlLedger, archive: Archive, left_behind: bool
) -> None:
    """A day's rows strayed, and then its partitions were made: one for payloads, none for rows. Earlier
    versions left that partition behind, and an empty table of its name in the archive."""
    assert isinstance(archive, PostgresArchive)
    world.advance(40 * MS_PER_DAY)
    day = world.now // MS_PER_DAY
    sent(ledger, 1)
    ensure_partitions(ledger.database)
    pair = shared_pair(ledger)
    world.advance((KEEP + 1) * MS_PER_DAY)
    assert day in archive.days(KEEP)
    if left_behind:
        archive._move_strayed(day)
        name = partition_name("payloads", day)
        world.run(f"CREATE TABLE archive.{name} (LIKE payloads INCLUDING ALL)")
        assert (count(world, "deliveries"), count(world, "payloads")) == (0, 1)
        assert day in archive.days(KEEP)
    archive.archive(day)
    assert day not in archive.days(KEEP)
    assert (count(world, "deliveries"), count(world, "payloads")) == (0, 0)
    archived = ledger.archived()
    found = archived.find(pair[0].notification.id)
    assert [archived.kept(row).payload for row in found] == [pair[0].payload] * 2


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_writers_go_on_while_the_days_of_payloads_are_read(
    world: World, ledger: SqlLedger, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has no index of days: all of it is read, without SQLite's one lock of writers."""
    shared_pair(ledger)
    seen: list[Delivery] = []

    @contextmanager
    def meanwhile(database: Database) -> Iterator[Any]:
        with connected(database) as connection:
            seen.extend(sent(ledger, 1))
            yield connection

    monkeypatch.setattr("idempotency.archive.sqlite.connected", meanwhile)
    assert archive.days(-1) == [DAY]
    assert len(seen) == 1


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_file_that_cannot_be_written_keeps_its_rows(
    world: World, ledger: SqlLedger, archive: Archive, tmp_path: Path
) -> None:
    assert isinstance(archive, SqliteArchive)
    sent(ledger, 3)
    years_later(world, ledger)
    (tmp_path / "archive").write_text("a file where the folder should be")
    with pytest.raises(LedgerUnavailable, match="cannot be written"):
        archive.archive(DAY)
    assert count(world, "deliveries") == 3


def test_what_is_sealed_stays_sealed_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
    world = World(f"sqlite:///{tmp_path / 'sealed.db'}", key)
    ledger = world.open()
    ledger.register(worker())
    (one,) = claimed(ledger, delivery(text="a very private word"))
    settle(ledger, one, Event.ACCEPTED)
    years_later(world, ledger)
    path = Path(ledger.archive().archive(DAY).where)
    world.close()
    assert path.parent == tmp_path / "archive"
    assert path.stat().st_mode & 0o077 == 0
    assert b"private" not in gzip.decompress(path.read_bytes())


def test_a_ledger_keeps_longer_than_kafka_and_the_longest_ttl() -> None:
    lanes = {"sms.notice": LanePolicy(max_ttl_ms=30 * MS_PER_DAY)}
    assert least_days(Policy(), 8) == 8 + 7 + 1
    assert least_days(Policy(lanes=lanes), 20) == 20 + 30 + 1


def test_what_left_is_found_by_its_key_and_its_message_and_can_be_opened(
    world: World, ledger: SqlLedger, archive: Archive, tmp_path: Path
) -> None:
    two = claimed(ledger, *deliveries(receivers=("+8613800000001", "+8613800000002")))
    (one,) = claimed(ledger, delivery())
    for item in (one, *two):
        settle(ledger, item, Event.BUDGET_SPENT, reason="attempts_spent")
    archived = ledger.archived(str(tmp_path / "archive"))
    assert archived.find(one.key) == []
    assert archived.newest() is None
    years_later(world, ledger)
    archive.archive(DAY)
    (row,) = archived.find(one.key)
    assert (row.state, row.reason, row.lane) == ("PARKED", "attempts_spent", "sms.notice")
    assert "20261213" in row.where
    assert archived.newest() == date(2026, 12, 13)
    kept = archived.kept(row)
    assert (kept.receiver, kept.payload) == (one.receiver, one.payload)
    both = archived.find(two[0].notification.id)
    assert {archived.kept(row).receiver for row in both} == {item.receiver for item in two}
    assert {archived.kept(row).payload for row in both} == {two[0].payload}
    assert archived.find("nobody") == []


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_write_that_a_crash_cut_short_costs_no_row(
    world: World, ledger: SqlLedger, archive: Archive, tmp_path: Path
) -> None:
    assert isinstance(archive, SqliteArchive)
    items = sent(ledger, 3)
    years_later(world, ledger)
    torn = archive.file_of(DAY)
    torn.parent.mkdir()
    torn.write_bytes(gzip.compress(b"of rows that are still in the database")[:-12])
    done = archive.archive(DAY)
    assert {row["delivery_key"] for row in left(world, done.where)} == {one.key for one in items}
    archived = ledger.archived(str(tmp_path / "archive"))
    assert all(archived.find(one.key) for one in items)


@pytest.fixture
def damaged(
    world: World,
    ledger: SqlLedger,
    archive: Archive,
    monkeypatch: pytest.MonkeyPatch,
) -> list[Delivery]:
    """Four deliveries in two batches of one file, whose first batch is damaged. A fifth one is in the file
    of the day before."""
    monkeypatch.setattr("idempotency.archive.sqlite.BATCH", 2)
    older = sent(ledger, 1)
    world.advance(MS_PER_DAY)
    items = sent(ledger, 4)
    years_later(world, ledger)
    archive.archive(DAY)
    file = Path(archive.archive(DAY + 1).where)
    content = bytearray(file.read_bytes())
    content[100] ^= 0xFF
    file.write_bytes(content)
    return [*items, *older]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_rows_outside_the_damage_of_a_file_are_found(
    ledger: SqlLedger, damaged: list[Delivery], tmp_path: Path
) -> None:
    archived = ledger.archived(str(tmp_path / "archive"))
    for one in damaged[2:]:
        (row,) = archived.find(one.key)
        assert archived.kept(row).payload == one.payload
    for name in (damaged[0].key, damaged[1].notification.id, "nobody"):
        with pytest.raises(LedgerUnavailable, match=r"20261214.* cannot be read whole: .* damaged"):
            archived.find(name)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_row_whose_shared_payload_is_in_the_damage_is_not_given_without_it(
    world: World, ledger: SqlLedger, archive: Archive, tmp_path: Path
) -> None:
    (one, _) = shared_pair(ledger)
    years_later(world, ledger)
    file = Path(archive.archive(DAY).where)
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(LedgerUnavailable, match="cannot be read whole"):
        ledger.archived(str(tmp_path / "archive")).find(one.key)
