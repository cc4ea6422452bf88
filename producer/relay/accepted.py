"""Announces rows that Kafka acknowledged in the trace, as the client and `hongyan send` do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import structlog
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from backends.settings import Settings
from hongyan_client.outbox.entry import record_headers_of
from hongyan_client.outbox.publication import EndedBatch
from hongyan_client.outbox.store import ClaimedRow
from hongyan_client.records import Acknowledged
from message.envelope import EnvelopeError, decode
from message.trace_context import HEADER, trace_context
from message.vocabulary import lane_of_topic
from sending.accepted_trace import AcceptedTrace
from tracing import open_recorder
from tracing.masks import hasher
from tracing.metrics import show_drops

log = structlog.get_logger(__name__)
COMMAND = "relay"
AnnounceBatch = Callable[[EndedBatch], None]


def no_announcement(_ended: EndedBatch) -> None:
    """Announces nothing."""


def open_announcement(
    settings: Settings, name: str, registry: CollectorRegistry, stack: ExitStack
) -> AnnounceBatch:
    """Returns the function that announces a marked batch; `stack` writes out and closes the trace. Events
    go to Kafka alone: a relay needs no ledger."""
    to_kafka = replace(settings, trace=replace(settings.trace, database=False))
    recorder = open_recorder(to_kafka, name)
    stack.callback(recorder.close)
    show_drops(recorder, registry)
    trace = AcceptedTrace(recorder, COMMAND, hasher(settings.outcomes.hash_key))
    announcement = RelayAnnouncement(trace, settings.kafka.topic_prefix)
    return announcement.of_batch if settings.trace.kafka else no_announcement


class RelayAnnouncement:
    """The marker's thread calls `of_batch`."""

    def __init__(self, trace: AcceptedTrace, topic_prefix: str) -> None:
        self._trace = trace
        self._prefix = topic_prefix

    def of_batch(self, ended: EndedBatch) -> None:
        """Records one event for each delivery of the acknowledged rows of a lane. Raises nothing."""
        for row, place in zip(ended.sent, ended.places, strict=True):
            if lane_of_topic(row.topic, self._prefix) is not None:
                self._record(row, place)

    def _record(self, row: ClaimedRow, place: Acknowledged) -> None:
        try:
            notification = decode(row.payload.encode())
        except EnvelopeError as exc:
            log.warning("published_poison", message=row.message_id, cause=str(exc))
            return
        headers = dict(record_headers_of(row.headers))
        given = headers.get(HEADER, b"").decode("ascii", "replace")
        self._trace.acknowledged(notification, place, trace_context(given))
