"""Twilio: literal requests out, literal answers in; then over sockets against the simulator."""

from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest

from channels.channel import Account, Call, Resolution
from channels.engine import Engine
from channels.error_table import Row
from channels.providers.twilio import Twilio
from channels.registry import AccountError
from channels.simulator import Faults, Simulator, spawn
from channels.transport import Transport
from message.delivery import Delivery, Rendered
from message.envelope import Template
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown
from tests.channels.providers.sms_calls import (
    AT_MS,
    LOST,
    REFUSED,
    account_of,
    attempt_of,
    delivery,
    held,
    meant,
    outcome,
)
from tests.conformance.samples.twilio import ACCOUNT, PATH

CHANNEL = Twilio()
MAIN = account_of(ACCOUNT)
SLOW = account_of(ACCOUNT, query_lag_s=60)
TO = "+14155552671"
TEXT = "Your code is 4711 ☂"
SERVICE = "MG" + "1" * 32
HX = "HX" + "2" * 32
MESSAGES = b"/2010-04-01/Accounts/AC00000000000000000000000000000000/Messages.json"


def one(receiver: str = TO, **fields: object) -> Delivery:
    if "template" not in fields:
        fields.setdefault("content", {"text": TEXT})
    return delivery(receiver, **fields)  # type: ignore[arg-type]


def templated(**params: object) -> Delivery:
    return one(template=Template(HX, params))


def created(sid: str = "SM1") -> httpx.Response:
    return httpx.Response(201, json={"sid": sid, "status": "queued"})


def refusing(code: int, status: int = 400, **headers: str) -> httpx.Response:
    content = {"code": code, "message": "said", "more_info": "https://…", "status": status}
    return httpx.Response(status, json=content, headers=headers)


def message(**fields: Any) -> dict[str, Any]:
    at = format_datetime(datetime.fromtimestamp(AT_MS / 1_000, UTC))
    return {
        "sid": "SM1",
        "to": TO,
        "body": TEXT,
        "direction": "outbound-api",
        "date_created": at,
        **fields,
    }


def page(*messages: dict[str, Any], following: str | None = None) -> httpx.Response:
    return httpx.Response(200, json={"messages": list(messages), "next_page_uri": following})


def form(request: httpx.Request) -> dict[str, str]:
    return dict(parse_qsl(request.read().decode()))


def query(request: httpx.Request) -> dict[str, str]:
    return dict(parse_qsl(request.url.query.decode()))


def test_the_request_is_a_form_with_a_login() -> None:
    request = CHANNEL.request(Call(MAIN, (one(),)))
    assert (request.method, request.url.host) == ("POST", "api.twilio.com")
    assert request.url.raw_path == MESSAGES
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    login = b64encode(f"AC{'0' * 32}:simulator-secret".encode()).decode()
    assert request.headers["authorization"] == f"Basic {login}"
    assert request.read() == (
        b"To=%2B14155552671&From=%2B15005550006&Body=Your+code+is+4711+%E2%98%82"
    )


def test_a_content_template_goes_with_its_variables() -> None:
    account = account_of(
        {**ACCOUNT, "sender": ""},
        messaging_service_sid=SERVICE,
        status_callback="https://hongyan.example/receipts/twilio",
    )
    assert form(CHANNEL.request(Call(account, (templated(name="Ann", count=2),)))) == {
        "To": TO,
        "MessagingServiceSid": SERVICE,
        "StatusCallback": "https://hongyan.example/receipts/twilio",
        "ContentSid": HX,
        "ContentVariables": '{"count":"2","name":"Ann"}',
    }
    assert "ContentVariables" not in form(CHANNEL.request(Call(account, (templated(),))))


def test_an_api_key_signs_in_in_the_accounts_place() -> None:
    account = account_of(ACCOUNT, api_key_sid="SK" + "3" * 32)
    request = CHANNEL.request(Call(account, (one(),)))
    login = b64encode(f"SK{'3' * 32}:simulator-secret".encode()).decode()
    assert request.headers["authorization"] == f"Basic {login}"
    assert request.url.raw_path == MESSAGES


def test_a_path_of_the_endpoint_stays_in_front() -> None:
    account = account_of(ACCOUNT, "https://proxy.example/sms/", ca_file="/etc/ca.pem")
    request = CHANNEL.request(Call(account, (one(),)))
    assert request.url.raw_path == b"/sms" + MESSAGES
    assert request.extensions["ca_file"] == "/etc/ca.pem"


def test_an_account_must_name_a_sender() -> None:
    with pytest.raises(AccountError, match="sender or messaging_service_sid must be given"):
        account_of({**ACCOUNT, "sender": ""})
    with pytest.raises(AccountError, match="account_sid"):
        account_of({**ACCOUNT, "account_sid": "AC/../1"})


def test_no_secret_is_shown() -> None:
    assert "simulator-secret" not in f"{MAIN!r} {CHANNEL.request(Call(MAIN, (one(),))).url}"


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (one(), ""),
        (one(content={"text": "x" * 1_600}), ""),
        (one(content={"text": "x" * 1_601}), "text_too_long"),
        (one(content={"text": " "}), "no_text"),
        (one(content={"text": 7}), "no_text"),
        (one(content={"title": "x"}), "no_text"),
        (one("+1415555"), "bad_number"),
        (one("4155552671"), "bad_number"),
        (one("+8612345"), "bad_number"),
        (templated(name="Ann"), ""),
        (templated(name=[]), "bad_params"),
        (one(template=Template("SMS_1", {})), "bad_template"),
    ],
)
def test_what_can_never_be_sent_is_said_before(given: Delivery, code: str) -> None:
    assert CHANNEL.refusal(MAIN, given).partition(":")[0] == code


def test_a_created_message_is_accepted_under_its_sid() -> None:
    assert outcome(CHANNEL, MAIN, one(), created("SM7")) == Accepted("SM7")


@pytest.mark.parametrize("row", list(CHANNEL.errors), ids=lambda row: row.code)
def test_every_documented_error_means_what_its_row_says(row: Row) -> None:
    assert outcome(CHANNEL, MAIN, one(), refusing(int(row.code))) == meant(row, "said")


def test_retry_after_is_kept_to() -> None:
    answer = refusing(20429, 429, **{"Retry-After": "3"})
    assert outcome(CHANNEL, MAIN, one(), answer) == NotSent(
        "20429", "said", 3_000, limit=Limit.ACCOUNT
    )


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (LOST, Unknown),
        (REFUSED, NotSent),
        (refusing(29_999), Rejected),
        (refusing(29_999, 500), Unknown),
        (refusing(20500, 500), Unknown),
        (httpx.Response(201, content=b"<html>"), Unknown),
        (httpx.Response(201, json={"status": "queued"}), Unknown),
        (httpx.Response(201, content=b"\xff"), Unknown),
        (httpx.Response(500, content=b""), Unknown),
        (httpx.Response(503, json={"message": "no code"}), Unknown),
        (httpx.Response(429, content=b""), NotSent),
        (httpx.Response(503, headers={"Retry-After": "7"}), Unknown),
        (httpx.Response(404, content=b"not found"), NotSent),
    ],
)
def test_other_answers_are_judged_by_what_is_known(
    answer: httpx.Response, kind: type[AnyOutcome]
) -> None:
    assert type(outcome(CHANNEL, MAIN, one(), answer)) is kind


def test_an_attempt_in_doubt_is_looked_up_by_number_and_day() -> None:
    asked, found = held(CHANNEL.resolve(MAIN, attempt_of(one())), page(message()))
    assert (found.resolution, found.provider_id) == (Resolution.SENT, "SM1")
    (request,) = asked
    assert (request.method, request.url.raw_path.partition(b"?")[0]) == ("GET", MESSAGES)
    assert query(request) == {"To": TO, "DateSent>": "2026-09-21", "PageSize": "200"}
    assert request.headers["authorization"].startswith("Basic ")


def test_a_message_that_still_waits_has_no_date_and_is_looked_for_without_one() -> None:
    asked, found = held(CHANNEL.resolve(MAIN, attempt_of(one())), page(), page(message()))
    assert found.resolution is Resolution.SENT
    assert query(asked[1]) == {"To": TO, "PageSize": "200"}


def test_further_pages_are_turned_at_the_accounts_own_endpoint() -> None:
    following = "https://elsewhere.example/x/Messages.json?To=%2B14155552671&PageToken=PA1"
    asked, found = held(
        CHANNEL.resolve(MAIN, attempt_of(one())), page(following=following), page(message())
    )
    assert found.resolution is Resolution.SENT
    assert asked[1].url.host == "api.twilio.com"
    assert asked[1].url.raw_path == MESSAGES + b"?To=%2B14155552671&PageToken=PA1"


EARLIER = format_datetime(datetime.fromtimestamp(AT_MS / 1_000 - 61, UTC))


@pytest.mark.parametrize(
    "other",
    [
        message(body="something else"),
        message(body=None),
        message(direction="inbound"),
        message(to="+14155550000"),
        message(date_created=EARLIER),
    ],
)
def test_messages_that_are_not_ours_say_nothing_and_an_empty_list_only_after_the_lag(
    other: dict[str, Any],
) -> None:
    for age_s, expected in ((59, Resolution.ASK_LATER), (60, Resolution.NOT_SENT)):
        dialogue = CHANNEL.resolve(SLOW, attempt_of(one(), age_s))
        _, found = held(dialogue, page(other), page(other))
        assert found.resolution is expected


@pytest.mark.parametrize("fields", [{"date_created": None}, {"date_created": "soon"}])
def test_a_date_that_cannot_be_read_does_not_hide_our_message(fields: dict[str, Any]) -> None:
    _, found = held(CHANNEL.resolve(MAIN, attempt_of(one())), page(message(**fields)))
    assert found.resolution is Resolution.SENT


def test_a_trial_accounts_text_is_known_behind_its_preface() -> None:
    body = f"Sent from your Twilio trial account - {TEXT}"
    _, found = held(CHANNEL.resolve(MAIN, attempt_of(one())), page(message(body=body)))
    assert found.resolution is Resolution.SENT


def test_of_a_content_template_only_silence_can_be_found_out() -> None:
    dialogue = CHANNEL.resolve(MAIN, attempt_of(templated()))
    _, found = held(dialogue, page(message(body="whatever Twilio made of it")))
    assert found.resolution is Resolution.ASK_LATER
    _, found = held(CHANNEL.resolve(MAIN, attempt_of(templated())), page(), page())
    assert found.resolution is Resolution.NOT_SENT


def test_what_a_template_of_ours_said_is_found_by_its_text_only_where_the_text_is_known() -> None:
    """A recovery has the template's name: what it says today may not be what it said then."""
    named = one(template=Template("ours", {}))
    _, found = held(CHANNEL.resolve(MAIN, attempt_of(named)), page(message()))
    assert found.resolution is Resolution.ASK_LATER
    named.rendered = Rendered(providers={"twilio": Rendered(content={"text": TEXT})})
    _, found = held(CHANNEL.resolve(MAIN, attempt_of(named)), page(message()))
    assert found.resolution is Resolution.SENT


@pytest.mark.parametrize(
    "answer", [LOST, REFUSED, refusing(20429, 429), httpx.Response(200, content=b"?")]
)
def test_a_list_that_cannot_be_read_says_nothing(answer: httpx.Response) -> None:
    _, found = held(CHANNEL.resolve(MAIN, attempt_of(one())), answer)
    assert found.resolution is Resolution.ASK_LATER


def test_a_list_without_end_says_nothing() -> None:
    endless = page(following="/x?PageToken=PA1")
    asked, found = held(CHANNEL.resolve(MAIN, attempt_of(one())), *[endless] * 40)
    assert len(asked) == 40
    assert found.resolution is Resolution.ASK_LATER


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Simulator]:
    with spawn(tmp_path) as simulator:
        yield simulator


@pytest.fixture
def engine() -> Iterator[Engine]:
    transport = Transport()
    yield Engine(transport)
    transport.close()


def send(engine: Engine, account: Account, given: Delivery) -> AnyOutcome:
    (found,) = engine.send(CHANNEL, Call(account, (given,)), 5.0)
    return found


def test_over_sockets_texts_and_templates_are_accepted(provider: Simulator, engine: Engine) -> None:
    account = account_of(ACCOUNT, provider.url + PATH + "/tenant")
    assert send(engine, account, one()) == Accepted(f"SM{1:032x}")
    assert send(engine, account, templated(name="Ann")) == Accepted(f"SM{2:032x}")
    assert [record.id for record in provider.records()] == [TEXT, f'{HX} {{"name":"Ann"}}']


def test_over_sockets_doubles_are_told_from_other_messages(
    provider: Simulator, engine: Engine
) -> None:
    account = account_of(ACCOUNT, provider.url + PATH)
    for given in (one(), one(content={"text": "another"}), one("+14155552672"), one()):
        send(engine, account, given)
    summary = provider.report(summary_only=True).summary
    assert (summary.accepted, summary.accepted_keys, len(summary.doubled)) == (4, 3, 1)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"auth_token": "wrong"}, "20003"),
        ({"account_sid": "AC" + "1" * 32}, "20003"),
    ],
)
def test_over_sockets_a_wrong_login_halts_the_account(
    provider: Simulator, engine: Engine, changes: dict[str, str], code: str
) -> None:
    account = account_of({**ACCOUNT, **changes}, provider.url + PATH)
    found = send(engine, account, one())
    assert isinstance(found, NotSent)
    assert (found.code, found.account) == (code, True)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"From": "+1", "Body": "x"}, 21604),
        ({"To": "4155552671", "From": "+1", "Body": "x"}, 21211),
        ({"To": TO, "Body": "x"}, 21603),
        ({"To": TO, "From": "+1"}, 21602),
        ({"To": TO, "MessagingServiceSid": SERVICE}, 21619),
        ({"To": TO, "From": "+1", "Body": "x" * 1_601}, 21617),
        ({"To": TO, "From": "+1", "Body": "x", "ContentVariables": "{}"}, 21654),
        ({"To": TO, "From": "+1", "ContentSid": "HX1"}, 21655),
        ({"To": TO, "From": "+1", "ContentSid": HX, "ContentVariables": "[]"}, 21656),
    ],
)
def test_over_sockets_the_simulator_wants_what_the_provider_wants(
    provider: Simulator, given: dict[str, str], code: int
) -> None:
    request = CHANNEL.request(Call(account_of(ACCOUNT, provider.url + PATH), (one(),)))
    login = {"Authorization": request.headers["authorization"]}
    answer = httpx.post(request.url, headers=login, data=given, trust_env=False)
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert list(provider.records()) == []


def test_over_sockets_errors_come_with_the_providers_status(
    provider: Simulator, engine: Engine
) -> None:
    account = account_of(ACCOUNT, provider.url + PATH)
    provider.control(rules=[Faults(codes={"20429": 1}, retry_after="2")])
    assert send(engine, account, one()) == NotSent(
        "20429", "simulated: 20429", 2_000, limit=Limit.ACCOUNT
    )
    provider.control(rules=[Faults(receiver_codes={"21610": 1})])
    assert send(engine, account, one()) == Rejected("21610", "simulated: 21610")
    assert not any(record.accepted for record in provider.records())


def test_over_sockets_what_was_accepted_then_reset_is_found_even_after_a_restart(
    tmp_path: Path, engine: Engine
) -> None:
    with spawn(tmp_path, rules=[Faults(reset=1)]) as first:
        account = account_of(ACCOUNT, first.url + PATH)
        assert isinstance(send(engine, account, one()), Unknown)
        (record,) = first.records()
    with spawn(tmp_path) as second:
        account = account_of(ACCOUNT, second.url + PATH)
        found = engine.resolve(CHANNEL, account, attempt_of(one(), called_at=record.at_ms), 5.0)
    assert found is not None
    assert (found.resolution, found.provider_id) == (Resolution.SENT, record.provider_id)


def test_over_sockets_what_was_dropped_is_found_missing_among_pages_of_others(
    provider: Simulator, engine: Engine
) -> None:
    account = account_of(ACCOUNT, provider.url + PATH)
    for number in range(201):
        send(engine, account, one(content={"text": f"text {number}"}))
    provider.control(rules=[Faults(drop=1)])
    assert isinstance(send(engine, account, one()), Unknown)
    at_ms = next(record.at_ms for record in provider.records())
    for given, expected in (
        (one(), Resolution.NOT_SENT),
        (one(content={"text": "text 0"}), Resolution.SENT),
    ):
        found = engine.resolve(CHANNEL, account, attempt_of(given, called_at=at_ms), 5.0)
        assert found is not None
        assert found.resolution is expected
