"""The spool with its thread: callers, limits, several processes."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from hongyan_client.errors import ClientClosed
from hongyan_client.overflow import Overflow
from hongyan_client.spool import spool as spool_module
from hongyan_client.spool.commits import SharedCommit, _WaitingRecord
from hongyan_client.spool.errors import SpoolAway, SpoolError, SpoolFull
from hongyan_client.spool.locks import Marker
from hongyan_client.spool.spool import Spool
from hongyan_client.spool.store import KeptRecord
from tests.harness.waiting import await_
from tests.hongyan_client.spool.making import NEVER, TOPIC, FakeKafka, record


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "IDLE_S", 0.02)
    monkeypatch.setattr(spool_module, "LONGEST_PAUSE_S", 0.02)
    monkeypatch.setattr(spool_module, "FIRST_PAUSE_S", 0.02)


@pytest.fixture
def kafka() -> FakeKafka:
    return FakeKafka()


@pytest.fixture
def spool(tmp_path: Path, kafka: FakeKafka) -> Iterator[Spool]:
    spool = Spool(tmp_path / "spool", kafka)
    yield spool
    spool.close(10)


def test_it_is_the_clients_overflow(spool: Spool) -> None:
    overflow: Overflow = spool
    assert overflow.waiting() == 0


def test_what_is_kept_goes_when_kafka_is_back(spool: Spool, kafka: FakeKafka) -> None:
    kafka.away = True
    for number in range(20):
        spool.keep(record(number), NEVER)
    assert spool.holds(TOPIC, b"a")
    assert not spool.holds(TOPIC, b"b")
    assert not spool.holds("another", b"a")
    assert spool.drain(0.05) == spool.waiting() == 20
    kafka.away = False
    assert spool.drain(30) == 0
    assert kafka.numbers() == list(range(20))
    assert not spool.holds(TOPIC, b"a")
    readings = spool.readings()
    assert (readings.kept_total, readings.drained_total, readings.waiting) == (20, 20, 0)


def test_an_empty_spool_is_not_asked_for_each_record(
    spool: Spool, kafka: FakeKafka, tmp_path: Path
) -> None:
    """The client asks `holds` before each record: without its disk Kafka takes all the same."""
    assert not spool._folder.marker.waiting
    (tmp_path / "spool").rename(tmp_path / "gone")
    assert not spool.holds(TOPIC, b"a")
    assert spool.waiting() == 0
    with pytest.raises(SpoolAway, match="is gone"):
        spool.keep(record(0), NEVER)
    (tmp_path / "gone").rename(tmp_path / "spool")
    spool.keep(record(1), NEVER)
    kafka.wait_for(1)


def test_the_marker_of_a_record_that_was_not_kept_goes(spool: Spool) -> None:
    spool._folder.marker.waiting = True  # as a commit that failed leaves it
    await_(lambda: not spool._folder.marker.waiting, what="the thread looks")


def test_an_opened_spool_with_records_keeps_its_marker(tmp_path: Path, kafka: FakeKafka) -> None:
    kafka.away = True
    first = Spool(tmp_path / "spool", kafka)
    first.keep(record(0), NEVER)
    second = Spool(tmp_path / "spool", kafka)
    assert second.holds(TOPIC, b"a")
    for one in (first, second):
        one.close(10)


def test_full_is_an_error_to_the_caller_and_nothing_is_dropped(
    tmp_path: Path, kafka: FakeKafka
) -> None:
    kafka.away = True
    spool = Spool(tmp_path / "spool", kafka, max_bytes=4 << 20)
    kept = 0

    def keep_on() -> None:
        nonlocal kept
        while True:
            spool.keep(record(kept, padding=60_000), NEVER)
            kept += 1

    with pytest.raises(SpoolFull, match="max_bytes"):
        keep_on()
    assert 20 < kept < 70
    assert spool.waiting() == kept
    assert spool.readings().full_total == 1
    assert spool.readings().bytes <= 4 << 20
    kafka.away = False
    assert spool.drain(30) == 0
    assert kafka.numbers() == list(range(kept))
    spool.keep(record(kept, padding=60_000), NEVER)
    kafka.wait_for(kept + 1)
    spool.close(10)


def test_threads_share_commits_and_each_knows_its_record_is_kept(
    spool: Spool, kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = []
    put = spool._commits._keep

    def counted(kept: object) -> None:
        commits.append(len(kept))  # type: ignore[arg-type]
        put(kept)  # type: ignore[arg-type]

    monkeypatch.setattr(spool._commits, "_keep", counted)
    start = threading.Barrier(16)

    def work(worker: int) -> None:
        start.wait()
        for number in range(10):
            spool.keep(record(number, str(worker)), NEVER)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))
    assert sum(commits) == 160
    assert len(commits) < 160
    assert spool.drain(30) == 0
    for worker in range(16):
        assert kafka.numbers(str(worker)) == list(range(10))


def test_a_thread_waits_for_no_commit_after_its_own() -> None:
    """Sixteen threads with one record each at a time fill two commits a turn: the one of the first that
    comes back, and the one of the others."""
    commits: list[int] = []
    disk = threading.Event()

    def slow(kept: Sequence[KeptRecord]) -> None:
        commits.append(len(kept))
        disk.wait(0.005)

    shared, start = SharedCommit(slow), threading.Barrier(16)

    def work(worker: int) -> None:
        start.wait()
        for number in range(10):
            shared.keep(KeptRecord(record(number, str(worker)), NEVER))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))
    assert sum(commits) == 160
    assert len(commits) <= 60


def test_an_interrupted_thread_leaves_the_others_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    under_way, go_on = threading.Event(), threading.Event()
    ends: list[str] = []

    def interrupted(_kept: object) -> None:
        under_way.set()
        go_on.wait(30)
        raise KeyboardInterrupt

    shared = SharedCommit(interrupted)

    def keep() -> None:
        try:
            shared.keep(KeptRecord(record(1), NEVER))
        except (KeyboardInterrupt, SpoolAway) as exc:
            ends.append(type(exc).__name__)

    threads = [threading.Thread(target=keep) for _ in range(3)]
    threads[0].start()
    assert under_way.wait(30)
    for thread in threads[1:]:
        thread.start()
    await_(lambda: len(shared._waiting) == 2, what="both wait")
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert sorted(ends) == ["KeyboardInterrupt", "KeyboardInterrupt", "SpoolAway"]


def test_a_record_of_a_wrong_type_fails_alone(spool: Spool) -> None:
    wrong = record(2)._replace(headers=[("n", object())])  # type: ignore[list-item]
    taken = [_WaitingRecord(KeptRecord(one, NEVER)) for one in (record(1), wrong, record(3))]
    spool._commits._commit(taken)
    assert [one.done for one in taken] == [True] * 3
    assert [one.error is None for one in taken] == [True, False, True]
    with pytest.raises(SpoolError, match="are bytes"):
        spool.keep(wrong, NEVER)


def test_an_interrupted_commit_tells_no_caller_that_its_record_is_kept() -> None:
    def interrupted(_kept: object) -> None:
        raise KeyboardInterrupt

    taken = [_WaitingRecord(KeptRecord(record(1), NEVER))]
    with pytest.raises(KeyboardInterrupt):
        SharedCommit(interrupted)._commit(taken)
    assert isinstance(taken[0].error, SpoolAway)


def test_a_fault_of_the_publisher_does_not_end_the_thread(
    spool: Spool, kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()

    def fault(_one: object, _deadline_s: float) -> None:
        failed.set()
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(kafka, "publish", fault)
        spool.keep(record(1), NEVER)
        assert failed.wait(30)
    assert spool.drain(30) == 0
    assert kafka.numbers() == [1]


def test_another_process_sees_what_is_kept_and_goes_behind_it(
    spool: Spool, kafka: FakeKafka, tmp_path: Path
) -> None:
    kafka.away = True
    other_kafka = FakeKafka()
    other_kafka.away = True
    other = Spool(tmp_path / "spool", other_kafka)
    spool.keep(record(1), NEVER)
    assert other.holds(TOPIC, b"a")
    other.keep(record(2), NEVER)
    assert spool.waiting() == other.waiting() == 2
    spool.close(10)
    other_kafka.away = False
    assert other.drain(30) == 0
    assert other_kafka.numbers() == [1, 2]
    other.close(10)


def test_many_records_are_one_commit_and_all_or_none(
    spool: Spool, kafka: FakeKafka, tmp_path: Path
) -> None:
    spool.keep_all([(record(number, str(number % 50)), NEVER) for number in range(200)])
    assert spool.drain(60) == 0
    for key in range(50):
        assert kafka.numbers(str(key)) == [key, key + 50, key + 100, key + 150]
    small = Spool(tmp_path / "small", kafka, max_bytes=2 << 20)
    with pytest.raises(SpoolFull):
        small.keep_all([(record(number, padding=60_000), NEVER) for number in range(100)])
    assert small.waiting() == 0
    small.close(10)


def test_one_process_at_a_time_drains(spool: Spool, kafka: FakeKafka) -> None:
    from hongyan_client.spool.locks import FileLock

    lock = FileLock(spool._folder.path / "drain.lock")
    assert lock.try_exclusive()
    spool.keep(record(1), NEVER)
    assert spool.drain(0.2) == 1
    assert kafka.arrived == []
    lock.release()
    assert spool.drain(30) == 0
    lock.close()


def test_a_forked_child_keeps_nothing_and_gives_up_its_locks(spool: Spool) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            spool.keep(record(1), NEVER)
        except ClientClosed as exc:
            os.write(writer, str(exc).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    assert b"open one in the child" in os.read(reader, 500)
    spool.keep(record(2), NEVER)


def test_a_closed_spool_says_so(spool: Spool) -> None:
    spool.close(10)
    spool.close(10)
    with pytest.raises(ClientClosed, match="closed"):
        spool.keep(record(1), NEVER)


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path, kafka: FakeKafka) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolAway, match="cannot be used"):
        Spool(tmp_path / "file", kafka)


def test_the_files_are_their_owners_alone(spool: Spool) -> None:
    spool.keep(record(1), NEVER)
    folder = spool._folder.path
    assert folder.stat().st_mode & 0o077 == 0
    for name in ("spool.db", "spool.db-wal", "waiting"):
        assert (folder / name).stat().st_mode & 0o077 == 0, name


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root mounts a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_an_error_to_the_caller_and_what_was_kept_goes_later(
    small_disk: Path, kafka: FakeKafka
) -> None:
    kafka.away = True
    filler = small_disk / "filler"
    filler.write_bytes(b"\0" * (6 << 20))
    spool = Spool(small_disk / "spool", kafka)
    kept = 0

    def keep_on() -> None:
        nonlocal kept
        while True:
            spool.keep(record(kept, padding=10_000), NEVER)
            kept += 1

    with pytest.raises(SpoolAway, match="disk"):
        keep_on()
    assert kept
    kafka.away = False
    spool.drain(0.3)
    repeats = len(kafka.arrived) - len(set(kafka.numbers()))
    assert repeats <= 1, "a record that left no trace on the full disk is not sent over and over"
    filler.unlink()
    assert spool.drain(30) == 0
    assert list(dict.fromkeys(kafka.numbers())) == list(range(kept))
    spool.close(10)


def test_a_disk_that_fills_while_the_folder_is_made_ends_no_process(small_disk: Path) -> None:
    """Where there is room for all but the marker, which is mapped, its first write must not be a SIGBUS."""
    page = os.sysconf("SC_PAGESIZE")
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(page))
    assert os.statvfs(small_disk).f_bavail == 0
    if (child := os.fork()) == 0:
        try:
            Marker(small_disk / "waiting").waiting = True
        except OSError:
            os._exit(3)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
