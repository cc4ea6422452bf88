"""All processes in one view: the ledger's, the business's relays, and the kinds that are missing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.lookback_settings import BizTypeSettings, LookbackSettings
from backends.settings import DatabaseSettings, RelaySettings, Settings
from idempotency.fleet.snapshots import BacklogSnapshot, ProcessSnapshot, decoded, encoded
from idempotency.sql_ledger import SqlLedger, open_ledger
from producer.fleet import FleetReader, RelayLook, fleet_view, look_at_relays
from sending.runtime.heartbeat import ProcessHeartbeat
from tests.harness.databases import upgraded
from tests.hongyan_client.outbox.places import OutboxPlace, opened
from tests.idempotency.making import worker


@pytest.fixture
def ledger(sqlite_database: str) -> Iterator[SqlLedger]:
    settings = Settings(database=DatabaseSettings(url=sqlite_database))
    upgraded(settings)
    ledger = open_ledger(settings)
    yield ledger
    ledger.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[OutboxPlace]:
    with opened(f"sqlite:///{tmp_path}/business.db") as made:
        yield made


def settings_with(place: OutboxPlace) -> Settings:
    return Settings(relay=RelaySettings(outbox_url=place.url))


def reader(ledger: SqlLedger, settings: Settings) -> FleetReader:
    return FleetReader(settings, ledger.database, ledger.clock)


def test_a_relay_without_a_ledger_is_shown_with_its_backlog(
    ledger: SqlLedger, place: OutboxPlace
) -> None:
    place.add()
    place.rows.beat("relay-1", "shop", 7, "running", 9)
    view = reader(ledger, settings_with(place)).read()
    (relay,) = view.processes
    assert (relay.id, relay.kind, relay.state, relay.host, relay.pid) == (
        "relay-1",
        "relay",
        "RUNNING",
        "shop",
        7,
    )
    assert relay.program == "", "its row has no version"
    assert relay.snapshot is not None
    assert relay.snapshot.backlog is not None
    assert relay.snapshot.backlog.waiting == 1
    assert list(view.absent) == []
    assert view.outside == {"relay-1"}


def test_a_silent_relay_is_lost_and_its_kind_is_missing(
    ledger: SqlLedger, place: OutboxPlace
) -> None:
    place.rows.beat("relay-1", "shop", 7, "running", 9)
    with place.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE hongyan_outbox_relays SET heartbeat_at = heartbeat_at - 60000"
        )
    view = reader(ledger, settings_with(place)).read()
    assert [one.lost for one in view.processes] == [True]
    assert view.absent == ["relay"]
    assert view.now_ms - view.processes[0].heartbeat_at >= 60_000


def test_a_relay_that_ended_is_not_listed_and_is_missing(
    ledger: SqlLedger, place: OutboxPlace
) -> None:
    place.rows.beat("relay-1", "shop", 7, "ended", 9)
    view = reader(ledger, settings_with(place)).read()
    assert (view.processes, view.absent) == ([], ["relay"])


def test_a_relay_with_both_rows_is_one_process_with_its_version(
    ledger: SqlLedger, place: OutboxPlace
) -> None:
    place.rows.beat("relay-1", "shop", 7, "running", 9)
    ProcessHeartbeat(ledger, "relay", "relay-1", threading.Event()).beat()
    view = reader(ledger, settings_with(place)).read()
    (relay,) = view.processes
    assert relay.program
    assert view.outside == frozenset()


def test_ages_of_relays_survive_a_clock_that_is_an_hour_off(place: OutboxPlace) -> None:
    place.rows.beat("relay-1", "shop", 7, "running", 9)
    look = look_at_relays(settings_with(place))
    view = fleet_view([], [], look, look.now_ms + 3_600_000)
    assert 0 <= view.now_ms - view.processes[0].heartbeat_at < 60_000


def test_a_business_database_that_is_away_is_told_and_the_rest_is_shown(
    ledger: SqlLedger,
) -> None:
    ledger.register(worker("w1"))
    away = Settings(relay=RelaySettings(outbox_url="postgresql://u:secret@127.0.0.1:1/shop"))
    view = reader(ledger, away).read()
    assert [one.id for one in view.processes] == ["w1"]
    assert view.outbox_trouble
    assert "secret" not in view.outbox_trouble
    assert view.absent == ["relay"]


def test_nothing_is_missing_where_nothing_calls_for_it(ledger: SqlLedger) -> None:
    assert reader(ledger, Settings()).read().absent == []


def test_lookback_is_missing_where_kinds_are_configured(ledger: SqlLedger) -> None:
    settings = Settings(lookback=LookbackSettings(biz_types={"order": BizTypeSettings()}))
    view = reader(ledger, settings)
    assert view.read().absent == ["lookback"]
    ProcessHeartbeat(ledger, "lookback", "lookback-1", threading.Event()).beat()
    assert view.read().absent == []


def test_the_businesss_database_is_asked_once_in_ten_seconds(
    ledger: SqlLedger, place: OutboxPlace
) -> None:
    now = [100.0]
    settings = settings_with(place)
    view = FleetReader(settings, ledger.database, ledger.clock, monotonic=lambda: now[0])
    assert view.read().processes == []
    place.rows.beat("relay-1", "shop", 7, "running", 9)
    now[0] += 9.0
    assert view.read().processes == []
    now[0] += 1.0
    assert [one.id for one in view.read().processes] == ["relay-1"]


def test_kinds_are_listed_as_the_ledger_lists_them(ledger: SqlLedger, place: OutboxPlace) -> None:
    ProcessHeartbeat(ledger, "gateway", "gateway-1", threading.Event()).beat()
    ledger.register(worker("w1"))
    place.rows.beat("relay-1", "shop", 7, "running", 9)
    look = look_at_relays(settings_with(place))
    view = fleet_view(ledger.fleet_status().processes(), [], look, ledger.now_ms())
    assert [one.kind for one in view.processes] == ["worker", "relay", "gateway"]


def test_without_an_outbox_no_database_is_asked() -> None:
    assert look_at_relays(Settings()) == RelayLook()


def test_a_backlog_fits_the_row() -> None:
    shown = ProcessSnapshot(backlog=BacklogSnapshot(7, 1.5))
    assert decoded(encoded(shown)) == shown
