"""Stand-ins for unit tests of single stages; whole workers are tested on real parts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any

from channels.channel import Call
from channels.engine import TokenRejected
from dispatcher.dead_letters.writer import Poison
from dispatcher.kafka.backpressure import Backpressure
from dispatcher.kafka.commits import Commits
from dispatcher.kafka.source import Downstream, Source
from dispatcher.metrics import Metrics
from dispatcher.pipeline.binding import bind, choose
from dispatcher.pipeline.lanes import LanePool
from dispatcher.pipeline.work import KafkaRecord, Work
from message.envelope import Notification, encode
from message.outcomes import AnyOutcome
from message.vocabulary import Lane
from sending.lane_routes import Route
from sending.runtime.clock import Clock

LANE = Lane("webhook", "notice")
TOPIC = LANE.topic()
NOW_MS = 1_790_000_000_000


class AtOnce:
    """An engine that waits for every answer: its `send` is all there is to it."""

    def send(self, channel: Any, call: Call, timeout_s: float) -> list[AnyOutcome]:
        raise NotImplementedError

    def begin(
        self,
        channel: Any,
        call: Call,
        timeout_s: float,
        done: Callable[[Sequence[AnyOutcome] | TokenRejected], None],
    ) -> Sequence[AnyOutcome] | None:
        return self.send(channel, call, timeout_s)

    def with_new_token(self, channel: Any, call: Call) -> Call | Sequence[AnyOutcome]:
        raise NotImplementedError

    def send_renewed(self, channel: Any, call: Call, timeout_s: float) -> Sequence[AnyOutcome]:
        raise NotImplementedError


class Later(AtOnce):
    """Its answers are told by another thread, if it is so `told_later`."""

    told_later = False

    def begin(
        self,
        channel: Any,
        call: Call,
        timeout_s: float,
        done: Callable[[Sequence[AnyOutcome] | TokenRejected], None],
    ) -> Sequence[AnyOutcome] | None:
        if not self.told_later:
            return self.send(channel, call, timeout_s)
        Thread(target=lambda: done(self.send(channel, call, timeout_s)), daemon=True).start()
        return None


def no_limits(pairs: Sequence[tuple[str, str]]) -> list[int]:
    """No receiver is at its limit."""
    return [0] * len(pairs)


def routed(work: Work, pool: LanePool) -> Route | None:
    """Binds the work to the lane's terms and returns its account, as intake does."""
    bind(work, pool.terms)
    return choose(work, pool.terms)


class Place:
    """A TopicPartition."""

    def __init__(self, topic: str, partition: int, offset: int = -1001, metadata: str = "") -> None:
        self.topic, self.partition, self.offset, self.metadata = topic, partition, offset, metadata
        self.error: Any = None


class KafkaError:
    """A client error."""

    def __init__(self, name: str, fatal: bool = False) -> None:
        self._name, self._fatal = name, fatal

    def name(self) -> str:
        return self._name

    def str(self) -> str:
        return self._name.lower()

    def fatal(self) -> bool:
        return self._fatal


class Message:
    """One polled message, or an error in its place."""

    def __init__(
        self,
        offset: int,
        value: bytes | None = b"",
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: list[tuple[str, bytes]] | Exception | None = None,
        error: KafkaError | None = None,
    ) -> None:
        """`headers`: an exception is raised by the one call that such a message bears."""
        self._fields = (TOPIC, partition, offset, value, key, error)
        self._headers: Any = headers
        self.asked = 0

    def topic(self) -> str:
        return self._fields[0]

    def partition(self) -> int:
        return self._fields[1]

    def offset(self) -> int:
        return self._fields[2]

    def value(self) -> bytes | None:
        return self._fields[3]

    def key(self) -> bytes | None:
        return self._fields[4]

    def headers(self) -> Any:
        self.asked += 1
        if isinstance(self._headers, Exception):
            raise self._headers
        return self._headers

    def set_headers(self, headers: list[tuple[str, bytes]]) -> None:
        self._headers = headers

    def error(self) -> KafkaError | None:
        return self._fields[5]


class Consumer:
    """Plays a script: each entry is a list of messages, or a callable that acts as a rebalance."""

    def __init__(self) -> None:
        self.script: deque[list[Message] | Callable[[], None]] = deque()
        self.committed_places: list[Place] = []
        self.commits: list[list[Place]] = []
        self.paused: list[tuple[str, int]] = []
        self.calls: list[str] = []
        self.commit_error: Exception | None = None
        self.on_assign: Any = None
        self.on_revoke: Any = None
        self.on_lost: Any = None
        self.on_refused: Any = None
        self._rest: list[Message] = []

    def subscribe(self, topics: Sequence[str], **callbacks: Any) -> None:
        self.__dict__.update(callbacks)

    def absence(self) -> str | None:
        return None

    def poll(self, _timeout: float) -> Message | None:
        if not self.script:
            return None
        step = self.script.popleft()
        if callable(step):
            step()
            return None
        first, *self._rest = step
        return first

    def consume(self, _count: int, _timeout: float) -> list[Message]:
        rest, self._rest = self._rest, []
        return rest

    def committed(self, places: Sequence[Place], timeout: float) -> list[Place]:
        known = {(p.topic, p.partition): p for p in self.committed_places}
        return [known.get((p.topic, p.partition), Place(p.topic, p.partition)) for p in places]

    def commit(self, *, offsets: list[Place], asynchronous: bool) -> None:
        assert asynchronous, "a synchronous commit has no timeout"
        if self.commit_error is not None:
            raise self.commit_error
        self.commits.append(offsets)

    def pause(self, places: Sequence[Place]) -> None:
        self.calls.append("pause")
        self.paused += [(p.topic, p.partition) for p in places]

    def resume(self, places: Sequence[Place]) -> None:
        self.calls.append("resume")
        gone = {(p.topic, p.partition) for p in places}
        self.paused = [p for p in self.paused if p not in gone]

    def seek(self, place: Place) -> None:
        self.calls.append(f"seek {place.partition} {place.offset}")

    def get_watermark_offsets(
        self, place: Place, timeout: float = 0.0, cached: bool = False
    ) -> tuple[int, int]:
        if not cached:
            self.calls.append(f"ask {place.partition}")
        return 0, -1001

    def close(self) -> None:
        self.calls.append("close")


class Inbox:
    """The screen, or the dead letters, that only remember."""

    def __init__(self) -> None:
        self.left = 0
        self.records: list[KafkaRecord] = []
        self.poisons: list[Poison] = []

    def put(self, item: list[KafkaRecord] | Poison) -> None:
        if isinstance(item, Poison):
            self.poisons.append(item)
        else:
            self.records += item

    def leaving(self) -> None:
        self.left += 1


class Removals:
    """Remembers what may have been removed."""

    def __init__(self) -> None:
        self.gaps: list[tuple[int, int]] = []
        self.committed: list[int] = []

    def came(self, _place: tuple[str, int], _lane: Lane, committed: int, _done: Any) -> None:
        self.committed.append(committed)

    def gap(self, _place: tuple[str, int], _lane: Lane, start: int, end: int) -> None:
        self.gaps.append((start, end))


class Bench:
    """A source with everything around it faked; `time` is moved by hand."""

    def __init__(
        self,
        max_records: int = 100,
        max_bytes: int = 1 << 20,
        accounts: frozenset[str] = frozenset({"demo"}),
    ) -> None:
        self.time = 1_000.0
        self.consumer = Consumer()
        self.inbox = Inbox()
        self.removals = Removals()
        clock = Clock(lambda: self.time, lambda: NOW_MS / 1000)
        metrics = Metrics()
        self.commits = Commits(
            self.consumer,
            Place,
            monotonic=lambda: self.time,
            count=lambda result: metrics.commits.labels(result).inc(),
        )
        self.done: SimpleQueue[Sequence[KafkaRecord | Poison]] = SimpleQueue()
        self.source = Source(
            self.consumer,
            self.commits,
            Backpressure({LANE: max_records}, max_bytes),
            Downstream(
                {LANE: self.inbox} if accounts else {}, self.inbox, self.removals, self.done
            ),
            accounts={LANE: accounts},
            topic_prefix="hongyan",
            place=Place,
            clock=clock,
            metrics=metrics,
        )
        self.source.subscribe([LANE])

    def assign(self, *partitions: int) -> None:
        places = [Place(TOPIC, p) for p in partitions]
        self.consumer.on_assign(self.consumer, places)

    def revoke(self, *partitions: int) -> None:
        self.consumer.on_revoke(self.consumer, [Place(TOPIC, p) for p in partitions])

    def lose(self, *partitions: int) -> None:
        self.consumer.on_lost(self.consumer, [Place(TOPIC, p) for p in partitions])

    def step(self, *messages: Message) -> None:
        if messages:
            self.consumer.script.append(list(messages))
        self.time += 1.0
        self.source.run_once()

    def answer_commit(self, error: KafkaError | None = None) -> list[Place]:
        """The broker answers the last commit."""
        places = self.consumer.commits[-1]
        for place in places:
            place.error = error
        self.commits.acknowledged(None, places)
        return places


def notification(number: int = 0, **fields: Any) -> Notification:
    """A plain good one."""
    defaults: dict[str, Any] = {
        "id": f"n-{number}",
        "channel": "webhook",
        "kind": "notice",
        "receivers": ["someone"],
        "content": {"text": "hello"},
        "created_at": NOW_MS,
    }
    return Notification(**(defaults | fields))


def message(offset: int, *, partition: int = 0, **fields: Any) -> Message:
    """A polled good notification."""
    return Message(offset, encode(notification(offset, **fields)), partition=partition)
