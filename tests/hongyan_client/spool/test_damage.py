"""Damaged files: the caller hears it, and what can be read goes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from hongyan_client.spool.errors import SpoolDamaged
from hongyan_client.spool.file import PAGE_BYTES
from hongyan_client.spool.spool import Spool
from hongyan_client.spool.store import KeptRecord, SpoolCounts, SpoolStore
from tests.hongyan_client.spool.making import NEVER, Bench, FakeKafka, record

COUNT = 400


def filled(folder: Path) -> Path:
    """A spool of COUNT records in its file alone, closed."""
    bench = Bench(folder, FakeKafka())
    kept = [KeptRecord(record(n, str(n % 7), padding=200), NEVER) for n in range(COUNT)]
    bench.store.keep(kept, bench.folder.marker, bench.now)
    bench.close()
    connection = sqlite3.connect(bench.folder.file)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return bench.folder.file


def spoil(file: Path, page: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(page * PAGE_BYTES)
        opened.write(b"\xa5" * PAGE_BYTES)


def pages_of_records(file: Path) -> list[int]:
    content = file.read_bytes()
    pages = range(1, len(content) // PAGE_BYTES)
    return [n for n in pages if b" " * 150 in content[n * PAGE_BYTES :][:PAGE_BYTES]]


def test_a_damaged_page_costs_its_own_rows_alone(tmp_path: Path) -> None:
    file = filled(tmp_path / "spool")
    pages = pages_of_records(file)
    for page in (pages[3], pages[len(pages) // 2], pages[-2]):
        spoil(file, page)
    kafka = FakeKafka()
    bench = Bench(tmp_path / "spool", kafka)
    assert bench.salvage is not None
    assert bench.salvage.damaged_file.is_file()
    per_page = PAGE_BYTES // 230
    assert COUNT - 3 * per_page <= bench.salvage.saved < COUNT
    assert bench.drain() == bench.salvage.saved
    for key in range(7):
        numbers = kafka.numbers(str(key))
        assert numbers == sorted(numbers)
    bench.close()


def test_a_damaged_first_page_costs_nothing(tmp_path: Path) -> None:
    file = filled(tmp_path / "spool")
    spoil(file, 0)
    bench = Bench(tmp_path / "spool", FakeKafka())
    assert bench.salvage is not None
    assert bench.salvage.saved == COUNT
    bench.close()


def test_a_file_of_something_else_is_kept_and_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    (folder / "spool.db").write_bytes(b"this is no database at all" * 1_000)
    bench = Bench(folder, FakeKafka())
    assert bench.salvage is not None
    assert bench.salvage.saved == 0
    assert bench.salvage.damaged_file.read_bytes().startswith(b"this is no database")
    bench.close()


def test_a_caller_hears_of_damage_and_the_next_record_is_kept(tmp_path: Path) -> None:
    file = filled(tmp_path / "spool")
    kafka = FakeKafka()
    kafka.full = True
    spool = Spool(tmp_path / "spool", kafka)
    spool._stopping.set()  # its thread would find the damage first
    spool._wake.set()
    spool._thread.join()
    spool._stopping.clear()
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    for page in range(1, file.stat().st_size // PAGE_BYTES):
        if page % 2:
            spoil(file, page)
    spool._store._keeper._drop()

    def keep_many() -> None:
        for number in range(50):
            spool.keep(record(number, f"k{number}"), NEVER)

    with pytest.raises(SpoolDamaged, match="damaged"):
        keep_many()
    assert spool.salvage is not None
    spool.keep(record(1_000), NEVER)
    assert spool.holds(record(1_000).topic, b"a")
    assert spool.readings().salvaged_total == 1
    spool.close(5)


def test_records_that_went_missing_with_a_cut_wal_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    kafka = FakeKafka()
    kafka.away = True
    bench = Bench(folder, kafka)
    bench.store.keep([KeptRecord(record(1), NEVER)], bench.folder.marker, bench.now)
    connection = sqlite3.connect(bench.folder.file)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    copy = bench.folder.file.read_bytes()
    for number in range(2, 6):
        kept = [KeptRecord(record(number), NEVER)]
        bench.store.keep(kept, bench.folder.marker, bench.now)
    connection.close()
    bench.close()
    bench.folder.file.write_bytes(copy)
    for suffix in ("-wal", "-shm"):
        Path(f"{bench.folder.file}{suffix}").unlink(missing_ok=True)
    spool = Spool(folder, kafka)
    assert spool.missing == 4
    spool.close(5)
    again = Spool(folder, kafka)
    assert again.missing == 0, "said once"
    again.close(5)


def test_records_that_another_process_keeps_during_the_opening_are_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = FakeKafka()
    kafka.away = True
    bench = Bench(tmp_path / "spool", kafka)
    bench.store.keep([KeptRecord(record(1), NEVER)], bench.folder.marker, bench.now)
    counts = SpoolStore.counts

    def counts_and_then_another_keeps(store: SpoolStore) -> SpoolCounts:
        found = counts(store)
        kept = [KeptRecord(record(number), NEVER) for number in range(2, 6)]
        bench.store.keep(kept, bench.folder.marker, bench.now)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(SpoolStore, "counts", counts_and_then_another_keeps)
        spool = Spool(tmp_path / "spool", kafka)
    assert spool.missing == 0
    assert "missing" not in bench.store.counts().counters
    assert bench.folder.marker.last_id == bench.store.counts().last_id == 5
    spool.close(5)
    bench.close()
