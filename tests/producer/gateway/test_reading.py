"""GET and recall: only the key's lanes, receivers masked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import msgspec
import pytest

from backends.settings import Settings
from hongyan_client.errors import SendInDoubt
from idempotency.lookups import Queries
from idempotency.sql_ledger import SqlLedger, clock_of, open_ledger
from message.states import Event, State
from producer.gateway.api_keys import terms_of
from producer.gateway.key_store import KeyMade, KeyStore
from producer.gateway.story_reader import MOST_STORIES
from tests.idempotency.making import claimed, claims, delivery, settle, worker
from tests.producer.gateway.conftest import NOTICE, OpenGateway
from tracing.events import Stage, TraceEvent
from tracing.sinks.database import DatabaseSink

SEND = "/v1/notifications"
RECALL = f"{SEND}:recall"
NUMBER = "+8613800000001"


@pytest.fixture
def ledger(settings: Settings) -> Iterator[SqlLedger]:
    ledger = open_ledger(settings)
    ledger.register(worker("w1"))
    yield ledger
    ledger.close()


@pytest.fixture
def trace(ledger: SqlLedger) -> Callable[..., None]:
    """Writes an event that names its lane in its reason."""
    sink = DatabaseSink(ledger.database, keep_days=7)

    def write(message_id: str, key: str, lane: str) -> None:
        event = TraceEvent(
            at=ledger.recalls().now_ms(),
            stage=Stage.RECEIPT,
            message_id=message_id,
            delivery_key=key,
            lane=lane,
            reason=f"seen in {lane}",
        )
        sink.write([event])

    return write


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


@pytest.mark.parametrize(
    "name",
    [
        "order/1001",
        "/a",
        "a/",
        "a//b",
        "a%2Fb",
        "a b",
        "a?b",
        "1 / 2 #3",
        "...",
        "./",
        "a/..",
        "/.",
    ],
)
def test_the_location_of_any_id_leads_to_its_notification(
    gateway: OpenGateway, token: str, ledger: SqlLedger, name: str
) -> None:
    location = gateway.send(token, NOTICE | {"id": name}).headers["location"]
    sent(ledger, id=name)
    answer = gateway.get(token, location)
    assert (answer.status_code, answer.json().get("id")) == (200, name)


@pytest.mark.parametrize("name", [".", "..", "/", "//"])
def test_an_id_that_no_path_can_name_is_refused(
    gateway: OpenGateway, token: str, name: str
) -> None:
    answer = gateway.send(token, NOTICE | {"id": name})
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_id")
    assert answer.json()["path"] == "$.id"
    assert gateway.publisher.records == []


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


def test_one_id_in_several_lanes_shows_a_key_the_deliveries_of_its_own(
    gateway: OpenGateway,
    make_key: Callable[..., KeyMade],
    ledger: SqlLedger,
    trace: Callable[..., None],
) -> None:
    """A sender under an id of another lane sees nothing of that lane, and hides nothing of it."""
    before = sent(ledger, id="order-1001", lane="sms.verification", receivers=[NUMBER])
    after = sent(ledger, id="order-1001", lane="sms.marketing", receivers=["+8613800000009"])
    assert before == after == "order-1001"
    rows = Queries(ledger.database).by_message("order-1001")
    for row in rows:
        trace(row.message_id, row.delivery_key, row.lane)
    path = "/v1/notifications/order-1001"
    for row in rows:
        token = make_key(row.lane, lanes=(row.lane,)).token
        answer = gateway.get(token, path).json()
        assert answer["lane"] == row.lane
        (one,) = answer["deliveries"]
        assert one["delivery_key"] == row.delivery_key
        assert f"seen in {row.lane}" in {
            moment["reason"] for moment in one["timeline"] if "reason" in moment
        }
    both = gateway.get(make_key("both", lanes=("sms.*",)).token, path).json()
    assert {one["delivery_key"] for one in both["deliveries"]} == {row.delivery_key for row in rows}


def test_an_event_of_another_lane_is_not_shown_with_the_same_delivery(
    gateway: OpenGateway,
    make_key: Callable[..., KeyMade],
    ledger: SqlLedger,
    trace: Callable[..., None],
) -> None:
    """Two lanes of one channel give one id and receiver the same delivery key."""
    sent(ledger, id="order-1", lane="sms.marketing", receivers=[NUMBER])
    (row,) = Queries(ledger.database).by_message("order-1")
    trace("order-1", row.delivery_key, "sms.verification")
    answer = gateway.get(make_key(lanes=("sms.marketing",)).token, "/v1/notifications/order-1")
    assert answer.json()["deliveries"][0]["state"] == "SENT"
    assert "seen in sms.verification" not in answer.text
    answer = gateway.get(
        make_key("o", lanes=("sms.verification",)).token, "/v1/notifications/order-1"
    )
    assert answer.json()["deliveries"][0]["state"] is None
    assert "seen in sms.verification" in answer.text


def test_a_business_id_that_is_a_message_id_too_lists_all_its_notifications(
    gateway: OpenGateway, token: str, ledger: SqlLedger
) -> None:
    sent(ledger, id="order-1001", biz_id="order-1001", receivers=[NUMBER])
    sent(ledger, id="m-2", biz_id="order-1001", receivers=[NUMBER])
    sent(ledger, id="order-1002", biz_id="order-1003", receivers=[NUMBER])
    found = gateway.get(token, "/v1/notifications", biz_id="order-1001").json()["notifications"]
    assert {one["id"] for one in found} == {"order-1001", "m-2"}
    assert gateway.get(token, "/v1/notifications", biz_id="order-1002").json() == {
        "notifications": []
    }


def test_newer_notifications_of_other_lanes_hide_none_of_a_business_id(
    gateway: OpenGateway, make_key: Callable[..., KeyMade], ledger: SqlLedger
) -> None:
    name = sent(ledger, biz_id="order-1", lane="sms.notice")
    claimed(
        ledger, *(delivery(biz_id="order-1", lane="sms.marketing") for _ in range(MOST_STORIES))
    )
    token = make_key(lanes=("sms.notice",)).token
    found = gateway.get(token, "/v1/notifications", biz_id="order-1").json()["notifications"]
    assert [one["id"] for one in found] == [name]


def test_a_recall_reports_each_delivery(
    gateway: OpenGateway, token: str, ledger: SqlLedger
) -> None:
    name = sent(ledger, receivers=[NUMBER])
    answer = gateway.post(token, RECALL, {"id": name})
    assert answer.status_code == 200
    (one,) = answer.json()["deliveries"]
    assert one["message_id"] == name
    assert NUMBER not in answer.text


def test_a_recall_of_an_id_of_several_lanes_reaches_those_of_the_key(
    gateway: OpenGateway, make_key: Callable[..., KeyMade], ledger: SqlLedger
) -> None:
    """Another key's post under the same id neither hinders a recall nor is recalled by it."""
    for lane, receiver in (("sms.verification", NUMBER), ("sms.marketing", "+8613800000009")):
        (item,) = claimed(ledger, delivery(id="order-1001", lane=lane, receivers=[receiver]))
        settle(ledger, item, Event.NOT_SENT, reason="busy", delay_ms=60_000)
    token = make_key(lanes=("sms.verification",)).token
    answer = gateway.post(token, RECALL, {"id": "order-1001"})
    assert answer.status_code == 200
    (one,) = answer.json()["deliveries"]
    assert (one["lane"], one["verdict"]) == ("sms.verification", "cancelled")
    states = {row.lane: row.state for row in Queries(ledger.database).by_message("order-1001")}
    assert states == {"sms.verification": "DROPPED", "sms.marketing": "RETRY"}
    later = delivery(id="order-1001", lane="sms.marketing", receivers=["+8613800000010"])
    assert claimed(ledger, later), "no announcement drops it"
    other = make_key("other", lanes=("email.*",)).token
    assert gateway.post(other, RECALL, {"id": "order-1001"}).status_code == 404


def test_a_key_of_some_lanes_recalls_what_it_has_just_sent(
    gateway: OpenGateway, make_key: Callable[..., KeyMade]
) -> None:
    ours = make_key("ours", lanes=("webhook.*",)).token
    other = make_key("other", lanes=("webhook.*",)).token
    name = gateway.send(ours, idempotency_key="k1").json()["id"]
    assert gateway.post(other, RECALL, {"id": name}).status_code == 404
    assert gateway.post(ours, RECALL, {"id": name}).json()["name"] == name


def test_a_key_of_some_lanes_recalls_what_it_has_just_sent_in_a_batch(
    gateway: OpenGateway, make_key: Callable[..., KeyMade]
) -> None:
    ours = make_key("ours", lanes=("webhook.*",)).token
    other = make_key("other", lanes=("webhook.*",)).token
    items = [NOTICE, {}, NOTICE | {"id": "mine"}, NOTICE]
    for name, sent in (("several", items), ("one", [NOTICE])):
        body = {"notifications": sent}
        answer = gateway.post(ours, f"{SEND}:batch", body, idempotency_key=name)
        ids = [one["id"] for one in answer.json()["results"] if one["status"] == 202]
        assert len(ids) == len([item for item in sent if item])
        for one in ids:
            assert gateway.post(other, RECALL, {"id": one}).status_code == 404
            assert gateway.post(ours, RECALL, {"id": one}).json()["name"] == one


def test_a_key_of_some_lanes_recalls_what_it_sent_without_an_acknowledgement(
    gateway: OpenGateway, make_key: Callable[..., KeyMade]
) -> None:
    ours = make_key("ours", lanes=("webhook.*",)).token
    other = make_key("other", lanes=("webhook.*",)).token
    gateway.publisher.failure = SendInDoubt("?", "msg_timed_out")
    ids = []
    for n, item in enumerate([NOTICE, NOTICE | {"id": "mine"}]):
        ids.append(gateway.send(ours, item, idempotency_key=f"k{n}").json()["id"])
    body = {"notifications": [NOTICE, NOTICE | {"id": "mine-2"}]}
    answer = gateway.post(ours, f"{SEND}:batch", body, idempotency_key="batch")
    ids += [one["problem"]["id"] for one in answer.json()["results"]]
    assert [ids[1], ids[3]] == ["mine", "mine-2"]
    for one in ids:
        assert gateway.post(other, RECALL, {"id": one}).status_code == 404
        assert gateway.post(ours, RECALL, {"id": one}).json()["name"] == one


@pytest.fixture
def settings_without_a_secret(settings: Settings) -> Settings:
    table = {"provider": "aliyun_sms", "access_key_id": "id", "sign_name": "sign"}
    return msgspec.structs.replace(settings, accounts={"ali": table})


def test_a_gateway_without_the_secret_of_an_account_recalls(
    settings_without_a_secret: Settings, ledger: SqlLedger
) -> None:
    (item,) = claimed(ledger, delivery(id="m-1", receivers=[NUMBER]))
    item.account = "ali"
    settle(ledger, item, Event.ACCEPTED, provider_id="p-1")
    with ExitStack() as stack:
        gateway = OpenGateway(settings_without_a_secret, stack)
        database = gateway.endpoint.parts.stories._database
        keys = KeyStore(database, clock_of(database))
        with database.begin() as connection:
            made = keys.add(connection, "every", terms_of(("recall",), (), 10, 10), by="test")
        gateway.ring.look()
        answer = gateway.post(made.token, RECALL, {"id": "m-1"})
    assert answer.status_code == 200
    (one,) = answer.json()["deliveries"]
    assert (one["state"], one["verdict"]) == ("SENT", "not_possible")
    assert "accounts.ali.access_key_secret: is missing" in one["why"]
    unread = delivery(id="m-1", receivers=["+8613800000002"])
    assert ledger.claim(claims([unread]), "w1")[0].state is State.DROPPED


MARKETING = NOTICE | {"kind": "marketing", "id": "login-1001"}


@pytest.mark.parametrize("is_read", [False, True], ids=["unread", "read"])
def test_a_recall_of_some_lanes_forbids_nothing_of_others(
    gateway: OpenGateway,
    make_key: Callable[..., KeyMade],
    token: str,
    ledger: SqlLedger,
    is_read: bool,
) -> None:
    """The sender chooses the id: it may be that of another lane's notification, which nobody has read."""
    marketing = make_key("marketing", lanes=("webhook.marketing", "webhook.notice")).token
    assert gateway.send(marketing, MARKETING, idempotency_key="k1").status_code == 202
    ours = delivery(id="login-1001", lane="webhook.marketing", receivers=["r1"])
    if is_read:
        (item,) = claimed(ledger, ours)
        settle(ledger, item, Event.NOT_SENT, reason="busy", delay_ms=60_000)
    answer = gateway.post(marketing, RECALL, {"id": "login-1001"})
    assert (answer.status_code, answer.json()["kind"]) == (200, "message")
    if not is_read:
        assert ledger.claim(claims([ours]), "w1")[0].state is State.DROPPED
    later = delivery(id="login-1001", lane="webhook.notice", receivers=["r2"])
    assert ledger.claim(claims([later]), "w1")[0].state is State.DROPPED, "a lane of the key"
    login = delivery(id="login-1001", lane="sms.verification", receivers=[NUMBER])
    assert claimed(ledger, login), "no lane of the key"
    states = {row.lane: row.state for row in Queries(ledger.database).by_message("login-1001")}
    assert states["webhook.marketing"] == "DROPPED"
    assert gateway.post(marketing, RECALL, {"id": "login-1001"}).status_code == 200
    assert gateway.post(token, RECALL, {"id": "login-1001"}).status_code == 200
    other = delivery(id="login-1001", lane="sms.notice", receivers=["+8613800000002"])
    assert ledger.claim(claims([other]), "w1")[0].state is State.DROPPED, "a key of every lane"


@pytest.mark.parametrize(
    "body", [{}, {"id": "a", "biz_id": "b"}, {"id": 1}, {"id": ""}, {"id": "a", "lane": "x"}, []]
)
def test_a_recall_names_one_thing(gateway: OpenGateway, token: str, body: object) -> None:
    assert gateway.post(token, RECALL, body).status_code in (400, 422)
