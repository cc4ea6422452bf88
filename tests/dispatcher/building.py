"""Surroundings of `dispatcher.wiring.build` beside a ledger; nothing listens at the broker's address."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from backends.settings import DatabaseSettings, KafkaSettings, Settings, WorkerSettings
from channels.tokens.contract import TokenLife
from channels.transports import TransportRouter
from dispatcher.metrics import Metrics
from dispatcher.wiring import OpenedBackends
from idempotency.prefilter_redis import open_prefilter
from idempotency.sql_ledger import SqlLedger, open_ledger
from policy.templates.active import ActiveTemplates, TemplateFollower
from policy.templates.page import TemplateSource
from policy.templates.templates import Templates
from policy.versions import Versions
from sending.alerts.notifier import AlertNotifier
from tests.harness.databases import upgraded
from tracing import open_recorder


class NoTokens:
    def refused_logins(self) -> list[str]:
        return []

    def lives(self) -> dict[str, TokenLife]:
        return {}


def settings_of(database: Path, provider: str) -> Settings:
    """Settings of a worker with one account, on a new SQLite ledger."""
    settings = Settings(
        database=DatabaseSettings(url=f"sqlite:///{database}"),
        kafka=KafkaSettings(bootstrap="127.0.0.1:9", group_protocol="classic"),
        worker=WorkerSettings(id="wired"),
        accounts={"main": {"provider": provider, "endpoint": "http://127.0.0.1:9"}},
    )
    upgraded(settings)
    return settings


def opened(settings: Settings, stack: ExitStack) -> OpenedBackends:
    """The ledger with all else that a worker opens; `stack` closes it."""
    ledger: SqlLedger = open_ledger(settings)
    stack.callback(ledger.close)
    recorder = open_recorder(settings)
    stack.callback(recorder.close)
    tokens: Any = NoTokens()
    metrics = Metrics()
    return OpenedBackends(
        ledger=ledger,
        announced=ledger.announced,
        prefilter=open_prefilter(settings, ledger.identity()),
        recorder=recorder,
        transport=TransportRouter(),
        tokens=tokens,
        templates=TemplateFollower(
            ActiveTemplates(Templates(), 0, TemplateSource("", {}), False), None, {}
        ),
        metrics=metrics,
        alerts=AlertNotifier(metrics.registry, 60.0),
        versions=Versions(ledger.database),
        controls=ledger.controls(),
        sums=ledger.sums(),
        number=0,
        protocol="classic",
        stack=stack,
    )
