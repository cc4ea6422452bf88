"""The client of a business process beside a bare confluent-kafka loop, and through an outage of the broker.

    hongyan bench client [--json]

Throughput, with the same settings and in turns; each notes every place and waits for all acknowledgements:

    bare                a loop that makes each notification, serialises it, and sets key and id header
    bare_ready          the same loop over key and bytes that were made before
    client              `send_many` over the same notifications; it checks the envelope's rules, too
    client_send         `send` for each, and a future for each
    client_with_trace   `send_many`; each is announced in the trace topic, too
    bare_warm           the loop of `bare`, whose producer has had an acknowledgement before
    client_warm         `send_many` of a client that has had one

The bar is client ÷ bare. A user of the topic has to make and serialise each notification in any case, so
both sides do. client ÷ bare_ready is printed beside it: it counts that work as the client's cost. Both
sides also open: librdkafka waits up to half a second for its producer id. client_warm ÷ bare_warm leaves
that out.

Import: the time in which a new process has imported the client, the shortest of some.

Outage: a client with a spool sends at a steady rate. The embedded broker stands still
meanwhile. At the end all are in the topic, the firsts of each key in order.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition

from backends.kafka.embedded import EmbeddedKafka
from benchmarks.ground import LANE, Servers, notification, topics
from benchmarks.meter import resident_mib
from hongyan_client import BufferFull, Client, ClientOptions
from hongyan_client.publisher import producer_config
from hongyan_client.spool.spool import Spool
from message.envelope import Notification, decode

WANTED: Final = 0.8
WANTED_MIB: Final = 100
WANTED_IMPORT_MS: Final = 150
MESSAGES: Final = 100_000
PER_SECOND: Final = 5_000
OUTAGE_S: Final = 60.0
_KEYS: Final = 200
_PATIENCE_S: Final = 600.0
_TICK_S: Final = 0.02
_IMPORTS: Final = 5
_IMPORT: Final = """
import time
began = time.perf_counter()
from hongyan_client import Client, compose
print((time.perf_counter() - began) * 1000)
"""
Say = Callable[[str], None]


def measure(
    servers: Servers, *, rounds: int, messages: int, outage_s: float, rate: int, say: Say
) -> dict[str, Any]:
    """Returns the report. The outage comes first: after the rounds the process keeps memory that the sends
    of the outage would fill, and nothing would be seen of them."""
    say(f"a broker away for {outage_s:g} s at {rate:,} a second")
    outage = _outage(outage_s, rate)
    found: list[dict[str, float]] = []
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}: {messages:,} notifications each")
        found.append(_round(servers.bootstrap, servers, messages))
    medians = {
        name: {"per_second": round(statistics.median(one[name] for one in found))}
        for name in found[0]
    }
    ratio = round(statistics.median(one["client"] / one["bare"] for one in found), 3)
    ratios: list[dict[str, Any]] = [
        {"ratio": "client ÷ bare loop", "median": ratio, "wanted": WANTED, "holds": ratio >= WANTED}
    ]
    others = {
        f"{one} ÷ {other}": round(statistics.median(each[one] / each[other] for each in found), 3)
        for one, other in (
            ("client", "bare_ready"),
            ("client_send", "bare"),
            ("bare", "bare_ready"),
            ("client_warm", "bare_warm"),
        )
    }
    for name, value in others.items():
        say(f"not judged: {name} is {value}")
    measured = outage | {"import_ms": _import_ms()}
    for name, wanted in (
        ("mib_above_idle", WANTED_MIB),
        ("lost", 0),
        ("out_of_order", 0),
        ("import_ms", WANTED_IMPORT_MS),
    ):
        ratios.append(
            {"ratio": name.replace("_", " "), "median": measured[name], "wanted": wanted}
            | {"at_most": True, "holds": measured[name] <= wanted}
        )
    return {"medians": medians, "ratios": ratios, "not_judged": others, "outage": outage}


def _import_ms() -> float:
    """Returns milliseconds."""
    command = [sys.executable, "-c", _IMPORT]
    told = [subprocess.run(command, capture_output=True, check=True) for _ in range(_IMPORTS)]
    return round(min(float(one.stdout) for one in told), 1)


def _round(bootstrap: str, servers: Servers, messages: int) -> dict[str, float]:
    """Returns the records a second of each way."""
    with topics(servers, [LANE]) as prefix:
        topic = LANE.topic(prefix)
        ways: dict[str, Callable[[], None]] = {
            "bare": lambda: _loop(_producer(bootstrap), topic, _made(messages), messages),
            "bare_ready": _ready_loop(bootstrap, topic, messages),
            "client": lambda: _client(bootstrap, prefix, messages, trace=False),
            "client_send": lambda: _client_send(bootstrap, prefix, messages),
            "client_with_trace": lambda: _client(bootstrap, prefix, messages, trace=True),
        }
        found = {name: _rate(way, messages) for name, way in ways.items()}
        found["bare_warm"] = _bare_warm(bootstrap, topic, messages)
        found["client_warm"] = _client_warm(bootstrap, prefix, messages)
        return found


def _rate(way: Callable[[], None], messages: int) -> float:
    began = time.perf_counter()
    way()
    return messages / (time.perf_counter() - began)


Ready = tuple[bytes, bytes]
"""Key and value of a record."""


def _producer(bootstrap: str) -> Producer:
    return Producer(producer_config(bootstrap, "bare", {}, 30))


def _made(messages: int) -> Iterator[Ready]:
    encoder = msgspec.json.Encoder()
    for number in range(messages):
        item = notification(number)
        yield item.id.encode(), encoder.encode(item)


def _ready_loop(bootstrap: str, topic: str, messages: int) -> Callable[[], None]:
    """Returns the same loop over records that are made here."""
    ready = list(_made(messages))
    return lambda: _loop(_producer(bootstrap), topic, ready, messages)


def _bare_warm(bootstrap: str, topic: str, messages: int) -> float:
    """Returns the records a second of a producer that has had an acknowledgement."""
    producer = _producer(bootstrap)
    _loop(producer, topic, _made(1), 1)
    return _rate(lambda: _loop(producer, topic, _made(messages), messages), messages)


def _loop(producer: Producer, topic: str, records: Iterable[Ready], messages: int) -> None:
    """The loop that a careful engineer writes: bounded, acknowledged, each place noted."""
    places: list[tuple[Any, ...]] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        places.append((message.partition(), message.offset(), message.timestamp()[1]))

    for key, value in records:
        headers: list[tuple[str, str | bytes | None]] = [("hongyan-id", key)]
        while True:
            try:
                producer.produce(topic, value, key, headers=headers, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.flush(_PATIENCE_S)
    assert len(places) == messages


def _client_send(bootstrap: str, prefix: str, messages: int) -> None:
    options = ClientOptions(trace=False)
    with Client(bootstrap, topic_prefix=prefix, options=options) as client:
        futures = [
            client.send(notification(number), deadline_s=_PATIENCE_S) for number in range(messages)
        ]
        assert client.flush(_PATIENCE_S) == 0
        assert sum(future.result(0).offset >= 0 for future in futures) == messages


def _client(bootstrap: str, prefix: str, messages: int, *, trace: bool) -> None:
    with Client(bootstrap, topic_prefix=prefix, options=ClientOptions(trace=trace)) as client:
        _send_many(client, messages)


def _client_warm(bootstrap: str, prefix: str, messages: int) -> float:
    """Returns the notifications a second of a client that has had an acknowledgement."""
    options = ClientOptions(trace=False)
    with Client(bootstrap, topic_prefix=prefix, options=options) as client:
        _send_many(client, 1)
        return _rate(lambda: _send_many(client, messages), messages)


def _send_many(client: Client, messages: int) -> None:
    items = (notification(number) for number in range(messages))
    summary = client.send_many(items, timeout_s=_PATIENCE_S)
    assert len(summary.sent) == messages, summary.failed[:3]


def _outage(outage_s: float, rate: int) -> dict[str, Any]:
    """Returns memory, losses and order of a client with a spool while the broker stands still."""
    from tests.hongyan_client.looking import paused

    topic = LANE.topic("outage")
    with EmbeddedKafka(topics=[topic]) as broker, tempfile.TemporaryDirectory() as folder:
        reader = _Reader(broker.bootstrap, topic)
        options = ClientOptions(trace=False, deadline_s=1, delivery_timeout_s=5)
        opened = lambda publisher: Spool(Path(folder), publisher, max_bytes=4 << 30)  # noqa: E731
        client = Client(broker.bootstrap, topic_prefix="outage", options=options, overflow=opened)
        try:
            sent = _paced(client, 0, int(rate), rate)  # a second of warming up
            client.flush(_PATIENCE_S)
            idle = resident_mib()
            peak = _Peak()
            with paused(broker):
                sent = _paced(client, sent, int(rate * outage_s), rate)
                client.flush(_PATIENCE_S)
            began = time.monotonic()
            left = client.drain(_PATIENCE_S)
            client.flush(_PATIENCE_S)
            above = peak.stop() - idle
            lost, disordered = reader.judge(sent)
        finally:
            client.close(10)
        return {
            "sent": sent,
            "mib_above_idle": round(above, 1),
            "lost": lost + left,
            "out_of_order": disordered,
            "drained_s": round(time.monotonic() - began, 1),
        }


def _paced(client: Client, first: int, count: int, rate: int) -> int:
    """Sends so many at the rate. Returns the number of the next one."""
    began = time.monotonic()
    for number in range(count):
        if not number % (rate // 50 or 1):
            ahead = number / rate - (time.monotonic() - began)
            if ahead > 0:
                time.sleep(ahead)
        one = _keyed(first + number)
        while True:
            try:
                client.send(one)
                break
            except BufferFull:  # nothing of it was taken, so it is sent again; the rate falls
                continue
    return first + count


def _keyed(number: int) -> Notification:
    key = f"k{number % _KEYS}"
    return msgspec.structs.replace(notification(number), id=f"m{number}", ordering_key=key)


class _Reader:
    """Reads the topic in a thread of its own while it is written: the embedded broker forgets early."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        config = {"bootstrap.servers": bootstrap, "group.id": "judge", "log_level": 0}
        self._consumer = Consumer(config | {"auto.offset.reset": "earliest"})
        found = self._consumer.list_topics(topic, timeout=10).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, number, 0) for number in found])
        self._firsts: dict[str, list[int]] = defaultdict(list)
        self._seen: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="judge", daemon=True)
        self._thread.start()

    def judge(self, sent: int) -> tuple[int, int]:
        """Returns how many were lost, and how many first ones came after a later one of their key."""
        until = time.monotonic() + _PATIENCE_S
        while len(self._seen) < sent and time.monotonic() < until:
            time.sleep(_TICK_S)
        self._stop.set()
        self._thread.join()
        self._consumer.close()
        late = sum(
            one > other for numbers in self._firsts.values() for one, other in pairwise(numbers)
        )
        return sent - len(self._seen), late

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(1_000, 0.2):
                if message.error() is None:
                    self._note(decode(message.value()))

    def _note(self, one: Notification) -> None:
        number = int(one.id[1:])
        if number not in self._seen:
            self._seen.add(number)
            self._firsts[one.kafka_key].append(number)


class _Peak:
    """Watches the resident memory of this process."""

    def __init__(self) -> None:
        self._most = resident_mib()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """Returns the most that was seen, in MiB."""
        self._stop.set()
        self._thread.join()
        return self._most

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            self._most = max(self._most, resident_mib())
