"""Looks for campaigns that are due, and sends the open runs, each in a thread of its own.

Several processes share the campaigns: a lease in the database gives each campaign to one of them. A look
takes the leases, at most MOST_RUNS of them. A run outside its hours needs none. Nothing is kept in memory
alone. After a crash the next look of any process with a free place goes on from the checkpoint.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import structlog

from backends.kafka.clients import KafkaTrouble
from backends.sql.errors import SqlError
from hongyan_client.errors import ClientClosed
from idempotency.fleet.snapshots import BacklogSnapshot
from idempotency.ledger import LedgerError
from policy.templates.loading import TemplateFileError
from producer.campaigns.contract import (
    BY_ITSELF,
    Campaign,
    CampaignOvertaken,
    CampaignRefused,
    CampaignState,
)
from producer.campaigns.crowd_file import CrowdUnusable
from producer.campaigns.row_publisher import OnRowAccepted, PublishesRecords, RunTrouble
from producer.campaigns.run_lease import DutyStore, RunLease, duty_of
from producer.campaigns.run_opening import OpeningStopped, RunOpening
from producer.campaigns.run_sender import (
    DRAIN_S,
    RunEnd,
    RunSurroundings,
)
from producer.campaigns.run_store import CampaignRuns
from producer.campaigns.schedule import next_due
from producer.campaigns.sending_pace import is_open
from producer.campaigns.store import CampaignStore
from producer.campaigns.telemetry import CampaignTelemetry
from sending.runtime.clock import Clock

log = structlog.get_logger(__name__)
LOOK_S: Final = 1.0
MOST_RUNS: Final = 16
"""Runs that one process sends at a time."""
_JOIN_S: Final = DRAIN_S + 5.0
_MS: Final = 1_000


class RunnerParts(NamedTuple):
    """Parts of a runner."""

    store: CampaignStore
    runs: CampaignRuns
    duties: DutyStore
    publisher: PublishesRecords
    accepted: OnRowAccepted
    opening: RunOpening
    telemetry: CampaignTelemetry
    sample_ratio: float = 1.0
    """`telemetry.sample_ratio`."""


class CampaignRunner:
    """`run` is one thread's, and the only one that writes `_threads` and `_unsent`."""

    def __init__(
        self,
        parts: RunnerParts,
        *,
        holder: str,
        lease_s: float,
        stop: threading.Event,
        monotonic: Callable[[], float],
    ) -> None:
        self._parts = parts
        self._holder = holder
        self._lease_s = lease_s
        self._stop = stop
        self._monotonic = monotonic
        self._threads: dict[str, threading.Thread] = {}
        self._unsent: dict[str, int] = {}  # open runs that no process sends, since when
        self.last_look = monotonic()
        """Monotonic time of the last look; other threads read it."""
        self.database_away: str | None = None
        """Why the database gave the last look no answer; None if it did. Other threads read it."""

    def run(self) -> None:
        """Looks until `stop` is set, then waits for the runs under way."""
        while not self._stop.is_set():
            try:
                self.run_once()
                self.database_away = None
            except LedgerError as exc:
                if not self.database_away:
                    log.warning("campaigns_wait", cause=str(exc))
                self.database_away = str(exc)
            self._stop.wait(LOOK_S)
        self.join()

    def run_once(self) -> None:
        """Opens the runs that are due, and sends those that no process sends, as far as there are places.
        Raises LedgerError."""
        self.last_look = self._monotonic()
        self._threads = {name: one for name, one in self._threads.items() if one.is_alive()}
        store = self._parts.store
        now = store.now_ms()
        running, due = store.running(), store.due(now)
        self._unsent = self._unsent_runs(running, now)
        waits = [*self._unsent.values(), *(one.next_at for one in due if one.next_at)]
        open_, paused = store.open_counts(), store.paused_by(BY_ITSELF)
        self._parts.telemetry.seen(open_, len(self._threads), paused, waits)
        for campaign in (*running, *due):
            if self._stop.is_set():
                return
            try:
                self._serve(campaign, now)
            except CampaignOvertaken:
                continue

    def backlog(self) -> BacklogSnapshot:
        """See `CampaignTelemetry.backlog`."""
        return self._parts.telemetry.backlog()

    def join(self) -> None:
        """Waits for the runs under way; they end soon after `stop`."""
        until = self._monotonic() + _JOIN_S
        for thread in self._threads.values():
            thread.join(max(0.0, until - self._monotonic()))

    def _unsent_runs(self, running: Sequence[Campaign], now: int) -> dict[str, int]:
        """Returns the open runs within their hours that no process sends, each with the time of the first
        look that saw it so. Raises LedgerError."""
        others = [
            one.id for one in running if one.id not in self._threads and _within_hours(one, now)
        ]
        sent = self._parts.duties.held([duty_of(name) for name in others])
        return {name: self._unsent.get(name, now) for name in others if duty_of(name) not in sent}

    def _serve(self, campaign: Campaign, now: int) -> None:
        """Opens the campaign's run if its time has come, and sends an open one that no process sends. A run
        within its hours needs a free place for both. Raises LedgerError, CampaignOvertaken."""
        if campaign.id in self._threads:
            return
        opens = campaign.state is CampaignState.SCHEDULED
        if not (self._is_due(campaign, now) if opens else campaign.id in self._unsent):
            return
        sends = _within_hours(campaign, now)
        if sends and len(self._threads) >= MOST_RUNS:
            return  # another process takes it, or `telemetry.seen` shows it as late
        if opens:
            campaign = self._open(campaign)
        if sends:
            self._start(campaign)

    def _is_due(self, campaign: Campaign, now: int) -> bool:
        """Returns whether the run's time has come. Passes over a time of a cron that is too late."""
        due = campaign.next_at
        if due is None or due > now:
            return False
        if campaign.schedule.cron and now - due > campaign.limits.late_s * _MS:
            self._pass_over(campaign, now, now - due)
            return False
        return True

    def _open(self, campaign: Campaign) -> Campaign:
        """Opens the run of a due campaign. Returns the campaign, which is RUNNING."""
        opened = self._parts.runs.open(campaign, campaign.next_at or 0)
        self._parts.telemetry.moved(opened)
        return opened

    def _pass_over(self, campaign: Campaign, now: int, late_ms: int) -> None:
        """Leaves out a time of a cron that came while nobody ran it."""
        note = f"a time was passed over: no process ran it for {late_ms // 60_000} minutes"
        changes = {"noted_by": BY_ITSELF, "note": note}
        self._parts.telemetry.moved(self._end(campaign, now, changes))

    def _end(self, campaign: Campaign, now: int, changes: dict[str, Any]) -> Campaign:
        at = next_due(campaign.schedule, now)
        if at is None:
            ends: dict[str, Any] = {"state": CampaignState.DONE, "next_at": None, "ended_at": now}
            return self._parts.store.advance(campaign, **changes, **ends)
        return self._parts.store.advance(campaign, next_at=at, **changes)

    # ---- one run, on its own thread ----------------------------------------------------------

    def _start(self, campaign: Campaign) -> None:
        """Sends the campaign's open run in a thread, unless another process has its lease. Raises
        LedgerError."""
        lease = RunLease(
            self._parts.duties, campaign.id, self._holder, self._lease_s, self._monotonic
        )
        if not lease.take():
            return
        thread = threading.Thread(
            target=self._send, args=(campaign, lease), name=f"campaign-{campaign.id}", daemon=True
        )
        self._threads[campaign.id] = thread
        thread.start()

    def _send(self, campaign: Campaign, lease: RunLease) -> None:
        """Sends the campaign's open run under its lease. Never raises."""
        try:
            self._send_under(campaign, lease)
        except (CampaignOvertaken, OpeningStopped) as exc:
            log.info("campaign_left", campaign=campaign.id, cause=str(exc))
        except (KafkaTrouble, LedgerError, SqlError, ClientClosed) as exc:
            log.warning("campaign_waits", campaign=campaign.id, cause=str(exc), what="tried again")
            self._stop.wait(LOOK_S)
        except (CrowdUnusable, RunTrouble, CampaignRefused, TemplateFileError) as exc:
            self._pause(campaign, str(exc))
        except Exception as exc:  # a fault over one campaign must not end the others
            log.exception("campaign_fault", campaign=campaign.id)
            self._pause(campaign, f"a fault of ours ({type(exc).__name__}): see the log")
        finally:
            lease.drop()

    def _send_under(self, campaign: Campaign, lease: RunLease) -> None:
        parts = self._parts
        around = RunSurroundings(
            store=parts.store,
            runs=parts.runs,
            publisher=parts.publisher,
            lease=lease,
            accepted=parts.accepted,
            settled=parts.telemetry.settled,
            stopping=self._stop.is_set,
            clock=Clock(self._monotonic),
            monotonic=self._monotonic,
            sample_ratio=parts.sample_ratio,
        )
        around.calibrate()
        with parts.opening.opened(campaign, around) as sender:
            end = sender.run()
        if end is RunEnd.DONE:
            self._finish(campaign)

    def _finish(self, campaign: Campaign) -> None:
        """Ends the run; a cron waits for its next time."""
        found = self._parts.store.get(campaign.id)
        if found is None or found.state is not CampaignState.RUNNING:
            return  # a person was quicker: a resume ends the run at once
        now = self._parts.store.now_ms()
        at = next_due(found.schedule, now) if found.schedule.cron else None
        state = CampaignState.SCHEDULED if at is not None else CampaignState.DONE
        self._parts.telemetry.moved(self._parts.runs.end(found, state, at))

    def _pause(self, campaign: Campaign, note: str) -> None:
        """Pauses a campaign with a sentence for the person who looks at it."""
        try:
            found = self._parts.store.get(campaign.id)
            if found is None or found.state is not CampaignState.RUNNING:
                return
            paused = self._parts.store.advance(
                found,
                state=CampaignState.PAUSED,
                paused_from=CampaignState.RUNNING,
                noted_by=BY_ITSELF,
                note=note,
            )
            self._parts.telemetry.moved(paused)
        except (LedgerError, CampaignOvertaken) as exc:
            log.warning("campaign_not_paused", campaign=campaign.id, note=note, cause=str(exc))


def _within_hours(campaign: Campaign, now: int) -> bool:
    """Returns whether rows may go now. With hours that cannot be read the run starts, and pauses itself."""
    try:
        return is_open(campaign.limits, campaign.schedule.zone, now)
    except CampaignRefused:
        return True
