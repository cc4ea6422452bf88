"""Records, and a Kafka that is at the test's command."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path

from hongyan_client.errors import BufferFull, NotDelivered, SendInDoubt
from hongyan_client.records import Acknowledged, Record
from hongyan_client.spool.drain import DrainPass
from hongyan_client.spool.folder import SpoolFolder
from hongyan_client.spool.store import SpoolStore
from message.envelope import Notification, encode

TOPIC = "hongyan.dispatch.sms.notice"
NEVER = 253_402_300_799_999


def record(number: int, key: str | None = "a", topic: str = TOPIC, padding: int = 0) -> Record:
    """A record whose value is its number."""
    value = str(number).encode() + b" " * padding
    return Record(topic, None if key is None else key.encode(), value, [("n", value[:9])])


def envelope(message_id: str, receiver: str, created_at: int) -> Record:
    value = encode(
        Notification(
            id=message_id,
            channel="sms",
            kind="notice",
            receivers=[receiver],
            content={"text": "the secret code is 4711"},
            created_at=created_at,
        )
    )
    return Record(TOPIC, message_id.encode(), value, [])


class FakeKafka:
    """Acknowledges at once, or fails as it is told. `arrived` has the records in their order."""

    def __init__(self) -> None:
        self.arrived: list[Record] = []
        self.away = False
        self.full = False
        self.holding = False
        self.refused: set[str] = set()
        """Topics to which no try succeeds."""
        self.missing: set[str] = set()
        """Topics that are not there yet."""
        self.held: list[tuple[Record, Future[Acknowledged]]] = []
        self.lose_answers = False
        self.changed = threading.Condition()

    def publish(self, one: Record, deadline_s: float) -> Future[Acknowledged]:
        if self.full:
            raise BufferFull("full")
        future: Future[Acknowledged] = Future()
        if self.holding:
            self.held.append((one, future))
        elif one.topic in self.refused:
            future.set_exception(NotDelivered("too large", "msg_size_too_large", repeatable=False))
        elif self.away or one.topic in self.missing:
            future.set_exception(SendInDoubt("timed out", "msg_timed_out"))
        else:
            self._arrive(one, future)
        return future

    def _arrive(self, one: Record, future: Future[Acknowledged]) -> None:
        with self.changed:
            self.arrived.append(one)
            self.changed.notify_all()
        if self.lose_answers:
            future.set_exception(SendInDoubt("timed out", "msg_timed_out"))
        else:
            future.set_result(Acknowledged(one.topic, 0, len(self.arrived), 0))

    def release(self) -> None:
        """Acknowledges what is held, the last first."""
        self.holding = False
        held, self.held = self.held, []
        for one, future in reversed(held):
            self._arrive(one, future)

    def wait_for(self, count: int, timeout_s: float = 30.0) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.arrived) >= count, timeout_s), len(
                self.arrived
            )

    def numbers(self, key: str | None = "a") -> list[int]:
        wanted = None if key is None else key.encode()
        return [int(one.value) for one in self.arrived if one.key == wanted]


class Bench:
    """A spool without a thread: the test makes each pass."""

    def __init__(self, folder: Path, kafka: FakeKafka, max_bytes: int = 64 << 20) -> None:
        self.kafka = kafka
        self.now = 1_790_000_000_000
        self.folder = SpoolFolder(folder, max_bytes)
        self.salvage = self.folder.prepare(self.now)
        self.store: SpoolStore = self.folder.store()
        self.drain_pass = DrainPass(self.store, kafka, lambda: self.now)

    def drain(self) -> int:
        """Returns how many records were published."""
        fence = self.store.take_fence()
        result = self.drain_pass.run(fence, 20.0, lambda: False)
        self.store.mark_empty(self.folder.marker)
        return result.published

    def close(self) -> None:
        self.store.close()
        self.folder.drain_lock.close()
