"""Another policy in a process that is at work: what it can follow, and what it shows of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import structlog

from backends.settings import Settings
from idempotency.error_mapping import errors
from message.vocabulary import Lane
from policy.active import ActivePolicy, in_force
from policy.diff import FIXED
from policy.schema import LanePolicy, Policy
from policy.versions import Versions
from policy.watcher import PolicyWatcher
from sending.runtime.gauges import Gauge

log = structlog.get_logger(__name__)


def policy_gauges(watch: PolicyWatcher, kept: Callable[[], int]) -> Iterable[Gauge]:
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


def in_force_at_start(settings: Settings, versions: Versions) -> ActivePolicy:
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
