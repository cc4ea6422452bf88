"""Changes of policy in a running process: the part it can follow, and its metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import structlog

from backends.metrics.readings import Reading
from backends.metrics.shared_families import POLICY_LANES_KEPT, POLICY_NUMBER, POLICY_REFUSED
from backends.settings import Settings
from backends.sql.errors import SqlError
from idempotency.error_mapping import errors
from message.vocabulary import Lane
from policy.active import ActivePolicy, in_force
from policy.diff import FIXED
from policy.schema import LanePolicy, Policy
from policy.versions import Versions
from policy.watcher import PolicyWatcher

log = structlog.get_logger(__name__)


def policy_readings(watch: PolicyWatcher, kept: Callable[[], int]) -> Iterable[Reading]:
    """Yields what a process that follows policies shows; `kept`: number of lanes that could not."""
    yield Reading(POLICY_NUMBER, {}, watch.number)
    yield Reading(POLICY_REFUSED, {}, float(watch.refused))
    yield Reading(POLICY_LANES_KEPT, {}, kept())


class Followed(NamedTuple):
    """The part of a new policy that a running process can follow."""

    policy: Policy
    """The new policy, with the lanes of `kept` unchanged."""
    kept: frozenset[str]
    """Names of the lanes that cannot follow."""


def followed(policy: Policy, now: Mapping[Lane, tuple[str, LanePolicy]]) -> Followed:
    """Returns the policy as far as lanes with these (version, policy) can follow; logs the others."""
    kept = {}
    for lane, (version, of_lane) in now.items():
        key = unfit(of_lane, policy.of(lane))
        if key is not None:
            kept[lane.name] = of_lane
            what = f"{key} cannot change while the lane is at work: start this process again"
            log.error("policy_lane_kept", lane=lane.name, version=version, what=what)
    return Followed(Policy(policy.version, {**policy.lanes, **kept}), frozenset(kept))


def unfit(before: LanePolicy, after: LanePolicy) -> str | None:
    """Returns a differing field that a running lane cannot change; None without one."""
    return next((key for key in FIXED if getattr(before, key) != getattr(after, key)), None)


def in_force_at_start(settings: Settings, versions: Versions) -> ActivePolicy:
    """Returns the policy in force; logs if the file differs. A file's text is put on record, if the
    database takes it. Raises PolicyError, LedgerError."""
    with errors():
        now = in_force(settings, versions)
    if not now.number:
        _keep_text(now, versions)
    if now.file_differs:
        log.warning(
            "policy_file_differs",
            follows=now.policy.version,
            what="the applied version counts; `hongyan policy apply` puts the file in force",
        )
    return now


def _keep_text(now: ActivePolicy, versions: Versions) -> None:
    """Puts the text on record: else nobody could tell later under which terms a delivery lived."""
    try:
        versions.keep(now.policy.version, now.text)
    except SqlError as exc:
        log.warning("policy_text_not_kept", version=now.policy.version, cause=str(exc))
