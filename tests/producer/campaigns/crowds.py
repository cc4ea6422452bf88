"""Crowd files, and a desk with everything that a campaign needs: a ledger, a Kafka, runners."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from backends.kafka.topic_reader import read_topic
from backends.settings import DatabaseSettings, KafkaSettings, Settings
from hongyan_client.publisher import Publisher
from idempotency.sql_ledger import open_ledger
from message.envelope import Notification, decode
from policy.templates.loading import load
from producer.campaigns.actions import CampaignActions
from producer.campaigns.contract import (
    Campaign,
    CampaignLimits,
    CampaignRun,
    CampaignSchedule,
    CampaignState,
    CrowdColumns,
)
from producer.campaigns.creation import CampaignDraft
from producer.campaigns.row_checks import row_checks
from producer.campaigns.row_publisher import PublishesRecords
from producer.campaigns.run_opening import RunOpening
from producer.campaigns.run_store import runs_of
from producer.campaigns.runner import CampaignRunner, RunnerParts
from producer.campaigns.store import campaigns_of
from producer.campaigns.telemetry import CampaignTelemetry
from tests.harness.databases import upgraded
from tests.harness.waiting import await_

LANE = "sms.marketing"
COLUMNS, AT_ONCE = CrowdColumns(), CampaignSchedule()
TEMPLATES = """
[templates.sale]
channel = "sms"
variables.name = {type = "string"}
variables.amount = {type = "int", default = 5}
content.text = "Dear {{ name }}, {{ amount }} off"
"""


def crowd(folder: Path, rows: int, name: str = "crowd.csv") -> Path:
    """A file of good rows, each with a receiver of its own."""
    file = folder / name
    lines = [f"+86138{n:08d},customer {n},{n % 50}" for n in range(1, rows + 1)]
    file.write_text("receiver,name,amount\n" + "\n".join(lines) + "\n")
    return file


class CampaignDesk:
    """One ledger and one topic; closes what it opened."""

    def __init__(self, url: str, bootstrap: str, prefix: str, folder: Path) -> None:
        file = folder / "templates.toml"
        file.write_text(TEMPLATES)
        self.settings = Settings(
            database=DatabaseSettings(url=url),
            kafka=KafkaSettings(bootstrap=bootstrap, topic_prefix=prefix),
            base=str(folder),
        )
        upgraded(self.settings)
        self.ledger = open_ledger(self.settings)
        self.store, self.runs = campaigns_of(self.ledger), runs_of(self.ledger)
        self.actions = CampaignActions(self.store, self.runs)
        self.checks = row_checks(self.settings, load(file))
        self.publisher = Publisher(bootstrap, client_id="tests")

    def close(self) -> None:
        self.publisher.close(0)
        self.ledger.close()

    def made(
        self,
        file: Path,
        *,
        columns: CrowdColumns = COLUMNS,
        schedule: CampaignSchedule = AT_ONCE,
        **limits: Any,
    ) -> Campaign:
        """A NEW campaign without threshold, as fast as it goes."""
        given = {"rate_per_s": 1e5, "approve_above": 10**9} | limits
        draft = CampaignDraft(
            path=str(file),
            lane=LANE,
            template="sale",
            columns=columns,
            schedule=schedule,
            limits=CampaignLimits(**given),
            author="li",
            reason="autumn sale",
        )
        return self.actions.make(draft, self.checks).campaign

    def started(self, file: Path, **options: Any) -> Campaign:
        made = self.made(file, **options)
        return self.actions.start(made.id, who="li", reason="go")

    @contextmanager
    def running(self, publisher: PublishesRecords | None = None) -> Iterator[CampaignRunner]:
        """A runner in a thread of its own, stopped in order at the end."""
        stop = threading.Event()
        parts = RunnerParts(
            store=self.store,
            runs=self.runs,
            duties=self.ledger.duties(),
            publisher=publisher or self.publisher,
            accepted=lambda _notification, _place, _traceparent: None,
            opening=RunOpening(self.settings.kafka, lambda: self.checks),
            telemetry=CampaignTelemetry(CollectorRegistry(), lambda: time.time_ns() // 1_000_000),
        )
        runner = CampaignRunner(
            parts,
            holder=f"runner-{uuid.uuid4().hex}",
            lease_s=15.0,
            stop=stop,
            monotonic=time.monotonic,
        )
        thread = threading.Thread(target=runner.run, daemon=True)
        thread.start()
        try:
            yield runner
        finally:
            stop.set()
            thread.join(30)

    def until(self, campaign: str, *states: CampaignState) -> Campaign:
        """Waits for one of the states."""
        await_(
            lambda: self.actions.get(campaign).state in states,
            what=lambda: f"{self.actions.get(campaign)}",
        )
        return self.actions.get(campaign)

    def run_of(self, campaign: str) -> CampaignRun:
        """The newest run."""
        return self.runs.of(campaign)[0]

    def sent(self) -> list[Notification]:
        """What the topic holds."""
        topic = f"{self.settings.kafka.topic_prefix}.dispatch.{LANE}"
        return [decode(one.value()) for one in read_topic(self.settings.kafka, topic)]
