"""Damaged files: the caller hears it, and what can be read goes."""

from __future__ import annotations

import os
import signal
import sqlite3
from pathlib import Path

import pytest

from hongyan_client.spool import salvage
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


def garbled(bench: Bench) -> None:
    """No byte of the file is left, while processes have it open."""
    bench.store.close()
    bench.folder.file.write_bytes(b"this is no database at all" * 1_000)
    for suffix in ("-wal", "-shm"):
        Path(f"{bench.folder.file}{suffix}").unlink(missing_ok=True)


def test_outcomes_of_a_damaged_file_remove_no_record_of_the_new_one(tmp_path: Path) -> None:
    kafka = FakeKafka()
    bench = Bench(tmp_path / "spool", kafka)
    old = [KeptRecord(record(number, f"k{number}"), NEVER) for number in range(5)]
    bench.store.keep(old, bench.folder.marker, bench.now)
    fence = bench.store.take_fence()
    kafka.holding = True
    bench.drain_pass._fill()
    garbled(bench)
    kafka.release()
    bench.store = bench.drain_pass._store = bench.folder.store()
    with pytest.raises(SpoolDamaged):
        bench.drain_pass._collect(fence)
    assert bench.folder.prepare(bench.now) is not None
    new = [KeptRecord(record(number, f"k{number}"), NEVER) for number in range(100, 105)]
    bench.store.keep(new, bench.folder.marker, bench.now)
    assert bench.drain() == 5
    assert sorted(int(one.value) for one in kafka.arrived) == [*range(5), *range(100, 105)]
    bench.close()


def test_ids_go_on_after_each_salvage_and_none_counts_as_missing(tmp_path: Path) -> None:
    kafka = FakeKafka()
    kafka.away = True
    last = 0
    for _ in range(3):
        bench = Bench(tmp_path / "spool", kafka)
        bench.store.keep([KeptRecord(record(1), NEVER)], bench.folder.marker, bench.now)
        found = bench.store.counts().last_id
        assert found > last
        last = found
        garbled(bench)
        bench.close()
        spool = Spool(tmp_path / "spool", kafka)
        assert spool.missing == 0
        assert spool._folder.marker.last_id > last
        spool.close(5)


def killed_at(folder: Path, name: str, calls: int) -> None:
    """Opens the folder in a child that is killed once a method of Path has returned so many times."""
    if (child := os.fork()) == 0:
        original = getattr(Path, name)
        left = calls

        def counted(self: Path, *given: object, **named: object) -> object:
            nonlocal left
            result = original(self, *given, **named)
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(Path, name, counted)
        try:
            Bench(folder, FakeKafka())
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_a_kill_between_the_damaged_file_and_the_new_one_loses_nothing(tmp_path: Path) -> None:
    file = filled(tmp_path / "spool")
    spoil(file, pages_of_records(file)[3])
    killed_at(tmp_path / "spool", "replace", 1)
    assert not file.exists()
    Path(f"{file}-wal").write_bytes(b"the log of the damaged file")
    bench = Bench(tmp_path / "spool", FakeKafka())
    assert bench.salvage is not None
    assert Path(f"{bench.salvage.damaged_file}-wal").read_bytes() == b"the log of the damaged file"
    assert bench.drain() == bench.salvage.saved > COUNT - PAGE_BYTES // 200
    names = {one.name for one in (tmp_path / "spool").iterdir()}
    assert not [name for name in names if name.startswith("salvage")]
    assert sum(name.endswith(".db") for name in names) == 2, "the spool, and the damaged file"
    bench.close()


def test_killed_salvages_leave_no_copies_behind(tmp_path: Path) -> None:
    file = filled(tmp_path / "spool")
    spoil(file, pages_of_records(file)[3])
    for _ in range(2):
        killed_at(tmp_path / "spool", "mkdir", 2)
    assert (tmp_path / "spool" / salvage._COPY).is_dir()
    bench = Bench(tmp_path / "spool", FakeKafka())
    assert bench.salvage is not None
    assert [one for one in (tmp_path / "spool").iterdir() if one.is_dir()] == []
    bench.close()
