"""Resend's own SDK (package `resend`) judges our adapter and our simulator.

It sends mails and templates to our simulator, repeats one under its key, and is refused there. Its requests
are those of our adapter.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from channels.channel import Account, Call
from channels.providers.resend.adapter import ResendChannel
from message.envelope import Template
from message.outcomes import Accepted
from simulator import Faults, Simulator
from tests.channels.providers.chats import KEY, account_of, deliveries
from tests.conformance.samples import UNLIMITED
from tests.conformance.samples.resend import ACCOUNT
from tests.foreign.sdk_wire import Made, led, of_httpx
from tests.harness.simulators import spawn

OURS = ResendChannel()
TO = "ann@example.com"
FIELDS = {"subject": "订单 1", "text": "已发货", "html": "<p>已<b>发货</b></p>"}
WHOLE = {
    **FIELDS,
    "cc": ["鸿雁 <cc@example.com>"],
    "bcc": ["bcc@example.com"],
    "reply_to": ["reply@example.com"],
    "headers": {"X-Order": "1"},
}
FILE = {"filename": "订单.pdf", "content": b64encode(b"%PDF-1.7 \xff").decode()}


@pytest.fixture(scope="module")
def sdk() -> Any:
    found: Any = import_module("resend")
    found.api_key = ACCOUNT["api_key"]
    return found


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    behaviours = {"resend": dict(UNLIMITED["resend"])}
    with spawn(tmp_path_factory.mktemp("resend"), fsync=False, behaviours=behaviours) as started:
        yield started


@pytest.fixture
def theirs(simulator: Simulator) -> Iterator[list[Made]]:
    """Yields the SDK's requests."""
    simulator.control(rules=[])
    with led({f"{OURS.endpoint}/": f"{simulator.url}/resend/"}) as kept:
        yield kept


def account() -> Account:
    return account_of({"provider": "resend", **ACCOUNT}, OURS.endpoint)


def members(kind: Any) -> set[str]:
    """Returns the members that the SDK's types know. The SDK itself sends any member."""
    return set(kind.__annotations__)


SAID: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "text and html": (FIELDS, {"content": FIELDS}),
    "others and a header": (WHOLE, {"content": WHOLE}),
    "template": (
        {"template": {"id": "order", "variables": {"NAME_1": "王", "COUNT": 3}}},
        {"template": Template("order", {"NAME_1": "王", "COUNT": 3})},
    ),
    "attachment": (
        {
            **FIELDS,
            "attachments": [{**FILE, "content_type": "application/pdf", "content_id": "c1"}],
        },
        {"content": {**FIELDS, "attachments": [{**FILE, "type": "application/pdf", "cid": "c1"}]}},
    ),
}


@pytest.mark.parametrize("kind", sorted(SAID))
def test_what_the_sdk_sends_the_simulator_takes_and_our_adapter_sends_the_same(
    sdk: Any, theirs: list[Made], kind: str
) -> None:
    told, said = SAID[kind]
    key = f"{kind}-{KEY}"
    params = {"from": ACCOUNT["sender"], "to": [TO], **told}
    sent = sdk.Emails.send(params, {"idempotency_key": key})
    (its,) = theirs
    made = deliveries("email", [TO], **said)
    made[0].call_key = key
    call = Call(account(), made)
    assert not OURS.refusal(call.account, made[0])
    mine = of_httpx(OURS.request(call))
    assert mine.named == its.named
    for name in ("Authorization", "Idempotency-Key", "Content-Type"):
        assert mine.fields[name] == its.fields[name]
    assert mine.json == its.json
    assert mine.json.keys() <= members(sdk.Emails.SendParams)
    for file in mine.json.get("attachments", ()):
        assert file.keys() <= members(sdk.Attachment)
    if "template" in mine.json:
        assert mine.json["template"].keys() == members(sdk.EmailTemplate)
    assert OURS.outcomes(call, its.answer) == [Accepted(sent["id"])]


def test_a_repeat_under_its_key_is_told_the_first_ones_id(sdk: Any, theirs: list[Made]) -> None:
    params = {"from": ACCOUNT["sender"], "to": [TO], **FIELDS}
    first, second = (sdk.Emails.send(params, {"idempotency_key": "k-1"})["id"] for _ in range(2))
    assert first == second
    assert len(theirs) == 2
    error = import_module("resend.exceptions").ResendError
    with pytest.raises(error) as refused:
        sdk.Emails.send({**params, "subject": "another"}, {"idempotency_key": "k-1"})
    assert refused.value.error_type == "invalid_idempotent_request"


def test_every_code_of_ours_is_raised_by_the_sdk(
    sdk: Any, theirs: list[Made], simulator: Simulator
) -> None:
    error = import_module("resend.exceptions").ResendError
    call = Call(account(), deliveries("email", [TO], FIELDS))
    for row in OURS.errors:
        simulator.control(rules=[Faults(codes={row.code: 1.0})])
        with pytest.raises(error) as refused:
            sdk.Emails.send({"from": ACCOUNT["sender"], "to": [TO], **FIELDS})
        (outcome,) = OURS.outcomes(call, theirs[-1].answer)
        assert not isinstance(outcome, Accepted)
        assert (outcome.code, refused.value.error_type) == (row.code, row.code)
