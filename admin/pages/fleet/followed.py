"""The policy and the templates in force, as the pages of the fleet read them again and again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import structlog

from admin.parts import ConsoleParts
from channels.registry import serves
from idempotency.error_mapping import errors
from message.vocabulary import LANES, Lane
from policy.active import in_force
from policy.problems import PolicyError
from policy.schema import Policy
from policy.templates.versions import TemplateVersions
from policy.versions import Versions

log = structlog.get_logger(__name__)


class FollowedPolicy(NamedTuple):
    """The policy in force; none if it cannot be read."""

    policy: Policy | None
    number: int
    """0: no version was ever applied."""

    def guarantee(self, lane: Lane) -> str:
        """Returns the guarantee of a lane; empty if the policy cannot be read."""
        return str(self.policy.of(lane).guarantee) if self.policy is not None else ""

    def ttl_ms(self, lane: Lane) -> int | None:
        """Returns the time to live of a lane's deliveries."""
        return self.policy.of(lane).ttl_ms if self.policy is not None else None

    def weights(self, lane: Lane, tables: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Returns the lane's accounts with their weights."""
        if self.policy is None:
            return {}
        policy = self.policy.of(lane)
        names = policy.account_names or list(tables)
        fit = [n for n in names if n in tables and serves(str(tables[n].get("provider")), lane)]
        return {name: policy.weight(name) for name in fit}


class PolicyFollower:
    """Reads the newest version's number each time, and its text once."""

    def __init__(self, parts: ConsoleParts) -> None:
        self._settings = parts.settings
        self._versions = Versions(parts.databases.reads)
        self._known: FollowedPolicy | None = None  # one thread at a time calls `now`

    def now(self) -> FollowedPolicy:
        """Returns the policy in force. Raises LedgerError."""
        with errors():
            newest = self._versions.newest()
            number = newest.number if newest is not None else 0
            if self._known is None or self._known.number != number:
                self._known = self._read(number)
        return self._known

    def _read(self, number: int) -> FollowedPolicy:
        try:
            return FollowedPolicy(in_force(self._settings, self._versions).policy, number)
        except PolicyError as exc:
            log.warning("policy_not_readable", cause=str(exc))
            return FollowedPolicy(None, number)


class TemplatesFollower:
    """Reads the number of the templates' newest version; its texts only when it is new."""

    def __init__(self, parts: ConsoleParts) -> None:
        self._versions = TemplateVersions(parts.databases.reads)
        self._number = 0  # one thread at a time calls `now`

    def now(self) -> int:
        """Returns the number in force; 0: no version was ever applied. Raises LedgerError."""
        with errors():
            newer = self._versions.newer_than(self._number)
        if newer is not None:
            self._number = newer.number
        return self._number


def lanes_of(account: str, policy: FollowedPolicy, tables: Mapping[str, Any]) -> dict[str, int]:
    """Returns the lanes that use the account, with its weight in each."""
    found = {}
    for lane in LANES:
        weights = policy.weights(lane, tables)
        if account in weights:
            found[lane.name] = weights[account]
    return found
