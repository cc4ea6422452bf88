"""Volcengine's own SDK (`volcengine` 1.0.229) judges our signature, and the simulator that checks it.

Its signatures and its client's request are vectors/volcengine_sms.json, made by vectors/volcengine_sms.py,
whose docstring has the command.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from channels.channel import Call
from channels.providers.volcengine_sms.adapter import VolcengineSms
from message.envelope import Template
from simulator.protocols.volcengine_sms import VolcengineSmsProtocol
from simulator.servers.http_request import Request
from simulator.wire import ProtocolContext, ReceivedCall, Reply
from tests.channels.providers.chats import KEY, account_of, deliveries

VECTORS = json.loads((Path(__file__).parent / "vectors" / "volcengine_sms.json").read_text())
NOW_S = 1_790_000_000.0
TABLE = {
    "provider": "volcengine_sms",
    "access_key_id": "AKLTexample",
    "access_key_secret": "TmpBeE16ZzRPV0V4TXpVNA==",
    "sms_account": "77da1acf",
    "sign_name": "鸿雁",
}
NUMBERS = ["+8615123456789", "+8615234567890"]


def made(vector: dict[str, str]) -> httpx.Request:
    """Returns our request with the vector's address and parameters."""
    params = json.loads(json.loads(vector["body"]).get("TemplateParam", "{}"))
    account = account_of(TABLE, f"https://{vector['host']}{vector['path']}")
    call = Call(account, deliveries("sms", NUMBERS, template=Template("ST_6f8c", params)))
    return VolcengineSms(lambda: NOW_S).request(call)


@pytest.mark.parametrize("case", sorted(VECTORS["signatures"]))
def test_the_sdk_signs_our_request_as_we_do(case: str) -> None:
    vector = VECTORS["signatures"][case]
    ours = made(vector)
    assert ours.read().decode() == vector["body"], "the SDK signed another body"
    assert ours.headers["X-Date"] == vector["x_date"]
    assert ours.headers["X-Content-Sha256"] == vector["x_content_sha256"]
    assert ours.headers["Authorization"] == vector["authorization"]


def test_another_body_has_another_signature() -> None:
    shown = [one["authorization"] for one in VECTORS["signatures"].values()]
    assert len(set(shown)) == len(shown)


def read(**changes: str) -> ReceivedCall | Reply:
    """Returns what the simulator makes of the request of the SDK's client, with changes."""
    client = VECTORS["client"]
    parts = urlsplit(client["url"])
    request = Request()
    request.method = client["method"]
    request.target = f"{parts.path}?{parts.query}".encode()
    fields = {name: changes.get(name, value) for name, value in client["fields"].items()}
    request.fields = [(name.encode(), value.encode()) for name, value in fields.items()]
    request.body = changes.get("body", client["body"]).encode()
    world = ProtocolContext(now_ms=lambda: int(NOW_S * 1_000))
    return VolcengineSmsProtocol(world).read(request, parts.path)


def test_the_simulator_takes_the_request_of_the_sdks_client() -> None:
    send = read()
    assert isinstance(send, ReceivedCall)
    assert [one.receiver for one in send.recipients] == NUMBERS
    assert send.id == KEY


@pytest.mark.parametrize(
    "changes",
    [
        {"body": VECTORS["client"]["body"].replace("4711", "4712")},
        {"X-Date": "20260921T141321Z"},
        {"Host": "sms.example.com"},
        {"Content-Type": "text/json"},
    ],
)
def test_the_simulator_refuses_it_once_it_was_changed(changes: dict[str, str]) -> None:
    reply = read(**changes)
    assert isinstance(reply, Reply)
    answer: dict[str, Any] = json.loads(reply.body)
    assert reply.status == 401
    assert answer["ResponseMetadata"]["Error"]["Code"] == "SignatureDoesNotMatch"


def test_our_request_goes_where_the_sdks_goes() -> None:
    ours = made(VECTORS["signatures"]["one parameter"])
    assert str(ours.url) == VECTORS["client"]["url"]
    theirs = json.loads(VECTORS["client"]["body"])
    assert json.loads(ours.read()).keys() == theirs.keys()
