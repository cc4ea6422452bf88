"""Twilio: literal requests out, literal answers in; then over sockets against the simulator."""

from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import httpx
import msgspec
import pytest

from channels.channel import Account, Call, Resolution
from channels.engine import Engine
from channels.http_client.transport import Transport
from channels.judging.error_table import HOUR
from channels.providers.twilio.adapter import Twilio
from channels.registry import AccountError
from message.delivery import Delivery
from message.envelope import Template
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown
from simulator import ECHOING, Faults, Lists, Simulator
from tests.channels.providers.sms_calls import (
    AT_MS,
    KEY,
    LOST,
    REFUSED,
    account_of,
    attempt_of,
    delivery,
    held,
    outcome,
)
from tests.conformance.samples.twilio import ACCOUNT, PATH
from tests.harness.simulators import spawn

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


def dated(after_s: float) -> str:
    """So long after the call, as Twilio writes it."""
    return format_datetime(datetime.fromtimestamp(AT_MS / 1_000 + after_s, UTC))


def created(sid: str = "SM1") -> httpx.Response:
    return httpx.Response(201, json={"sid": sid, "status": "queued"})


def refusing(code: int, status: int = 400, **headers: str) -> httpx.Response:
    content = {"code": code, "message": "said", "more_info": "https://…", "status": status}
    return httpx.Response(status, json=content, headers=headers)


def message(**fields: Any) -> dict[str, Any]:
    return {
        "sid": "SM1",
        "to": TO,
        "body": TEXT,
        "direction": "outbound-api",
        "date_created": dated(0),
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
        "StatusCallback": f"https://hongyan.example/receipts/twilio?hongyan_call={KEY}",
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


def test_a_callbacks_own_query_is_kept_before_the_calls_key() -> None:
    account = account_of(ACCOUNT, status_callback="https://hongyan.example/r?tenant=7")
    sent = form(CHANNEL.request(Call(account, (one(),))))
    assert sent["StatusCallback"] == f"https://hongyan.example/r?tenant=7&hongyan_call={KEY}"


BAD_CALLBACKS = [
    pytest.param("receipts.example.com/twilio", id="no scheme"),
    pytest.param("ftp://receipts.example.com/twilio", id="another scheme"),
    pytest.param("https:///twilio", id="no host"),
    pytest.param("https://receipts.example.com", id="no path"),
    pytest.param("https://my_host.example.com/twilio", id="underscore"),
    pytest.param("https://receipts.example.com/twi lio", id="blank"),
    pytest.param("https://receipts.example.com/twilio?of=北京", id="not encoded"),
    pytest.param("https://receipts.example.com/" + "x" * 4_000, id="too long"),
    pytest.param("https://[::1/twilio", id="no URL"),
]


@pytest.mark.parametrize(
    "callback",
    [
        *BAD_CALLBACKS,
        pytest.param("https://a.example/#x", id="fragment"),
        pytest.param("https://a.example/?hongyan_call=1", id="our parameter"),
    ],
)
def test_a_callback_for_which_twilio_would_refuse_every_message_is_refused_at_the_start(
    callback: str,
) -> None:
    with pytest.raises(AccountError, match="status_callback: ") as caught:
        account_of(ACCOUNT, status_callback=callback)
    assert callback not in str(caught.value), "it may hold a login"


@pytest.mark.parametrize(
    "callback",
    [
        "http://10.0.0.5:9470/receipts/main",
        "https://user:word@receipts.example.com/my_account?of=%E5%8C%97",
    ],
)
def test_a_callback_that_twilio_may_take_is_taken(callback: str) -> None:
    assert account_of(ACCOUNT, status_callback=callback).options.status_callback == callback


@pytest.mark.parametrize("code", [21606, 21659])
@pytest.mark.parametrize("sender", ["123", "12345", "123456"])
def test_a_short_code_refuses_a_receiver_abroad_and_halts_no_account(
    code: int, sender: str
) -> None:
    account = account_of(ACCOUNT, sender=sender)
    found = outcome(CHANNEL, account, one("+447400123456"), refusing(code))
    assert found == Rejected(str(code), "said")
    found = outcome(CHANNEL, account, one(), httpx.Response(400, json={"code": code}))
    assert found == Rejected(str(code), "a short code sends to its country alone")


@pytest.mark.parametrize("code", [21606, 21659])
@pytest.mark.parametrize("sender", ["+15005550006", "15005550006", "Hongyan"])
def test_any_other_sender_that_cannot_send_halts_the_account(code: int, sender: str) -> None:
    account = account_of(ACCOUNT, sender=sender)
    found = outcome(CHANNEL, account, one(), refusing(code))
    assert isinstance(found, NotSent)
    assert (found.account, found.retry_after_ms) == (True, HOUR)


def test_a_callback_that_twilio_refuses_is_the_accounts_fault() -> None:
    """21609 also means that Twilio cannot reach the address, which shows with the first message."""
    found = outcome(CHANNEL, MAIN, one(), refusing(21609))
    assert isinstance(found, NotSent)
    assert (found.account, found.retry_after_ms) == (True, HOUR)


def test_an_attempt_in_doubt_is_looked_up_by_number_whatever_the_date() -> None:
    """A message that still waits has none."""
    asked, found = held(CHANNEL.resolve(MAIN, attempt_of(one())), page(), page())
    assert found.resolution is Resolution.NOT_SENT
    assert (asked[0].method, asked[0].url.raw_path.partition(b"?")[0]) == ("GET", MESSAGES)
    assert [query(request) for request in asked] == [
        {"To": TO, "PageSize": "200"},
        {"PageSize": "20"},
    ]
    assert asked[0].headers["authorization"].startswith("Basic ")


def test_further_pages_are_turned_at_the_accounts_own_endpoint() -> None:
    following = "https://elsewhere.example/x/Messages.json?To=%2B14155552671&PageToken=PA1"
    asked, found = held(
        CHANNEL.resolve(MAIN, attempt_of(one())), page(following=following), page(message())
    )
    assert found.resolution is Resolution.ASK_LATER
    assert asked[1].url.host == "api.twilio.com"
    assert asked[1].url.raw_path == MESSAGES + b"?To=%2B14155552671&PageToken=PA1"


@pytest.mark.parametrize(
    "given",
    [
        message(),
        message(body="something else"),
        message(body=None),
        message(body=""),
        message(to="+1415555XXXX"),
        message(to=None),
        message(date_created=None),
        message(date_created="soon"),
        message(date_created=dated(-599)),
    ],
)
def test_a_message_to_the_number_since_the_call_may_be_this_one_or_another(
    given: dict[str, Any],
) -> None:
    """Two notifications may say the same, texts are redacted or changed by smart encoding."""
    for delivered in (one(), templated()):
        _, found = held(CHANNEL.resolve(MAIN, attempt_of(delivered)), page(given))
        assert found.resolution is Resolution.ASK_LATER


@pytest.mark.parametrize("callback", ["", "https://hongyan.example/receipts/twilio"])
def test_without_receipts_that_name_the_call_nothing_more_will_be_known(callback: str) -> None:
    account = account_of(ACCOUNT, status_callback=callback)
    _, found = held(CHANNEL.resolve(account, attempt_of(one())), page(message()))
    assert found.final is not bool(callback)
    _, found = held(CHANNEL.resolve(account, attempt_of(one())), refusing(20429, 429))
    assert not found.final


@pytest.mark.parametrize("other", [message(direction="inbound"), message(date_created=dated(-601))])
def test_an_empty_list_is_believed_after_the_lag_only(other: dict[str, Any]) -> None:
    for age_s, expected in ((59, Resolution.ASK_LATER), (60, Resolution.NOT_SENT)):
        dialogue = CHANNEL.resolve(SLOW, attempt_of(one(), age_s))
        _, found = held(dialogue, page(other), page(other))
        assert found.resolution is expected


@pytest.mark.parametrize("shown", ["+1415555XXXX", "+1415555****", "", None])
def test_where_numbers_are_redacted_an_empty_list_proves_nothing(shown: str | None) -> None:
    _, found = held(CHANNEL.resolve(MAIN, attempt_of(one())), page(), page(message(to=shown)))
    assert found.resolution is Resolution.ASK_LATER


def test_a_list_that_moves_while_it_is_read_proves_nothing() -> None:
    old = message(date_created=dated(-9_000))
    answers = [page(old, following="/x?PageToken=PA1"), page(old)]
    _, found = held(CHANNEL.resolve(MAIN, attempt_of(one())), *answers)
    assert found.resolution is Resolution.ASK_LATER


def test_a_clock_that_is_minutes_away_proves_nothing() -> None:
    now_s = AT_MS / 1_000 + 3_600
    for off_s, expected in ((240, Resolution.NOT_SENT), (-360, Resolution.ASK_LATER)):
        at = format_datetime(datetime.fromtimestamp(now_s + off_s, UTC), usegmt=True)
        empty = page()
        empty.headers["date"] = at
        dialogue = CHANNEL.resolve(MAIN, attempt_of(one()))
        answers = [empty] if expected is Resolution.ASK_LATER else [empty, empty]
        _, found = held(dialogue, *answers)
        assert found.resolution is expected


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


@pytest.mark.parametrize("callback", BAD_CALLBACKS)
def test_over_sockets_a_wrong_callback_is_refused_as_by_the_provider(
    provider: Simulator, engine: Engine, callback: str
) -> None:
    account = account_of(ACCOUNT, provider.url + PATH)
    options = msgspec.structs.replace(account.options)
    msgspec.structs.force_setattr(options, "status_callback", callback)
    found = send(engine, msgspec.structs.replace(account, options=options), one())
    assert isinstance(found, NotSent)
    assert (found.code, found.account) == ("21609", True)
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


def test_over_sockets_what_was_accepted_then_reset_is_never_called_missing(
    tmp_path: Path, engine: Engine
) -> None:
    with spawn(tmp_path, rules=[Faults(reset=1)], lists=ECHOING) as first:
        account = account_of(ACCOUNT, first.url + PATH)
        assert isinstance(send(engine, account, one()), Unknown)
        (record,) = first.records()
    for lists in (Lists(lag_ms=0), ECHOING, Lists(lag_ms=0, numbers=False)):
        with spawn(tmp_path, lists=lists) as second:
            account = account_of(ACCOUNT, second.url + PATH)
            asked = attempt_of(one(), age_s=1, called_at=record.at_ms)
            found = engine.resolve(CHANNEL, account, asked, 5.0)
        assert found is not None
        assert found.resolution is Resolution.ASK_LATER


def test_over_sockets_what_was_dropped_is_found_missing_where_nothing_else_went_to_the_number(
    provider: Simulator, engine: Engine
) -> None:
    account = account_of(ACCOUNT, provider.url + PATH)
    for number in range(21):
        send(engine, account, one("+14155550000", content={"text": f"text {number}"}))
    provider.control(rules=[Faults(drop=1)], lists=ECHOING)
    assert isinstance(send(engine, account, one()), Unknown)
    at_ms = next(record.at_ms for record in provider.records())
    for lists, expected in (
        (ECHOING, Resolution.NOT_SENT),
        (Lists(lag_ms=0, numbers=False), Resolution.ASK_LATER),
    ):
        provider.control(lists=lists)
        found = engine.resolve(CHANNEL, account, attempt_of(one(), called_at=at_ms), 5.0)
        assert found is not None
        assert found.resolution is expected
