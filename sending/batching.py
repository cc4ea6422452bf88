"""Batching: divides deliveries into provider calls, and puts a call on record before it is made.

Used by a live lane (dispatcher/pipeline/batching.py) and by recovery (recovery/retry/batching.py). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from message.delivery import Delivery


class RouteCarrier(Protocol):
    """Carries one delivery and its route: a lane's Work, recovery's RetryWork."""

    route: Any

    @property
    def delivery(self) -> Delivery:
        """The delivery."""
        ...


C = TypeVar("C", bound=RouteCarrier)


class Sharing(NamedTuple):
    """The call that a delivery may join."""

    limit: int
    """Most deliveries in the call."""
    key: Hashable
    """Deliveries of one key may share a call."""


ALONE = Sharing(1, None)


class _OpenCall:
    """A call that more deliveries may join."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.some: list[Any] = []
        self.receivers: set[str] = set()

    def takes(self, receiver: str) -> bool:
        """Returns whether there is room and the receiver is new: an answer names each receiver once."""
        return len(self.some) < self.limit and receiver not in self.receivers

    def add(self, one: RouteCarrier) -> None:
        self.some.append(one)
        self.receivers.add(one.delivery.receiver)


def batch_into_calls(some: Iterable[C], sharing: Callable[[C], Sharing]) -> list[list[C]]:
    """Returns the deliveries divided into calls, in their order."""
    calls: list[list[C]] = []
    joint: dict[Hashable, _OpenCall] = {}
    for one in some:
        limit, key = sharing(one)
        if limit == 1:
            calls.append([one])
            continue
        call = joint.get(key)
        if call is None or not call.takes(one.delivery.receiver):
            call = joint[key] = _OpenCall(limit)
            calls.append(call.some)
        call.add(one)
    return calls


def within(limit: int, most: int | None) -> int:
    """Returns the lower of the provider's limit and the policy's; `most` is None if the policy has none."""
    return limit if most is None else min(limit, most)


def put_on_record(call: Sequence[RouteCarrier], call_key: str) -> None:
    """Writes the call's account, key and digest on its deliveries. If the adapter raises, the digest is
    empty: no process relies on a repeat then."""
    route, deliveries = call[0].route, [one.delivery for one in call]
    account, channel = route
    digest = (route.digest(deliveries) or "") if channel.dedup_window_ms else ""
    for delivery in deliveries:
        delivery.account, delivery.call_key, delivery.call_digest = account.name, call_key, digest
