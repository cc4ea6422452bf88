"""Through which account a delivery is sent again."""

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
        """The accounts that an attempt in doubt may have gone through: the one that the ledger names; where
        it names none, every one that could have been chosen. Empty: none of them is left."""
        name = delivery.account or delivery.notification.account
        if name:
            return [route for route in (self.of(name),) if route is not None]
        return list(self.routes.values())

    def bound_to(self, delivery: Delivery, *, same: bool) -> str | None:
        """The one account that may send it: that of the call which is repeated (`same`), or the one that
        the notification names. None: any."""
        return delivery.account if same else delivery.notification.account

    def choose(self, delivery: Delivery, account: str | None) -> Route | None:
        """The route for the next call, through `account` if it is bound to one; None where none may send
        now. What is chosen has used a token: tell `accounts` what became of it."""
        if account is not None:
            notification = msgspec.structs.replace(delivery.notification, account=account)
            delivery = msgspec.structs.replace(delivery, notification=notification)
        chosen = self.accounts.choose(delivery, self.refuses(delivery))
        return None if chosen is None else self.routes[chosen.name]

    def wait_ms(self, delivery: Delivery, account: str | None) -> int:
        """How long to leave a delivery alone that no account may send now, or the one it is bound to."""
        if account is not None:
            return self.pause_ms(account)
        return self.pause_ms(*self.accounts.restricted_to(delivery, self.refuses(delivery)))

    def pause_ms(self, *accounts: str) -> int:
        """How long to leave alone what none of these accounts may send now; without any, nobody."""
        wait_s = self.accounts.seconds_until_room(*accounts)
        return int(min(max(wait_s, _LEAST_PAUSE_S), _MOST_PAUSE_S) * 1_000)
