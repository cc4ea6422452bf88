"""Resend: literal bytes out, its documented answers in, and both against the simulator."""

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from channels.channel import Account, Call, Failure, Phase
from channels.engine import Engine
from channels.providers.resend.adapter import CHANNELS, ResendChannel
from channels.registry import AccountError, load_accounts
from channels.transports import TransportRouter
from message.delivery import Delivery, deliveries_of
from message.envelope import Notification, Template
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown
from simulator import Faults, Simulator
from tests.conformance.samples import UNLIMITED
from tests.harness.simulators import spawn

CHANNEL: ResendChannel = CHANNELS[0]
MINUTE = 60_000


def account(**changes: Any) -> Account:
    table = {
        "provider": "resend",
        "api_key": "simulator-secret",
        "sender": "鸿雁 <no-reply@example.com>",
        **changes,
    }
    return load_accounts({"mail": {k: v for k, v in table.items() if v is not None}})["mail"]


def delivery(
    receiver: str = "ann@example.com",
    *,
    message_id: str = "m-1",
    template: Template | None = None,
    **content: Any,
) -> Delivery:
    notification = Notification(
        id=message_id,
        channel="email",
        kind="notice",
        receivers=[receiver],
        content=None if template else {"subject": "您好", "text": "hello", **content},
        template=template,
        created_at=1,
    )
    (one,) = deliveries_of(notification, b"", expires_at=2**50)
    return one


def call(of: Account | None = None, **fields: Any) -> Call:
    return Call(of or account(), (delivery(**fields),))


def test_the_request_is_these_bytes() -> None:
    one = call()
    request = CHANNEL.request(one)
    assert (request.method, str(request.url)) == ("POST", "https://api.resend.com/emails")
    body = (
        '{"from":"鸿雁 <no-reply@example.com>","to":["ann@example.com"],'
        '"subject":"您好","text":"hello"}'
    ).encode()
    assert request.headers.raw == [
        (b"Host", b"api.resend.com"),
        (b"User-Agent", b"hongyan"),
        (b"Authorization", b"Bearer simulator-secret"),
        (b"Idempotency-Key", one.deliveries[0].key.encode()),
        (b"Content-Type", b"application/json"),
        (b"Content-Length", b"%d" % len(body)),
    ]
    assert request.read() == body


def test_everything_a_mail_may_have_stands_under_resends_names() -> None:
    content: dict[str, Any] = {
        "html": '<img src="cid:logo">',
        "cc": ['"Boss, The" <boss@example.com>'],
        "bcc": ["log@example.com"],
        "reply_to": ["help@example.com"],
        "headers": {"X-Order": "1001"},
        "attachments": [
            {"filename": "发票.pdf", "content": b64encode(b"invoice").decode()},
            {"filename": "logo.png", "content": b64encode(b"image").decode(), "cid": "logo"},
        ],
    }
    assert json.loads(CHANNEL.request(call(**content)).read()) == {
        "from": "鸿雁 <no-reply@example.com>",
        "to": ["ann@example.com"],
        "subject": "您好",
        "html": '<img src="cid:logo">',
        "text": "hello",
        "cc": ['"Boss, The" <boss@example.com>'],
        "bcc": ["log@example.com"],
        "reply_to": ["help@example.com"],
        "headers": {"X-Order": "1001"},
        "attachments": [
            {"filename": "发票.pdf", "content": "aW52b2ljZQ==", "content_type": "application/pdf"},
            {
                "filename": "logo.png",
                "content": "aW1hZ2U=",
                "content_type": "image/png",
                "content_id": "logo",
            },
        ],
    }


def test_a_template_stands_in_the_contents_place() -> None:
    one = call(template=Template("order-shipped", {"PRODUCT": "Tea", "PRICE": 499}))
    assert json.loads(CHANNEL.request(one).read()) == {
        "from": "鸿雁 <no-reply@example.com>",
        "to": ["ann@example.com"],
        "template": {"id": "order-shipped", "variables": {"PRODUCT": "Tea", "PRICE": 499}},
    }


def test_a_path_of_the_endpoint_is_kept_and_its_authority_trusted() -> None:
    of = account(endpoint="https://proxy.example/mail/", ca_file="/etc/ca.pem")
    request = CHANNEL.request(call(of))
    assert str(request.url) == "https://proxy.example/mail/emails"
    assert request.extensions["ca_file"] == "/etc/ca.pem"


def test_a_repeat_goes_under_the_name_that_the_ledger_has_of_the_call() -> None:
    one = call()
    one.deliveries[0].call_key = "f" * 32
    assert CHANNEL.request(one).headers["idempotency-key"] == "f" * 32


def test_the_fingerprint_tells_when_a_repeat_would_be_another_payload() -> None:
    assert CHANNEL.fingerprint(call()) == CHANNEL.fingerprint(call())
    changed = call(account(sender="other@example.com"))
    assert CHANNEL.fingerprint(changed) != CHANNEL.fingerprint(call())


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"receiver": "ann"}, "bad_receiver"),
        ({"text": ""}, "bad_content"),
        ({"to": "together"}, "bad_content"),
        ({"cc": ["x"]}, "bad_address"),
        ({"template": Template("T", {"a b": "x"})}, "bad_template"),
        ({"template": Template("T", {"EMAIL": "x"})}, "bad_template"),
        ({"template": Template("T", {"OK": True})}, "bad_template"),
        ({"template": Template("T", {"OK": ["x"]})}, "bad_template"),
        ({"template": Template("T", {f"V{n}": 1 for n in range(51)})}, "bad_template"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_it_is_claimed(
    fields: dict[str, Any], code: str
) -> None:
    assert CHANNEL.refusal(account(), delivery(**fields)).startswith(f"{code}: ")


@pytest.mark.parametrize("fields", [{}, {"template": Template("T", {"A": "x", "B": 1.5})}])
def test_what_can_be_sent_is_not_refused(fields: dict[str, Any]) -> None:
    assert CHANNEL.refusal(account(), delivery(**fields)) == ""


@pytest.mark.parametrize("changes", [{"api_key": None}, {"sender": None}, {"sender": "nobody"}])
def test_an_account_that_cannot_work_is_told_at_start(changes: dict[str, Any]) -> None:
    with pytest.raises(AccountError):
        account(**changes)


# ---- answers ---------------------------------------------------------------------------------


def outcome(status: int, body: object, **headers: str) -> AnyOutcome:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = httpx.Response(status, content=content, headers=fields)
    (found,) = CHANNEL.outcomes(call(), answer)
    return found


def error(name: str, status: int = 400) -> dict[str, Any]:
    return {"statusCode": status, "name": name, "message": "as Resend says"}


def test_an_id_is_an_acceptance() -> None:
    assert outcome(200, {"id": "49a3999c"}) == Accepted("49a3999c")


def test_a_403_about_the_senders_domain_is_the_accounts() -> None:
    body = {
        "statusCode": 403,
        "name": "validation_error",
        "message": "The example.com domain is not verified.",
    }
    found = outcome(403, body)
    assert found == NotSent("validation_error", body["message"], 60_000, account=True)  # type: ignore[arg-type]
    assert isinstance(outcome(422, {**body, "statusCode": 422}), Rejected)


def test_resends_own_wish_for_a_delay_goes_first() -> None:
    body = error("rate_limit_exceeded", 429)
    for headers, wanted in (
        ({"retry_after": "3", "ratelimit_reset": "9"}, 3_000),
        ({"ratelimit_reset": "9"}, 9_000),
        ({"ratelimit_reset": "soon"}, 1_000),
        ({}, 1_000),
    ):
        found = outcome(429, body, **headers)
        assert isinstance(found, NotSent)
        assert found.retry_after_ms == wanted


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b"", Unknown),
        (200, b"<html>", Unknown),
        (200, {"ok": True}, Unknown),
        (200, {"id": 7}, Unknown),
        (200, error("application_error"), Unknown),
        (400, error("brand_new_error"), Rejected),
        (422, error("brand_new_error"), Rejected),
        (409, error("brand_new_error"), Unknown),
        (500, error("brand_new_error"), Unknown),
        (400, b"<html>", NotSent),
        (403, b"error code: 1010", NotSent),
        (409, b"", Unknown),
        (429, b"", NotSent),
        (500, b"", Unknown),
        (502, b"\xff", Unknown),
        (503, b"[" * 100_000, Unknown),
    ],
)
def test_an_answer_that_is_not_documented_is_never_a_success(
    status: int, body: object, kind: type[AnyOutcome]
) -> None:
    assert type(outcome(status, body)) is kind


def test_a_failure_is_judged_by_what_was_written() -> None:
    for phase, kind in ((Phase.NOT_WRITTEN, NotSent), (Phase.WRITTEN, Unknown)):
        (found,) = CHANNEL.outcomes(call(), Failure(phase, "reset"))
        assert type(found) is kind


# ---- the simulator ---------------------------------------------------------------------------


class Post:
    """Sends through one simulator."""

    def __init__(self, provider: Simulator) -> None:
        self.provider = provider
        self.account = account(endpoint=f"{provider.url}/resend")
        self.wires = TransportRouter()
        self.engine = Engine(self.wires)

    def send(self, of: Account | None = None, **fields: Any) -> AnyOutcome:
        (found,) = self.engine.send(CHANNEL, call(of or self.account, **fields), 5.0)
        return found

    def ask(self, method: str = "POST", path: str = "/emails", **given: Any) -> tuple[int, str]:
        """The status and the error's name of a request made by hand."""
        headers = {
            "Authorization": "Bearer simulator-secret",
            "User-Agent": "test",
            "Idempotency-Key": "k-1",
            **given.pop("headers", {}),
        }
        body = {"from": "a@x.com", "to": ["b@x.com"], "subject": "s", "text": "t", **given}
        kept = {name: value for name, value in body.items() if value is not None}
        answer = httpx.request(
            method,
            f"{self.provider.url}/resend{path}",
            headers={name: value for name, value in headers.items() if value is not None},
            content=json.dumps(kept),
            trust_env=False,
        )
        return answer.status_code, answer.json().get("name", "")


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with spawn(tmp_path_factory.mktemp("resend"), behaviours=UNLIMITED) as simulator:
        yield simulator


@pytest.fixture
def post(provider: Simulator) -> Iterator[Post]:
    provider.control(rules=[])
    made = Post(provider)
    yield made
    made.wires.close()


def test_a_mail_is_accepted_and_in_the_ledger_once(post: Post) -> None:
    before = len(list(post.provider.records()))
    found = post.send(message_id="once")
    (record,) = list(post.provider.records())[before:]
    assert found == Accepted(record.provider_id)
    assert (record.receiver, record.accepted) == ("ann@example.com", True)
    assert record.id == delivery(message_id="once").key


@pytest.mark.parametrize(("fault", "times"), [(Faults(reset=1), 1), (Faults(drop=1), 0)])
def test_a_repeat_settles_what_was_in_doubt_and_doubles_nothing(
    post: Post, fault: Faults, times: int
) -> None:
    name = f"doubt-{times}"
    before = len(list(post.provider.records()))
    post.provider.control(rules=[fault])
    assert isinstance(post.send(message_id=name), Unknown)
    post.provider.control(rules=[])
    assert isinstance(post.send(message_id=name), Accepted)
    records = list(post.provider.records())[before:]
    assert [record.accepted for record in records] == [bool(times), not times]


def test_the_same_key_with_another_payload_leaves_the_first_in_doubt(post: Post) -> None:
    assert isinstance(post.send(message_id="changed"), Accepted)
    found = post.send(message_id="changed", text="another text")
    assert isinstance(found, Unknown)
    assert found.code == "invalid_idempotent_request"


def test_a_wrong_key_sends_nothing_and_halts_the_account(post: Post) -> None:
    wrong = account(endpoint=post.account.endpoint, api_key="guessed")
    found = post.send(wrong, message_id="wrong")
    assert isinstance(found, NotSent)
    assert (found.code, found.account, found.retry_after_ms) == ("invalid_api_key", True, MINUTE)
    assert "guessed" not in repr(found)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"headers": {"Authorization": None}}, (401, "missing_api_key")),
        ({"headers": {"Authorization": "Basic x"}}, (401, "missing_api_key")),
        ({"headers": {"Authorization": "Bearer x"}}, (403, "invalid_api_key")),
        ({"headers": {"Idempotency-Key": ""}}, (400, "invalid_idempotency_key")),
        ({"headers": {"Idempotency-Key": "k" * 257}}, (400, "invalid_idempotency_key")),
        ({"method": "PUT"}, (405, "method_not_allowed")),
        ({"path": "/mails"}, (404, "not_found")),
        ({"from": None}, (422, "missing_required_field")),
        ({"to": None}, (422, "missing_required_field")),
        ({"subject": None}, (422, "missing_required_field")),
        ({"text": None}, (422, "missing_required_field")),
        ({"from": "nobody"}, (422, "invalid_from_address")),
        ({"to": ["nobody"]}, (400, "validation_error")),
        ({"to": ["b@x.com"] * 51}, (400, "validation_error")),
        ({"cc": [7]}, (400, "validation_error")),
        ({"attachments": [{"filename": "a"}]}, (422, "invalid_attachment")),
        ({"template": {"id": "T"}}, (400, "validation_error")),
        (
            {"template": {"id": "T", "variables": {"A": []}}, "text": None},
            (400, "validation_error"),
        ),
    ],
)
def test_the_simulator_refuses_what_resend_refuses(
    post: Post, given: dict[str, Any], expected: tuple[int, str]
) -> None:
    before = len(list(post.provider.records()))
    assert post.ask(**given) == expected
    assert len(list(post.provider.records())) == before


def test_a_burst_is_answered_429_unless_the_simulator_is_told_otherwise(tmp_path: Path) -> None:
    with spawn(tmp_path) as provider:
        post = Post(provider)
        outcomes = [post.send() for _ in range(4)]
        post.wires.close()
    assert isinstance(outcomes[0], Accepted)
    (late, *_) = [one for one in outcomes if not isinstance(one, Accepted)]
    assert isinstance(late, NotSent)
    assert late.limit is Limit.ACCOUNT
    assert late.retry_after_ms == 1_000


def test_a_key_counts_across_a_restart_of_the_simulator(tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        with spawn(tmp_path) as provider:
            post = Post(provider)
            found.append(post.send())
            post.wires.close()
    assert isinstance(found[0], Accepted)
    assert found[0] == found[1]
