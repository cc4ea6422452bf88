"""Metrics and log lines of campaigns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog
from prometheus_client import CollectorRegistry

from backends.metrics import campaigns_families as of_campaigns
from backends.metrics.instruments import counter_of
from backends.metrics.readings import Reading, show_readings
from idempotency.fleet.snapshots import BacklogSnapshot
from producer.campaigns.checkpoint import RowEnd
from producer.campaigns.contract import Campaign, CampaignState

log = structlog.get_logger(__name__)
_SHOWN: tuple[CampaignState, ...] = (CampaignState.SCHEDULED, CampaignState.RUNNING)
_MS = 1_000


class CampaignTelemetry:
    """Never raises."""

    def __init__(self, registry: CollectorRegistry, now_ms: Callable[[], int]) -> None:
        """`now_ms` is this machine's clock."""
        self._now_ms = now_ms
        self._rows = counter_of(of_campaigns.ROWS, registry=registry)
        self._open: Counter[CampaignState] = Counter()  # `seen` writes, on the thread of the looks
        self._sending = 0  # written as `_open`
        self._due_at: int | None = None  # written as `_open`
        self._paused: Sequence[str] = ()  # written as `_open`
        families = of_campaigns.OPEN, of_campaigns.SENDING, of_campaigns.LATE, of_campaigns.PAUSED
        show_readings(registry, self._readings, *families)

    def seen(
        self,
        open_: Mapping[CampaignState, int],
        sending: int,
        paused: Sequence[str],
        waits: Iterable[int],
    ) -> None:
        """Shows the numbers of open campaigns, the number of runs that this process sends, the campaigns
        that paused themselves, and since when due and open runs have waited for a process."""
        self._paused = paused
        self._open = Counter(open_)
        self._sending = sending
        self._due_at = min(waits, default=None)

    def backlog(self) -> BacklogSnapshot:
        """Returns the runs under way and the time by which the first due one is late, as of the last look.
        Any thread may call it."""
        return BacklogSnapshot(self._open[CampaignState.RUNNING], self._late_ms() / _MS)

    def settled(self, end: RowEnd, rows: int) -> None:
        """Counts rows of a checkpoint; safe from any thread."""
        if rows:
            self._rows.labels(end.value).inc(rows)

    def moved(self, campaign: Campaign) -> None:
        """Logs the new state of a campaign."""
        write = log.warning if campaign.state is CampaignState.PAUSED else log.info
        write(
            "campaign",
            campaign=campaign.id,
            state=campaign.state.value,
            run=campaign.run_id,
            note=campaign.note or "",
        )

    def _readings(self) -> Iterable[Reading]:
        for state in _SHOWN:
            yield Reading(of_campaigns.OPEN, {"state": state.value}, self._open[state])
        for campaign in self._paused:
            yield Reading(of_campaigns.PAUSED, {"campaign": campaign}, 1)
        yield Reading(of_campaigns.SENDING, {}, self._sending)
        yield Reading(of_campaigns.LATE, {}, self._late_ms() / _MS)

    def _late_ms(self) -> int:
        due_at = self._due_at
        return 0 if due_at is None else max(0, self._now_ms() - due_at)
