"""Through which account a delivery is sent again, and what must hold for a repeat of an earlier call."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from channels.channel import Account, Call, Channel
from message.delivery import Delivery
from message.vocabulary import Lane
from policy.schema import LanePolicy

MARGIN: Final = 0.1
"""Share of a provider's dedup window that is not relied on: its clock, and the way there."""


class Route(NamedTuple):
    """One account with its adapter."""

    account: Account
    channel: Channel

    def window_ends(self, called_at: int, timeout_ms: int) -> int:
        """Until when a repeat of a call begun at `called_at` may begin, so that it has surely arrived
        inside the provider's dedup window; epoch milliseconds. 0: there is no window."""
        window = self.channel.dedup_window_ms
        return called_at + int(window * (1 - MARGIN)) - timeout_ms if window else 0

    def fingerprint(self, delivery: Delivery) -> str:
        """The digest under which the provider would know the call; empty where it looks at none."""
        return self.channel.fingerprint(Call(self.account, (delivery,)))


class Routes:
    """The accounts of one lane. Stateless beside its lists; thread-safe."""

    def __init__(
        self,
        lane: Lane,
        policy: LanePolicy,
        routes: Sequence[Route],
        luck: Callable[[], float] = random.random,
    ) -> None:
        """`luck` draws from [0, 1)."""
        self.lane = lane
        self.policy = policy
        self._luck = luck
        self._routes = {route.account.name: route for route in routes}
        self._regular = [r for r in routes if policy.weight(r.account.name)] or list(routes)

    def __bool__(self) -> bool:
        return bool(self._routes)

    def of(self, account: str) -> Route | None:
        """The route of that account; None where the lane has it no more."""
        return self._routes.get(account)

    def asked(self, delivery: Delivery) -> list[Route]:
        """The accounts that an attempt in doubt may have gone through: the one that the ledger names; where
        it names none, every one that could have been chosen. Empty: none of them is left."""
        name = delivery.account or delivery.notification.account
        if name:
            return [route for route in (self.of(name),) if route is not None]
        return list(self._routes.values())

    def choose(self, delivery: Delivery, *, same: bool) -> Route | None:
        """The account for the next call: the one of the call that is repeated (`same`), else the one that
        the notification names, else one by weight. None: there is none."""
        if same:
            return self.of(delivery.account)
        if delivery.notification.account is not None:
            return self.of(delivery.notification.account)
        return self._by_weight()

    def _by_weight(self) -> Route | None:
        weights = [max(1, self.policy.weight(r.account.name)) for r in self._regular]
        point = self._luck() * sum(weights)
        for route, weight in zip(self._regular, weights, strict=True):
            point -= weight
            if point < 0:
                return route
        return self._regular[-1] if self._regular else None
