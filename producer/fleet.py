"""All processes of an installation: those with a heartbeat in the ledger, and the relays of the business's
database; and the kinds that the configuration calls for and of which none lives.

A relay without a ledger has its heartbeat row in the business's database alone. It carries no version.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from backends.metrics.families import CAMPAIGNS, GATEWAY, LOOKBACK, RELAY
from backends.settings import Settings
from backends.sql.database import Database
from hongyan_client.outbox.engine import OutboxWaits
from hongyan_client.outbox.relay_rows import RelayHeartbeat
from idempotency.fleet.snapshots import BacklogSnapshot, ProcessSnapshot
from idempotency.fleet.status import FleetStatus, Process
from idempotency.transactions import Clock
from producer.campaigns.store import CampaignStore
from producer.gateway.key_store import KeyStore
from producer.relay.opening import OutboxUnread, outbox_for_a_look
from producer.relay.reporter import ENDED

WAITS: Final = OutboxWaits(busy_s=2.0, statement_s=2.0, answer_s=2.0)
"""A person waits, and the rest of the page does not depend on the business's database."""
ASK_EVERY_S: Final = 10.0
"""Time for which a live page keeps the relays' rows. Relays write them every five seconds."""
_SHOWN_MS: Final = 86_400_000
_MS: Final = 1_000


class RelayLook(NamedTuple):
    """The relays' rows in the business's database."""

    beats: Sequence[RelayHeartbeat] = ()
    now_ms: int = 0
    """The business's database's time."""
    trouble: str = ""
    """Why they could not be read; empty: they were, or no outbox is configured."""


class FleetView(NamedTuple):
    """All processes, and what is missing."""

    processes: Sequence[Process]
    """As the ledger lists them: workers, then the other kinds."""
    now_ms: int
    """By the ledger's clock."""
    absent: Sequence[str]
    """Kinds that the configuration calls for and of which none lives."""
    outbox_trouble: str = ""
    """Why relays could not be looked for in the business's database."""
    outside: frozenset[str] = frozenset()
    """Relays that have no row in the ledger."""


class FleetReader:
    """Asks for relays and open work at most every `every_s` seconds. For one thread at a time."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        clock: Clock,
        every_s: float = ASK_EVERY_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._fleet = FleetStatus(database, clock)
        self._campaigns = CampaignStore(database, clock)
        self._keys = KeyStore(database, clock)
        self._every_s = every_s
        self._monotonic = monotonic
        self._relays = RelayLook()
        self._wanted: Sequence[str] = ()
        self._asked_at = float("-inf")

    def read(self) -> FleetView:
        """Returns all processes. Raises LedgerError; a business's database that is away is told in the
        result."""
        if self._monotonic() - self._asked_at >= self._every_s:
            self._wanted = self.wanted()
            self._relays = look_at_relays(self._settings)
            self._asked_at = self._monotonic()
        return fleet_view(self._fleet.processes(), self._wanted, self._relays, self._fleet.now_ms())

    def wanted(self) -> list[str]:
        """Returns the kinds of processes that configuration and open work call for, beside workers and
        recoveries. Raises LedgerError."""
        found = []
        if self._keys.live():
            found.append(GATEWAY)
        if self._settings.relay.outbox_url:
            found.append(RELAY)
        if self._campaigns.open_counts():
            found.append(CAMPAIGNS)
        if self._settings.lookback.biz_types:
            found.append(LOOKBACK)
        return found


def look_at_relays(settings: Settings) -> RelayLook:
    """Reads the rows of `relay.outbox_url`; none without one. Raises nothing."""
    if not settings.relay.outbox_url:
        return RelayLook()
    try:
        with outbox_for_a_look(settings, WAITS) as opened:
            return RelayLook(opened.rows.heartbeats(), opened.rows.now_ms())
    except OutboxUnread as exc:
        return RelayLook(trouble=str(exc))


def fleet_view(
    of_ledger: Sequence[Process], wanted: Sequence[str], relays: RelayLook, now_ms: int
) -> FleetView:
    """Returns all processes by kind. `now_ms` is the ledger's time; ages of relays are kept over the
    difference of the two databases' clocks."""
    known = {one.id for one in of_ledger}
    further = [one for one in relays_of(relays, now_ms) if one.id not in known]
    processes = sorted([*of_ledger, *further], key=lambda one: one.id)
    processes.sort(key=lambda one: one.kind, reverse=True)  # as the ledger lists them
    return FleetView(
        processes,
        now_ms,
        absent_kinds(wanted, processes),
        relays.trouble,
        frozenset(one.id for one in further),
    )


def absent_kinds(wanted: Iterable[str], processes: Iterable[Process]) -> list[str]:
    """Returns the wanted kinds of which no process lives."""
    living = {one.kind for one in processes if not one.lost}
    return [kind for kind in wanted if kind not in living]


def relays_of(look: RelayLook, now_ms: int) -> list[Process]:
    """Returns the relays as processes: those that did not end, seen within a day."""
    apart = now_ms - look.now_ms
    return [
        Process(
            id=one.name,
            kind=RELAY,
            state=one.state.upper(),
            host=one.host,
            pid=one.pid,
            lanes=[],
            threads=0,
            program="",
            started_at=one.started_at + apart,
            heartbeat_at=one.heartbeat_at + apart,
            lost=one.lost_at(look.now_ms),
            snapshot=ProcessSnapshot(
                backlog=BacklogSnapshot(one.pending, one.oldest_ms / _MS, one.parked)
            ),
        )
        for one in look.beats
        if one.state != ENDED and look.now_ms - one.heartbeat_at < _SHOWN_MS
    ]
