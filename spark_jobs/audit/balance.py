"""The equations of an hour, and which differences are explained. Pure: counts in, rows out.

    ledger      passed deliveries = rows of the same offsets
    trace       deliveries seen by a worker = all that were alive
    receipts    sent by an account that reports = receipts

An explanation takes at most what it can prove, in a fixed order; what is left is `open`.

    found          the lost job has it on record
    elsewhere      its key is in another hour, too, and the ledger has it once
    no_ledger      the lane keeps none
    replaced       its topic was made anew: offsets name two records
    waiting        at or above the committed offset, without a row yet
    fresh          its row was written after the trace was read
    quiet          the lane's policy leaves it out of the trace
    gap            events that a life is known to have lost
    killed         a life ended without its last record: nobody knows how many it lost
    due            a receipt may still come
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from spark_jobs.audit.counts import HOUR_MS

GAP_LAG_MS: Final = 600_000
"""An event may be written so much later than its hour ends."""
PROVED: Final = ("passed", "removed", "forgotten")
SILENT: Final = "silent"


@dataclass(frozen=True)
class HourCounts:
    """All counts of one lane and hour."""

    lane: str
    hour: int
    kafka: int = 0
    dead: int = 0
    passed: int = 0
    ahead: int = 0
    elsewhere: int = 0
    replaced: int = 0
    traced: int = 0
    quiet: int = 0
    unseen: int = 0
    sent: int = 0
    receipts: int = 0
    due: int = 0
    silent: int = 0
    doubled: int = 0
    rows_passed: int = 0
    """Ledger rows of passed offsets."""
    rows_ahead: int = 0
    fresh: int = 0
    found: Mapping[str, int] = field(default_factory=dict)
    """Findings by cause."""
    holes: int = 0
    """Offsets that were gone before they were read; in no equation, since nobody can count deliveries."""
    has_ledger: bool = True


@dataclass
class Life:
    """A life's budget of lost events; explanations use it up."""

    first_at: int
    last_at: int
    lost: int
    killed: bool

    def covers(self, hour: int) -> bool:
        """Returns True if it was at work in the hour, or soon after."""
        return self.first_at < hour + HOUR_MS + GAP_LAG_MS and self.last_at >= hour


@dataclass(frozen=True)
class AuditRow:
    """One row for `trace_audits`."""

    hour: int
    lane: str
    counts: Mapping[str, Any]
    unexplained: int


class Difference:
    """A difference that explanations reduce."""

    def __init__(self, count: int) -> None:
        self.left = max(count, 0)
        self.explained: dict[str, int] = {}

    def take(self, cause: str, most: int) -> None:
        """Explains up to `most` by the cause."""
        part = min(self.left, max(most, 0))
        if part:
            self.explained[cause] = self.explained.get(cause, 0) + part
            self.left -= part


def balanced(counts: Iterable[HourCounts], lives: Sequence[Life]) -> list[AuditRow]:
    """Returns a row per lane and hour, hours in order: a life's budget goes to the earliest first."""
    return [_row(one, lives) for one in sorted(counts, key=lambda one: (one.hour, one.lane))]


def _row(one: HourCounts, lives: Sequence[Life]) -> AuditRow:
    waiting = max(one.ahead - one.rows_ahead, 0) if one.has_ledger else one.ahead
    ledger, surplus = _ledger(one)
    trace = _trace(one, waiting, lives)
    receipts = Difference(one.due + one.silent)
    receipts.take("due", one.due)
    receipts.take("found", one.found.get(SILENT, 0))
    open_ = {
        "ledger": ledger.left,
        "surplus": surplus.left,
        "trace": trace.left,
        "receipts": receipts.left,
    }
    sides = {"ledger": ledger, "surplus": surplus, "trace": trace, "receipts": receipts}
    counts = {
        "kafka": one.kafka,
        "ledger": one.rows_passed + one.rows_ahead if one.has_ledger else None,
        "dead": one.dead,
        "waiting": waiting,
        "traced": one.traced,
        "sent": one.sent,
        "receipts": one.receipts,
        "doubled": one.doubled,
        "holes": one.holes,
        "explained": {name: side.explained for name, side in sides.items() if side.explained},
        "open": {name: left for name, left in open_.items() if left},
    }
    return AuditRow(one.hour, one.lane, counts, sum(open_.values()))


def _ledger(one: HourCounts) -> tuple[Difference, Difference]:
    """Returns what the ledger lacks, and what it has beyond Kafka."""
    if not one.has_ledger:
        lacks = Difference(one.passed)
        lacks.take("no_ledger", one.passed)
        return lacks, Difference(0)
    lacks = Difference(one.passed - one.rows_passed)
    lacks.take("found", sum(one.found.get(cause, 0) for cause in PROVED))
    lacks.take("elsewhere", one.elsewhere)
    lacks.take("replaced", one.replaced)
    beyond = max(one.rows_passed - one.passed, 0) + max(one.rows_ahead - one.ahead, 0)
    surplus = Difference(beyond)
    surplus.take("elsewhere", one.elsewhere)
    surplus.take("replaced", one.replaced)
    return lacks, surplus


def _trace(one: HourCounts, waiting: int, lives: Sequence[Life]) -> Difference:
    lacks = Difference(one.quiet + one.unseen)
    lacks.take("quiet", one.quiet)
    lacks.take("waiting", waiting)
    lacks.take("found", sum(one.found.get(cause, 0) for cause in PROVED))
    lacks.take("fresh", one.fresh)
    lacks.take("elsewhere", one.elsewhere)
    for life in lives:
        if lacks.left and life.covers(one.hour):
            before = lacks.left
            lacks.take("gap", life.lost)
            life.lost -= before - lacks.left
    if lacks.left and any(life.killed and life.covers(one.hour) for life in lives):
        lacks.take("killed", lacks.left)
    return lacks
