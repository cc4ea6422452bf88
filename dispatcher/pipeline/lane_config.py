"""A worker's lane under one version of its policy.

A delivery is bound to the `LaneConfig` that holds when it is taken for its claim, and acts under it until
it is settled (docs/decisions/047-policy-versions.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from message.envelope import Notification
from message.reasons import UNKNOWN_ACCOUNT
from policy.schema import LanePolicy
from sending.accounts.selector import AccountSelector
from sending.lane_routes import LaneRoutes, Route

_MS: Final = 1_000


class LaneConfig(LaneRoutes):
    """Read by every stage."""

    __slots__ = ("capacity", "gated", "linger_s", "several")

    def __init__(
        self,
        version: str,
        policy: LanePolicy,
        routes: Mapping[str, Route],
        accounts: AccountSelector,
    ) -> None:
        super().__init__(version, policy, routes, accounts)
        self.several = len(routes) > 1
        self.linger_s = policy.linger_ms / _MS
        self.capacity = (policy.threads + policy.queue_size) * self.batch
        """Deliveries between claim and settlement, at most."""
        self.gated = policy.quiet_hours.holds or policy.frequency.holds or policy.dedup.holds
        """Whether a gate has to judge a delivery before its claim."""

    def misfit(self, notification: Notification) -> str | None:
        """Returns why the notification cannot be sent under this configuration, as `code: sentence`: it
        names an account that the lane has no more. None: it can."""
        named = notification.account
        if named is None or named in self.routes:
            return None
        return f"{UNKNOWN_ACCOUNT}: the lane has no account {named} any more"
