"""Claims that ride along with a settlement: one round trip, one commit, for what ends and what begins.

At saturation every place that a claim takes was freed by a settlement. Apart, each pays its own way to the
database and back, and a place stands empty in between (docs/decisions/050-claims-ride-along.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dispatcher.pipeline.claims import LedgerClaims
from dispatcher.pipeline.intake import Intake
from idempotency.ledger import LedgerUnavailable, Settlement

_WAIT_S: Final = 0.02
"""How long a settlement waits for a claim under way; one that waits for others' lines may take seconds."""


class CombinedCommit:
    """Intake's claims, made by settle's thread."""

    def __init__(self, intake: Intake, gate: LedgerClaims) -> None:
        self._intake = intake
        self._gate = gate

    def settle(
        self, settlements: Sequence[Settlement], freed: Mapping[str, int]
    ) -> list[bool] | None:
        """Commit the outcomes, which free so many places a lane, together with claims for these; as
        `Ledger.settle`. None: there is nothing to claim, or intake is at it; nothing was done. Raises
        LedgerUnavailable only when the worker stops."""
        if not self._intake.claiming.acquire(timeout=_WAIT_S):
            return None
        try:
            return self._together(settlements, freed)
        finally:
            self._intake.claiming.release()

    def _together(
        self, settlements: Sequence[Settlement], freed: Mapping[str, int]
    ) -> list[bool] | None:
        works = self._intake.take(freed, self._gate.rides)
        if not works:
            return None
        calls = self._intake.prepared(works)
        try:
            written, answered = self._gate.settle_and_claim(settlements, works)
        except LedgerUnavailable:
            self._intake.abandon(works)
            raise
        if answered is None:
            self._intake.admit(works, calls)
        else:
            self._intake.claimed(calls, *answered)
        return written
