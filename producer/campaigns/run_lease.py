"""The lease of one campaign: one process at a time sends its rows.

The database's clock decides who has it. A process that slept past it sends nothing more: it compares its
own monotonic clock, less a margin, before it produces.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol

import structlog

from idempotency.ledger import LedgerError

log = structlog.get_logger(__name__)
_MARGIN: Final = 0.2
_RENEWALS: Final = 3
_MS: Final = 1_000


class DutyStore(Protocol):
    """Duties (idempotency/fleet/duties.py)."""

    def hold(self, duty: str, holder: str, lease_ms: int) -> bool:
        """Takes or renews a duty. Returns False if another process has it."""
        ...

    def held(self, duties: Collection[str]) -> frozenset[str]:
        """Returns those of the duties that a process has now."""
        ...

    def drop(self, duty: str, holder: str) -> None:
        """Gives the duty up."""
        ...


def duty_of(campaign_id: str) -> str:
    """Returns the name of a campaign's duty."""
    return f"campaign:{campaign_id}"


class RunLease:
    """For one thread at a time: the runner's thread takes it and hands it to the run's thread."""

    def __init__(
        self,
        duties: DutyStore,
        campaign_id: str,
        holder: str,
        lease_s: float,
        monotonic: Callable[[], float],
    ) -> None:
        self._duties = duties
        self._duty = duty_of(campaign_id)
        self._holder = holder
        self._lease_s = lease_s
        self._monotonic = monotonic
        self._renew_at = float("-inf")
        self._valid_until = float("-inf")
        self.lapses = 0
        """Times that the lease was taken again after it had lapsed: another process may have had it."""

    def take(self) -> bool:
        """Returns whether this process has the lease now. Raises LedgerError."""
        asked = self._monotonic()
        if not self._duties.hold(self._duty, self._holder, int(self._lease_s * _MS)):
            self._valid_until = float("-inf")
            return False
        if asked >= self._valid_until and self._renew_at > float("-inf"):
            self.lapses += 1
        self._renew_at = asked + self._lease_s / _RENEWALS
        self._valid_until = asked + self._lease_s * (1 - _MARGIN)
        return True

    def holds(self) -> bool:
        """Returns whether rows may be produced; renews the lease in time. Without a database it lapses."""
        now = self._monotonic()
        if now >= self._renew_at:
            try:
                self.take()
            except LedgerError as exc:
                log.warning("campaign_lease_not_renewed", duty=self._duty, cause=str(exc))
                self._renew_at = now + self._lease_s / _RENEWALS / _RENEWALS
        return self._monotonic() < self._valid_until

    def drop(self) -> None:
        """Gives the lease up; without a database it lapses."""
        self._valid_until = float("-inf")
        try:
            self._duties.drop(self._duty, self._holder)
        except LedgerError as exc:
            log.info("campaign_lease_lapses", duty=self._duty, cause=str(exc))
