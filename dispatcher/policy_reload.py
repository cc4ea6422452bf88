"""Changes the policy of a running worker, lane by lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from dispatcher.kafka.source import Source
from dispatcher.pipeline.gates import SendGates
from dispatcher.pipeline.lane_config import LaneConfig
from dispatcher.pipeline.lanes import LanePool
from idempotency.outcomes.lanes import AnnouncedLanes
from policy.schema import Policy
from sending.accounts.limits import AccountsByLane, SendLimits
from sending.policy_reload import followed

log = structlog.get_logger(__name__)


class PolicyReload:
    """Called by the thread of `PolicyWatcher.run` alone."""

    def __init__(
        self,
        pools: Mapping[str, LanePool],
        send_limits: SendLimits,
        gates: SendGates,
        source: Source,
        routes_for: Callable[[Policy], AccountsByLane],
        announced: AnnouncedLanes,
    ) -> None:
        """`routes_for` raises SettingsError for a policy that this worker's accounts do not fit."""
        self.kept = 0
        """Number of lanes that could not follow; they keep their terms until the worker is restarted."""
        self._pools = pools
        self._quotas = send_limits
        self._gates = gates
        self._source = source
        self._routes_for = routes_for
        self._announced = announced

    def __call__(self, policy: Policy) -> None:
        """Applies the policy to every lane, except those that cannot follow while they run. All steps that
        can fail come before the first change."""
        pools = self._pools.values()
        new, kept = followed(policy, {p.lane: (p.terms.version, p.policy) for p in pools})
        routes = self._routes_for(new)
        self._quotas.follow(new, routes)
        self._gates.follow(new)
        self._announced.follow(new.announced)
        for lane, of_lane in routes.items():
            pool = self._pools.get(lane.name)
            if pool is None or lane.name in kept:
                continue
            accounts = self._quotas.accounts[lane.name]
            pool.adopt(LaneConfig(policy.version, policy.of(lane), of_lane, accounts))
            self._source.follow(lane, frozenset(of_lane), policy.of(lane).max_in_flight)
        self.kept = len(kept)
        log.info("policy_adopted", version=policy.version, lanes_kept=sorted(kept))
