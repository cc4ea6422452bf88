"""The webhook channel as design section 7 has it: literal requests out, literal answers in."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.channel import (
    Account,
    Answer,
    Attempt,
    Call,
    Failure,
    Phase,
    Resolution,
    ResolveResult,
)
from channels.endpoints import BadEndpoint
from channels.http_client.wire_format import written
from channels.providers.webhook.adapter import WebhookChannel
from channels.secret import Secret
from message.delivery import Delivery
from message.envelope import Template
from message.outcomes import Accepted, NotSent, Rejected, Unknown
from tests.channels.calls import account, call, delivery

CHANNEL = WebhookChannel()


def accepted_id(body: bytes) -> str:
    one = call()
    (outcome,) = CHANNEL.outcomes(one, httpx.Response(200, content=body))
    assert isinstance(outcome, Accepted)
    return outcome.provider_id


def test_the_request_carries_content_key_and_attempt() -> None:
    one = call(content={"text": "你好"}, attempt=3)
    request = CHANNEL.request(one)
    assert (request.method, str(request.url)) == ("POST", "https://provider.example/hook")
    assert request.headers["idempotency-key"] == one.deliveries[0].key
    assert request.headers["content-type"] == "application/json"
    assert request.read().decode() == (
        '{"id":"m-1","biz_id":"order-1001","receiver":"user-1",'
        '"content":{"text":"你好"},"attempt":3}'
    )


def test_a_template_stands_in_the_contents_place() -> None:
    body = json.loads(CHANNEL.request(call(template=Template("T1", {"code": "1"}))).read())
    assert body["template"] == {"id": "T1", "params": {"code": "1"}}
    assert "content" not in body


def question_about(asked: Account, one: Delivery) -> httpx.Request:
    dialogue = CHANNEL.resolve(asked, Attempt(one, called_at=1, now=2))
    assert dialogue is not None
    return next(dialogue)


def found_by(answer: Answer, age_s: float = 60, **options: Any) -> Resolution:
    asked = account(**{"status_query": True, **options})
    dialogue = CHANNEL.resolve(asked, Attempt(delivery(), called_at=1, now=1 + int(age_s * 1_000)))
    assert dialogue is not None
    next(dialogue)
    with pytest.raises(StopIteration) as end:
        dialogue.send(answer)
    found: ResolveResult = end.value.value
    return found.resolution


@given(st.text(min_size=1, max_size=256).filter(str.isprintable))
def test_any_printable_receiver_travels_in_the_body_alone(receiver: str) -> None:
    one = call(receiver=receiver)
    request = CHANNEL.request(one)
    assert json.loads(request.read())["receiver"] == receiver
    assert str(request.url) == "https://provider.example/hook"
    question = question_about(account(status_query=True), one.deliveries[0])
    assert question.url.path == f"/hook/{one.deliveries[0].key}"


def test_a_token_is_sent_as_bearer_and_never_shown() -> None:
    mine = account(token=Secret("s3cret"))
    request = CHANNEL.request(Call(mine, (delivery(),)))
    assert request.headers["authorization"] == "Bearer s3cret"
    assert "s3cret" not in repr(mine) + repr(request) + repr(request.headers)


def test_an_accounts_ca_file_reaches_the_transport() -> None:
    request = CHANNEL.request(Call(account(ca_file="/etc/ca.pem"), (delivery(),)))
    assert request.extensions["ca_file"] == "/etc/ca.pem"


def test_one_accounts_deadline_does_not_leak_into_anothers_call() -> None:
    one = call()
    CHANNEL.request(one).extensions["timeout"] = {"total": 1.0}
    assert "timeout" not in CHANNEL.request(one).extensions


def test_a_changed_account_of_the_same_name_is_noticed() -> None:
    CHANNEL.request(Call(account("https://old.example/"), (delivery(),)))
    request = CHANNEL.request(Call(account("https://new.example/"), (delivery(),)))
    assert written(request).startswith(b"POST / HTTP/1.1\r\nHost: new.example\r\n")


def test_the_providers_id_is_kept() -> None:
    assert accepted_id(b'{"id":"p-7","more":[1]}') == "p-7"
    assert accepted_id(b'{"id":42}') == "42"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"ok",
        b"[]",
        b'{"id":null}',
        b'{"id":""}',
        b'{"id":{}}',
        b'{"id":"a\\u0000b"}',
        b'{"id":"%s"}' % (b"x" * 257),
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_without_one_the_delivery_key_stands_for_it(body: bytes) -> None:
    assert accepted_id(body) == call().deliveries[0].key


def test_outcomes_follow_the_shared_mapping() -> None:
    one = call()
    for answer, kind in (
        (httpx.Response(302), Rejected),
        (httpx.Response(404), Rejected),
        (httpx.Response(409), Unknown),
        (httpx.Response(429), NotSent),
        (httpx.Response(500), Unknown),
        (Failure(Phase.NOT_WRITTEN, "connect"), NotSent),
        (Failure(Phase.WRITTEN, "timeout"), Unknown),
    ):
        (outcome,) = CHANNEL.outcomes(one, answer)
        assert type(outcome) is kind


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("https://a.example", "https://a.example/KEY"),
        ("https://a.example/", "https://a.example/KEY"),
        ("https://a.example/x/", "https://a.example/x/KEY"),
        ("https://a.example/x%2Fy?k=v&k=w", "https://a.example/x%2Fy/KEY?k=v&k=w"),
        ("http://[::1]:8080/x", "http://[::1]:8080/x/KEY"),
    ],
)
def test_the_query_stands_below_the_endpoint(endpoint: str, expected: str) -> None:
    one = delivery()
    request = question_about(account(endpoint, token="t", status_query=True), one)
    assert (request.method, str(request.url)) == ("GET", expected.replace("KEY", one.key))
    assert request.headers["authorization"] == "Bearer t"


STATES = [b'{"state":"sent"}', b'{"state":"not_sent","more":1}']


@given(
    st.integers(100, 599), st.sampled_from([*STATES, b"", b"OK", b"{}", b'{"state":"?"}', b"[]"])
)
def test_only_a_state_beside_its_status_settles_what_was_in_doubt(status: int, body: bytes) -> None:
    expected = {(200, STATES[0]): Resolution.SENT, (404, STATES[1]): Resolution.NOT_SENT}
    found = found_by(httpx.Response(status, content=body))
    assert found is expected.get((status, body), Resolution.ASK_LATER)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(404, text="404 page not found"),
        httpx.Response(404, json={"error": "no such route"}),
        httpx.Response(404, json={"state": "sent"}),
        httpx.Response(200, text="<html>Welcome</html>"),
        httpx.Response(200, json={"state": "not_sent"}),
        httpx.Response(200, content=b"[" * 100_000),
    ],
)
def test_a_router_and_a_catch_all_tell_nothing(answer: httpx.Response) -> None:
    assert found_by(answer) is Resolution.ASK_LATER


def test_without_status_query_nothing_is_asked() -> None:
    assert CHANNEL.resolve(account(), Attempt(delivery(), called_at=1, now=2)) is None


def test_not_sent_is_believed_after_the_lag_only() -> None:
    answer = httpx.Response(404, content=STATES[1])
    assert found_by(answer, 6.9, query_lag_s=7) is Resolution.ASK_LATER
    assert found_by(answer, 7, query_lag_s=7) is Resolution.NOT_SENT


@pytest.mark.parametrize("phase", list(Phase))
def test_a_query_that_fails_settles_nothing(phase: Phase) -> None:
    assert found_by(Failure(phase, "connect")) is Resolution.ASK_LATER


def test_an_endpoint_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(BadEndpoint):
        CHANNEL.request(Call(account("ftp://a"), (delivery(),)))
