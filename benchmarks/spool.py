"""The client's spool beside SQLite and Kafka without it; its memory, and its opening after kill -9.

    hongyan bench spool [--folder DIR] [--json]

Into the spool, as while Kafka is away. Every way commits with the spool's own settings of SQLite (WAL,
synchronous=FULL) into the spool's own tables, and has its rows ready:

    bare           a loop on one connection: a row, a commit, and so an fsync
    keep           `Spool.keep` by one thread
    keep_callers   `Spool.keep` by CALLERS threads: those that wait share a commit
    bare_batch     a loop on one connection: BATCH rows a commit
    keep_all       `Spool.keep_all` of BATCH records, as the client hands its buffer over

Out of the spool, over records with keys of their own:

    direct         a publisher sends the records from memory; the end once all are acknowledged
    drain          a spool with as many records drains to the same topic; the end once none waits

A process keeps records while Kafka is away, and is killed -9 in the middle of a commit: its memory above
that of an open, empty spool; the time in which another process opens the folder; records that were kept by
its own word and are not there.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from benchmarks.ground import LANE, Servers, topics
from benchmarks.meter import judged_ratio
from benchmarks.spool_keeper import AT_ONCE as BATCH
from benchmarks.spool_keeper import MAX_BYTES, AwayPublisher, made
from hongyan_client.publisher import Publisher
from hongyan_client.records import Record, RecordPublisher
from hongyan_client.spool.file import connect, created
from hongyan_client.spool.rows import checksum, line_of, packed_headers
from hongyan_client.spool.spool import Spool

CALLERS: Final = 32
WANTED_KEEP: Final = 0.5
WANTED_CALLERS: Final = 3.0
WANTED_BATCH: Final = 0.5
WANTED_DRAIN: Final = 0.1
WANTED_MIB: Final = 32
WANTED_OPEN_MS: Final = 2_000
_PATIENCE_S: Final = 600.0
_INSERT: Final = """
INSERT INTO records (line, topic, key, value, headers, kept_at, expires_at, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
Say = Callable[[str], None]
Ended = tuple[Record, int]
"""A record, and its end in epoch milliseconds."""


class SpoolSize(NamedTuple):
    """Work of one run."""

    records: int = 100_000
    """Records of a drain, and of the process that is killed."""
    puts: int = 2_000
    """Records of each way that commits them one by one."""


def measure(
    servers: Servers, size: SpoolSize, *, rounds: int, say: Say, folder: Path | None = None
) -> dict[str, Any]:
    """Returns the report. Spools lie in a new folder under `folder`, or where temporary files lie."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="spool-bench-") as made_here:
        root = Path(made_here)
        found = [_round(servers, size, root / str(n), n, rounds, say) for n in range(rounds)]
        killed = _killed(root / "killed", size.records)
    say(f"after kill -9: {killed}")
    rates = {name: [one[name] for one in found] for name in found[0]}
    shares = {
        "keep / bare": (_share(rates, "keep", "bare"), WANTED_KEEP),
        f"keep by {CALLERS} threads / bare": (
            _share(rates, "keep_callers", "bare"),
            WANTED_CALLERS,
        ),
        f"keep_all of {BATCH} / bare of {BATCH}": (
            _share(rates, "keep_all", "bare_batch"),
            WANTED_BATCH,
        ),
        "drain / direct": (_share(rates, "drain", "direct"), WANTED_DRAIN),
    }
    limits = {"mib_above_idle": WANTED_MIB, "open_ms": WANTED_OPEN_MS, "lost": 0}
    return {
        "records": size.records,
        "puts": size.puts,
        "rounds": rounds,
        "medians": {
            name: {"per_second": round(statistics.median(one), 1)} for name, one in rates.items()
        },
        "every_round": rates,
        "killed": killed,
        "ratios": [
            *(judged_ratio(name, *share, at_most=False) for name, share in shares.items()),
            *(
                judged_ratio(name.replace("_", " "), killed[name], limit, at_most=True)
                for name, limit in limits.items()
            ),
        ],
    }


def _share(rates: dict[str, list[float]], one: str, other: str) -> float:
    """Returns the median over the rounds of one way's rate by the other's."""
    return statistics.median(a / b for a, b in zip(rates[one], rates[other], strict=True))


def _round(
    servers: Servers, size: SpoolSize, root: Path, number: int, rounds: int, say: Say
) -> dict[str, float]:
    """Returns the records a second of each way."""
    with topics(servers, [LANE]) as prefix:
        topic = LANE.topic(prefix)
        many = made(topic, size.records)
        few = many[: size.puts]
        ways: dict[str, Callable[[], float]] = {
            "bare": lambda: _bare(root / "bare", few, 1),
            "keep": lambda: _kept(root / "keep", few, 1),
            "keep_callers": lambda: _kept(root / "callers", few, CALLERS),
            "bare_batch": lambda: _bare(root / "bare_batch", many, BATCH),
            "keep_all": lambda: _kept_together(root / "keep_all", many),
            "direct": lambda: _direct(servers.bootstrap, many),
            "drain": lambda: _drained(servers.bootstrap, root / "keep_all", many),
        }
        found = {name: way() for name, way in ways.items()}
        arrived = _arrived(servers.bootstrap, topic)
        if arrived < 2 * len(many):
            raise RuntimeError(f"{arrived} records are in the topic, not {2 * len(many)}")
    rates = ", ".join(f"{name} {rate:,.0f}/s" for name, rate in found.items())
    say(f"round {number + 1} of {rounds}: {rates}")
    return found


def _bare(folder: Path, records: Sequence[Ended], at_once: int) -> float:
    """Commits `at_once` rows at a time on one connection of SQLite."""
    folder.mkdir(parents=True)
    created(folder / "bare.db")
    rows = [_row(*one) for one in records]
    with closing(connect(folder / "bare.db", MAX_BYTES)) as connection:
        began = time.perf_counter()
        for first in range(0, len(rows), at_once):
            connection.execute("BEGIN IMMEDIATE")
            for row in rows[first : first + at_once]:
                connection.execute(_INSERT, row)
            connection.execute("COMMIT")
        return len(rows) / (time.perf_counter() - began)


def _row(record: Record, end: int) -> tuple[Any, ...]:
    topic, key, value, _ = record
    headers = packed_headers(record)
    line, checked = line_of(topic, key), checksum(topic, key, value, headers, end)
    return (line, topic, key, value, headers, end, end, checked)


@contextmanager
def _opened(folder: Path, publisher: RecordPublisher) -> Iterator[Spool]:
    spool = Spool(folder, publisher, max_bytes=MAX_BYTES)
    try:
        yield spool
    finally:
        spool.close(_PATIENCE_S)


def _kept(folder: Path, records: Sequence[Ended], callers: int) -> float:
    """Keeps the records one by one, by so many threads. Raises RuntimeError if one is missing."""
    with _opened(folder, AwayPublisher()) as spool:

        def keep(some: Sequence[Ended]) -> None:
            for record, end in some:
                spool.keep(record, end)

        shares = [records[number::callers] for number in range(callers)]
        threads = [threading.Thread(target=keep, args=(share,)) for share in shares]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - began
        return _rate_if_all(spool, len(records), seconds)


def _kept_together(folder: Path, records: Sequence[Ended]) -> float:
    """Keeps BATCH records by one commit. The folder stays, for the drain."""
    with _opened(folder, AwayPublisher()) as spool:
        began = time.perf_counter()
        for first in range(0, len(records), BATCH):
            spool.keep_all(records[first : first + BATCH])
        return _rate_if_all(spool, len(records), time.perf_counter() - began)


def _rate_if_all(spool: Spool, records: int, seconds: float) -> float:
    if spool.waiting() != records:
        raise RuntimeError(f"{spool.waiting()} records wait, not {records}")
    return records / seconds


def _direct(bootstrap: str, records: Sequence[Ended]) -> float:
    """Sends the records from memory and waits for all acknowledgements."""
    with closing(_warm_publisher(bootstrap, records[0][0])) as publisher:
        began = time.perf_counter()
        futures = [publisher.publish(record, _PATIENCE_S) for record, _ in records]
        for future in futures:
            future.result(_PATIENCE_S)
        return len(records) / (time.perf_counter() - began)


def _drained(bootstrap: str, folder: Path, records: Sequence[Ended]) -> float:
    """Drains the folder. Raises RuntimeError if a record stays."""
    with (
        closing(_warm_publisher(bootstrap, records[0][0])) as publisher,
        _opened(folder, publisher) as spool,
    ):
        began = time.perf_counter()
        left = spool.drain(_PATIENCE_S)
        seconds = time.perf_counter() - began
        if left or spool.readings().drained_total != len(records):
            drained = spool.readings().drained_total
            raise RuntimeError(
                f"{drained} of {len(records)} records went, {left} stay in the spool"
            )
        return len(records) / seconds


def _warm_publisher(bootstrap: str, record: Record) -> Publisher:
    """Returns a publisher that has delivered the record: it knows the topic and its leaders."""
    publisher = Publisher(bootstrap, client_id="bench-spool")
    publisher.publish(record, _PATIENCE_S).result(_PATIENCE_S)
    return publisher


def _arrived(bootstrap: str, topic: str) -> int:
    """Returns the number of records in the topic."""
    config = {"bootstrap.servers": bootstrap, "group.id": "bench-spool", "log_level": 0}
    with closing(Consumer(config)) as consumer:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        places = [TopicPartition(topic, number) for number in partitions]
        found = [consumer.get_watermark_offsets(place, timeout=10) for place in places]
    return sum(high - low for low, high in found)


def _killed(folder: Path, records: int) -> dict[str, Any]:
    """Returns what a process that was killed -9 used, and what it left."""
    command = [sys.executable, "-m", "benchmarks.spool_keeper", str(folder), str(records)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        idle, kept, most = 0.0, 0, 0.0
        for line in process.stdout:
            told, memory = line.split()
            idle = idle or float(memory)
            kept, most = int(told), max(most, float(memory))
            if kept > records:
                process.kill()  # the pipe still has lines of what was kept meanwhile
    if kept <= records:
        raise RuntimeError(f"the process that keeps records ended with {process.returncode}")
    began = time.perf_counter()
    with _opened(folder, AwayPublisher()) as spool:
        seconds = time.perf_counter() - began
        found = spool.readings()
    return {
        "kept": kept,
        "found": found.waiting,
        "lost": max(0, kept - found.waiting),
        "mib_above_idle": round(most - idle, 1),
        "file_mib": round(found.bytes / (1 << 20), 1),
        "open_ms": round(seconds * 1_000, 1),
    }
