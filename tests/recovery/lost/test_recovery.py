"""From a finding to the provider's ledger: a real recovery, a real provider, a real broker."""

from __future__ import annotations

import signal
from collections.abc import Callable

import msgspec
import pytest
from sqlalchemy import text

from backends.kafka.clients import producer
from backends.settings import KafkaSettings
from idempotency.lost.findings import FindingFilter, LostFindings
from message.delivery import Delivery, Origin
from message.envelope import encode
from tests.chaos.points import Orders, Point
from tests.recovery.conftest import MakeGround
from tests.recovery.ground import LANE, WAIT_S, Ground, until
from tests.recovery.lost.test_records import made
from tests.recovery.test_recovery import run

MakeLost = Callable[[int], tuple[Ground, list[Delivery]]]


@pytest.fixture
def lost(ground: MakeGround, kafka_bootstrap: str, topic_prefix: str) -> MakeLost:
    """A ledger that knows nothing, a topic that has the records, and a finding for each."""

    def make(count: int) -> tuple[Ground, list[Delivery]]:
        one = ground()
        kafka = KafkaSettings(bootstrap=kafka_bootstrap, topic_prefix=topic_prefix)
        one.settings = msgspec.structs.replace(one.settings, kafka=kafka)
        topic, client = made(kafka, f"dispatch.{LANE}", 1), producer(kafka)
        items = [one._delivery(60_000) for _ in range(count)]
        for offset, item in enumerate(items):
            item.origin = Origin(topic, 0, offset)
            client.produce(topic, key=b"k", value=encode(item.notification), partition=0)
        assert client.flush(30) == 0
        for item in items:
            _find(one, item)
        return one, items

    return make


def _find(ground: Ground, item: Delivery) -> None:
    row = {
        "subject": item.key,
        "cause": "passed",
        "lane": item.lane,
        "message_id": item.notification.id,
        "origin": str(item.origin),
        "created_at": item.notification.created_at,
        "expires_at": item.expires_at,
        "certain": 1,
        "detail": "",
        "first_run": 1,
        "last_run": 1,
        "found_at": ground.ledger.now_ms(),
        "status": "NEW",
    }
    names, marks = ", ".join(row), ", ".join(f":{name}" for name in row)
    with ground.ledger.database.begin() as connection:
        connection.execute(text(f"INSERT INTO lost_findings ({names}) VALUES ({marks})"), row)


def statuses(ground: Ground) -> list[str]:
    return [f.status.value for f in ground.ledger.findings().select(FindingFilter(), 1_000)]


def test_lost_ones_arrive_once(lost: MakeLost) -> None:
    one, items = lost(30)
    run(one, SENT=30)
    assert one.accepted() == {item.key: 1 for item in items}
    assert {r.attempt for r in one.provider.records()} == {1}
    assert statuses(one) == ["RESENT"] * 30


def test_one_that_dies_between_claim_and_note_is_followed_by_another(
    lost: MakeLost, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, items = lost(5)

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    with one.recovery() as opened:
        job = opened.recovery._parts.lost
        with monkeypatch.context() as patch:
            patch.setattr(LostFindings, "decide", die)
            with pytest.raises(Killed):
                job.run_once()
        opened.recovery.drop("lost")
    assert one.states() == {"RETRY": 5}
    assert statuses(one) == ["NEW"] * 5
    run(one, SENT=5)
    _let_the_duty_lapse(one)  # the recovery of `run` may have held it when it was stopped
    with one.recovery() as opened:  # the round after all were sent
        opened.recovery._parts.lost.run_once()
    assert statuses(one) == ["RESENT"] * 5
    assert one.accepted() == {item.key: 1 for item in items}


def test_a_process_killed_between_claim_and_note_is_followed_by_one_send(lost: MakeLost) -> None:
    one, items = lost(20)
    orders = Orders(one.folder / "orders")
    orders.give("kill", Point.NOTE)
    killed = one.process("r1", orders=orders.path)
    assert killed.wait(WAIT_S) == -signal.SIGKILL, one.logs()
    assert orders.carried_out
    assert statuses(one) == ["NEW"] * 20, "it was killed after the note"
    assert one.states().total() == 20, "it was killed before the claim"
    _let_the_duty_lapse(one)
    one.process("r2")
    until(lambda: statuses(one) == ["RESENT"] * 20)
    one.await_states(SENT=20)
    assert one.accepted() == {item.key: 1 for item in items}
    reasons = {f.decided_why for f in one.ledger.findings().select(FindingFilter(), 20)}
    assert all("since recovery began to enter it" in (why or "") for why in reasons)


def _let_the_duty_lapse(ground: Ground) -> None:
    """A killed holder keeps the duty for half a minute."""
    with ground.ledger.database.begin() as connection:
        connection.execute(text("DELETE FROM duties WHERE name = 'lost'"))


def test_a_worker_that_has_sent_it_is_not_followed_by_recovery(lost: MakeLost) -> None:
    from idempotency.ledger import Claim, Settlement
    from message.ids import new_token
    from message.states import Event

    one, items = lost(4)
    claim = Claim(items[0], new_token())
    (answer,) = one.ledger.claim([claim], "w1")
    items[0].token, items[0].day = claim.token, answer.day
    one.ledger.settle([Settlement(items[0], Event.ACCEPTED, None, "p")])
    run(one, SENT=4)
    assert one.accepted() == {item.key: 1 for item in items[1:]}
    assert sorted(statuses(one)) == ["CONTRADICTED"] + ["RESENT"] * 3
