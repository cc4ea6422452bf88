"""Changes the policy of a running recovery, lane by lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from message.vocabulary import Lane
from policy.schema import LanePolicy, Policy
from recovery.retry.pool import RetryPool
from recovery.retry.retry_lane import RetryLane
from sending.accounts.limits import AccountsByLane, SendLimits
from sending.lane_routes import Route
from sending.policy_reload import followed

log = structlog.get_logger(__name__)


class RecoveryPolicyReload:
    """Called by the thread of `PolicyWatcher.run` alone."""

    def __init__(
        self,
        routes: dict[str, RetryLane],
        callers: Mapping[str, RetryPool],
        releasing: Mapping[str, RetryPool],
        send_limits: SendLimits,
        *,
        routes_for: Callable[[Policy], AccountsByLane],
        threads: Callable[[LanePolicy], int],
    ) -> None:
        """The jobs read `routes`, whose entries are replaced whole. `routes_for` raises SettingsError for a
        policy that the accounts do not fit. `threads` returns the number of a lane's threads in `callers`;
        `releasing` has as many as the policy names."""
        self.kept = 0
        """Number of lanes that follow only after a restart of recovery."""
        self._routes = routes
        self._callers = callers
        self._releasing = releasing
        self._quotas = send_limits
        self._routes_for = routes_for
        self._threads = threads

    def __call__(self, policy: Policy) -> None:
        """Applies the policy to every lane, except those that cannot follow while they run."""
        now = {r.lane: (r.version, r.policy) for r in self._routes.values()}
        new, kept = followed(policy, now)
        plain = self._routes_for(new)
        self._quotas.follow(new, plain)
        unserved = 0
        for lane, of_lane in plain.items():
            if lane.name not in self._routes:
                unserved += 1
                log.error("policy_lane_not_served", lane=lane.name, what="start recovery again")
            elif lane.name not in kept:
                routes = retry_lane(policy, lane, of_lane, self._quotas)
                self._routes[lane.name] = routes
                self._callers[lane.name].adopt(routes, self._threads(routes.policy))
                self._releasing[lane.name].adopt(routes, routes.policy.threads)
        self.kept = len(kept) + unserved
        log.info("policy_adopted", version=policy.version, lanes_kept=sorted(kept))


def retry_lane(
    policy: Policy, lane: Lane, routes: Mapping[str, Route], send_limits: SendLimits
) -> RetryLane:
    """Returns one lane under a policy that `send_limits` follow."""
    return RetryLane(lane, policy.version, policy.of(lane), routes, send_limits.accounts[lane.name])
