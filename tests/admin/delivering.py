"""Deliveries of every state for tests of pages, made by the ledger's own functions."""

from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import msgspec

from admin.access import Role
from admin.parts import ConsoleParts
from idempotency.ledger import WorkerInfo
from message.delivery import Delivery, Origin
from message.states import Event
from tests.idempotency.making import claimed, deliveries, settle

RECEIVER = "+8613800000001"
_NUMBERS = count(1_000)
"""For business ids and offsets: two deliveries of one millisecond differ."""
EVIL = "<script>alert(1)</script>\u202egnp.exe"


class Stock(NamedTuple):
    """One delivery of each kind."""

    sent: Delivery
    parked: Delivery
    doubted: Delivery
    elsewhere: Delivery
    """Of another lane, `email.notice`."""


def made(parts: ConsoleParts, **fields: Any) -> Delivery:
    """Returns a delivery under way, with the time of now."""
    now, number = parts.ledger.now_ms(), next(_NUMBERS)
    (one,) = deliveries(**{"biz_id": f"order-{number}"} | fields)
    notification = msgspec.structs.replace(one.notification, created_at=now)
    payload = msgspec.json.encode(notification)
    origin = Origin(f"hongyan.dispatch.{one.lane}", 1, number)
    one = msgspec.structs.replace(
        one, notification=notification, payload=payload, expires_at=now + 3_600_000, origin=origin
    )
    (one,) = claimed(parts.ledger, one)
    return one


def stock(parts: ConsoleParts) -> Stock:
    lanes = ["sms.*", "email.*"]
    info = WorkerInfo(id="w1", host="far", pid=1, lanes=lanes, threads=4, lease_ms=60_000)
    parts.ledger.register(info)
    sent, parked, doubted = (made(parts) for _ in range(3))
    elsewhere = made(parts, lane="email.notice", receivers=("ann@example.com",))
    assert settle(parts.ledger, sent, Event.ACCEPTED, provider_id="p-1")
    assert settle(parts.ledger, parked, Event.PARK, reason=f"attempts_spent:{EVIL}"[:64])
    assert settle(parts.ledger, doubted, Event.UNKNOWN, reason="timeout")
    assert settle(parts.ledger, elsewhere, Event.REJECTED, reason="bad_address")
    return Stock(sent, parked, doubted, elsewhere)


def signed_in(
    browser: Callable[[], Any], user: Callable[..., int], name: str = "lin", **roles: Any
) -> Any:
    """Returns the browser of a person; without roles an operator of sms."""
    user(name, {Role(role): lanes for role, lanes in roles.items()} or {Role.OPERATOR: ("sms.*",)})
    one = browser()
    one.sign_in(name)
    return one


def states(parts: ConsoleParts) -> dict[str, str]:
    with parts.databases.primary.begin() as connection:
        found = connection.exec_driver_sql("SELECT delivery_key, state FROM hongyan_deliveries")
        return {row[0]: row[1] for row in found}
