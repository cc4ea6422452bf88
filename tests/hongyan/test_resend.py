"""`hongyan resend` and `hongyan db archive`: what they do to a real ledger, and what they say of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.settings import load
from idempotency import open_ledger, upgrade
from idempotency.opening import SqlLedger
from message.delivery import Delivery
from message.envelope import decode
from message.states import Event
from tests.hongyan.conftest import Run
from tests.hongyan.test_send import records
from tests.idempotency.making import claimed, deliveries, settle, worker


@pytest.fixture
def ledger(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlLedger]:
    monkeypatch.setenv("HONGYAN_TRACE__KAFKA", "false")
    settings = load()
    upgrade(settings)
    ledger = open_ledger(settings)
    ledger.register(worker("w1"))
    yield ledger
    ledger.close()


def parked(ledger: SqlLedger, count: int = 1, lane: str = "sms.notice") -> list[Delivery]:
    made = [claimed(ledger, *deliveries(lane=lane, biz_id="order-1"))[0] for _ in range(count)]
    for one in made:
        assert settle(ledger, one, Event.BUDGET_SPENT, reason="attempts_spent")
    return made


def state(ledger: SqlLedger, item: Delivery) -> str:
    row = ledger.queries().by_key(item.key)
    assert row is not None
    return row.state


def test_a_selection_is_made_due_and_told_one_by_one(hongyan: Run, ledger: SqlLedger) -> None:
    items, other = parked(ledger, 3), parked(ledger, lane="email.notice")[0]
    asked = ("resend", "--state", "parked", "--lane", "sms.*", "--since", "1h", "--json")
    dry = hongyan(*asked, "--dry-run")
    assert [one["verdict"] for one in dry.json["deliveries"]] == ["retried"] * 3
    assert state(ledger, items[0]) == "PARKED"
    said = hongyan(*asked)
    assert said.code == 0
    assert {one["delivery_key"] for one in said.json["deliveries"]} == {i.key for i in items}
    assert {state(ledger, item) for item in items} == {"RETRY"}
    assert state(ledger, other) == "PARKED"
    again = hongyan(*asked)
    assert (again.code, again.json["deliveries"]) == (0, [])


def test_a_second_job_waits_for_the_first(hongyan: Run, ledger: SqlLedger) -> None:
    (item,) = parked(ledger)
    assert ledger.recovering().hold("resend", "another", 60_000)
    said = hongyan("resend", "--state", "PARKED", "--since", "1h")
    assert said.code == 2
    assert "another resend job is under way" in said.err
    assert state(ledger, item) == "PARKED"


def test_a_copy_goes_through_kafka_under_one_id_however_often_its_job_is_run(
    hongyan: Run, ledger: SqlLedger, kafka: str
) -> None:
    (item,) = parked(ledger, lane="push.marketing")
    asked = ("resend", "--biz", "order-1", "--new-id", "--job", "j1", "--json")
    ids = {hongyan(*asked).json["deliveries"][0]["new_id"] for _ in range(2)}
    assert len(ids) == 1
    made = [decode(m.value()) for m in records(kafka, "hongyan.dispatch.push.marketing", 2)]
    assert {one.id for one in made} == ids
    assert {one.resend_of for one in made} == {item.notification.id}
    assert state(ledger, item) == "PARKED"


def test_what_was_sent_is_refused_and_what_somebody_saw_arrive_is_sent(
    hongyan: Run, ledger: SqlLedger
) -> None:
    (item,) = parked(ledger)
    assert hongyan("resend", "--sent", item.key).code == 0
    assert state(ledger, item) == "SENT"
    said = hongyan("resend", item.notification.id)
    assert said.code == 1
    assert "--new-id makes a second copy" in said.out


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("x", "--biz", "y"),
        ("--state", "PARKED"),
        ("x", "--since", "1h"),
        ("--state", "SENT", "--since", "1h"),
        ("--state", "PARKED", "--since", "soon"),
        ("--sent", "x", "--dry-run"),
    ],
)
def test_flags_that_do_not_go_together_are_said_so(
    hongyan: Run, ledger: SqlLedger, flags: tuple[str, ...]
) -> None:
    said = hongyan("resend", *flags)
    assert said.code == 2
    assert said.err


def test_a_ledger_is_not_archived_sooner_than_it_may_be(hongyan: Run, ledger: SqlLedger) -> None:
    said = hongyan("db", "archive", "--before", "15")
    assert said.code == 2
    assert "less than 16 days" in said.err


def test_a_day_with_an_open_row_stays_and_the_others_leave(
    hongyan: Run, ledger: SqlLedger, folder: Path
) -> None:
    old, (item,) = parked(ledger, 2), claimed(ledger, *deliveries())
    with ledger.database.connection() as connection:
        connection.execute("UPDATE deliveries SET day = day - 100")
        connection.execute(f"UPDATE deliveries SET day = day - 1 WHERE delivery_key = '{item.key}'")
    dry = hongyan("db", "archive", "--dry-run", "--json")
    assert [(day["rows"], day["stays"]) for day in dry.json["days"]] == [(1, True), (2, False)]
    said = hongyan("db", "archive", "--json")
    assert said.code == 1
    assert [day["where"] is None for day in said.json["days"]] == [True, False]
    assert len(list((folder / "archive").iterdir())) == 1
    assert all(ledger.queries().by_key(one.key) is None for one in old)
    assert state(ledger, item) == "IN_FLIGHT"
