"""Another policy in a worker that is at work: lane by lane, each as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import structlog

from dispatcher.gating import Gating
from dispatcher.lanes import Pool
from dispatcher.quotas import Quotas, Routes
from dispatcher.source import Source
from dispatcher.terms import Terms
from policy.changes import FIXED
from policy.schema import LanePolicy, Policy

log = structlog.get_logger(__name__)


class Adoption:
    """Called by the watching thread alone."""

    def __init__(
        self,
        pools: Mapping[str, Pool],
        quotas: Quotas,
        gating: Gating,
        source: Source,
        routes_for: Callable[[Policy], Routes],
    ) -> None:
        """`routes_for` raises SettingsError for a policy that this worker's accounts do not fit."""
        self.kept = 0
        """Lanes that could not follow, and keep their terms until the worker is started again."""
        self._pools = pools
        self._quotas = quotas
        self._gating = gating
        self._source = source
        self._routes_for = routes_for

    def __call__(self, policy: Policy) -> None:
        """Let every lane follow, but those that cannot while they are at work. All that can fail comes
        before the first change."""
        followed = self._mixed(policy)
        routes = self._routes_for(followed.policy)
        self._quotas.follow(followed.policy, routes)
        self._gating.follow(followed.policy)
        for lane, of_lane in routes.items():
            pool = self._pools.get(lane.name)
            if pool is None or lane.name in followed.kept:
                continue
            accounts = self._quotas.accounts[lane.name]
            pool.adopt(Terms(policy.version, policy.of(lane), of_lane, accounts))
            self._source.follow(lane, frozenset(of_lane), policy.of(lane).max_in_flight)
        self.kept = len(followed.kept)
        log.info("policy_adopted", version=policy.version, lanes_kept=sorted(followed.kept))

    def _mixed(self, policy: Policy) -> _Followed:
        """The policy, with the lanes that cannot follow it as they are."""
        kept = {}
        for name, pool in self._pools.items():
            key = unfit(pool.policy, policy.of(pool.lane))
            if key is not None:
                kept[name] = pool.policy
                what = f"{key} cannot change while the lane is at work: start the worker again"
                log.error("policy_lane_kept", lane=name, version=pool.terms.version, what=what)
        return _Followed(Policy(policy.version, {**policy.lanes, **kept}), frozenset(kept))


class _Followed(NamedTuple):
    policy: Policy
    kept: frozenset[str]


def unfit(before: LanePolicy, after: LanePolicy) -> str | None:
    """The field that a lane at work cannot change, if it differs."""
    return next((key for key in FIXED if getattr(before, key) != getattr(after, key)), None)
