"""The delivery and the transports of a test send, for the command and the console."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from backends.settings import Settings
from channels.accounts.time_limits import Limits
from channels.channel import Account, Channel
from channels.probe.probe import Trial, try_out
from channels.template_support import TEMPLATE_SUPPORT
from channels.transports import TransportRouter
from message import envelope
from message.delivery import Delivery, deliveries_of
from message.ids import new_id
from policy.schema import DEFAULTS_BY_KIND
from policy.templates.loading import load_for
from policy.templates.parameters import typed


def trial_delivery(
    settings: Settings, account: Account, channel: str, to: str, fields: dict[str, Any]
) -> Delivery:
    """Returns the delivery, as intake would make it; `fields` are template or content. Raises
    EnvelopeError, TemplateError."""
    now_ms = time.time_ns() // 1_000_000
    templates = load_for(settings, TEMPLATE_SUPPORT)
    named = {"channel": channel, "kind": "notice", "receivers": [to], "account": account.name}
    made = {"v": envelope.VERSION, "id": new_id(), "created_at": now_ms}
    value = msgspec.json.encode({**made, **typed({**named, **fields}, templates)})
    notification = envelope.decode(value)
    expires_at = now_ms + DEFAULTS_BY_KIND["notice"].lifetime_ms(None)
    (delivery,) = deliveries_of(notification, value, expires_at=expires_at)
    delivery.rendered = templates.render(notification)
    delivery.attempt, delivery.account, delivery.call_key = 1, account.name, delivery.key
    return delivery


def tried(
    channel: Channel,
    account: Account,
    delivery: Delivery,
    limits: Limits,
    resolve_s: float | None = None,
) -> Trial:
    """Sends it once, over transports of its own."""
    wires = TransportRouter()
    try:
        return try_out(channel, account, delivery, wires, limits=limits, resolve_s=resolve_s)
    finally:
        wires.close()
