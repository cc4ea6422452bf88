"""Another policy in a worker that is at work: lane by lane, each as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import structlog

from backends.settings import Settings
from dispatcher.kafka.source import Source
from dispatcher.pipeline.gates import Gating
from dispatcher.pipeline.lane_config import Terms
from dispatcher.pipeline.lanes import Pool
from idempotency.error_mapping import errors
from message.vocabulary import Lane
from policy.active import InForce, in_force
from policy.diff import FIXED
from policy.schema import LanePolicy, Policy
from policy.versions import Versions
from policy.watcher import Watch
from sending.accounts.limits import Quotas, Routes
from sending.runtime.gauges import Gauge

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
        pools = self._pools.values()
        new, kept = followed(policy, {p.lane: (p.terms.version, p.policy) for p in pools})
        routes = self._routes_for(new)
        self._quotas.follow(new, routes)
        self._gating.follow(new)
        for lane, of_lane in routes.items():
            pool = self._pools.get(lane.name)
            if pool is None or lane.name in kept:
                continue
            accounts = self._quotas.accounts[lane.name]
            pool.adopt(Terms(policy.version, policy.of(lane), of_lane, accounts))
            self._source.follow(lane, frozenset(of_lane), policy.of(lane).max_in_flight)
        self.kept = len(kept)
        log.info("policy_adopted", version=policy.version, lanes_kept=sorted(kept))


def policy_gauges(watch: Watch, kept: Callable[[], int]) -> Iterable[Gauge]:
    """Of every process that follows policies; `kept` tells how many lanes could not."""
    text = "The applied policy version that is followed; 0: the file."
    yield "policy_number", text, {}, watch.number
    text = "1 while the newest applied version is one that this process cannot follow."
    yield "policy_refused", text, {}, float(watch.refused)
    yield "policy_lanes_kept", "Lanes that follow only after a restart.", {}, kept()


class Followed(NamedTuple):
    """What a process that is at work makes of another policy."""

    policy: Policy
    """With the lanes that cannot follow as they are."""
    kept: frozenset[str]


def followed(policy: Policy, now: Mapping[Lane, tuple[str, LanePolicy]]) -> Followed:
    """The policy, as far as lanes that now follow these (version, policy) can; says which cannot."""
    kept = {}
    for lane, (version, of_lane) in now.items():
        key = unfit(of_lane, policy.of(lane))
        if key is not None:
            kept[lane.name] = of_lane
            what = f"{key} cannot change while the lane is at work: start this process again"
            log.error("policy_lane_kept", lane=lane.name, version=version, what=what)
    return Followed(Policy(policy.version, {**policy.lanes, **kept}), frozenset(kept))


def unfit(before: LanePolicy, after: LanePolicy) -> str | None:
    """The field that a lane at work cannot change, if it differs."""
    return next((key for key in FIXED if getattr(before, key) != getattr(after, key)), None)


def in_force_at_start(settings: Settings, versions: Versions) -> InForce:
    """What counts now; a file that does not is worth a word. Raises PolicyError, LedgerError."""
    with errors():
        now = in_force(settings, versions)
    if now.file_differs:
        log.warning(
            "policy_file_differs",
            follows=now.policy.version,
            what="the applied version counts; `hongyan policy apply` puts the file in force",
        )
    return now
