"""The row of one notification: checked by the envelope's rules before the insert."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from hongyan_client.outbox.tables import PENDING
from message import envelope
from message.envelope import EnvelopeError, Notification
from message.ids import new_id
from message.trace_context import HEADER as TRACE_HEADER
from message.trace_context import trace_context

_MS: Final = 1_000
_INT32: Final = 2**31 - 1
_MAX_ATTEMPTS: Final = 1_000
ID_HEADER: Final = "hongyan-id"
_HEADERS: Final = msgspec.json.Decoder(list[tuple[str, str]])
MAX_AHEAD_MS: Final = 400 * 86_400_000
"""A delayed notification further ahead is a mistake of units."""


class RetryTerms(NamedTuple):
    """Attempts to publish one row. The interval doubles from the first, up to the limit."""

    attempts: int = 20
    """Attempts, the first one included; after the last the row is parked."""
    interval_s: float = 1.0
    limit_s: float = 300.0

    def checked(self) -> RetryTerms:
        """Returns the same terms. Raises ValueError for ones that cannot be kept."""
        longest = _INT32 / _MS
        if not 1 <= self.attempts <= _MAX_ATTEMPTS:
            raise ValueError(f"attempts: {self.attempts}; 1 to {_MAX_ATTEMPTS} are possible")
        if not 0.01 <= self.interval_s <= self.limit_s <= longest:
            raise ValueError(
                f"interval_s {self.interval_s:g}, limit_s {self.limit_s:g}: write at least 0.01 s, and"
                " no limit below the interval"
            )
        return self


DEFAULT_RETRY: Final = RetryTerms()


class OutboxEntry(NamedTuple):
    """Values of a row that need no database."""

    notification: Notification
    values: dict[str, Any]
    send_at: int | None


def entry_of(
    notification: Notification | Mapping[str, Any],
    *,
    topic_prefix: str,
    retry: RetryTerms,
    send_at: datetime | int | None = None,
    traceparent: str | None = None,
) -> OutboxEntry:
    """Returns the row for a notification. A mapping may leave out `v`, `id` and `created_at`, and keeps
    fields that the envelope does not know. A delayed one lives from `send_at` on. A `traceparent` that is
    no W3C context is left out. Raises EnvelopeError, ValueError."""
    at = None if send_at is None else _millis(send_at)
    value = _encoded(notification, at)
    checked = envelope.decode(value)
    headers = [[ID_HEADER, checked.id]]
    context = None if traceparent is None else trace_context(traceparent)
    if context is not None:
        headers.append([TRACE_HEADER, context])
    topic = checked.lane.topic(topic_prefix)
    terms = retry.checked()
    return OutboxEntry(
        checked,
        {
            "message_id": checked.id,
            "topic": topic,
            "msg_key": checked.kafka_key,
            "key_hash": _key_hash(topic, checked.ordering_key),
            "headers": json.dumps(headers),
            "payload": value.decode(),
            "state": PENDING,
            "attempt": 0,
            "max_attempts": terms.attempts,
            "retry_base_ms": int(terms.interval_s * _MS),
            "retry_cap_ms": int(terms.limit_s * _MS),
            "maybe_sent": 0,
            "held": 0,
            "send_at": at,
        },
        at,
    )


def record_headers_of(headers: str) -> Sequence[tuple[str, bytes]]:
    """Returns the headers of a row as Kafka takes them."""
    return [(name, text.encode()) for name, text in _HEADERS.decode(headers)]


def _encoded(notification: Notification | Mapping[str, Any], at: int | None) -> bytes:
    if isinstance(notification, Notification):
        moved = notification if at is None else msgspec.structs.replace(notification, created_at=at)
        return envelope.encode(moved)
    filled = {
        "v": envelope.VERSION,
        "id": new_id(),
        "created_at": time.time_ns() // 1_000_000,
        **notification,
    }
    if at is not None:
        filled["created_at"] = at
    try:
        return msgspec.json.encode(filled)
    except (msgspec.MsgspecError, UnicodeEncodeError, TypeError, RecursionError) as exc:
        raise EnvelopeError("not_json", "$", f"cannot be written as JSON: {exc}") from exc


def _millis(send_at: datetime | int) -> int:
    if isinstance(send_at, datetime):
        if send_at.tzinfo is None:
            raise ValueError(
                "send_at has no time zone; give an aware datetime or epoch milliseconds"
            )
        send_at = int(send_at.timestamp() * _MS)
    now = time.time_ns() // 1_000_000
    if not 0 <= send_at <= now + MAX_AHEAD_MS:
        raise ValueError(
            f"send_at {send_at} lies more than {MAX_AHEAD_MS // 86_400_000} days ahead, or before 1970;"
            " it is epoch milliseconds"
        )
    return send_at


def _key_hash(topic: str, ordering_key: str | None) -> str | None:
    """Returns a name for topic and key that no collation changes."""
    if not ordering_key:
        return None
    return hashlib.sha256(f"{topic}\x1f{ordering_key}".encode()).hexdigest()[:32]
