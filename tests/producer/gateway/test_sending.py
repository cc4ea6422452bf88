"""POST /v1/notifications and :batch over the whole application, on both databases."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import msgspec
import pytest

from hongyan_client.errors import BufferFull, NotDelivered, SendInDoubt
from idempotency.ledger import LedgerUnavailable
from message.envelope import MAX_BYTES, EnvelopeError, Notification, decode
from producer.gateway import envelope_limits
from producer.gateway.endpoint import BatchTurns, GatewayEndpoint
from producer.gateway.envelope_limits import MOST_BODY, MOST_CONTAINERS, MOST_IN_BATCH, MOST_ITEMS
from producer.gateway.key_ring import STALE_S
from producer.gateway.key_store import KeyMade, KeyStore
from producer.gateway.wiring import wall_ms
from tests.producer.gateway.conftest import NOTICE, OpenGateway, bearer

BATCH = "/v1/notifications:batch"


def test_202_comes_after_the_acknowledgement_with_the_id_and_its_place(
    gateway: OpenGateway, token: str
) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    answer = gateway.send(token, traceparent=trace)
    assert answer.status_code == 202
    said = answer.json()
    (record,) = gateway.publisher.records
    assert decode(record.value).id == said["id"]
    assert record.topic == "hongyan.dispatch.webhook.notice"
    assert dict(record.headers) == {
        "hongyan-id": said["id"].encode(),
        "traceparent": trace.encode(),
    }
    assert answer.headers["location"] == f"/v1/notifications/{said['id']}"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "failure", [SendInDoubt("?", "msg_timed_out"), NotDelivered("no topic", "unknown_topic")]
)
def test_without_an_acknowledgement_the_answer_is_503_with_the_id(
    gateway: OpenGateway, token: str, failure: Exception
) -> None:
    gateway.publisher.failure = failure
    answer = gateway.send(token)
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["id"] == decode(gateway.publisher.records[0].value).id


def test_a_full_buffer_puts_the_client_off(gateway: OpenGateway, token: str) -> None:
    gateway.publisher.refusal = BufferFull("full")
    assert gateway.send(token).status_code == 503
    assert gateway.publisher.records == []


def test_a_repeat_gets_the_first_answer_and_sends_nothing(gateway: OpenGateway, token: str) -> None:
    first = gateway.send(token, idempotency_key="k1")
    second = gateway.send(token, idempotency_key="k1")
    assert first.status_code == second.status_code == 202
    assert first.content == second.content
    assert second.headers["idempotent-replayed"] == "true"
    assert len(gateway.publisher.records) == 1


def test_the_same_key_with_another_body_is_refused(gateway: OpenGateway, token: str) -> None:
    assert gateway.send(token, idempotency_key="k1").status_code == 202
    answer = gateway.send(token, NOTICE | {"biz_id": "b"}, idempotency_key="k1")
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_mismatch")


def test_a_repeat_after_503_produces_the_same_bytes(gateway: OpenGateway, token: str) -> None:
    gateway.publisher.failure = SendInDoubt("?", "msg_timed_out")
    assert gateway.send(token, idempotency_key="k1").status_code == 503
    gateway.publisher.failure = None
    assert gateway.send(token, idempotency_key="k1").status_code == 202
    first, second = gateway.publisher.records
    assert first == second


def test_a_refused_notification_may_be_corrected_under_the_same_key(
    gateway: OpenGateway, token: str
) -> None:
    wrong = NOTICE | {"receivers": []}
    answer = gateway.send(token, wrong, idempotency_key="k1")
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_receivers")
    assert answer.json()["path"] == "$.receivers"
    assert gateway.send(token, idempotency_key="k1").status_code == 202


def test_two_keys_may_use_the_same_idempotency_key(
    gateway: OpenGateway, make_key: Callable[..., KeyMade]
) -> None:
    tokens = [make_key("a").token, make_key("b").token]
    ids = {gateway.send(one, idempotency_key="k1").json()["id"] for one in tokens}
    assert len(ids) == 2


def test_of_concurrent_requests_with_one_key_one_is_at_work(
    gateway: OpenGateway, token: str
) -> None:
    entered, go = threading.Event(), threading.Event()
    endpoint: GatewayEndpoint = gateway.endpoint
    begin = endpoint.parts.once._store.begin

    def slow(*arguments: Any) -> Any:
        found = begin(*arguments)
        entered.set()
        go.wait(10)
        return found

    endpoint.parts.once._store.begin = slow  # type: ignore[method-assign, assignment]
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(gateway.send, token, idempotency_key="k1")
        assert entered.wait(10)
        endpoint.parts.once._store.begin = begin  # type: ignore[method-assign]
        second = gateway.send(token, idempotency_key="k1")
        go.set()
        assert first.result(10).status_code == 202
    assert (second.status_code, second.json()["code"]) == (409, "in_progress")
    assert "retry-after" in second.headers
    assert len(gateway.publisher.records) == 1


def test_a_batch_says_what_became_of_each_item(gateway: OpenGateway, token: str) -> None:
    items = [NOTICE, 1, NOTICE | {"kind": "nothing"}, NOTICE | {"id": "mine"}]
    answer = gateway.post(token, BATCH, {"notifications": items}, idempotency_key="b1")
    assert answer.status_code == 207
    said = answer.json()
    assert (said["accepted"], said["refused"]) == (2, 2)
    assert [one["status"] for one in said["results"]] == [202, 422, 422, 202]
    assert said["results"][2]["problem"]["code"] == "unknown_kind"
    assert said["results"][3]["id"] == "mine"
    again = gateway.post(token, BATCH, {"notifications": items}, idempotency_key="b1")
    assert again.content == answer.content
    assert len(gateway.publisher.records) == 2


def test_a_batch_whose_items_all_went_is_202(gateway: OpenGateway, token: str) -> None:
    answer = gateway.post(token, BATCH, {"notifications": [NOTICE] * 30})
    assert answer.status_code == 202
    assert len({one["id"] for one in answer.json()["results"]}) == 30


def test_a_batch_that_kafka_took_in_part_is_tried_again_with_the_same_ids(
    gateway: OpenGateway, token: str
) -> None:
    body = {"notifications": [NOTICE] * 3}
    gateway.publisher.failure = SendInDoubt("?", "msg_timed_out")
    assert gateway.post(token, BATCH, body, idempotency_key="b1").status_code == 207
    gateway.publisher.failure = None
    assert gateway.post(token, BATCH, body, idempotency_key="b1").status_code == 202
    records = gateway.publisher.records
    assert records[:3] == records[3:]


def refuse(gateway: OpenGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no notification is taken, as after a change of its template."""

    def refused(_notification: Notification) -> NoReturn:
        raise EnvelopeError("unknown_template", "$.template.id", "there is no such template")

    monkeypatch.setattr(gateway.endpoint.parts.submission, "_render", refused)


def test_an_item_that_kafka_has_stays_accepted_whatever_changed_since(
    gateway: OpenGateway, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client would send it under a new key if a repeat refused it, and the person would get two."""
    body = {"notifications": [NOTICE, 1, NOTICE | {"id": "mine"}]}
    gateway.publisher.unsafe = {2}
    first = gateway.post(token, BATCH, body, idempotency_key="b1").json()["results"]
    assert [one["status"] for one in first] == [202, 422, 503]
    refuse(gateway, monkeypatch)
    for _ in range(2):
        answer = gateway.post(token, BATCH, body, idempotency_key="b1")
        assert "idempotent-replayed" not in answer.headers
        again = answer.json()["results"]
        assert again[:2] == first[:2]
        problem = again[2]["problem"]
        assert (problem["status"], problem["code"]) == (422, "unknown_template")
        assert problem["id"] == "mine"
        assert "an earlier try of this request may have reached Kafka" in problem["detail"]
    monkeypatch.undo()
    answer = gateway.post(token, BATCH, body, idempotency_key="b1")
    assert [one["status"] for one in answer.json()["results"]] == [202, 422, 202]
    last = gateway.post(token, BATCH, body, idempotency_key="b1")
    assert last.content == answer.content
    assert last.headers["idempotent-replayed"] == "true"
    assert len(gateway.publisher.records) == 3


def test_ids_are_recorded_before_anything_is_published(
    gateway: OpenGateway, make_key: Callable[..., KeyMade], keys: KeyStore
) -> None:
    """So a gateway that is killed after Kafka's acknowledgement leaves a key that may recall them."""
    made = make_key()
    store = gateway.endpoint.parts.once._store
    key_id = keys.live()[made.prefix].id
    seen = []

    def note() -> None:
        seen.append([store.sent_by(key_id, name) for name in ("mine", "mine-2", "refused")])

    gateway.publisher.before = note
    gateway.send(made.token, NOTICE | {"id": "mine"}, idempotency_key="k1")
    items = [NOTICE, NOTICE | {"id": "mine-2"}, NOTICE | {"id": "refused", "receivers": []}]
    gateway.post(made.token, BATCH, {"notifications": items}, idempotency_key="b1")
    assert seen == [[True, False, False], [True, True, False], [True, True, False]]
    for record in gateway.publisher.records:
        assert store.sent_by(key_id, decode(record.value).id)


def test_a_batch_whose_ids_cannot_be_recorded_is_not_published(
    gateway: OpenGateway, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_arguments: Any) -> NoReturn:
        raise LedgerUnavailable("the database does not answer")

    monkeypatch.setattr(gateway.endpoint.parts.once._store, "note_ids", away)
    body = {"notifications": [NOTICE | {"id": "mine"}]}
    assert gateway.post(token, BATCH, body, idempotency_key="b1").status_code == 503
    assert gateway.publisher.records == []
    monkeypatch.undo()
    assert gateway.post(token, BATCH, body, idempotency_key="b1").status_code == 202


@pytest.mark.parametrize("own", [{}, {"id": "mine"}], ids=["derived", "own"])
def test_a_refused_repeat_names_the_id_that_kafka_may_have(
    gateway: OpenGateway, token: str, monkeypatch: pytest.MonkeyPatch, own: dict[str, str]
) -> None:
    gateway.publisher.unsafe = {1}
    first = gateway.send(token, NOTICE | own, idempotency_key="k1")
    assert first.status_code == 503
    refuse(gateway, monkeypatch)
    answer = gateway.send(token, NOTICE | own, idempotency_key="k1")
    assert (answer.status_code, answer.json()["id"]) == (422, first.json()["id"])
    assert "an earlier try of this request may have reached Kafka" in answer.json()["detail"]
    other = gateway.send(token, NOTICE | own, idempotency_key="k2")
    assert other.status_code == 422
    assert "id" not in other.json()


def test_what_has_expired_is_refused(gateway: OpenGateway, token: str) -> None:
    now = wall_ms()
    in_seconds = gateway.send(token, NOTICE | {"created_at": now // 1_000})
    assert (in_seconds.status_code, in_seconds.json()["code"]) == (422, "expired")
    assert in_seconds.json()["path"] == "$.created_at"
    assert "epoch milliseconds" in in_seconds.json()["detail"]
    old = NOTICE | {"created_at": now - 60_000}
    assert gateway.send(token, old | {"ttl_ms": 59_000}).json()["code"] == "expired"
    assert gateway.send(token, old | {"ttl_ms": 90_000}).status_code == 202
    assert gateway.send(token, old).status_code == 202
    two = {"notifications": [old, old | {"ttl_ms": 1}]}
    answer = gateway.post(token, BATCH, two, idempotency_key="b1").json()
    assert [one["status"] for one in answer["results"]] == [202, 422]


def test_a_repeat_is_not_refused_for_the_time_since_its_first_try(
    gateway: OpenGateway, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = NOTICE | {"created_at": wall_ms(), "ttl_ms": 60_000}
    gateway.publisher.unsafe = {1, 2}
    assert gateway.send(token, soon, idempotency_key="k1").status_code == 503
    body = {"notifications": [soon, soon | {"ttl_ms": 1}]}
    gateway.post(token, BATCH, body, idempotency_key="b1")
    later = wall_ms() + 120_000
    monkeypatch.setattr(gateway.endpoint.parts.submission, "_now_ms", lambda: later)
    assert gateway.send(token, soon, idempotency_key="k1").status_code == 202
    again = gateway.post(token, BATCH, body, idempotency_key="b1").json()["results"]
    assert [one["status"] for one in again] == [202, 422]
    assert again[1]["problem"]["code"] == "expired"
    assert gateway.send(token, soon, idempotency_key="k2").json()["code"] == "expired"


def test_a_key_revoked_in_mid_batch_sends_no_more_of_it(
    gateway: OpenGateway, keys: KeyStore, token: str
) -> None:
    def revoke_at_the_tenth() -> None:
        if len(gateway.publisher.records) == 9:
            with keys.database.begin() as connection:
                keys.revoke(connection, "shop")
            gateway.ring.look()

    gateway.publisher.before = revoke_at_the_tenth
    answer = gateway.post(token, BATCH, {"notifications": [NOTICE] * 20})
    assert answer.status_code == 207
    said = answer.json()
    assert (said["accepted"], said["refused"]) == (10, 10)
    assert {one["problem"]["code"] for one in said["results"][10:]} == {"key_revoked"}
    assert gateway.send(token).status_code == 401


def test_keys_that_cannot_be_checked_in_mid_batch_put_the_rest_of_it_off(
    gateway: OpenGateway, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeat under the Idempotency-Key doubles nothing, and each item is named with its id."""
    ring, now, load = gateway.ring, time.monotonic, gateway.ring._load
    items = [NOTICE] * 15 + [NOTICE | {"id": f"own-{n}"} for n in range(5)]

    def away() -> NoReturn:
        raise LedgerUnavailable("the database does not answer")

    def grow_stale_at_the_tenth() -> None:
        if len(gateway.publisher.records) == 9:
            monkeypatch.setattr(ring, "_load", away)
            monkeypatch.setattr(ring, "_monotonic", lambda: now() + STALE_S + 60)

    gateway.publisher.before = grow_stale_at_the_tenth
    answer = gateway.post(token, BATCH, {"notifications": items}, idempotency_key="b1")
    assert answer.status_code == 207
    assert int(answer.headers["retry-after"]) >= 1
    said = answer.json()
    assert (said["accepted"], said["refused"]) == (10, 10)
    first = [one["id"] for one in said["results"][:10]]
    put_off = [one["problem"] for one in said["results"][10:]]
    assert {(one["status"], one["code"]) for one in put_off} == {(503, "unavailable")}
    assert [one["id"] for one in put_off[5:]] == [f"own-{n}" for n in range(5)]

    gateway.publisher.before = lambda: None
    monkeypatch.setattr(ring, "_monotonic", now)
    monkeypatch.setattr(ring, "_load", load)
    ring.look()
    again = gateway.post(token, BATCH, {"notifications": items}, idempotency_key="b1")
    assert again.status_code == 202
    assert "retry-after" not in again.headers
    ids = [one["id"] for one in again.json()["results"]]
    assert ids == first + [one["id"] for one in put_off]
    assert len(gateway.publisher.records) == 20


def test_a_body_over_the_limit_is_one_clear_error(gateway: OpenGateway, token: str) -> None:
    answer = gateway.send(token, NOTICE | {"content": {"text": "x" * MOST_BODY}})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


@pytest.mark.parametrize("over", [-50, 1, 50_000])
def test_a_notification_over_the_limit_is_413_alone_and_in_a_batch(
    gateway: OpenGateway, token: str, over: int
) -> None:
    """What the gateway fills in counts, too."""
    empty = len(msgspec.json.encode(NOTICE | {"content": {"text": ""}}))
    item = NOTICE | {"content": {"text": "x" * (MAX_BYTES - empty + over)}}
    answer = gateway.send(token, item)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    (result,) = gateway.post(token, BATCH, {"notifications": [item]}).json()["results"]
    assert (result["status"], result["problem"]["code"]) == (413, "too_large")


def test_a_compressed_body_is_refused_in_a_sentence(gateway: OpenGateway, token: str) -> None:
    body = gzip.compress(msgspec.json.encode(NOTICE))
    answer = post_raw(gateway, token, "/v1/notifications", body, **{"content-encoding": "gzip"})
    assert (answer.status_code, answer.json()["code"]) == (415, "encoded")
    assert "without Content-Encoding" in answer.json()["detail"]
    body = msgspec.json.encode(NOTICE)
    answer = post_raw(gateway, token, "/v1/notifications", body, **{"content-encoding": "identity"})
    assert answer.status_code == 202


def test_another_kind_of_body_is_named_in_the_title(gateway: OpenGateway, token: str) -> None:
    answer = post_raw(gateway, token, "/v1/notifications", b"a=1", **{"content-type": "text/plain"})
    assert (answer.status_code, answer.json()["code"]) == (415, "not_json")
    assert answer.json()["title"] == "Not a kind of body that is taken"


@pytest.mark.parametrize("count", [MOST_ITEMS + 1, 1_000_000])
def test_too_many_items_are_one_clear_error(gateway: OpenGateway, token: str, count: int) -> None:
    body = b'{"notifications":[' + b",".join([b"0"] * count) + b"]}"
    headers = bearer(token) | {"content-type": "application/json"}
    answer = gateway.client.post(BATCH, content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_many_items")


def post_raw(gateway: OpenGateway, token: str, path: str, body: bytes, **headers: str) -> Any:
    named = bearer(token) | {"content-type": "application/json"} | headers
    return gateway.client.post(path, content=body, headers=named)


def holding(lists: int, text: str = "") -> bytes:
    """Returns a notification with so many empty lists in it."""
    inner = b",".join([b"[]"] * lists)
    fields = msgspec.json.encode(NOTICE | {"biz_id": text} if text else NOTICE)
    return fields[:-1] + b',"attributes":{"a":[' + inner + b"]}}"


def batch_of(*items: bytes) -> bytes:
    return b'{"notifications":[' + b",".join(items) + b"]}"


def test_an_item_that_is_too_large_is_refused_before_it_is_decoded(
    gateway: OpenGateway, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    decoder = envelope_limits._item_decoder

    class Noting:
        def decode(self, raw: msgspec.Raw) -> Any:
            sizes.append(len(memoryview(raw)))
            return decoder.decode(raw)

    monkeypatch.setattr(envelope_limits, "_item_decoder", Noting())
    small = msgspec.json.encode(NOTICE)
    large = msgspec.json.encode(NOTICE | {"content": {"text": "x" * MAX_BYTES}})
    answer = post_raw(gateway, token, BATCH, batch_of(small, large, small))
    results = answer.json()["results"]
    assert [one["status"] for one in results] == [202, 413, 202]
    assert results[1]["problem"]["code"] == "too_large"
    assert sizes == [len(small)] * 2


OTHERS = 5
"""Objects and lists of `holding` beside its empty lists."""


@pytest.mark.parametrize(
    ("lists", "expected"), [(MOST_CONTAINERS - OTHERS, 202), (MOST_CONTAINERS - OTHERS + 1, 413)]
)
def test_objects_and_lists_are_counted_before_they_are_made(
    gateway: OpenGateway, token: str, lists: int, expected: int
) -> None:
    brackets = '[{"' * 80
    one = post_raw(gateway, token, "/v1/notifications", holding(lists, brackets))
    several = post_raw(gateway, token, BATCH, batch_of(holding(lists, brackets)))
    (result,) = several.json()["results"]
    assert one.status_code == result["status"] == expected
    if expected == 413:
        assert one.json()["code"] == result["problem"]["code"] == "too_many_values"


def test_objects_and_lists_of_a_batch_are_counted_too(gateway: OpenGateway, token: str) -> None:
    items = [holding(MOST_CONTAINERS - OTHERS)] * (MOST_IN_BATCH // MOST_CONTAINERS)
    answer = post_raw(gateway, token, BATCH, batch_of(*items))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_many_values")
    assert post_raw(gateway, token, BATCH, batch_of(*items[1:])).status_code == 202


@pytest.mark.parametrize("item", [b"1", b'"a"', b"null"])
def test_an_item_that_is_no_object_spoils_no_other(
    gateway: OpenGateway, token: str, item: bytes
) -> None:
    small = msgspec.json.encode(NOTICE)
    results = post_raw(gateway, token, BATCH, batch_of(item, small)).json()["results"]
    assert results[0]["status"] in (400, 422)
    assert results[1]["status"] == 202


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"[1]", 400, "not_an_object"),
        (b'{"notifications":[1,]}', 400, "not_json"),
        (b'{"notifications":["\xff"]}', 400, "not_json"),
        (b'{"notifications":1}', 422, "no_items"),
        (b'{"notifications":[]}', 422, "no_items"),
        (b'{"notifications":null}', 422, "no_items"),
        (b"{}", 422, "no_items"),
        (b'{"notifications":1', 400, "not_json"),
    ],
)
def test_a_batch_is_an_object_with_a_list(
    gateway: OpenGateway, token: str, body: bytes, status: int, code: str
) -> None:
    answer = post_raw(gateway, token, BATCH, body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.parametrize(
    ("sizes", "receivers", "turns"),
    [([100] * 50, 1, 2), ([64 << 10] * 3, 1, 3), ([1 << 20], 1, 16), ([5_000] * 4, 1_000, 4)],
)
def test_a_turn_is_given_up_by_items_bytes_and_receivers(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], receivers: int, turns: int
) -> None:
    given = []
    sleep = asyncio.sleep

    async def noted(delay: float) -> None:
        given.append(delay)
        await sleep(delay)

    async def work() -> None:
        used = BatchTurns()
        for size in sizes:
            await used.used(size, receivers)

    monkeypatch.setattr(asyncio, "sleep", noted)
    asyncio.run(work())
    assert given == [0] * turns


@pytest.mark.parametrize("depth", [40, 100_000])
def test_deep_json_is_refused(gateway: OpenGateway, token: str, depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    body = msgspec.json.encode(NOTICE)[:-1] + b',"attributes":{"a":' + deep + b"}}"
    headers = bearer(token) | {"content-type": "application/json"}
    answer = gateway.client.post("/v1/notifications", content=body, headers=headers)
    assert answer.status_code == (422 if depth == 40 else 413)
    assert gateway.publisher.records == []


def test_a_rate_is_kept_per_key(gateway: OpenGateway, make_key: Callable[..., KeyMade]) -> None:
    slow, other = make_key("slow", rate_per_s=0.01, burst=3).token, make_key("other").token
    assert [gateway.send(slow).status_code for _ in range(4)] == [202, 202, 202, 429]
    answer = gateway.send(slow)
    assert int(answer.headers["retry-after"]) > 30
    assert gateway.send(other).status_code == 202


def test_a_batch_above_the_burst_goes_and_is_paid_in_full(
    gateway: OpenGateway, make_key: Callable[..., KeyMade]
) -> None:
    token = make_key("slow", rate_per_s=1, burst=3).token
    answer = gateway.post(token, "/v1/notifications:batch", {"notifications": [NOTICE] * 40})
    assert (answer.status_code, answer.json()["accepted"]) == (202, 40)
    answer = gateway.send(token)
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) > 30
