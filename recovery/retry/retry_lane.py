"""Recovery's lane: chooses the account of a retry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from message.delivery import Delivery
from message.vocabulary import Lane
from policy.schema import LanePolicy
from sending.accounts.selector import AccountSelector
from sending.lane_routes import LaneRoutes, Route

_LEAST_PAUSE_S: Final = 0.1
_MOST_PAUSE_S: Final = 10.0


class RetryLane(LaneRoutes):
    """Recovery's lane under one version of its policy; it keeps the same limits as live traffic."""

    __slots__ = ("lane",)

    def __init__(
        self,
        lane: Lane,
        version: str,
        policy: LanePolicy,
        routes: Mapping[str, Route],
        accounts: AccountSelector,
    ) -> None:
        super().__init__(version, policy, routes, accounts)
        self.lane = lane

    def asked(self, delivery: Delivery) -> list[Route]:
        """Returns the accounts that an attempt in doubt may have used: the one in the ledger; without it
        every account of the lane. Empty if none is left."""
        name = delivery.account or delivery.notification.account
        if name:
            return [route for route in (self.of(name),) if route is not None]
        return list(self.routes.values())

    def bound_to(self, delivery: Delivery, *, same: bool) -> str | None:
        """Returns the only account that may send it: that of the repeated call (`same`), or the one that
        the notification names. None: any."""
        return delivery.account if same else delivery.notification.account

    def choose(self, delivery: Delivery, account: str | None) -> Route | None:
        """Returns the route of the next call, by `account` if it is bound to one; None if none may send
        now. A chosen account has used a permit: `accounts` must get the outcome, or the permit back."""
        if account is not None:
            notification = msgspec.structs.replace(delivery.notification, account=account)
            delivery = msgspec.structs.replace(delivery, notification=notification)
        chosen = self.accounts.choose(delivery, self.refuses(delivery))
        return None if chosen is None else self.routes[chosen.name]

    def wait_ms(self, delivery: Delivery, account: str | None) -> int:
        """Returns the milliseconds until one of its accounts, or the one it is bound to, may send it."""
        if account is not None:
            return self.pause_ms(account)
        return self.pause_ms(*self.accounts.restricted_to(delivery, self.refuses(delivery)))

    def pause_ms(self, *accounts: str) -> int:
        """Returns the milliseconds until one of these accounts may send; without names, any account."""
        wait_s = self.accounts.seconds_until_room(*accounts)
        return int(min(max(wait_s, _LEAST_PAUSE_S), _MOST_PAUSE_S) * 1_000)
