"""What the tests of WeChat and WeCom are fed with."""

import json
from typing import Any

import httpx
import msgspec

from channels.channel import Account, Call
from channels.registry import load_accounts
from message.delivery import Delivery, deliveries_of
from message.envelope import Notification, Template
from message.outcomes import AnyOutcome

TOKEN = "A-token_with/odd+signs="


def account(
    provider: str, endpoint: str = "https://proxy.example/tencent", **options: Any
) -> Account:
    """One account, through the same reading as a configuration's."""
    table = {"provider": provider, "endpoint": endpoint, **options}
    return load_accounts({"main": table})["main"]


def deliveries(
    channel: str,
    *receivers: str,
    content: dict[str, Any] | None = None,
    template: Template | None = None,
    attributes: dict[str, Any] | None = None,
    attempt: int = 1,
    message_id: str = "m-1",
) -> list[Delivery]:
    """One notification's, as a lane hands them on."""
    notification = Notification(
        id=message_id,
        channel=channel,
        kind="notice",
        receivers=list(receivers),
        content=content,
        template=template,
        attributes=attributes or {},
        created_at=1,
    )
    made = deliveries_of(notification, b"", expires_at=2)
    for one in made:
        one.attempt, one.call_key = attempt, made[0].key
    return made


def call(of: Account, each: list[Delivery]) -> Call:
    """A call with a token."""
    return Call(of, each, TOKEN)


def answer(status: int = 200, **body: Any) -> httpx.Response:
    """An answer of theirs."""
    return httpx.Response(status, content=msgspec.json.encode(body))


def body_of(request: httpx.Request) -> Any:
    """The JSON of a request."""
    return json.loads(request.read())


def kinds(outcomes: list[AnyOutcome]) -> list[str]:
    """Their classes by name."""
    return [type(outcome).__name__ for outcome in outcomes]
