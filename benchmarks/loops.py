"""What the worker is compared with: loops that do less, or do it a message at a time.

Each runs in a process of its own: `python -m benchmarks.loops NAME WARM SPAN`, configured by the same
environment as the worker, and prints one JSON line.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count
from queue import SimpleQueue
from typing import Any

import httpx
import msgspec

from backends.interpreter import tune_interpreter
from backends.kafka import clients as kafka
from backends.settings import Settings, load
from benchmarks.cores import take_own
from benchmarks.ground import LANE
from benchmarks.meter import LoopMeter
from channels.http_client.transport import Transport
from dispatcher.process import open_worker
from idempotency.ledger import Claim, Ledger, Settlement
from idempotency.payload_cipher import body_digest
from idempotency.prefilter import Prefilter
from idempotency.prefilter_redis import open_prefilter
from idempotency.sql_ledger import open_ledger
from message.delivery import Delivery, deliveries_of
from message.envelope import decode
from message.ids import new_token
from message.states import Event
from message.vocabulary import lanes_matching
from policy.loading import load_for

THREADS = 100
BATCH = 200
_COMMIT_S = 0.5
_FAR_MS = 10**9
_OWNER = "bench"


class BareLoop:
    """Consume, do `work` with each message or batch, commit what is done: the plainest way."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.done = 0
        self.stop = threading.Event()
        protocol = kafka.resolve_group_protocol(settings.kafka)
        self.consumer = kafka.consumer(settings.kafka, protocol=protocol)
        self.consumer.subscribe([LANE.topic(settings.kafka.topic_prefix)])
        self._committed_at = time.monotonic()
        self._next: dict[tuple[str, int], int] = {}

    def batches(self, size: int) -> Any:
        """Batches of messages until `stop`, committing the positions of those before."""
        while not self.stop.is_set():
            first = self.consumer.poll(0.1)
            if first is None:
                continue
            messages = [m for m in (first, *self.consumer.consume(size - 1, 0)) if not m.error()]
            yield messages
            for message in messages:
                self._note(message)
            self._commit_if_due()

    def _note(self, message: Any) -> None:
        self._next[message.topic(), message.partition()] = message.offset() + 1

    def _commit_if_due(self) -> None:
        if time.monotonic() - self._committed_at < _COMMIT_S:
            return
        self._committed_at = time.monotonic()
        places = [kafka.TopicPartition(t, p, o) for (t, p), o in self._next.items()]
        self.consumer.commit(offsets=places, asynchronous=True)


def bare_http(loop: BareLoop) -> None:
    """A bounded thread pool that POSTs each message over the worker's own transport; no ledger, no
    Redis, no decoding."""
    transport, queue = Transport(), SimpleQueue[bytes]()
    room = threading.BoundedSemaphore(2 * THREADS)
    account = loop.settings.accounts[os.environ["BENCH_ACCOUNT"]]
    url, numbers = httpx.URL(account["endpoint"]), count(1)
    timeout = {"timeout": {"total": 5.0, "connect": 5.0}}

    def serve() -> None:
        while True:
            body = queue.get()
            headers = {"Content-Type": "application/json", "Idempotency-Key": body[10:42].decode()}
            request = httpx.Request("POST", url, content=body, headers=headers, extensions=timeout)
            transport.handle_request(request)
            room.release()
            loop.done = next(numbers)

    for _ in range(THREADS):
        threading.Thread(target=serve, daemon=True).start()
    for messages in loop.batches(500):
        for message in messages:
            room.acquire()
            queue.put(message.value())


def batched_io(loop: BareLoop) -> None:
    """The same batched Kafka, Redis and SQL round trips as the worker, and nothing else."""
    ledger, prefilter = _ledger(loop.settings)
    for messages in loop.batches(BATCH):
        deliveries = [d for message in messages for d in _deliveries(message.value())]
        prefilter.lookup([d.key for d in deliveries])
        _claim(ledger, deliveries)
        ledger.settle([Settlement(d, Event.ACCEPTED, provider_id=d.key) for d in deliveries])
        prefilter.mark([(d.key, body_digest(d.payload)) for d in deliveries])
        loop.done += len(messages)


def round_trips(loop: BareLoop) -> None:
    """A hundred threads, each with one message at a time: look up, claim, settle, mark, one by one."""
    ledger, prefilter = _ledger(loop.settings)
    queue, numbers = SimpleQueue[bytes](), count(1)
    room = threading.BoundedSemaphore(2 * THREADS)

    def serve() -> None:
        while True:
            (delivery,) = _deliveries(queue.get())
            prefilter.lookup([delivery.key])
            _claim(ledger, [delivery])
            ledger.settle([Settlement(delivery, Event.ACCEPTED, provider_id=delivery.key)])
            prefilter.mark([(delivery.key, body_digest(delivery.payload))])
            room.release()
            loop.done = next(numbers)

    for _ in range(THREADS):
        threading.Thread(target=serve, daemon=True).start()
    for messages in loop.batches(500):
        for message in messages:
            room.acquire()
            queue.put(message.value())


def worker(settings: Settings, warm: int, span: int) -> dict[str, Any]:
    """The worker itself, measured the same way."""
    policy = load_for(settings)
    with ExitStack() as stack:
        lanes = lanes_matching(settings.worker.lanes)
        app = open_worker(settings, policy, lanes, stack, threading.Event())
        assert app is not None
        pools = list(app.pools.values())
        meter = LoopMeter(lambda: sum(p.settled_count for p in pools), warm, span, app.worker.stop)
        meter.start()
        app.worker.run()
    return dict(msgspec.to_builtins(meter.result))


LOOPS: dict[str, Callable[[BareLoop], None]] = {
    "bare_http": bare_http,
    "batched_io": batched_io,
    "round_trips": round_trips,
}


def _ledger(settings: Settings) -> tuple[Ledger, Prefilter]:
    ledger = open_ledger(settings)
    return ledger, open_prefilter(settings, ledger.identity())


def _deliveries(value: bytes) -> list[Delivery]:
    return deliveries_of(decode(value), value, expires_at=int(time.time() * 1000) + _FAR_MS)


def _claim(ledger: Ledger, deliveries: Sequence[Delivery]) -> None:
    token = new_token()
    claims = [Claim(delivery, token) for delivery in deliveries]
    for delivery, claimed in zip(deliveries, ledger.claim(claims, _OWNER), strict=True):
        delivery.token, delivery.attempt, delivery.day = token, claimed.attempt, claimed.day


def main(name: str, warm: int, span: int) -> None:
    """Run one and print what was measured."""
    take_own()
    settings = load()
    tune_interpreter()
    if name == "worker":
        result = worker(settings, warm, span)
    else:
        loop = BareLoop(settings)
        meter = LoopMeter(lambda: loop.done, warm, span, loop.stop.set)
        meter.start()
        LOOPS[name](loop)
        result = msgspec.to_builtins(meter.result)
    print(msgspec.json.encode(result).decode(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.flush()

    os._exit(0)  # client threads that wait for a broker must not keep us
