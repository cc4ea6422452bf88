"""What moves between the worker's stages. Each mutable field names its one writing thread."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from dispatcher.kafka.offsets import Offsets
from dispatcher.pipeline.lane_config import LaneConfig
from message.delivery import Delivery
from message.envelope import Notification
from message.outcomes import AnyOutcome
from message.states import State
from message.vocabulary import Lane
from sending.attempts import PastCall
from sending.endings import NotStarted, outcome_of
from sending.lane_routes import Route


class PartitionState(Enum):
    """How firmly a partition is ours. Only moves forward."""

    OWNED = 0
    REVOKING = 1
    """Being revoked: nothing more of it is claimed; what is claimed may still end and be committed."""
    LOST = 2
    """Not ours: nothing of it is ever committed again under this assignment."""


class Assignment:
    """One partition for one stretch of ownership: the fence for commits.

    Written by the source's thread, but for the two counters; other threads read `state`.
    """

    __slots__ = ("begun", "ended", "lane", "lane_name", "offsets", "partition", "state", "topic")

    def __init__(self, topic: str, partition: int, lane: Lane, offsets: Offsets) -> None:
        self.topic = topic
        self.partition = partition
        self.lane = lane
        self.lane_name = lane.name
        self.offsets = offsets
        self.state = PartitionState.OWNED
        self.begun = 0
        """Records whose deliveries intake has begun to claim; intake writes."""
        self.ended = 0
        """Of those, the records whose last delivery ended; `CompletionStage` writes it."""

    @property
    def busy(self) -> bool:
        """Whether some record of it is between claim and settlement."""
        return self.begun > self.ended

    def __repr__(self) -> str:
        return f"{self.topic}/{self.partition} ({self.state.name.lower()})"


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
        """One of its deliveries was not started, so the offset must not pass. Only ever set: by
        `CompletionStage`; by `Settle` before it passes the record on; by `ExpandStage` for a record that it
        passes over whole."""

    @property
    def size(self) -> int:
        """Bytes it holds."""
        return len(self.payload)


class Send(msgspec.Struct, frozen=True, gc=False):
    """The delivery goes to its provider."""


class Hold(msgspec.Struct, frozen=True, gc=False):
    """The delivery waits in the ledger, claimed by no process."""

    wait_ms: int
    reason: str


class Drop(msgspec.Struct, frozen=True, gc=False):
    """The delivery ends at its claim."""

    reason: str
    """`code: sentence`, or the code alone."""


class Refuse(msgspec.Struct, frozen=True, gc=False):
    """The adapter of the chosen account can never send the delivery."""

    reason: str
    """`code: sentence`."""


Intent = Send | Hold | Drop | Refuse
"""What the stages before the claim decided. A Drop is final; a Hold comes before a Refuse, since the next
claim asks the adapter anew."""
SEND: Final = Send()


class EndedAtClaim(msgspec.Struct, frozen=True, gc=False):
    """The claim entered the delivery and ended or parked it in the same statement."""

    state: State
    reason: str


class AlreadyKnown(msgspec.Struct, frozen=True, gc=False):
    """An earlier claim entered the delivery: the ledger or Redis has it in this state."""

    state: State
    reason: str


class GivenUp(msgspec.Struct, frozen=True, gc=False):
    """The delivery was never claimed. The next reader of its record decides."""


GIVEN_UP: Final = GivenUp()
End = AnyOutcome | NotStarted | EndedAtClaim | AlreadyKnown | GivenUp
"""A provider's outcome is an end as it is."""


class Work(msgspec.Struct, gc=False):
    """One delivery between its record and its settlement."""

    delivery: Delivery
    record: KafkaRecord
    intent: Intent = SEND
    """Written before the claim: by `ExpandStage._expand`, `binding.bind`, `SendGates.judge`,
    `Intake.prepared` and `batching.calls_of`."""
    end: End | None = None
    """Written once for each call. `LanePool` writes it in the thread that reads the answer, or in a lane's
    thread where the call blocked, failed or never began; the claim writes the ends of intake."""
    asked: tuple[str, str] | None = None
    """The account whose adapter was asked last, and its refusal; written by intake."""
    waits_for: tuple[LaneConfig, tuple[str, ...]] | None = None
    """The accounts that alone may send it under these terms, once that was asked; written by intake."""
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

    @property
    def bound(self) -> LaneConfig:
        """The terms, where it is known to have some."""
        assert self.terms is not None
        return self.terms

    @property
    def answer(self) -> AnyOutcome:
        """The outcome, where a call is known to have ended."""
        outcome = outcome_of(self.end)
        assert outcome is not None
        return outcome

    @property
    def reached_lane(self) -> bool:
        """Whether it ended in its lane: by an outcome, or because no call was started."""
        return self.end is not None and not isinstance(self.end, _OUTSIDE_LANE)

    @property
    def chosen(self) -> Route:
        """The route, where it is known to be chosen."""
        assert self.route is not None
        return self.route


_OUTSIDE_LANE: Final = (EndedAtClaim, AlreadyKnown, GivenUp)


class HandOver(msgspec.Struct, gc=False):
    """A `best_effort` delivery reached its lane's queue: that is where its offset may pass."""

    record: KafkaRecord


Finished = Work | HandOver
"""What settle takes in."""
