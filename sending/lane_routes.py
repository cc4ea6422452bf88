"""A lane's accounts under one version of its policy, for worker and recovery.

`LaneRoutes` never changes: a lane replaces it as a whole for another policy
(docs/decisions/047-policy-versions.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from backends.settings import Settings
from channels.accounts.lane_accounts import lane_accounts
from channels.accounts.time_limits import limits_of
from channels.channel import Account, Call, Channel
from channels.engine import adapter_failed
from channels.registry import channel_for
from message.delivery import Delivery
from message.vocabulary import Lane
from policy.schema import LanePolicy, Ordering, Policy
from sending.accounts.selector import AccountSelector, Refuses
from sending.adapter_refusals import refusal_of

MARGIN: Final = 0.1
"""Unused share of a provider's dedup window, for its clock and the network."""


class Route(NamedTuple):
    """An account and its provider's adapter."""

    account: Account
    channel: Channel

    def window_ends(self, called_at: int, timeout_ms: int) -> int:
        """Returns the epoch milliseconds until which a repeat of a call begun at `called_at` may begin, so
        that it surely arrives inside the provider's dedup window. 0: there is no window."""
        window = self.channel.dedup_window(self.account)
        return called_at + int(window * (1 - MARGIN)) - timeout_ms if window else 0

    def digest(self, deliveries: Sequence[Delivery]) -> str | None:
        """Returns the digest of one call for all of these, as the provider's dedup compares it; empty if it
        compares no bodies; None if the adapter raises."""
        try:
            return self.channel.fingerprint(Call(self.account, deliveries))
        except Exception as exc:  # any error of an adapter over one message
            adapter_failed(self.channel, "fingerprint", exc)
            return None

    def repeats(self, deliveries: Sequence[Delivery], digest: str) -> bool:
        """Returns whether the provider's dedup would take a call for all of these for the one with that
        digest. False if the adapter refuses one of them: its template may have lost the provider's form."""
        refused = any(refusal_of(delivery, self.account, self.channel) for delivery in deliveries)
        return not refused and self.digest(deliveries) == digest


class LaneRoutes:
    """`policy`, `routes` and `accounts` belong together."""

    __slots__ = ("accounts", "batch", "limits", "most", "policy", "routes", "version")

    def __init__(
        self,
        version: str,
        policy: LanePolicy,
        routes: Mapping[str, Route],
        accounts: AccountSelector,
    ) -> None:
        self.version = version
        """The policy's version, as in rows and trace events."""
        self.policy = policy
        self.routes = routes
        self.accounts = accounts
        self.most = 1 if policy.ordering is Ordering.KEY else policy.batch
        """Most deliveries in a call by the policy; None: as many as the provider takes. An ordered lane has
        calls of one: a key's next delivery waits until the one before is settled."""
        taken = max((route.channel.max_batch for route in routes.values()), default=1)
        self.batch = taken if self.most is None else min(taken, self.most)
        """Usual number of deliveries in a call of this lane."""
        self.limits = {name: limits_of(route.account, policy) for name, route in routes.items()}
        """Time limits of a call, by account."""

    def of(self, account: str) -> Route | None:
        """Returns the route of that account; None if the lane has it no more."""
        return self.routes.get(account)

    def refuses(self, delivery: Delivery) -> Refuses:
        """Returns a function: whether an account's adapter refuses the delivery."""
        return lambda account: bool(refusal_of(delivery, *self.routes[account.name]))


def routes_of(settings: Settings, policy: Policy, lane: Lane) -> dict[str, Route]:
    """Returns the lane's accounts with their adapters, by the account's name. Raises SettingsError."""
    accounts = lane_accounts(lane, settings.accounts, policy.of(lane))
    return {account.name: Route(account, channel_for(account)) for account in accounts}
