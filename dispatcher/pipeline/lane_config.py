"""A worker's lane under one version of its policy.

A delivery is bound to the `LaneConfig` in force before its claim, and keeps it until it is settled
(docs/decisions/047-policy-versions.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from message.envelope import Notification
from message.reasons import UNKNOWN_ACCOUNT
from policy.schema import LanePolicy
from sending.accounts.selector import AccountSelector
from sending.lane_routes import LaneRoutes, Route

_MS: Final = 1_000
_LEAST_PAUSE_S: Final = 0.005
_MOST_PAUSE_S: Final = 0.5


class LaneConfig(LaneRoutes):
    """Frozen by convention: every stage reads it, none writes."""

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
        """Most deliveries between claim and settlement."""
        self.gated = policy.quiet_hours.holds or policy.frequency.holds or policy.dedup.holds
        """Whether a gate has to judge a delivery before its claim."""

    def pause_s(self, accounts: Sequence[str]) -> float:
        """Returns how long intake leaves the lane alone if none of these accounts may take a delivery;
        empty: if no account may."""
        wait_s = self.accounts.seconds_until_room(*accounts)
        return min(max(wait_s, _LEAST_PAUSE_S), _MOST_PAUSE_S)

    def misfit(self, notification: Notification) -> str | None:
        """Returns why the notification cannot be sent, as `code: sentence`: the lane has lost the account
        that it names. None if it can be sent."""
        named = notification.account
        if named is None or named in self.routes:
            return None
        return f"{UNKNOWN_ACCOUNT}: the lane has no account {named} any more"
