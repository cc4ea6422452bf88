"""Objects that move between the worker's stages. Each mutable field names its writers."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from dispatcher.kafka.offsets import Offsets
from dispatcher.pipeline.lane_config import LaneConfig
from message.delivery import Delivery
from message.envelope import Notification
from message.outcomes import AnyOutcome
from message.reasons import DUPLICATE_PREFILTER, is_final
from message.states import State
from message.vocabulary import Lane
from sending.attempts import PastCall
from sending.endings import NotStarted, outcome_of
from sending.lane_routes import Route


class PartitionState(Enum):
    """Ownership of a partition; only moves forward."""

    OWNED = 0
    REVOKING = 1
    """Being revoked: nothing more is claimed; claimed deliveries may still end and be committed."""
    LOST = 2
    """Lost: nothing is ever committed again under this assignment."""


class Assignment:
    """One partition for one stretch of ownership: the fence for commits.

    Written by the source's thread, except the two counters; other threads read `state`.
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
        """Number of records that were expanded; written by `Backlog`, in the thread of `ExpandStage`."""
        self.ended = 0
        """Number of expanded records whose last delivery ended; written by `CompletionStage`."""

    @property
    def busy(self) -> bool:
        """Whether a record of it is between expansion and settlement."""
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
        """Set by `Backlog` in the thread of `ExpandStage`; counted down by `CompletionStage`."""
        self.given_back = False
        """Whether a delivery was not started, so that the offset must not pass. Only ever set: by
        `CompletionStage`; by `Settle` before it passes the record on; by `ExpandStage` for a record that it
        passes over whole."""

    @property
    def size(self) -> int:
        """Bytes of its payload."""
        return len(self.payload)

    @property
    def weight(self) -> int:
        """Bytes that it holds while it is not done: neither its key nor its headers are kept."""
        return len(self.payload)


class Send(msgspec.Struct, frozen=True, gc=False):
    """The delivery goes to its provider."""


class Hold(msgspec.Struct, frozen=True, gc=False):
    """The delivery waits in the ledger, claimed by no process."""

    until_ms: int
    """Epoch milliseconds: the claim may have to wait for the ledger."""
    reason: str

    def wait_ms(self, now: int) -> int:
        """Returns the milliseconds that are left at `now`."""
        return max(self.until_ms - now, 0)


class Drop(msgspec.Struct, frozen=True, gc=False):
    """The delivery ends at its claim."""

    reason: str
    """`code: sentence`, or the code alone."""


class Park(msgspec.Struct, frozen=True, gc=False):
    """The delivery is parked at its claim: a person can mend the cause. `best_effort` lanes drop it."""

    reason: str
    """`code: sentence`."""


class Refuse(msgspec.Struct, frozen=True, gc=False):
    """The adapter of the chosen account can never send the delivery."""

    reason: str
    """`code: sentence`."""


Intent = Send | Hold | Drop | Park | Refuse
"""The decision before the claim. A Drop or a Park is final; a Hold comes before a Refuse, since the next
claim asks the adapter anew."""
SEND: Final = Send()
ENDS_AT_CLAIM: Final = frozenset({Drop, Park})
"""Types of the intents after which nothing is sent."""


def ended_by(reason: str) -> Drop | Park:
    """Returns the intent for a delivery that cannot be sent, by the reason's row in message/reasons.py."""
    return Drop(reason) if is_final(reason) else Park(reason)


class EndedAtClaim(msgspec.Struct, frozen=True, gc=False):
    """The claim entered the delivery and ended or parked it in the same statement."""

    state: State
    reason: str


class AlreadyKnown(msgspec.Struct, frozen=True, gc=False):
    """An earlier claim entered the delivery."""

    state: State | None
    """Its state by the ledger. None: a mark in Redis shows that it is settled, and not how. `best_effort`
    lanes take a mark for SENT."""
    reason: str

    @property
    def is_of_redis(self) -> bool:
        """Whether Redis knew it, not the ledger."""
        return self.state is None or self.reason == DUPLICATE_PREFILTER


class GivenUp(msgspec.Struct, frozen=True, gc=False):
    """The delivery was never claimed. The next reader of its record decides."""


GIVEN_UP: Final = GivenUp()
End = AnyOutcome | NotStarted | EndedAtClaim | AlreadyKnown | GivenUp
"""How a work ended; a provider's outcome is an end itself."""


class Work(msgspec.Struct, gc=False):
    """One delivery between its record and its settlement."""

    delivery: Delivery
    record: KafkaRecord
    intent: Intent = SEND
    """Written before the claim: by `ExpandStage._expand`, `binding.bind`, `SendGates.judge`,
    `Intake.prepared` and `batching.calls_of`; while the claim waits for the ledger by
    `SendGates.judge_again`."""
    end: End | None = None
    """Written once for each call. `LanePool` writes it in the thread that reads the answer, or in a lane's
    thread where the call blocked, failed or never began; the claim writes the ends of intake."""
    asked: tuple[str, str] | None = None
    """The account whose adapter was asked last, and its refusal; written by intake."""
    waits_for: tuple[LaneConfig, tuple[str, ...]] | None = None
    """The only accounts that may send it under these terms; None before `binding.waits_for` asked."""
    marked: bool = False
    """Whether a gate marked it as going; written by `SendGates.judge`."""
    terms: LaneConfig | None = None
    """The configuration that it acts under; written by `ExpandStage._expand`, then by `binding.bind`."""
    route: Route | None = None
    """Chosen by intake before the claim."""
    taken: bool = False
    """Whether it holds a place in its lane; written by `Intake.prepared`, under `claiming`."""
    claimed_at: int = 0
    started_at: int = 0
    answered_at: int = 0
    tries: tuple[PastCall, ...] = ()
    """The calls before the last; written by `attempts.on_record`, in the lane's thread."""
    term: int = 0
    """The term of the worker's lease under which it was claimed; written by `LedgerClaims`."""

    @property
    def bound(self) -> LaneConfig:
        """The terms of a work that has some."""
        assert self.terms is not None
        return self.terms

    @property
    def answer(self) -> AnyOutcome:
        """The outcome of a work whose call ended."""
        outcome = outcome_of(self.end)
        assert outcome is not None
        return outcome

    @property
    def reached_lane(self) -> bool:
        """Whether it ended in its lane: by an outcome, or because no call was started."""
        return self.end is not None and not isinstance(self.end, _OUTSIDE_LANE)

    @property
    def chosen(self) -> Route:
        """The route of a work that has one."""
        assert self.route is not None
        return self.route


_OUTSIDE_LANE: Final = (EndedAtClaim, AlreadyKnown, GivenUp)


class HandOver(msgspec.Struct, gc=False):
    """A `best_effort` delivery reached its lane's queue: its offset may pass now."""

    record: KafkaRecord


Finished = Work | HandOver
"""Items of settle's queue."""
