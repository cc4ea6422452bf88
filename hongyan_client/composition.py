"""Makes notifications: the envelope's fields with types, id and time filled in."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hongyan_client.errors import WrongNotification
from message.envelope import EnvelopeError, Notification, Template, encode
from message.ids import new_id
from message.vocabulary import LANES, lane_named


class Composition(NamedTuple):
    """The members of an envelope that few notifications need."""

    id: str = ""
    """Empty: a new UUIDv7. A repeat carries the id of the first."""
    account: str | None = None
    ordering_key: str | None = None
    resend_of: str | None = None
    created_at: int | None = None
    """Epoch milliseconds of the decision; None: now."""
    attributes: Mapping[str, Any] = {}


_PLAIN = Composition()


def compose(
    lane: str,
    receivers: Sequence[str],
    *,
    template: str = "",
    params: Mapping[str, Any] | None = None,
    content: Mapping[str, Any] | None = None,
    biz_id: str | None = None,
    ttl_s: float | None = None,
    more: Composition = _PLAIN,
) -> Notification:
    """Returns a notification of one lane, such as `sms.verification`, checked by the envelope's rules.
    Give either `template` with its `params`, or `content`. Raises WrongNotification."""
    found = lane_named(lane)
    if found is None:
        names = ", ".join(one.name for one in LANES)
        raise WrongNotification("unknown_lane", f"there is no lane {lane!r}; there are {names}")
    notification = Notification(
        id=more.id or new_id(),
        biz_id=biz_id,
        channel=found.channel,
        kind=found.kind,
        receivers=list(receivers),
        account=more.account,
        template=Template(template, dict(params or {})) if template else None,
        content=dict(content) if content is not None else None,
        created_at=time.time_ns() // 1_000_000 if more.created_at is None else more.created_at,
        ttl_ms=None if ttl_s is None else int(ttl_s * 1_000),
        ordering_key=more.ordering_key or None,
        resend_of=more.resend_of or None,
        attributes=dict(more.attributes),
    )
    encoded(notification)
    return notification


def encoded(notification: Notification) -> bytes:
    """Returns the value of its record. Raises WrongNotification."""
    try:
        return encode(notification)
    except (EnvelopeError, AttributeError, TypeError) as exc:
        raise refused(exc) from exc


def refused(cause: EnvelopeError | AttributeError | TypeError) -> WrongNotification:
    """Returns the client's error for an error of `encode`."""
    if isinstance(cause, EnvelopeError):
        return WrongNotification(cause.code, f"{cause.path}: {cause.detail}")
    text = f"a notification is made by compose or is message's Notification ({cause})"
    return WrongNotification("wrong_type", text)
