"""Alerts about the fleet: one process at a time asks the ledger, and does the upkeep of all alerts.

The duty moves to another process when its holder ends or is paused. So no alert depends on a running
recovery, or on the process that raised it.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import structlog

from backends.metrics.readings import Reading
from backends.metrics.shared_families import (
    LOST_FINDINGS,
    OUTCOMES_OLDEST_SECONDS,
    OUTCOMES_WAITING,
    OVERDUE_SECONDS,
)
from backends.settings import AlertSettings
from idempotency.fleet.controls import LanePause
from idempotency.fleet.health import HEARTBEAT_LOST, Lost, Overdue
from idempotency.ledger import LedgerError
from idempotency.lost.findings import FindingCount, FindingStatus
from idempotency.outcomes.outbox import OutcomesWaiting
from sending.alerts.notifier import Alert, AlertNotifier

log = structlog.get_logger(__name__)
DUTY: Final = "alerts"
LEASE_S: Final = 15.0
CLEAR_S: Final = 30.0
"""A lasting alert that no process raised for so long is over. The ledger must have answered for as long
before an alert counts as over or a process as lost: after an outage every time in it is old."""
OVERDUE_EVERY_S: Final = 10.0
_MS: Final = 1_000
_FATES: Final = {
    FindingStatus.NEW: "to be entered by recovery",
    FindingStatus.ASKED: "for a person to decide",
    FindingStatus.RESENT: "sent again",
    FindingStatus.EXPIRED: "found too late",
}


class Asked(Protocol):
    """Queries of the ledger (idempotency/fleet/health.py). Raises LedgerError."""

    def lost(self, within_ms: int) -> list[Lost]:
        """Returns workers and recoveries lost in the last `within_ms` and without an alert yet."""
        ...

    def doubts(self, age_ms: int) -> dict[str, int]:
        """Returns, by lane, the age of its oldest doubt in milliseconds, if that is at least `age_ms`."""
        ...

    def overdue(self, lanes: Sequence[str]) -> list[Overdue]:
        """Returns, for each lane, the time for which its oldest row waits for recovery."""
        ...

    def outcomes_waiting(self) -> list[OutcomesWaiting]:
        """Returns the outcome events that are not published, by target."""
        ...

    def findings(self, within_ms: int) -> list[FindingCount]:
        """Returns the deliveries found lost that are undecided, or found and entered since then."""
        ...


class PausesInForce(Protocol):
    """See `idempotency.fleet.controls.Controls`. Raises LedgerError."""

    def pauses(self) -> list[LanePause]:
        """Returns the pauses in force."""
        ...

    def now_ms(self) -> int:
        """Returns the database's time, epoch milliseconds."""
        ...


class Holding(Protocol):
    """See `idempotency.fleet.duties.Duties`. Raises LedgerError."""

    def hold(self, duty: str, holder: str, lease_ms: int) -> bool:
        """Takes or renews a duty. Returns False if another holder has it."""
        ...

    def drop(self, duty: str, holder: str) -> None:
        """Gives the duty up."""
        ...


class FleetAlerts:
    """The thread of `AlertMonitor` calls `look` and `stop`; any thread may call `readings`."""

    def __init__(
        self,
        desk: AlertNotifier,
        asked: Asked,
        duties: Holding,
        settings: AlertSettings,
        lanes: Sequence[str],
        *,
        pauses: PausesInForce,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`lanes` are all lanes, even those that no process serves."""
        self._pauses = pauses
        self._desk = desk
        self._asked = asked
        self._duties = duties
        self._settings = settings
        self._lanes = lanes
        self._monotonic = monotonic
        self._holder = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._answers_since = float("-inf")
        self._overdue_at = float("-inf")
        self._overdue: tuple[float, Sequence[Overdue]] = (float("-inf"), ())
        """End of validity, and measurements; `look` replaces it as a whole."""
        self._outcomes: Sequence[OutcomesWaiting] = ()
        """Measured with `_overdue`; `look` replaces it as a whole."""
        self._findings: Sequence[FindingCount] = ()
        """As `_outcomes`."""
        self._going_on: set[tuple[str, str]] = set()
        """Lasting alerts that the last look found."""

    def look(self) -> None:
        """Raises and sends the fleet's alerts, if this process has the duty. Throws nothing."""
        try:
            if self._duties.hold(DUTY, self._holder, int(LEASE_S * _MS)):
                self._look()
        except LedgerError as exc:
            self._answers_since = self._monotonic()
            log.debug("ledger_not_asked", cause=str(exc))

    def stop(self) -> None:
        """Leaves the duty to another process."""
        try:
            self._duties.drop(DUTY, self._holder)
        except LedgerError as exc:
            log.debug("duty_not_dropped", cause=str(exc))

    def readings(self) -> Iterable[Reading]:
        """Yields the last measurements, if this process has the duty."""
        valid_until, overdue = self._overdue
        if self._monotonic() >= valid_until:
            return
        for one in overdue:
            for what, ms in (("due", one.due_ms), ("doubt", one.doubt_ms)):
                yield Reading(OVERDUE_SECONDS, {"lane": one.lane, "about": what}, ms / _MS)
        for waiting in self._outcomes:
            target = {"target": waiting.target}
            yield Reading(OUTCOMES_WAITING, target, waiting.ends)
            yield Reading(OUTCOMES_OLDEST_SECONDS, target, waiting.oldest_ms / _MS)
        for found in self._findings:
            labels = {"lane": found.lane, "cause": found.cause, "status": found.status.value}
            yield Reading(LOST_FINDINGS, labels, found.findings)

    def _look(self) -> None:
        settled = self._monotonic() - self._answers_since >= CLEAR_S
        if settled:
            for lost in self._asked.lost(int(self._settings.window_s * _MS)):
                self._desk.raise_(_of_lost(lost), after=lost.heartbeat_at)
        paused = self._pauses.pauses()
        self._measure(frozenset(pause.lane for pause in paused))
        lasting = [*self._doubts(), *self._late(), *self._paused(paused), *self._unpublished()]
        self._raise_lasting([*lasting, *self._lost()])
        self._desk.flush()
        self._desk.upkeep(CLEAR_S if settled else 0.0)

    def _raise_lasting(self, alerts: Sequence[Alert]) -> None:
        for alert in alerts:
            self._desk.raise_(alert, count=int(alert.subject not in self._going_on))
        self._going_on = {alert.subject for alert in alerts}

    def _doubts(self) -> Iterable[Alert]:
        age_ms = int(self._settings.unknown_s * _MS)
        for lane, found_ms in (self._asked.doubts(age_ms) if age_ms else {}).items():
            text = f"a delivery has been in doubt for {found_ms / _MS:,.0f} s"
            yield Alert("unknown_age", lane, "", text)

    def _paused(self, pauses: Sequence[LanePause]) -> Iterable[Alert]:
        limit_ms = int(self._settings.paused_s * _MS)
        if not (limit_ms and pauses):
            return
        now = self._pauses.now_ms()
        for pause in pauses:
            if now - pause.paused_at >= limit_ms:
                text = f"the lane has been paused for {(now - pause.paused_at) / _MS:,.0f} s"
                yield Alert("lane_paused", pause.lane, "", text)

    def _measure(self, paused: frozenset[str]) -> None:
        """Asks the ledger for the waits, every few looks. Due rows of a paused lane wait on purpose."""
        now = self._monotonic()
        if now - self._overdue_at >= OVERDUE_EVERY_S:
            self._overdue_at = now
            self._outcomes = self._asked.outcomes_waiting()
            self._findings = self._asked.findings(int(self._settings.window_s * _MS))
            found = self._asked.overdue(self._lanes) if self._settings.overdue_s else ()
            measured = [one._replace(due_ms=0) if one.lane in paused else one for one in found]
            self._overdue = now + 3 * OVERDUE_EVERY_S, measured

    def _unpublished(self) -> Iterable[Alert]:
        limit_ms = int(self._settings.outcomes_s * _MS)
        for one in self._outcomes:
            if limit_ms and one.oldest_ms >= limit_ms:
                text = (
                    f"{one.ends:,} outcome events wait for the {one.target},"
                    f" the oldest for {one.oldest_ms / _MS:,.0f} s; deliveries go on"
                )
                yield Alert("outcomes_late", "", one.target, text)

    def _lost(self) -> Iterable[Alert]:
        by_cause: dict[tuple[str, str], list[FindingCount]] = {}
        for one in self._findings:
            by_cause.setdefault((one.lane, one.cause), []).append(one)
        for (lane, cause), counts in by_cause.items():
            parts = [f"{one.findings:,} {_FATES[one.status]}" for one in counts]
            text = f"deliveries were found lost: {', '.join(parts)}; see `hongyan lost list`"
            yield Alert("lost", lane, cause, text)

    def _late(self) -> Iterable[Alert]:
        limit_ms = int(self._settings.overdue_s * _MS)
        for one in self._overdue[1]:
            if one.due_ms >= limit_ms:
                yield _of_late(one.lane, "due", "to be sent again", one.due_ms)
            if one.doubt_ms >= limit_ms:
                yield _of_late(one.lane, "doubt", "to be asked about", one.doubt_ms)


def _of_late(lane: str, about: str, what: str, age_ms: int) -> Alert:
    text = f"a delivery has waited {what} for {age_ms / _MS:,.0f} s and no recovery takes it"
    return Alert("recovery_overdue", lane, about, text)


def _of_lost(lost: Lost) -> Alert:
    text = f"{lost.id} (pid {lost.pid} on {lost.host}) ended without a farewell"
    return Alert(HEARTBEAT_LOST, "", lost.id, text)
