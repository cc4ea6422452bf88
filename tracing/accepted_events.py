"""Events `accepted`: one for each delivery of a notification that Kafka acknowledged. Pure.

Without them nobody could name a notification that Kafka removed before anybody read it.
"""

from __future__ import annotations

from typing import NamedTuple

from message.envelope import Notification
from message.keys import delivery_key, normalise_receiver
from tracing.events import Stage, TraceEvent
from tracing.masks import HashReceiver, mask, template_of


class AcceptedPlace(NamedTuple):
    """Place of an acknowledged record."""

    origin: str
    """topic/partition/offset."""
    at: int
    """The record's epoch milliseconds: its report may come after a worker has sent it."""


def accepted_events(
    notification: Notification,
    place: AcceptedPlace,
    worker: str,
    hash_receiver: HashReceiver,
    detail: str | None = None,
    traceparent: str | None = None,
) -> list[TraceEvent]:
    """Returns one event for each distinct receiver. `worker` names the producer."""
    channel, named = notification.channel, template_of(notification)
    lane = notification.lane.name
    if detail is None and notification.resend_of:
        detail = f"copy of {notification.resend_of}"
    receivers = dict.fromkeys(normalise_receiver(channel, one) for one in notification.receivers)
    return [
        TraceEvent(
            at=place.at,
            stage=Stage.ACCEPTED,
            message_id=notification.id,
            delivery_key=delivery_key(notification.id, channel, receiver),
            biz_id=notification.biz_id,
            lane=lane,
            receiver=mask(channel, receiver),
            receiver_hash=hash_receiver(channel, receiver),
            template=named,
            worker=worker,
            detail=detail,
            origin=place.origin,
            traceparent=traceparent,
            created_at=notification.created_at,
        )
        for receiver in receivers
    ]


def unreadable_event(
    place: AcceptedPlace, worker: str, message_id: str, lane: str, detail: str
) -> TraceEvent:
    """Returns the event of a record that is no notification: it names no delivery."""
    return TraceEvent(
        at=place.at,
        stage=Stage.ACCEPTED,
        message_id=message_id,
        lane=lane,
        worker=worker,
        detail=detail,
        origin=place.origin,
    )
