"""What moves between the worker's stages. Each mutable field names its one writing thread."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from channels.channel import Account, Channel
from dispatcher.kafka.offsets import Offsets
from message.delivery import Delivery
from message.envelope import Notification
from message.outcomes import AnyOutcome
from message.states import Event, State
from message.vocabulary import Lane
from sending.attempts import PastCall

if TYPE_CHECKING:
    from dispatcher.pipeline.lane_config import LaneConfig


class PartitionState(Enum):
    """How firmly a partition is ours. Only moves forward."""

    OWNED = 0
    LEAVING = 1
    """Being revoked: nothing more of it is claimed; what is claimed may still end and be committed."""
    GONE = 2
    """Not ours: nothing of it is ever committed again under this assignment."""


class Assignment:
    """One partition for one stretch of ownership: the fence for commits.

    Written by the source's thread, but for the two counters; other threads read `hold`.
    """

    __slots__ = ("begun", "ended", "hold", "lane", "offsets", "partition", "topic")

    def __init__(self, topic: str, partition: int, lane: Lane, offsets: Offsets) -> None:
        self.topic = topic
        self.partition = partition
        self.lane = lane
        self.offsets = offsets
        self.hold = PartitionState.OWNED
        self.begun = 0
        """Records whose deliveries intake has begun to claim; intake writes."""
        self.ended = 0
        """Of those, the ones whose last delivery ended; aftermath writes."""

    @property
    def busy(self) -> bool:
        """Whether some record of it is between claim and settlement."""
        return self.begun > self.ended

    def __repr__(self) -> str:
        return f"{self.topic}/{self.partition} ({self.hold.name.lower()})"


class KafkaRecord:
    """One polled notification on its way through the worker."""

    __slots__ = (
        "assignment",
        "given_back",
        "notification",
        "offset",
        "open_deliveries",
        "payload",
        "received_at",
        "traceparent",
    )

    def __init__(
        self,
        assignment: Assignment,
        offset: int,
        notification: Notification,
        payload: bytes,
        received_at: int,
        traceparent: str | None,
    ) -> None:
        self.assignment = assignment
        self.offset = offset
        self.notification = notification
        self.payload = payload
        self.received_at = received_at
        self.traceparent = traceparent
        self.open_deliveries = 0
        """Set by `Backlog` as it expands the record, in the thread of `ExpandStage`; then counted down by
        `CompletionStage`."""
        self.given_back = False
        """One of its deliveries was not started, so the offset must not pass. Written by `CompletionStage`,
        or by `ExpandStage` for a record that it passes over whole."""

    @property
    def size(self) -> int:
        """Bytes it holds."""
        return len(self.payload)


Route = tuple[Account, Channel]
"""Where a delivery goes: an account and its provider's adapter."""


class Work(msgspec.Struct, gc=False):
    """One delivery between its record and its settlement."""

    delivery: Delivery
    record: KafkaRecord
    outcome: AnyOutcome | None = None
    """Written by `LanePool`: in the thread that reads the answer, or in a lane's thread where the call
    blocked, failed or never began."""
    event: Event | None = None
    """Set where the end is no provider's answer: expired in the queue, given back."""
    reason: str | None = None
    delay_ms: int = 0
    """For how long an `event` lets it wait; written by `LanePool` in a lane's thread."""
    drop: str | None = None
    """Why it shall end at the claim, as `code: sentence`; written before the claim by `LaneConfig.bind`
    and `SendGates.judge`."""
    refused: str = ""
    """Why the adapter of the account `asked` can never send it, as `code: sentence`; written by intake."""
    asked: str | None = None
    """The account whose adapter was asked last; written by intake."""
    waits_for: tuple[LaneConfig, tuple[str, ...]] | None = None
    """The accounts that alone may send it under these terms, once that was asked; written by intake."""
    hold_ms: int = 0
    """For how long it shall wait in the ledger, claimed by nobody; written by intake."""
    hold_reason: str = ""
    """Why it shall wait; written by intake."""
    marked: bool = False
    """Whether a gate noted it as one that goes; written by intake."""
    terms: LaneConfig | None = None
    """What it acts under; written by the screen, and by intake until it is claimed."""
    route: Route | None = None
    """Chosen by intake before the claim."""
    taken: bool = False
    """Whether it holds a place in its lane; written by `Intake` under `claiming`, by whichever thread holds
    that lock."""
    claimed_at: int = 0
    started_at: int = 0
    answered_at: int = 0
    tries: tuple[PastCall, ...] = ()
    """The calls before the last; written by the lane's thread."""
    term: int = 0
    """The term of the worker's lease under which it was claimed; written by the gate."""
    left: bool = False
    """It was not begun, or its outcome could not be written: whoever reads the record next decides."""
    standing: State | None = None
    """What the ledger holds already, for work that ended at intake: settle only reports it."""

    @property
    def bound(self) -> LaneConfig:
        """The terms, where it is known to have some."""
        assert self.terms is not None
        return self.terms

    @property
    def answer(self) -> AnyOutcome:
        """The outcome, where a call is known to have ended."""
        assert self.outcome is not None
        return self.outcome

    @property
    def chosen(self) -> Route:
        """The route, where it is known to be chosen."""
        assert self.route is not None
        return self.route


class HandOver(msgspec.Struct, gc=False):
    """A `best_effort` delivery reached its lane's queue: that is where its offset may pass."""

    record: KafkaRecord


Finished = Work | HandOver
"""What settle takes in."""
