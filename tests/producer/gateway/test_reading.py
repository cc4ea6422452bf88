"""GET and recall: only the key's lanes, receivers masked."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from backends.settings import Settings
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.states import Event
from producer.gateway.key_store import KeyMade
from tests.idempotency.making import claimed, delivery, settle, worker
from tests.producer.gateway.conftest import OpenGateway

RECALL = "/v1/notifications:recall"
NUMBER = "+8613800000001"


@pytest.fixture
def ledger(settings: Settings) -> Iterator[SqlLedger]:
    ledger = open_ledger(settings)
    ledger.register(worker("w1"))
    yield ledger
    ledger.close()


def sent(ledger: SqlLedger, **fields: object) -> str:
    (item,) = claimed(ledger, delivery(**fields))
    settle(ledger, item, Event.ACCEPTED, provider_id="p-1")
    return item.notification.id


def test_a_notification_shows_its_state_and_masks_its_receiver(
    gateway: OpenGateway, token: str, ledger: SqlLedger
) -> None:
    name = sent(ledger, receivers=[NUMBER])
    answer = gateway.get(token, f"/v1/notifications/{name}")
    assert answer.status_code == 200
    (one,) = answer.json()["deliveries"]
    assert one["state"] == "SENT"
    assert one["timeline"]
    assert NUMBER not in answer.text


def test_a_business_id_lists_its_notifications(
    gateway: OpenGateway, token: str, ledger: SqlLedger
) -> None:
    name = sent(ledger, biz_id="order-1")
    answer = gateway.get(token, "/v1/notifications", biz_id="order-1")
    assert [one["id"] for one in answer.json()["notifications"]] == [name]
    assert gateway.get(token, "/v1/notifications").status_code == 422


def test_lanes_of_others_are_as_unknown_ones(
    gateway: OpenGateway, make_key: Callable[..., KeyMade], ledger: SqlLedger
) -> None:
    name = sent(ledger, biz_id="order-1")
    token = make_key(lanes=("email.*",)).token
    paths = (f"/v1/notifications/{name}", "/v1/notifications/nobody-knows-it")
    known, unknown = (gateway.get(token, path) for path in paths)
    assert known.status_code == unknown.status_code == 404
    assert known.content == unknown.content
    found = gateway.get(token, "/v1/notifications", biz_id="order-1")
    assert found.json() == {"notifications": []}
    assert gateway.post(token, RECALL, {"id": name}).status_code == 404
    assert gateway.post(token, RECALL, {"biz_id": "order-1"}).status_code == 403


def test_a_recall_reports_each_delivery(
    gateway: OpenGateway, token: str, ledger: SqlLedger
) -> None:
    name = sent(ledger, receivers=[NUMBER])
    answer = gateway.post(token, RECALL, {"id": name})
    assert answer.status_code == 200
    (one,) = answer.json()["deliveries"]
    assert one["message_id"] == name
    assert NUMBER not in answer.text


def test_a_key_of_some_lanes_recalls_what_it_has_just_sent(
    gateway: OpenGateway, make_key: Callable[..., KeyMade]
) -> None:
    ours = make_key("ours", lanes=("webhook.*",)).token
    other = make_key("other", lanes=("webhook.*",)).token
    name = gateway.send(ours, idempotency_key="k1").json()["id"]
    assert gateway.post(other, RECALL, {"id": name}).status_code == 404
    assert gateway.post(ours, RECALL, {"id": name}).json()["name"] == name


@pytest.mark.parametrize(
    "body", [{}, {"id": "a", "biz_id": "b"}, {"id": 1}, {"id": ""}, {"id": "a", "lane": "x"}, []]
)
def test_a_recall_names_one_thing(gateway: OpenGateway, token: str, body: object) -> None:
    assert gateway.post(token, RECALL, body).status_code in (400, 422)
