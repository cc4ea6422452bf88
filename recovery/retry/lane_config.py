"""Through which account a delivery is sent again, and what must hold for a repeat of an earlier call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from channels.channel import Account, Call, Channel
from message.delivery import Delivery
from message.vocabulary import Lane
from policy.schema import LanePolicy, Ordering
from sending.accounts.selector import AccountSelector, Refuses
from sending.adapter_refusals import refusal_of

MARGIN: Final = 0.1
"""Share of a provider's dedup window that is not relied on: its clock, and the way there."""
_LEAST_PAUSE_S, _MOST_PAUSE_S = 0.1, 10.0


class RetryRoute(NamedTuple):
    """One account with its adapter."""

    account: Account
    channel: Channel

    def window_ends(self, called_at: int, timeout_ms: int) -> int:
        """Until when a repeat of a call begun at `called_at` may begin, so that it has surely arrived
        inside the provider's dedup window; epoch milliseconds. 0: there is no window."""
        window = self.channel.dedup_window(self.account)
        return called_at + int(window * (1 - MARGIN)) - timeout_ms if window else 0

    def fingerprint(self, delivery: Delivery) -> str:
        """The digest under which the provider would know the call; empty where it looks at none."""
        return self.digest((delivery,))

    def digest(self, deliveries: Sequence[Delivery]) -> str:
        """As `fingerprint`, of one call for all of these."""
        return self.channel.fingerprint(Call(self.account, deliveries))


class Routes:
    """The accounts of one lane, and who of them may send now: the same limits as live traffic's. Another
    policy brings other Routes."""

    def __init__(
        self,
        lane: Lane,
        policy: LanePolicy,
        routes: Sequence[RetryRoute],
        accounts: AccountSelector,
        version: str = "",
    ) -> None:
        self.lane = lane
        self.version = version
        """Of the policy."""
        self.policy = policy
        self.accounts = accounts
        self._routes = {route.account.name: route for route in routes}
        self.most = 1 if policy.ordering is Ordering.KEY else policy.batch
        """Deliveries a call may carry by the policy; None: as many as the provider takes."""
        taken = max((route.channel.max_batch for route in routes), default=1)
        self.batch = taken if self.most is None else min(taken, self.most)
        """Deliveries a call of this lane commonly carries."""

    def of(self, account: str) -> RetryRoute | None:
        """The route of that account; None where the lane has it no more."""
        return self._routes.get(account)

    def asked(self, delivery: Delivery) -> list[RetryRoute]:
        """The accounts that an attempt in doubt may have gone through: the one that the ledger names; where
        it names none, every one that could have been chosen. Empty: none of them is left."""
        name = delivery.account or delivery.notification.account
        if name:
            return [route for route in (self.of(name),) if route is not None]
        return list(self._routes.values())

    def bound_to(self, delivery: Delivery, *, same: bool) -> str | None:
        """The one account that may send it: that of the call which is repeated (`same`), or the one that
        the notification names. None: any."""
        return delivery.account if same else delivery.notification.account

    def choose(self, delivery: Delivery, account: str | None) -> RetryRoute | None:
        """The route for the next call, through `account` if it is bound to one; None where none may send
        now. What is chosen has used a token: tell `accounts` what became of it."""
        if account is not None:
            notification = msgspec.structs.replace(delivery.notification, account=account)
            delivery = msgspec.structs.replace(delivery, notification=notification)
        chosen = self.accounts.choose(delivery, self.refuses(delivery))
        return None if chosen is None else self._routes[chosen.name]

    def refuses(self, delivery: Delivery) -> Refuses:
        """Whether an account's adapter refuses the delivery."""
        return lambda account: bool(refusal_of(delivery, *self._routes[account.name]))

    def wait_ms(self, delivery: Delivery, account: str | None) -> int:
        """How long to leave a delivery alone that no account may send now, or the one it is bound to."""
        if account is not None:
            return self.pause_ms(account)
        return self.pause_ms(*self.accounts.only(delivery, self.refuses(delivery)))

    def pause_ms(self, *accounts: str) -> int:
        """How long to leave alone what none of these accounts may send now; without any, nobody."""
        wait_s = self.accounts.seconds_until_room(*accounts)
        return int(min(max(wait_s, _LEAST_PAUSE_S), _MOST_PAUSE_S) * 1_000)
