"""Campaigns and runs: their states and moves, and the values that they are made of.

NEW        made; nobody started it
WAITING    a second person must approve
SCHEDULED  waits for its next time
RUNNING    a run is open
PAUSED     by a person, or by itself
DONE, CANCELLED    ended

Times are epoch milliseconds by the database's clock.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal, NamedTuple

import msgspec

BY_ITSELF: Final = "campaigns"
"""Name on a campaign that its process paused."""
KEPT_BAD_ROWS: Final = 10_000
"""Bad rows of a run that are kept with their reason; the others are counted."""


class CampaignState(StrEnum):
    """States of a campaign."""

    NEW = "NEW"
    WAITING = "WAITING"
    SCHEDULED = "SCHEDULED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    DONE = "DONE"
    CANCELLED = "CANCELLED"


_S = CampaignState
CAMPAIGN_MOVES: Final[dict[CampaignState, frozenset[CampaignState]]] = {
    _S.NEW: frozenset({_S.WAITING, _S.SCHEDULED, _S.CANCELLED}),
    _S.WAITING: frozenset({_S.SCHEDULED, _S.CANCELLED}),
    # To itself: a late time of a cron was passed over.
    _S.SCHEDULED: frozenset({_S.RUNNING, _S.PAUSED, _S.DONE, _S.CANCELLED}),
    # A cron waits for its next time after each run.
    _S.RUNNING: frozenset({_S.SCHEDULED, _S.PAUSED, _S.DONE, _S.CANCELLED}),
    _S.PAUSED: frozenset({_S.SCHEDULED, _S.RUNNING, _S.CANCELLED}),
}
"""The only moves of a campaign."""
CAMPAIGN_OVER: Final = frozenset({_S.DONE, _S.CANCELLED})
"""States after which nothing happens."""


class RunState(StrEnum):
    """States of a run."""

    OPEN = "OPEN"
    """Being sent, or paused."""
    DONE = "DONE"
    CANCELLED = "CANCELLED"


class CrowdSource(msgspec.Struct, frozen=True, kw_only=True):
    """A crowd file as it was at the campaign's creation."""

    path: str
    """Absolute."""
    format: Literal["csv", "jsonl"]
    packed: bool = False
    """Whether it is a gzip file."""
    encoding: Literal["utf-8", "gb18030"] = "utf-8"
    separator: str = ","
    """Between the cells of CSV."""
    size: int
    sha256: str
    rows: int


class CrowdColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Use of the file's columns."""

    receiver: str = "receiver"
    biz_id: str = ""
    """Empty: notifications have none."""
    variables: dict[str, str] = {}
    """Columns by the template's variable."""
    constants: dict[str, str] = {}
    """Texts by variable, the same for each row."""


class CampaignSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """Times of the runs. Exactly one of `at` and `cron`."""

    at: int = 0
    """The one run; 0: see `cron`."""
    cron: str = ""
    zone: str = "Asia/Shanghai"
    """As in the IANA time zone database."""


class CampaignLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a campaign, fixed at its creation."""

    rate_per_s: float = 200.0
    hours: str = ""
    """`HH:MM-HH:MM` in the schedule's zone, in which rows are sent; empty: at any time."""
    error_rate: float = 0.1
    """Share of bad rows from which a run pauses itself."""
    approve_above: int = 1_000
    """Rows above which a second person must approve the start."""
    once_per_receiver: bool = False
    ttl_ms: int | None = None
    account: str | None = None
    late_s: float = 3_600.0
    """A cron's time that nobody ran for so long is passed over."""


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """One campaign, as its row has it."""

    id: str
    state: CampaignState
    version: int
    lane: str
    template: str
    crowd: CrowdSource
    columns: CrowdColumns
    schedule: CampaignSchedule
    limits: CampaignLimits
    author: str
    reason: str
    created_at: int
    started_by: str | None = None
    started_at: int | None = None
    approved_by: str | None = None
    approved_at: int | None = None
    next_at: int | None = None
    run_id: str | None = None
    since: int
    paused_from: CampaignState | None = None
    noted_by: str | None = None
    note: str | None = None
    ended_at: int | None = None

    @property
    def needs_approval(self) -> bool:
        """Whether a second person must approve its start."""
        return self.crowd.rows > self.limits.approve_above

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens to it."""
        return self.state in CAMPAIGN_OVER


class RunBaseline(msgspec.Struct, frozen=True):
    """Rows that are not judged: those before the last resume."""

    done: int = 0
    bad: int = 0


class RunPlace(msgspec.Struct, frozen=True):
    """A checkpoint: every row up to here is settled."""

    place: int = 0
    """Bytes of the unpacked file."""
    line: int = 0
    """Number of the last line of the last row, from 1."""
    done: int = 0
    """Rows: those sent, the bad and the repeated ones."""
    sent: int = 0
    bad: int = 0
    repeated: int = 0


class CampaignRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run, as its row has it."""

    id: str
    campaign_id: str
    state: RunState
    version: int
    due_at: int
    started_at: int
    updated_at: int
    ended_at: int | None = None
    place: int = 0
    line: int = 0
    done: int = 0
    sent: int = 0
    bad: int = 0
    repeated: int = 0
    baseline: RunBaseline = RunBaseline()
    positions: dict[int, int] = {}

    @property
    def reached(self) -> RunPlace:
        """The checkpoint."""
        return RunPlace(self.place, self.line, self.done, self.sent, self.bad, self.repeated)


class BadRow(NamedTuple):
    """A row that was not sent. `line` is its first one."""

    line: int
    code: str
    detail: str


class CampaignRefused(Exception):
    """A person's order was not carried out; the text says why, in one sentence."""


class CampaignOvertaken(Exception):
    """The row was written by another process or person meanwhile; nothing was done."""


def can_move(state: CampaignState, target: CampaignState) -> bool:
    """Returns whether a campaign may go from `state` to `target`."""
    return target in CAMPAIGN_MOVES.get(state, frozenset())


def run_id_of(campaign_id: str, due_at: int) -> str:
    """Returns the name of a campaign's run; the same time is the same run."""
    return f"{campaign_id}.{due_at}"
