"""Past days leave whole, only when each of their transactions has ended, and stay readable."""

import gzip
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from sqlalchemy import text

from backends.lookback_settings import LookbackSettings
from backends.settings import DatabaseSettings, Settings
from backends.sql.database import Database, database_url
from backends.sql.errors import SqlAway, SqlError, SqlTimeout
from idempotency.archive.contract import DayOpen, compact
from idempotency.claims.store import MS_PER_DAY
from idempotency.ledger import LedgerUnavailable
from idempotency.sql_ledger import SqlLedger
from lookback.archive import _OPEN_BY_INDEX, TransactionArchive, open_archive
from lookback.desk import SqlLookbackDesk
from lookback.history import PastTransactions
from lookback.states import OPEN_STATES
from lookback.transaction import TxRow
from lookback.upkeep import LookbackUpkeep
from message.lookback import day_of
from tests.idempotency.making import World
from tests.lookback.making import GRACE, IMMUNITY, LEASE, Ground

KEEP = 30


@pytest.fixture
def settings(world: World, tmp_path: Path) -> Settings:
    return Settings(
        database=DatabaseSettings(url=world.url),
        lookback=LookbackSettings(archive_dir=str(tmp_path / "archive"), keep_days=KEEP),
    )


@pytest.fixture
def archive(ground: Ground, settings: Settings) -> TransactionArchive:
    return open_archive(ground.ledger, settings)


@pytest.fixture
def desk(ground: Ground, settings: Settings) -> SqlLookbackDesk:
    past = PastTransactions(ground.ledger.database, settings.lookback.archive_dir)
    return SqlLookbackDesk(ground.store, past)


def ended(ground: Ground) -> list[str]:
    """Returns a forwarded and a rolled-back transaction of a day of their own."""
    ground.world.advance(2 * MS_PER_DAY)
    names = [ground.prepared(), ground.prepared()]
    ground.take(ground.commit(names[0]), ground.rollback(names[1]))
    ground.forward()
    return names


def test_a_day_leaves_whole_and_stays_readable(
    ground: Ground, archive: TransactionArchive, desk: SqlLookbackDesk
) -> None:
    names = ended(ground)
    day = day_of(names[0])
    ground.world.advance((KEEP + 1) * MS_PER_DAY)
    assert day in archive.days(KEEP)
    assert archive.archive(day).rows == 2
    assert ground.world.rows("SELECT count(*) FROM lookback_transactions") == [(0,)]
    assert [desk.find(name)[0].state for name in names] == ["FORWARDED", "ROLLED_BACK"]
    (found,) = desk.find(f"o-{names[0][-6:]}")
    assert (found.tx_id, found.forwarded_to) == (names[0], "t/0/1")
    assert archive.archive(day).rows >= 0, "it may be repeated"
    assert desk.find("nobody") == []


@pytest.mark.parametrize("state", sorted(state.value for state in OPEN_STATES))
def test_a_day_with_an_open_transaction_stays(
    ground: Ground, archive: TransactionArchive, state: str
) -> None:
    """Invariant 10."""
    names = ended(ground)
    tx_id = ground.tx()
    early = {"EARLY_ROLLBACK": ground.rollback} | dict.fromkeys(
        ("EARLY_COMMIT", "UNRESOLVED"), ground.commit
    )
    ground.take(early.get(state, ground.prepare)(tx_id))
    if state == "CHECKING":
        ground.world.advance(IMMUNITY)
        ground.claim()
    if state == "UNRESOLVED":
        ground.world.advance(GRACE)
        ground.store.sweep()
    if state == "COMMITTED":
        ground.take(ground.commit(tx_id))
        ground.store.claim_forwards(1, LEASE)
    assert ground.state(tx_id) == state
    with pytest.raises(DayOpen):
        archive.archive(day_of(names[0]))
    assert {ground.state(name) for name in names} == {"FORWARDED", "ROLLED_BACK"}


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
def test_whether_a_day_is_open_is_read_by_indexes(ground: Ground) -> None:
    """Writers wait meanwhile: the move of the day holds the table's lock."""
    day = day_of(ended(ground)[0])
    columns = ", ".join(name for name in TxRow.__struct_fields__ if name != "tx_id")
    question = text(f"EXPLAIN (ANALYZE) {_OPEN_BY_INDEX.format(table='lookback_transactions')}")
    with ground.ledger.database.begin() as connection:
        connection.exec_driver_sql(
            f"INSERT INTO lookback_transactions (tx_id, {columns})"
            f" SELECT DISTINCT ON (n) lpad(n::text, 32, '0'), {columns}"
            f" FROM lookback_transactions, generate_series(1, 5000) AS n WHERE day = {day}"
        )
        connection.exec_driver_sql("ANALYZE lookback_transactions")
        plan = "\n".join(connection.execute(question, {"day": day}).scalars())
        connection.rollback()
    assert "Rows Removed by Filter" not in plan, plan


def test_a_young_day_is_not_named(ground: Ground, archive: TransactionArchive) -> None:
    day = day_of(ended(ground)[0])
    ground.world.advance(KEEP * MS_PER_DAY)
    assert day not in archive.days(KEEP)
    ground.world.advance(MS_PER_DAY)
    assert day in archive.days(KEEP)


def test_the_upkeep_makes_partitions_and_archives_what_it_may(
    ground: Ground, settings: Settings, desk: SqlLookbackDesk
) -> None:
    names = ended(ground)
    ground.world.advance(2 * MS_PER_DAY)
    still_open = ground.prepared()
    ground.world.advance((KEEP + 1) * MS_PER_DAY)
    upkeep = LookbackUpkeep(settings, ground.ledger, "one")
    assert upkeep.run_once() >= 1
    assert desk.find(names[0])[0].state == "FORWARDED"
    assert ground.state(still_open) == "PREPARED"
    assert LookbackUpkeep(settings, ground.ledger, "two").run_once() == 0, "one holds the duty"


@pytest.mark.parametrize("error", [SqlAway, SqlTimeout])
def test_the_upkeep_looks_again_after_an_outage_or_a_lock(
    ground: Ground, settings: Settings, monkeypatch: pytest.MonkeyPatch, error: type[SqlError]
) -> None:
    upkeep, looks = LookbackUpkeep(settings, ground.ledger, "one"), 0

    def fails(*_: object, **__: object) -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            upkeep.stop()
        raise error("no answer")

    monkeypatch.setattr("lookback.upkeep.ensure_partitions", fails)
    monkeypatch.setattr("lookback.upkeep._AGAIN_S", 0.0)
    upkeep.run()
    assert looks == 2


def test_the_upkeep_without_its_postgresql_raises_an_error_of_the_ledger(
    ground: Ground, settings: Settings
) -> None:
    upkeep = LookbackUpkeep(settings, ground.ledger, "one")
    nobody = Database(database_url("postgresql://hongyan@127.0.0.1:1/hongyan"))
    upkeep._ledger = cast(SqlLedger, SimpleNamespace(database=nobody))
    with pytest.raises(LedgerUnavailable, match="away"):
        upkeep.run_once()


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_a_torn_or_damaged_file_costs_no_other_row(
    ground: Ground,
    archive: TransactionArchive,
    desk: SqlLookbackDesk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lookback.archive.BATCH", 1)
    names = ended(ground)
    ground.world.advance((KEEP + 1) * MS_PER_DAY)
    folder = Path(archive._folder)  # type: ignore[attr-defined]
    folder.mkdir()
    file = folder / f"lookback-{compact(day_of(names[0]))}.jsonl.gz"
    file.write_bytes(gzip.compress(b"of rows that are still in the database")[:-12])
    assert archive.archive(day_of(names[0])).rows == 2
    assert [desk.find(name)[0].state for name in names] == ["FORWARDED", "ROLLED_BACK"]
    content = bytearray(file.read_bytes())
    content[100] ^= 0xFF
    file.write_bytes(content)
    assert desk.find(names[1])[0].state == "ROLLED_BACK"
    with pytest.raises(LedgerUnavailable, match="cannot be read whole"):
        desk.find(names[0])


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
def test_each_day_has_a_partition_of_its_own(ground: Ground, settings: Settings) -> None:
    LookbackUpkeep(settings, ground.ledger, "one").run_once()
    tx_id = ground.prepared()
    ((table,),) = ground.world.rows("SELECT tableoid::regclass::text FROM lookback_transactions")
    assert table.startswith("lookback_transactions_2")
    assert ground.state(tx_id) == "PREPARED"


def test_a_transaction_that_came_again_after_its_day_left_leaves_too(
    ground: Ground, settings: Settings, desk: SqlLookbackDesk
) -> None:
    """Its key was in the archive already, and each process ended at its next upkeep."""
    tx_id = ended(ground)[1]
    upkeep = LookbackUpkeep(settings, ground.ledger, "one")
    ground.world.advance((KEEP + 1) * MS_PER_DAY)
    upkeep.run_once()
    ground.take(ground.rollback(tx_id))
    ground.world.advance(GRACE)
    ground.store.sweep()
    assert upkeep.run_once() >= 1
    assert ground.world.rows("SELECT count(*) FROM lookback_transactions") == [(0,)]
    assert [row.has_body for row in desk.find(tx_id)] == [True], "the first one stays"
