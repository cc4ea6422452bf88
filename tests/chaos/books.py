"""What a run leaves behind for its judge: plain data, so that made-up books can be judged too."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from simulator import LedgerRecord
from tests.chaos.announced import Announced
from tests.chaos.history import Move
from tests.chaos.plan import Fault
from tests.harness.books import Row
from tests.harness.wire import Committed, Place, Sent


@dataclass
class Hit:
    """One fault that was done. Times are epoch milliseconds of this machine."""

    fault: Fault
    at_ms: int
    worker: str = ""
    """Which process a kill or a stop hit; empty for servers and the provider."""
    life: int = -1
    """Which life of the run that was; -1 for servers."""
    until_ms: int = 0
    """When what it took away was back: the successor started, the process going on, the server up."""
    point: str = ""
    """What it was doing then."""
    sent: list[Sent] = field(default_factory=list)
    """What was produced for this fault."""
    effect: str = ""
    """What the driver saw of it."""
    lives: tuple[int, ...] = ()
    """All that it killed, where it killed several."""
    lane: str = ""
    """The lane that it paused."""
    quiet_ms: tuple[int, int] = (0, 0)
    """From when until when nothing of that lane may come to the provider."""
    resumed_ms: int = 0
    """When a person had resumed it."""


@dataclass
class LifeBook:
    """One process from start to end."""

    number: int
    worker: str
    started_ms: int
    ended_ms: int = 0
    ended_by: str = ""
    """`kill -9`, `SIGTERM`, or empty: it ended by itself."""
    code: int | None = None
    peak_mb: float = 0.0
    lapses_ms: list[int] = field(default_factory=list)
    """When its lease had lapsed, by its log."""
    complaints: list[str] = field(default_factory=list)
    """Lines of its log that no outage explains."""
    tail: str = ""
    """The log's end, where it ended by itself."""
    role: str = "worker"


@dataclass(frozen=True)
class Limits:
    """What was promised."""

    pool_threads: int
    """Of all lanes of one worker."""
    timeout_ms: int
    lease_ms: int
    memory_mb: float = 200.0
    recovery_s: float = 60.0
    """From a delivery's first trouble to its end."""
    resending: frozenset[str] = frozenset()
    """Lanes in which what is in doubt is sent again by policy, where nothing proves what became of it."""
    parking: frozenset[str] = frozenset()
    """Lanes in which it is parked instead."""
    mute: str = "/mute"
    """Path of the account whose provider does not say what became of a call: only there is anything
    without proof."""

    @property
    def in_doubt(self) -> int:
        """Design, invariant 12: what was at the provider or in lane queues."""
        return 2 * self.pool_threads


@dataclass
class Books:
    """Everything there is to judge by, from sources that know nothing of one another."""

    sent: Sequence[Sent]
    """What Kafka acknowledged."""
    rows: Mapping[str, Row]
    """The ledger."""
    records: Sequence[LedgerRecord]
    """The provider's synced file, in the order of arrival."""
    committed: Mapping[Place, Committed]
    hits: Sequence[Hit]
    lives: Sequence[LifeBook]
    limits: Limits
    ordered: str
    """The topic whose keys keep their order."""
    moves: Sequence[Move] = ()
    """What rows went through, in order."""
    announced: Collection[str] = ()
    """Lanes whose ends are announced."""
    events: Sequence[Announced] = ()
    """Records of the topic of outcomes."""
    dead: Collection[str] = ()
    """Origins of the dead letters, as `topic/partition/offset`."""
    planned: Sequence[Fault] = ()
    """Every fault that should have been done."""
    troubles: Sequence[str] = ()
    """What went wrong with the run itself."""
