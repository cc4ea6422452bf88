"""Outcome events made from the ledger's rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from idempotency.outcomes.outbox import OutcomeBatch
from idempotency.outcomes.statements import EndedRow
from message.outcome_event import OutcomeEvent, codes_of, event_id_of, receiver_hash
from message.states import State
from tracing.masks import MASK, mask

OpenReceiver = Callable[[EndedRow], str | None]
"""Returns a row's receiver; None where it cannot be opened."""
POST_EVENTS: Final = 100
"""Events in one post of the webhook, at most."""


class ReadyEvent(NamedTuple):
    """One event to publish."""

    batch: int
    key: str
    """Of the record in Kafka: the notification's."""
    event: OutcomeEvent


def ready_events(
    batches: Sequence[OutcomeBatch], hash_key: bytes, open_receiver: OpenReceiver
) -> list[ReadyEvent]:
    """Returns the events of these batches, in their order."""
    return [
        ReadyEvent(
            batch.id,
            end.ordering_key or end.message_id,
            event_of(end, open_receiver(end), hash_key),
        )
        for batch in batches
        for end in batch.ends
    ]


def event_of(end: EndedRow, receiver: str | None, hash_key: bytes) -> OutcomeEvent:
    """Returns the event of one end. Nothing of the receiver but hash and mask is in it."""
    channel, _, kind = end.lane.partition(".")
    state = State(end.state)
    reason, provider_code = codes_of(state, end.reason, end.attempt)
    return OutcomeEvent(
        event_id=event_id_of(end.delivery_key, end.state, end.version),
        id=end.message_id,
        biz_id=end.biz_id,
        channel=channel,
        kind=kind,
        lane=end.lane,
        receiver_hash=None if receiver is None else receiver_hash(hash_key, channel, receiver),
        receiver_mask=MASK if receiver is None else mask(channel, receiver),
        state=state,
        reason=reason,
        provider_code=provider_code,
        provider_id=end.provider_id,
        account=end.account,
        attempt=end.attempt,
        delivery_key=end.delivery_key,
        created_at=end.created_at,
        ended_at=end.updated_at,
        resend_of=end.resend_of,
    )


def in_posts(events: Sequence[ReadyEvent], most: int) -> Iterator[Sequence[ReadyEvent]]:
    """Yields the events of one post after the other, `most` in each."""
    for start in range(0, len(events), most):
        yield events[start : start + most]


def by_batch(post: Sequence[ReadyEvent]) -> list[list[ReadyEvent]]:
    """Returns the events of one post divided by their batches, in their order."""
    return [list(some) for _, some in groupby(post, key=attrgetter("batch"))]
