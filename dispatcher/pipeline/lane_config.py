"""What one lane follows: all of its policy and what was made of it, under one version.

Terms never change; a lane exchanges them whole (docs/decisions/047-policy-versions.md). A delivery is
bound to those that hold when it is taken for its claim, and acts under them until it is settled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from channels.accounts.time_limits import limits_of
from channels.channel import Account, Channel
from dispatcher.pipeline.work import Route, Work
from message.envelope import Notification
from message.reasons import UNKNOWN_ACCOUNT
from policy.schema import LanePolicy, Ordering
from sending.accounts.selector import AccountSelector, Refuses
from sending.adapter_refusals import refusal_of

_MS: Final = 1_000


class LaneConfig:
    """Read by every stage; `policy`, `routes` and `accounts` belong together."""

    __slots__ = (
        "accounts",
        "batch",
        "capacity",
        "gated",
        "limits",
        "linger_s",
        "most",
        "policy",
        "routes",
        "several",
        "version",
    )

    def __init__(
        self,
        version: str,
        policy: LanePolicy,
        routes: Mapping[str, Route],
        accounts: AccountSelector,
    ) -> None:
        self.version = version
        """Of the policy, as it stands on rows and trace events."""
        self.policy = policy
        self.routes = routes
        self.accounts = accounts
        self.several = len(routes) > 1
        self.most = 1 if policy.ordering is Ordering.KEY else policy.batch
        """Deliveries a call may carry by the policy; None: as many as the provider takes. An ordered lane
        has calls of one: whether a key's next may go is known when the one before is settled."""
        self.batch = _batch(self.most, routes)
        """Deliveries a call of this lane commonly carries: what intake waits for, and makes room for."""
        self.linger_s = policy.linger_ms / _MS
        self.capacity = (policy.threads + policy.queue_size) * self.batch
        """Deliveries between claim and settlement, at most."""
        self.limits = {name: limits_of(route[0], policy) for name, route in routes.items()}
        """Of a call, by account."""
        self.gated = policy.quiet_hours.holds or policy.frequency.holds or policy.dedup.holds
        """Whether a delivery has to be asked about before its claim."""

    def bind(self, work: Work) -> None:
        """Let the delivery act under these terms; one that names an account they have not ends at its
        claim."""
        if work.terms is self:
            return
        former, work.terms = work.terms, self
        if former is None:
            return
        delivery, notification = work.delivery, work.delivery.notification
        delivery.policy_version = self.version
        lifetime_ms = self.policy.lifetime_ms(notification.ttl_ms)
        delivery.expires_at = notification.created_at + lifetime_ms
        work.drop = work.drop or self.misfit(notification)

    def misfit(self, notification: Notification) -> str | None:
        """Why it cannot be sent under these terms: it names an account that the lane had when it was
        read."""
        named = notification.account
        if named is None or named in self.routes:
            return None
        return f"{UNKNOWN_ACCOUNT}: the lane has no account {named} any more"

    def choose(self, work: Work) -> Route | None:
        """The account a notification names, else one of the lane's, by weight; None where none may
        take it now. What ends at its claim needs any."""
        ends, accounts = work.drop is not None, self.accounts
        if ends:
            account = accounts.any()
        else:
            account = accounts.choose(work.delivery, self.refuses(work) if self.several else None)
        return None if account is None else self.routes[account.name]

    def only(self, work: Work) -> tuple[str, ...]:
        """The accounts without which it cannot go; empty: any will do, as for what ends at its claim."""
        if work.drop is not None:
            return ()
        if work.waits_for is None or work.waits_for[0] is not self:
            refuses = self.refuses(work) if self.several else None
            work.waits_for = self, self.accounts.only(work.delivery, refuses)
        return work.waits_for[1]

    def refuses(self, work: Work) -> Refuses:
        """Whether an account's adapter refuses the delivery; the last answer stays on the work."""
        return lambda account: bool(asked(work, *self.routes[account.name]))

    def refuses_elsewhere(self, work: Work) -> Refuses:
        """As `refuses`, of a delivery that was called for: nothing of it is kept on the work."""
        return lambda account: bool(refusal_of(work.delivery, *self.routes[account.name]))


def _batch(most: int | None, routes: Mapping[str, Route]) -> int:
    taken = max((channel.max_batch for _, channel in routes.values()), default=1)
    return taken if most is None else min(taken, most)


def asked(work: Work, account: Account, channel: Channel) -> str:
    """As `refusal_of`; the answer stays on the work: nobody asks the same account twice in a row."""
    if work.asked != account.name:
        work.refused = refusal_of(work.delivery, account, channel)
        work.asked = account.name
    return work.refused
