"""Svix's own library (package `svix`, 2.9) judges which of Resend's webhooks our receipts take for genuine.

Resend signs by Svix, and its document sends receivers to this library. It also verifies what our simulator
signs, and our outgoing webhooks, whose header fields it knows by both names.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import pytest

from channels.channel import Call
from channels.providers.webhook.adapter import WebhookChannel
from channels.secret import Secret
from receipts.parsers.resend import ResendSigning, ResendWebhooks
from receipts.push import Push, Unauthentic
from simulator.ledger import LedgerRecord
from simulator.receipts.formats import FORMATS
from simulator.receipts.plan import DELIVERED, Planned
from simulator.receipts.receipt_format import ReceiptReport
from simulator.wire import ProtocolContext
from tests.channels.calls import delivery
from tests.channels.providers.chats import account_of

SECRET, OTHER = ("whsec_" + b64encode(bytes([n]) * 24).decode() for n in (1, 2))
EVENT = {
    "type": "email.delivered",
    "created_at": "2026-11-22T08:00:00.000Z",
    "data": {"email_id": "56761188-7520-42d8-8898-ff6fc54ce618", "to": ["ann@example.com"]},
}
BODY = json.dumps(EVENT, ensure_ascii=False)
MESSAGE = "msg_p5jXN8AQM9LWM0D4loKWxJek"


@cache
def judge() -> Any:
    """The library. It is imported late: it takes a second, and every process reads this module."""
    return import_module("svix.webhooks")


def signed(now_s: float, secret: str = SECRET) -> dict[str, str]:
    """Header fields as Svix makes them."""
    at = datetime.fromtimestamp(now_s, UTC)
    return {
        "svix-id": MESSAGE,
        "svix-timestamp": str(int(now_s)),
        "svix-signature": judge().Webhook(secret).sign(MESSAGE, at, BODY),
    }


def now() -> float:
    return datetime.now(UTC).timestamp()


def taken(fields: dict[str, str], body: str = BODY, secret: str = SECRET) -> bool:
    """Returns True if our parser takes it for genuine."""
    push = Push("acc", "POST", "", fields, body.encode(), now())
    try:
        return bool(ResendWebhooks().parse(push, ResendSigning(Secret(secret))).receipts)
    except Unauthentic:
        return False


def genuine(fields: dict[str, str], body: str = BODY, secret: str = SECRET) -> bool:
    """Returns True if the judge takes it for genuine."""
    try:
        judge().Webhook(secret).verify(body, fields)
    except judge().WebhookVerificationError:
        return False
    return True


def exchanged() -> dict[str, str]:
    """Signed by the key before, and by the new one."""
    made = [signed(now(), key)["svix-signature"] for key in (OTHER, SECRET)]
    return signed(now()) | {"svix-signature": " ".join(made)}


def another_version() -> dict[str, str]:
    """The right signature, of a version that nobody knows."""
    fields = signed(now())
    return fields | {"svix-signature": fields["svix-signature"].replace("v1", "v2")}


CASES: dict[str, tuple[Callable[[], dict[str, str]], bool]] = {
    "as it was signed": (lambda: signed(now()), True),
    "keys are exchanged": (exchanged, True),
    "another key": (lambda: signed(now(), OTHER), False),
    "another id": (lambda: signed(now()) | {"svix-id": "msg_2"}, False),
    "four minutes old": (lambda: signed(now() - 240), True),
    "six minutes old": (lambda: signed(now() - 360), False),
    "six minutes ahead": (lambda: signed(now() + 360), False),
    "another time": (lambda: signed(now()) | {"svix-timestamp": str(int(now()) - 9)}, False),
    "another version": (another_version, False),
    "no signature": (lambda: signed(now()) | {"svix-signature": ""}, False),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_a_webhook_is_taken_exactly_where_svixs_library_takes_it(case: str) -> None:
    make, wanted = CASES[case]
    fields = make()
    assert genuine(fields) is wanted
    assert taken(fields) is wanted


def test_a_body_that_was_changed_is_refused_by_both() -> None:
    fields, changed = signed(now()), BODY.replace("ann", "bob")
    assert (genuine(fields, changed), taken(fields, changed)) == (False, False)


def test_what_our_simulator_signs_the_judge_verifies() -> None:
    world = ProtocolContext(
        credentials={"resend": {"signing_secret": SECRET}}, now_ms=lambda: int(now() * 1_000)
    )
    record = LedgerRecord(
        seq=1,
        at_ms=1,
        key="k",
        path="/",
        id="i",
        receiver="ann@example.com",
        attempt=1,
        digest="",
        accepted=True,
        answer="200",
        provider_id="56761188-7520-42d8-8898-ff6fc54ce618",
    )
    report = ReceiptReport(record, Planned(0.0, DELIVERED), int(now() * 1_000))
    push = FORMATS["resend"].push("https://ours.example/receipts/a", [report], world)
    assert urlsplit(push.url).path == "/receipts/a"
    fields = {name.lower(): value for name, value in push.fields}
    assert genuine(fields, push.body.decode())
    assert not genuine(fields, push.body.decode(), OTHER)


def test_our_outgoing_webhook_is_verified_by_svixs_library_too() -> None:
    account = account_of({"provider": "webhook", "signing_secret": SECRET})
    request = WebhookChannel().request(Call(account, (delivery(content={"text": "你好"}),)))
    fields, body = dict(request.headers), request.read().decode()
    assert genuine(fields, body)
    assert not genuine(fields, body, OTHER)
