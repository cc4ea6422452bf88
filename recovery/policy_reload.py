"""Another policy in a recovery that is at work: lane by lane, each as a whole."""

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
    """Called by the watching thread alone."""

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
        """`routes` is what the jobs look into: an entry is exchanged at once. `routes_for` raises
        SettingsError for a policy that the accounts do not fit; `threads` tells how many of a lane's
        `callers` there are. Of `releasing` there are as many as the policy's."""
        self.kept = 0
        """Lanes that follow only once recovery is started again."""
        self._routes = routes
        self._callers = callers
        self._releasing = releasing
        self._quotas = send_limits
        self._routes_for = routes_for
        self._threads = threads

    def __call__(self, policy: Policy) -> None:
        """Let every lane follow, but those that cannot while they are at work."""
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
    """Returns one lane under a policy that `quotas` follow."""
    return RetryLane(lane, policy.version, policy.of(lane), routes, send_limits.accounts[lane.name])
