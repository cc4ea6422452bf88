"""The client of a business process: `send`, `send_many`, `flush`.

    with Client("kafka-1:9092") as client:
        sent = client.send(compose("sms.notice", ["+8613800000001"], template="order-paid")).result()

A future's result says where the notification is safe. Its exception is one of hongyan_client/errors.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import NamedTuple, Self

from hongyan_client.core import ClientCore
from hongyan_client.metrics import ClientFigures, Observer
from hongyan_client.options import DEFAULT_OPTIONS, ClientOptions
from hongyan_client.overflow import OpenOverflow
from hongyan_client.publisher import Publisher
from hongyan_client.sends.pending_send import SentNotification
from message.envelope import Notification
from message.producer_properties import Property
from message.vocabulary import DEFAULT_TOPIC_PREFIX


class NotSentItem(NamedTuple):
    """A notification of `send_many` that is not known to be safe."""

    notification: Notification
    error: BaseException


class SendSummary(NamedTuple):
    """Ends of one `send_many`, in the order of the call."""

    sent: Sequence[SentNotification]
    failed: list[NotSentItem]


class Client:
    """Sends notifications. Safe from any thread; one for a process, opened after any fork."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "hongyan-client",
        topic_prefix: str = DEFAULT_TOPIC_PREFIX,
        properties: Mapping[str, Property] | None = None,
        options: ClientOptions = DEFAULT_OPTIONS,
        overflow: OpenOverflow | None = None,
        observer: Observer | None = None,
    ) -> None:
        """Connects by itself, later. `properties`: further properties of librdkafka (TLS, SASL).
        `client_id` names the producer in Kafka's logs and in the trace. Raises WrongProperties."""
        self._core = ClientCore(
            bootstrap,
            client_id=client_id,
            topic_prefix=topic_prefix,
            properties=properties or {},
            options=options,
            overflow=overflow,
            observer=observer,
        )

    @property
    def publisher(self) -> Publisher:
        """The publisher, for records that are no notifications."""
        return self._core.publisher

    def send(
        self,
        notification: Notification,
        *,
        traceparent: str | None = None,
        deadline_s: float | None = None,
    ) -> Future[SentNotification]:
        """Returns the future of one notification. Blocks while the buffer is full, at most `deadline_s`
        seconds (None: the option's). `traceparent`: the W3C context; None: OpenTelemetry's current span.
        Raises WrongNotification, BufferFull, ClientClosed: then nothing was sent."""
        longest = self._core.options.deadline_s if deadline_s is None else deadline_s
        send, future, wired = self._core.prepared(notification, traceparent)
        self._core.enqueue(send, wired, longest)
        return future

    def send_many(
        self, notifications: Iterable[Notification], *, timeout_s: float = 60.0
    ) -> SendSummary:
        """Sends all and waits for their ends. A notification that fails keeps none of the others back.
        Those without an end after `timeout_s` seconds fail with TimeoutError: they are in doubt."""
        batch = self._core.send_all(notifications, time.monotonic() + timeout_s)
        sent, failed = batch.results()
        return SendSummary(sent, [NotSentItem(one, why or TimeoutError()) for one, why in failed])

    def flush(self, timeout_s: float) -> int:
        """Waits until each notification is safe, at most `timeout_s` seconds. Returns the number of
        those that are not."""
        return self._core.flush(timeout_s)

    def drain(self, timeout_s: float) -> int:
        """Lets the spool publish what it has, at most `timeout_s` seconds. Returns the number that still
        waits; 0 without a spool."""
        return self._core.drain(timeout_s)

    def figures(self) -> ClientFigures:
        """Returns the figures for metrics, hot keys among them."""
        return self._core.figures()

    def close(self, timeout_s: float = 30.0) -> int:
        """Flushes and closes; idempotent. Returns the number of notifications that are not safe: their
        futures failed."""
        return self._core.close(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
