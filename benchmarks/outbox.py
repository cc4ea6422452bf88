"""The relay beside a bare producer loop, its claim over more and more pending rows, and the way from commit
to Kafka when nothing else happens; on the local stack's PostgreSQL and Kafka.

    hongyan bench outbox --json

bare     one confluent-kafka producer with the relay's own properties sends the same records from memory:
         same keys, headers and bodies, a delivery report for each, the end once all are acknowledged
sql      the relay's claims and marks on one connection, without Kafka: the database's part of the work
relay    one relay publishes as many rows, claims and marks included; rows stay as SENT
dropped  the same with `relay.keep_hours = 0`: marks delete the rows
naive    one thread reads rows, produces them, and marks them as SENT. It claims nothing: it must be alone,
         skips rows that commit late, overlooks recalls, and knows no retry or order
naive_dropped   the same; it deletes them
claim    median time of a claim of 100 rows, over few and over many pending rows
idle     time from the commit's return to Kafka's acknowledgement, for commits 20 ms apart
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from confluent_kafka import Producer
from sqlalchemy import Engine, MetaData, create_engine, text
from sqlalchemy.orm import Session

from benchmarks.ground import LANE, Servers, empty_database, topics
from benchmarks.meter import judged_ratio
from benchmarks.outbox_naive import NaiveRelay
from benchmarks.server_cpu import CpuMeter
from hongyan_client.errors import SendFailed
from hongyan_client.outbox import Outbox
from hongyan_client.outbox.commit_publisher import CommitPublisher
from hongyan_client.outbox.engine import outbox_engine
from hongyan_client.outbox.store import OutboxStore
from hongyan_client.publisher import Publisher, producer_config
from hongyan_client.records import Acknowledged, BatchPublisher, OnBatchEnd, Record
from message.producer_properties import DELIVERY_TIMEOUT_MS
from producer.relay.marker import RelayMarker
from producer.relay.metrics import RelayMetrics
from producer.relay.outage import KafkaOutage
from producer.relay.relay import Relay, RelaySignals, RelayTerms
from producer.relay.wakeups import Wakeups

WANTED_SHARE: Final = 0.5
WANTED_FLAT: Final = 2.0
WANTED_P99_MS: Final = 50.0
_FEW_ROWS: Final = 1_000
_CLAIMS: Final = 30
_CLAIM_ROWS: Final = 100
_GAP_S: Final = 0.02
_BATCH: Final = 1_000
_PARAMS: Final = '{"order": "1001", "name": "Li Wei", "until": "2026-12-24T18:00:00+08:00"}'
_FILL: Final = """
INSERT INTO hongyan_outbox (message_id, topic, msg_key, headers, payload, state, attempt, max_attempts,
    retry_base_ms, retry_cap_ms, maybe_sent, held, next_at, created_at, created_day)
SELECT 'm' || n, :topic, 'm' || n, '[["hongyan-id", "m' || n || '"]]',
       replace(:payload, '@id', 'm' || n), 'PENDING', 0, 20, 1000, 300000, 0, 0, n, n, current_date
  FROM generate_series(CAST(:first AS bigint), CAST(:last AS bigint)) AS n"""
_PAYLOAD: Final = (
    '{"v": 1, "id": "@id", "channel": "webhook", "kind": "notice", "receivers": ["user-1"],'
    ' "template": {"id": "order-shipped", "params": ' + _PARAMS + '}, "created_at": 1790000000000}'
)


class Sizes(NamedTuple):
    """Work of one run."""

    rows: int = 50_000
    """Rows of each round."""
    pending: int = 1_000_000
    """Pending rows of the slower claim."""
    commits: int = 300
    """Commits whose way to Kafka is timed."""


class _TimedPublisher:
    """Notes when each record was acknowledged."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self.acknowledged: dict[str, float] = {}
        self.changed = threading.Condition()

    def publish_batch(
        self, records: Sequence[Record], on_end: OnBatchEnd, deadline_s: float
    ) -> int:
        ids = [dict(record.headers)["hongyan-id"].decode() for record in records]

        def note(number: int, end: Acknowledged | SendFailed) -> None:
            with self.changed:
                self.acknowledged[ids[number]] = time.monotonic()
                self.changed.notify_all()
            on_end(number, end)

        return self._publisher.publish_batch(records, note, deadline_s)


class _Way(NamedTuple):
    """One way to work off as many rows."""

    per_second: float
    cpu_us: dict[str, float]
    """CPU microseconds a row, by program."""


def measure(
    servers: Servers, sizes: Sizes, *, rounds: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Returns the report of all parts."""
    with topics(servers, [LANE]) as prefix:
        topic = LANE.topic(prefix)
        ways = _ways(servers, topic, sizes.rows, rounds, say)
        few, many = _claims(servers, topic, sizes.pending, say)
        by_commit = _idle(servers, prefix, sizes.commits, at_once=True)
        by_relay = _idle(servers, prefix, sizes.commits, at_once=False)
    say(f"commit to Kafka, p99: {by_commit:.1f} ms by the process, {by_relay:.1f} ms by a relay")
    flat = many / few
    worst = max(by_commit, by_relay)
    return {
        "rows": sizes.rows,
        "pending": sizes.pending,
        "rounds": rounds,
        "medians": {name: _median_way(seen) for name, seen in ways.items()},
        "shares": {
            "dropped / bare": round(_share(ways, "dropped", "bare"), 3),
            "relay / sql": round(_share(ways, "relay", "sql"), 3),
            "sql / bare": round(_share(ways, "sql", "bare"), 3),
            "naive / bare": round(_share(ways, "naive", "bare"), 3),
            "naive_dropped / bare": round(_share(ways, "naive_dropped", "bare"), 3),
            "relay / naive": round(_share(ways, "relay", "naive"), 3),
            "dropped / naive_dropped": round(_share(ways, "dropped", "naive_dropped"), 3),
        },
        "claim_ms": {str(_FEW_ROWS): few, str(sizes.pending): many},
        "p99_ms": {"commit publisher": by_commit, "relay": by_relay},
        "ratios": [
            judged_ratio(
                "relay / bare producer", _share(ways, "relay", "bare"), WANTED_SHARE, at_most=False
            ),
            judged_ratio("claim, many / few pending", flat, WANTED_FLAT, at_most=True),
            judged_ratio("p99 of commit to Kafka, ms", worst, WANTED_P99_MS, at_most=True),
        ],
    }


@contextmanager
def _outbox(servers: Servers, name: str) -> Iterator[Engine]:
    with empty_database(servers.database_url, name) as url:
        engine = outbox_engine(url)
        metadata: MetaData = Outbox().tables.rows.metadata
        metadata.create_all(engine)
        try:
            yield engine
        finally:
            engine.dispose()


def _fill(engine: Engine, topic: str, first: int, last: int) -> None:
    with engine.begin() as connection:
        asked = {"topic": topic, "payload": _PAYLOAD, "first": first, "last": last}
        connection.execute(text(_FILL), asked)


def _ways(
    servers: Servers, topic: str, rows: int, rounds: int, say: Callable[[str], None]
) -> dict[str, list[_Way]]:
    """Returns what each way did in each round."""
    ways: dict[str, Callable[[], _Way]] = {
        "bare": lambda: _bare(servers, topic, rows),
        "sql": lambda: _sql_alone(servers, topic, rows),
        "relay": lambda: _relayed(servers, topic, rows, keep_sent=True),
        "dropped": lambda: _relayed(servers, topic, rows, keep_sent=False),
        "naive": lambda: _naive(servers, topic, rows, keep=True),
        "naive_dropped": lambda: _naive(servers, topic, rows, keep=False),
    }
    seen: dict[str, list[_Way]] = {name: [] for name in ways}
    for number in range(rounds):
        for name, way in ways.items():
            seen[name].append(way())
        rates = ", ".join(f"{name} {found[-1].per_second:,.0f}/s" for name, found in seen.items())
        say(f"round {number + 1}: {rates}")
    return seen


def _share(ways: dict[str, list[_Way]], one: str, other: str) -> float:
    """Returns the median over the rounds of one way's rate by the other's."""
    pairs = zip(ways[one], ways[other], strict=True)
    return statistics.median(a.per_second / b.per_second for a, b in pairs)


def _median_way(seen: Sequence[_Way]) -> dict[str, Any]:
    programs = {program for one in seen for program in one.cpu_us}
    return {
        "per_second": statistics.median(one.per_second for one in seen),
        "cpu_us": {
            program: statistics.median(one.cpu_us.get(program, 0.0) for one in seen)
            for program in sorted(programs)
        },
    }


def _bare(servers: Servers, topic: str, rows: int) -> _Way:
    """Sends from memory and waits for all acknowledgements."""
    producer = _producer(servers, topic)
    records = [
        (f"m{n}".encode(), _PAYLOAD.replace("@id", f"m{n}").encode()) for n in range(1, rows + 1)
    ]
    failed: list[object] = []

    def ended(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    meter, began = CpuMeter(servers.processes), time.monotonic()
    for key, value in records:
        while True:
            try:
                headers: list[tuple[str, str | bytes | None]] = [("hongyan-id", key)]
                producer.produce(topic, value, key, headers=headers, on_delivery=ended)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    if producer.flush(120) or failed:
        raise RuntimeError("the bare loop was not acknowledged")
    return _Way(rows / (time.monotonic() - began), meter.per_row(rows))


def _producer(servers: Servers, topic: str) -> Producer:
    """Returns a producer with the relay's own properties that knows the topic."""
    properties = producer_config(
        servers.bootstrap, "bench-bare", {}, delivery_timeout_s=DELIVERY_TIMEOUT_MS / 1_000
    )
    producer = Producer(properties)
    producer.list_topics(topic, 10)
    return producer


def _sql_alone(servers: Servers, topic: str, rows: int) -> _Way:
    """Claims and marks in turns on one connection."""
    with _outbox(servers, "bench_outbox_sql") as engine:
        _fill(engine, topic, 1, rows)
        store = OutboxStore(engine)
        meter, began = CpuMeter(servers.processes), time.monotonic()
        while (batch := store.claim_due("bench", 60_000, _BATCH)).rows:
            if store.mark(batch.token, batch.rows):
                raise RuntimeError("somebody else took rows of the benchmark")
        return _Way(rows / (time.monotonic() - began), meter.per_row(rows))


def _naive(servers: Servers, topic: str, rows: int, *, keep: bool) -> _Way:
    """Reads, produces and marks or deletes, without claims."""
    with _outbox(servers, "bench_outbox_naive") as engine:
        _fill(engine, topic, 1, rows)
        url = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        relay = NaiveRelay(url, _producer(servers, topic), _BATCH, keep=keep)
        meter, began = CpuMeter(servers.processes), time.monotonic()
        relay.run()
        found = _Way(rows / (time.monotonic() - began), meter.per_row(rows))
        relay.close()
        return found


def _relayed(servers: Servers, topic: str, rows: int, *, keep_sent: bool) -> _Way:
    """Runs one relay until the last row is marked."""
    with _outbox(servers, "bench_outbox_rate") as engine:
        _fill(engine, topic, 1, rows)
        publisher = Publisher(servers.bootstrap, client_id="bench-relay")
        meter = CpuMeter(servers.processes)
        with _running(engine, publisher, keep_sent=keep_sent) as metrics:
            began = time.monotonic()
            done = threading.Event()
            while metrics.published < rows:
                done.wait(0.005)
            found = _Way(rows / (time.monotonic() - began), meter.per_row(rows))
        publisher.close()
    return found


@contextmanager
def _running(
    engine: Engine, publisher: BatchPublisher, *, keep_sent: bool = True
) -> Iterator[RelayMetrics]:
    """Runs a relay's threads as its process does."""
    store, metrics = OutboxStore(engine, keep_sent=keep_sent), RelayMetrics("hongyan")
    signals = RelaySignals(threading.Event(), threading.Event())
    outage = KafkaOutage()
    marker = RelayMarker(store, outage, metrics, signals.wake)
    terms = RelayTerms("bench", 60.0, 0.5, _BATCH)
    relay = Relay(store, publisher, marker, outage, metrics, terms, signals)
    wakeups = Wakeups(store, signals)
    jobs = (relay.run, relay.help, marker.run, wakeups.run)
    threads = [threading.Thread(target=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    try:
        yield metrics
    finally:
        signals.stop.set()
        signals.wake.set()
        threads[0].join(30)
        threads[1].join(30)
        marker.close(30)
        threads[3].join(5)


def _claims(
    servers: Servers, topic: str, pending: int, say: Callable[[str], None]
) -> tuple[float, float]:
    """Returns the median milliseconds of a claim over few and over many pending rows."""
    with _outbox(servers, "bench_outbox_claims") as engine:
        _fill(engine, topic, 1, _FEW_ROWS)
        few = _claim_ms(engine)
        step = 100_000
        for first in range(_FEW_ROWS + 1, pending + 1, step):
            _fill(engine, topic, first, min(pending, first + step - 1))
        many = _claim_ms(engine)
    say(f"claim: {few:.2f} ms over {_FEW_ROWS:,} rows, {many:.2f} ms over {pending:,}")
    return few, many


def _claim_ms(engine: Engine) -> float:
    """Claims and gives back, so that as many rows stay pending. Returns the median of a claim."""
    store, times = OutboxStore(engine), []
    for _ in range(_CLAIMS):
        began = time.monotonic()
        batch = store.claim_due("bench", 60_000, _CLAIM_ROWS)
        times.append((time.monotonic() - began) * 1_000)
        store.give_back(batch.token, batch.rows)
    return statistics.median(times[3:])


def _idle(servers: Servers, prefix: str, commits: int, *, at_once: bool) -> float:
    """Returns the p99 in milliseconds from a commit's return to its acknowledgement."""
    with _outbox(servers, "bench_outbox_idle") as engine:
        publisher = Publisher(servers.bootstrap, client_id="bench-idle")
        timed = _TimedPublisher(publisher)
        writer = create_engine(engine.url)
        if at_once:
            own = CommitPublisher(engine, timed)
            committed = _commit_all(
                writer, Outbox(topic_prefix=prefix, after_commit=own), commits, timed
            )
            own.close()
        else:
            with _running(engine, timed):
                committed = _commit_all(writer, Outbox(topic_prefix=prefix), commits, timed)
        writer.dispose()
        publisher.close()
    times = sorted((timed.acknowledged[one] - at) * 1_000 for one, at in committed.items())
    return times[min(len(times) - 1, int(len(times) * 0.99))]


def _commit_all(
    engine: Engine, outbox: Outbox, commits: int, timed: _TimedPublisher
) -> dict[str, float]:
    """Returns the time of each commit, once all are acknowledged."""
    committed: dict[str, float] = {}
    pause = threading.Event()
    for number in range(commits + 5):
        with Session(engine) as session:
            queued = outbox.add(
                session,
                {
                    "channel": LANE.channel,
                    "kind": LANE.kind,
                    "receivers": [f"user-{number}"],
                    "content": {"text": "hello"},
                },
            )
            session.commit()
        if number >= 5:  # the first ones open connections
            committed[queued.id] = time.monotonic()
        pause.wait(_GAP_S if number >= 5 else 0.5)
    with timed.changed:
        timed.changed.wait_for(lambda: committed.keys() <= timed.acknowledged.keys(), 30)
    return committed
