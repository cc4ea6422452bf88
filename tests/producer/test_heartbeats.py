"""A gateway, a campaign process and a look-back show themselves in the fleet, and leave at their end."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from backends.lookback_settings import BizTypeSettings, LookbackSettings
from backends.settings import (
    CampaignSettings,
    DatabaseSettings,
    KafkaSettings,
    Settings,
    TraceSettings,
)
from idempotency.fleet.status import FleetStatus, Process
from idempotency.sql_ledger import open_ledger
from lookback.wiring import lookback_name, open_lookback
from policy.templates.templates import Templates
from producer.campaigns.notifications import RowChecks
from producer.campaigns.process import run_campaigns
from producer.gateway.wiring import open_gateway
from tests.harness.databases import upgraded
from tests.harness.waiting import await_
from tests.producer.gateway.conftest import MemoryPublisher

AWAY = KafkaSettings(bootstrap="127.0.0.1:1", group_protocol="classic")


@pytest.fixture
def own(sqlite_database: str, tmp_path: Path) -> Settings:
    settings = Settings(
        database=DatabaseSettings(url=sqlite_database),
        kafka=AWAY,
        trace=TraceSettings(kafka=False, database=False),
        campaigns=CampaignSettings(health_address="127.0.0.1:0"),
        lookback=LookbackSettings(
            biz_types={"order": BizTypeSettings()}, health_address="127.0.0.1:0"
        ),
        base=str(tmp_path),
    )
    upgraded(settings)
    return settings


def processes(settings: Settings) -> list[Process]:
    ledger = open_ledger(settings)
    try:
        return FleetStatus(ledger.database, ledger.clock).processes()
    finally:
        ledger.close()


def kinds(settings: Settings) -> list[str]:
    return [one.kind for one in processes(settings)]


def shows_backlog(settings: Settings) -> bool:
    (shown,) = [one.snapshot for one in processes(settings)]
    return shown is not None and shown.backlog is not None


def test_a_gateway_beats_with_what_kafka_has_not_answered(own: Settings) -> None:
    with ExitStack() as stack:
        open_gateway(own, stack, MemoryPublisher())
        await_(lambda: kinds(own) == ["gateway"], what="its row")
        await_(lambda: shows_backlog(own), what="its backlog")
    assert kinds(own) == []


def test_a_campaign_process_beats_and_an_order_to_drain_ends_it(own: Settings) -> None:
    stop, codes = threading.Event(), []

    def checks(_templates: Templates) -> RowChecks:
        raise AssertionError("no campaign is open")

    thread = threading.Thread(target=lambda: codes.append(run_campaigns(own, stop, checks)))
    thread.start()
    try:
        await_(lambda: kinds(own) == ["campaigns"], what="its row")
        ledger = open_ledger(own)
        assert ledger.controls().drain(processes(own)[0].id, author="lin", reason="repairs")
        ledger.close()
        thread.join(60)
    finally:
        stop.set()
        thread.join(60)
    assert codes == [0]
    assert kinds(own) == []


def test_a_lookback_beats_before_its_loops_run(own: Settings) -> None:
    with ExitStack() as stack:
        open_lookback(own, lookback_name(), stack, threading.Event(), checkers={})
        await_(lambda: kinds(own) == ["lookback"], what="its row")
    assert kinds(own) == []
