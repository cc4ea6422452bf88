"""Scope of a run of the lost job, from the run before it; figures of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any

from spark_jobs.positions import Positions


@dataclass(frozen=True)
class RunScope:
    """The part that the run before left to do; the defaults: all of it."""

    run: int = 0
    """The last lost run that ended well."""
    decided: Positions | None = None
    """Its positions: it has decided about every record below them."""
    since: date | None = None
    """The first day with an undecided record; None: unknown."""
    hours_from: int | None = 0
    """Start of the first hour whose counts are compared; None: no hour's."""
    restored_at: int = 0
    """Epoch milliseconds of the run that first saw the ledger's identity after another one: the ledger may
    lack rows of everything before. 0: no run saw another identity."""


@dataclass(frozen=True)
class LossFigures:
    """Figures of one run."""

    findings: Mapping[str, int]
    """Candidates by cause."""
    undecided: int
    """Records looked at."""
    asked: int
    """Keys of which the ledger was asked."""
    ledger_rows: int
    """Rows that the ledger gave."""
    lag_ms: int
    """The replica's."""
    oldest_day: str | None
    """The first day with a record that is still undecided."""
    hours_from: int | None
    compared: int
    """Deliveries of the hours compared."""
    looked: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By cause, the lanes about which the run knows everything."""
    milliseconds: Mapping[str, int] = field(default_factory=dict)
    spared: int = 0
    """Look-ups in archived days that a filter made needless."""
    restored_at: int = 0
    """As in the scope, for the next run."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
