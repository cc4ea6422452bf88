"""A notification from its fields to Kafka's acknowledgement.

The checks are those of a worker: envelope, template, accounts, receivers. Nothing is answered with 202
before every in-sync replica has the record. Without an acknowledgement in time the answer is 503 with the
id: the record may be in Kafka, and a repeat with the same id doubles nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, Protocol

import structlog

from channels.registry import AccountError
from hongyan_client.errors import BufferFull, ClientClosed, NotDelivered, SendFailed
from hongyan_client.records import Acknowledged, Record
from message.envelope import EnvelopeError, Notification, check_arrival
from message.trace_context import HEADER as TRACE_HEADER
from message.trace_context import trace_context
from producer.gateway.api_keys import ApiKey
from producer.gateway.envelope_limits import check_path, notification_fields, own_id
from producer.gateway.problems import GatewayProblem, not_now
from sending.notification_check import Check, Ready, Render, prepared

log = structlog.get_logger(__name__)

_AWAY: Final = "Kafka did not acknowledge it in time; repeat the request with the same id"


class Publishes(Protocol):
    """The client's publisher (hongyan_client/publisher.py)."""

    def publish(self, record: Record, deadline_s: float) -> Future[Acknowledged]:
        """See `Publisher.publish`."""
        ...


OnAcknowledged = Callable[[Notification, Acknowledged], None]
LifeMs = Callable[[Notification], int]
"""Returns a notification's own life, or its lane's."""


class NotificationTerms(NamedTuple):
    """The parts of a notification that the request gives."""

    key: ApiKey
    created_at: int
    """Used where the fields have none."""
    message_id: str = ""
    """Used where the fields have none; empty: a new one."""
    may_be_in_kafka: bool = False
    """Whether an earlier try of the request may have sent it: its time may end between tries."""


class Submission:
    """Prepares and publishes. Belongs to the event loop's thread."""

    def __init__(
        self,
        publisher: Publishes,
        render: Render,
        check: Check,
        on_acknowledged: OnAcknowledged,
        life_ms: LifeMs,
        *,
        prefix: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._publisher = publisher
        self._render = render
        self._check = check
        self._on_acknowledged = on_acknowledged
        self._life_ms = life_ms
        self._prefix = prefix
        self._now_ms = now_ms

    def prepare(self, item: Any, terms: NotificationTerms) -> Ready:
        """Returns the checked notification. Raises GatewayProblem."""
        fields = dict(notification_fields(item))
        if terms.message_id:
            fields = {"id": terms.message_id} | fields
        check_path(own_id(fields))
        must_live = "created_at" in fields and not terms.may_be_in_kafka
        render = self._rendered_for(terms.key, must_live=must_live)
        try:
            return prepared(fields, terms.created_at, render, self._check_account)
        except EnvelopeError as exc:
            status = 413 if exc.code == "too_large" else 422
            raise GatewayProblem(status, exc.code, exc.detail, path=exc.path) from exc

    def publish(self, ready: Ready, traceparent: str = "") -> Future[Acknowledged]:
        """Hands the record over. Raises GatewayProblem with Retry-After while there is no room."""
        notification = ready.notification
        headers = [("hongyan-id", notification.id.encode())]
        if context := trace_context(traceparent):
            headers.append((TRACE_HEADER, context.encode()))
        topic = notification.lane.topic(self._prefix)
        record = Record(topic, notification.kafka_key.encode(), ready.value, headers)
        try:
            return self._publisher.publish(record, 0.0)
        except (BufferFull, ClientClosed) as exc:
            raise not_now("too many notifications wait for Kafka", notification.id) from exc

    async def acknowledged(self, ready: Ready, future: Future[Acknowledged]) -> None:
        """Returns once every in-sync replica has it. Raises GatewayProblem."""
        message_id = ready.notification.id
        try:
            place = await asyncio.wrap_future(future)
        except NotDelivered as exc:
            if not exc.repeatable:
                raise GatewayProblem(422, exc.code, "Kafka refused the notification") from exc
            log.warning("notification_not_accepted", code=exc.code, cause=str(exc))
            raise not_now(_AWAY, message_id) from exc
        except SendFailed as exc:
            log.warning("notification_in_doubt", code=exc.code, cause=str(exc))
            raise not_now(_AWAY, message_id) from exc
        self._on_acknowledged(ready.notification, place)

    def _rendered_for(self, key: ApiKey, *, must_live: bool) -> Render:
        """Returns the renderer, which checks the key's lanes first: a template's error tells about it.
        `must_live`: it refuses what has expired."""

        def render(notification: Notification) -> Any:
            lane = notification.lane
            if not key.covers(lane):
                detail = f"this key has no lane {lane.name}"
                raise GatewayProblem(403, "lane_not_allowed", detail)
            now_ms = self._now_ms()
            check_arrival(notification, lane, now_ms)
            if must_live:
                self._check_life(notification, now_ms)
            return self._render(notification)

        return render

    def _check_life(self, notification: Notification, now_ms: int) -> None:
        late_ms = now_ms - notification.created_at - self._life_ms(notification)
        if late_ms >= 0:
            detail = f"expired {late_ms // 1_000} s ago; created_at is in epoch milliseconds"
            raise EnvelopeError("expired", "$.created_at", detail)

    def _check_account(self, notification: Notification, rendered: Any) -> None:
        try:
            self._check(notification, rendered)
        except AccountError as exc:
            log.error("account_unusable", cause=str(exc))
            raise not_now("an account of this lane is configured wrongly") from exc
