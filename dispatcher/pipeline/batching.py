"""Batching: deliveries with the same configuration, account and batch key share a provider call.

The call's key is the first delivery's. It is on record for each delivery before the call is made: if this
worker dies, recovery can ask the provider about the call by that key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from channels.engine import adapter_failed
from dispatcher.pipeline.binding import refusal_by
from dispatcher.pipeline.work import ENDS_AT_CLAIM, SEND, Park, Refuse, Work
from message.reasons import mender_of
from sending.batching import ALONE, Sharing, batch_into_calls, put_on_record, within


class Lanes(Protocol):
    """A lane's limit for its calls."""

    @property
    def most(self) -> int | None:
        """Most deliveries in a call by the lane's policy; None: as many as the provider takes."""
        ...


def calls_of(works: Iterable[Work], lanes: Mapping[str, Lanes]) -> list[list[Work]]:
    """Returns the works divided into calls, in their order, and writes each call on its deliveries. Every
    work has its route. A work that its adapter refuses goes alone, with a Refuse as its intent, or a Park
    if a person can mend the cause."""

    def sharing(work: Work) -> Sharing:
        return _sharing(work, lanes[work.delivery.lane].most)

    calls = batch_into_calls(works, sharing)
    for call in calls:
        if not call[0].chosen.channel.takes_anything:
            _put_on_record(call)
    return calls


def _sharing(work: Work, most: int | None) -> Sharing:
    """Returns the call that the work may join. A message over which its adapter raises is refused: it must
    not end the worker, since the next one would read it again."""
    account, channel = work.chosen
    if channel.takes_anything:
        work.delivery.account = account.name
        return ALONE
    if work.intent is not SEND:
        return ALONE
    if refusal := refusal_by(work, account, channel):
        work.intent = Park(refusal) if mender_of(refusal) else Refuse(refusal)
        return ALONE
    if channel.max_batch == 1:
        return ALONE
    delivery = work.delivery
    try:
        key = (delivery.lane, work.terms, account.name, channel.batch_key(delivery))
        return Sharing(within(channel.batch_limit(delivery), most), key)
    except Exception as exc:
        work.intent = Refuse(f"adapter_error: {adapter_failed(channel, 'batch_key', exc)}")
        return ALONE


def _put_on_record(call: list[Work]) -> None:
    first = call[0]
    if type(first.intent) is Refuse or type(first.intent) in ENDS_AT_CLAIM:
        first.delivery.account = first.chosen.account.name
    else:
        put_on_record(call, first.delivery.key if len(call) > 1 else "")
