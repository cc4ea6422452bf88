"""`hongyan trace` beyond the ledger's rows: archived days, and searches by receiver and template."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from backends.settings import DatabaseSettings, Settings, TraceSettings
from idempotency.archive.contract import Archive
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.delivery import Delivery
from message.outcome_event import receiver_hash
from message.states import Event
from tests.hongyan.conftest import Run, make_ledger
from tests.idempotency.making import claimed, delivery, settle, worker
from tracing import open_recorder
from tracing.events import Stage, TraceEvent

KEY = "a key of at least thirty-two bytes, for tests"
ANN, BEN = "+8613800000001", "+8613800000002"
NO_WAREHOUSE = "there are no rebuilt traces in"
DAY_MS = 86_400_000


@pytest.fixture
def settings(folder: Path, hongyan: Run) -> Settings:
    make_ledger()
    database = DatabaseSettings(url="sqlite:///hongyan.db")
    return Settings(database=database, base=str(folder), trace=TraceSettings(kafka=False))


@pytest.fixture
def ledger(settings: Settings) -> Iterator[SqlLedger]:
    ledger = open_ledger(settings)
    ledger.register(worker("w1"))
    yield ledger
    ledger.close()


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HONGYAN_OUTCOMES__HASH_KEY", KEY)


def sent(ledger: SqlLedger, **fields: Any) -> Delivery:
    (one,) = claimed(ledger, delivery(**fields))
    settle(ledger, one, Event.ACCEPTED)
    return one


def traced(settings: Settings, one: Delivery, template: str = "", **fields: Any) -> None:
    """One event, as a worker writes it."""
    values: dict[str, Any] = {
        "at": time.time_ns() // 1_000_000,
        "stage": Stage.SETTLED,
        "message_id": one.notification.id,
        "delivery_key": one.key,
        "receiver": "+86138***0001",
        "receiver_hash": receiver_hash(KEY.encode(), "sms", one.receiver),
        "template": template,
        "state": "SENT",
    }
    recorder = open_recorder(settings)
    recorder.record([TraceEvent(**values | fields)])
    recorder.close(10.0)


def keys(said: Any) -> list[str]:
    return [one["delivery_key"] for story in said.json for one in story["deliveries"]]


def archive_of(ledger: SqlLedger, folder: Path) -> Archive:
    with ledger.database.begin() as connection:
        connection.execute(text("UPDATE deliveries SET day = day - 100"))
    return ledger.archive("", str(folder))


def test_a_message_that_left_with_its_day_is_shown_with_its_place(
    ledger: SqlLedger, hongyan: Run, folder: Path
) -> None:
    one = sent(ledger, id="old", biz_id="order-9")
    archive = archive_of(ledger, folder)
    (day,) = archive.days(90)
    where = archive.archive(day).where
    for name in ("old", one.key, "order-9"):
        said = hongyan("trace", name, "--json")
        assert (said.code, keys(said)) == (0, [one.key]), name
        (told,) = said.json[0]["deliveries"]
        assert told["sources"] == [str(Path(where).relative_to(folder))]
        assert told["row"]["state"] == "SENT"
    shown = hongyan("trace", "old").out
    assert "    from archive/deliveries-" in shown
    assert "claimed in the ledger" in shown


def test_damage_of_the_archive_is_printed_beside_what_was_found(
    ledger: SqlLedger, hongyan: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idempotency.archive.sqlite.BATCH", 1)
    first, second = sent(ledger, biz_id="order-9"), sent(ledger, biz_id="order-9")
    archive = archive_of(ledger, folder)
    (day,) = archive.days(90)
    file = Path(archive.archive(day).where)
    file.write_bytes(file.read_bytes()[:-9])
    said = hongyan("trace", "order-9", "--json")
    assert (said.code, keys(said)) == (0, [first.key])
    assert f"{file.name} cannot be read whole" in said.err
    lost = hongyan("trace", second.key)
    assert lost.code == 1
    assert "the archive was not searched" in lost.err


def test_parts_that_are_all_live_need_no_word_on_their_places(
    ledger: SqlLedger, settings: Settings, hongyan: Run
) -> None:
    one = sent(ledger, id="m1")
    traced(settings, one)
    said = hongyan("trace", "m1", "--json")
    assert said.json[0]["deliveries"][0]["sources"] == ["ledger", "trace"]
    assert said.err == ""
    assert "from " not in hongyan("trace", "m1").out.replace("read from Kafka", "")


@pytest.mark.usefixtures("hashed")
def test_a_receiver_typed_in_full_is_found_by_its_hash(
    ledger: SqlLedger, settings: Settings, hongyan: Run
) -> None:
    first, other = sent(ledger, receivers=(ANN,)), sent(ledger, receivers=(BEN,))
    for one in (first, other):
        traced(settings, one)
    said = hongyan("trace", "--receiver", ANN, "--json")
    assert (said.code, keys(said)) == (0, [first.key])
    assert keys(hongyan("trace", "--receiver", "+86 138 0000 0001", "--json")) == [first.key]
    assert NO_WAREHOUSE in said.err
    nobody = hongyan("trace", "--receiver", "+8613800000009")
    assert nobody.code == 1
    assert "nothing is known of '+8613800000009'" in nobody.err


@pytest.mark.usefixtures("hashed")
def test_a_template_is_found_exactly_and_within_the_window(
    ledger: SqlLedger, settings: Settings, hongyan: Run
) -> None:
    now = time.time_ns() // 1_000_000
    own, wild, old = sent(ledger), sent(ledger), sent(ledger)
    traced(settings, own, "A_1%")
    traced(settings, wild, "AX1%")
    traced(settings, old, "A_1%", at=now - 3 * DAY_MS)
    assert keys(hongyan("trace", "--template", "A_1%", "--json")) == [own.key]
    found = hongyan("trace", "--template", "A_1%", "--since", "4d", "--json")
    assert keys(found) == [own.key, old.key], "newest first"
    both = ("--template", "A_1%", "--since", "4d", "--receiver")
    assert keys(hongyan("trace", *both, ANN, "--json")) == [own.key, old.key]
    assert hongyan("trace", *both, BEN, "--json").code == 1


def test_an_id_with_a_receiver_shows_that_delivery_alone_and_needs_no_key(
    ledger: SqlLedger, hongyan: Run
) -> None:
    from tests.idempotency.making import deliveries

    one, two = claimed(ledger, *deliveries(receivers=(ANN, BEN), id="both"))
    assert set(keys(hongyan("trace", "both", "--json"))) == {one.key, two.key}
    assert keys(hongyan("trace", "both", "--receiver", BEN, "--json")) == [two.key]


def test_without_a_hash_key_receivers_are_not_searched(ledger: SqlLedger, hongyan: Run) -> None:
    said = hongyan("trace", "--receiver", ANN)
    assert said.code == 2
    assert said.err.startswith(
        "--receiver: the trace has receivers as a hash under outcomes.hash_key"
    )
    assert json.dumps(ANN) not in said.err


def test_a_search_needs_something_to_search_for(hongyan: Run) -> None:
    assert hongyan("trace")[::2] == (2, "give an ID, --receiver or --template")
    assert hongyan("trace", "--template", "a", "--wait", "5")[::2] == (2, "--wait goes with an ID")
