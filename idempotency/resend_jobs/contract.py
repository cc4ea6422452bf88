"""Resend jobs: their states and moves, their items' fates, and the values that they are made of.

FREEZING   the selection becomes items, page by page
PREVIEW    a person looks at the counts; the preview is signed and expires
WAITING    a second person must approve
CHECKING   each eligible row is compared with the frozen one
CANARY     the first items are handed over, and their ends awaited
RUNNING    the others follow, at a bounded rate
PAUSED     by a person, or by itself
ENDING     nothing more is handed over but copies that are APPLYING; the last ends are awaited
DONE, CANCELLED, REFUSED, LAPSED    ended
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec


class ResendMode(StrEnum):
    """Ways to send an item."""

    AGAIN = "again"
    """The same delivery, under its own key."""
    COPY = "copy"
    """A second notification, under an id of its own."""


class JobState(StrEnum):
    """States of a job."""

    FREEZING = "FREEZING"
    PREVIEW = "PREVIEW"
    WAITING = "WAITING"
    CHECKING = "CHECKING"
    CANARY = "CANARY"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    ENDING = "ENDING"
    DONE = "DONE"
    CANCELLED = "CANCELLED"
    REFUSED = "REFUSED"
    LAPSED = "LAPSED"


_J = JobState
JOB_MOVES: Final[dict[JobState, frozenset[JobState]]] = {
    _J.FREEZING: frozenset({_J.PREVIEW, _J.CANCELLED}),
    _J.PREVIEW: frozenset({_J.WAITING, _J.CHECKING, _J.CANCELLED, _J.REFUSED, _J.LAPSED}),
    _J.WAITING: frozenset({_J.CHECKING, _J.CANCELLED, _J.REFUSED, _J.LAPSED}),
    _J.CHECKING: frozenset({_J.CANARY, _J.PAUSED, _J.CANCELLED, _J.REFUSED}),
    _J.CANARY: frozenset({_J.RUNNING, _J.PAUSED, _J.ENDING}),
    _J.RUNNING: frozenset({_J.PAUSED, _J.ENDING}),
    # Back to where it was, or to the end.
    _J.PAUSED: frozenset({_J.CHECKING, _J.CANARY, _J.RUNNING, _J.ENDING, _J.CANCELLED}),
    _J.ENDING: frozenset({_J.DONE, _J.CANCELLED}),
}
"""The only moves of a job."""
OVER: Final = frozenset({_J.DONE, _J.CANCELLED, _J.REFUSED, _J.LAPSED})
"""States after which nothing happens; the index `resend_jobs_open` leaves them out."""


class ItemFate(StrEnum):
    """Fates of an item."""

    INELIGIBLE = "INELIGIBLE"
    """Never part of the preview's count; `why` says the reason."""
    PENDING = "PENDING"
    """To be handed over. It stays so if the job is cancelled."""
    APPLYING = "APPLYING"
    """Its copy is being produced. Without an acknowledgement it is produced once more, under the same id,
    also for a cancelled job: Kafka may have it."""
    APPLIED = "APPLIED"
    """Handed to recovery, or its copy to Kafka; it has not ended."""
    SENT = "SENT"
    FAILED = "FAILED"
    """It was tried and ended badly."""
    REFUSED = "REFUSED"
    """Nothing was sent: recalled, moved, or gone since the preview."""


UNDER_WAY: Final = (ItemFate.APPLYING, ItemFate.APPLIED)
"""Fates that the index `resend_job_items_under_way` holds."""
SENT_BEFORE: Final = "sent"
IN_FLIGHT: Final = "in_flight"
PENDING: Final = "pending"
IN_DOUBT: Final = "in_doubt"
EXPIRED: Final = "expired"
RECALLED: Final = "recalled"
DROPPED: Final = "dropped"
UNKNOWN_NAME: Final = "unknown"
MOVED: Final = "moved"
GONE: Final = "gone"
WHYS: Final = (
    *(SENT_BEFORE, IN_FLIGHT, PENDING, IN_DOUBT, EXPIRED, RECALLED, DROPPED, UNKNOWN_NAME),
    *(MOVED, GONE),
)
"""Reasons for which an item is not eligible, or was refused when its turn came."""
NAMES_AT_MOST: Final = 1_000_000
"""Uploaded names of one job."""


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selection of a job: by state, lane and time, or by uploaded names (then `states` is empty).

    With names, `lanes` are those whose rows may be selected, if there are any: a name of another lane is
    unknown to the job.
    """

    states: Sequence[str] = ()
    lanes: Sequence[str] = ()
    since: int = 0
    """Earliest start of the row's state, epoch milliseconds."""
    until: int = 0
    """Latest start of it; 0: the creation of the job."""
    account: str = ""
    """The account of its last call."""
    reason: str = ""
    """The row's, up to its first colon."""
    template: str = ""
    in_doubt: bool = False
    """Rows that an earlier call may have sent are eligible, too."""
    expired: bool = False
    """Rows past their time are eligible, too; they live once more for their lane's TTL."""


class JobLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a job, fixed at its creation."""

    canary: int = 50
    """Items that go first."""
    rate_per_s: float = 50.0
    """Items handed over a second, at most."""
    error_rate: float = 0.1
    """Share of bad ends from which the job pauses itself."""
    approve_above: int = 1_000
    """Eligible items above which a second person must approve."""
    preview_s: float = 900.0
    """Life of a preview, and of a start that waits for its approval."""


class Baseline(msgspec.Struct, frozen=True):
    """Ends that are not judged: those from before the last start or resume."""

    sent: int = 0
    failed: int = 0
    since: int = 0
    """Items handed over earlier are not judged while they are under way; epoch milliseconds."""


class FreezePlace(msgspec.Struct, frozen=True):
    """The place from which freezing or checking goes on."""

    pair: int = 0
    """Number of the state and lane, in the filter's order."""
    at: int = 0
    after: str = ""
    number: int = 0
    """Of the last name; of checking, the rows that moved."""
    digest: str = ""
    """Of checking: the sum so far."""


class ResendJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job, as its row has it. Times are epoch milliseconds."""

    id: str
    mode: ResendMode
    state: JobState
    version: int
    wanted: JobFilter
    limits: JobLimits
    author: str
    reason: str
    created_at: int
    place: FreezePlace
    frozen_at: int | None
    preview_until: int | None
    digest: str
    items: int
    eligible: int
    started_by: str | None
    started_at: int | None
    start_reason: str | None
    approved_by: str | None
    approved_at: int | None
    since: int
    paced_at: int | None
    baseline: Baseline
    paused_from: JobState | None
    noted_by: str | None
    note: str | None
    cancelled: bool
    ended_at: int | None

    @property
    def needs_approval(self) -> bool:
        """Whether a second person must approve it."""
        return self.eligible > self.limits.approve_above

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens to it."""
        return self.state in OVER


class JobCount(NamedTuple):
    """Number of equal items."""

    lane: str
    account: str
    fate: ItemFate
    why: str
    items: int


class JobItem(NamedTuple):
    """One item. Times are epoch milliseconds."""

    delivery_key: str
    day: int
    row_version: int
    attempt: int
    """Of the row, as it was frozen."""
    state: str
    lane: str
    account: str
    fate: ItemFate
    why: str
    new_id: str | None
    new_key: str | None
    applied_at: int | None
    ended_at: int | None


class ItemChange(NamedTuple):
    """A new fate for one item."""

    delivery_key: str
    fate: ItemFate
    why: str = ""
    new_id: str | None = None
    new_key: str | None = None


class JobOvertaken(Exception):
    """The job was written by another process or person meanwhile; nothing was done."""


def can_move(state: JobState, target: JobState) -> bool:
    """Returns whether a job may go from `state` to `target`."""
    return target in JOB_MOVES.get(state, frozenset())
