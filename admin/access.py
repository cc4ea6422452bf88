"""Roles, persons, and the rule that every route carries.

    viewer        sees pages of its lanes        operator  acts on deliveries and lanes
    approver      agrees to what another person asked for
    policy_admin  changes policy and templates   admin     people and audit

Every role sees what a viewer of its lanes sees. A role holds for lanes, named by patterns as `sms.*`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final

ANY_LANE: Final = "*"
OPTION: Final = "access"
"""Name of the rule in a route's `opt`."""
OF_ROW: Final = "row"
"""Lane of a rule whose handler reads a row first, and then calls `Person.require`."""


class Role(StrEnum):
    """Roles; a person has any number of them."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    APPROVER = "approver"
    POLICY_ADMIN = "policy_admin"
    ADMIN = "admin"


class Forbidden(Exception):
    """The person lacks a role. The text is for the person."""

    def __init__(self, role: Role, lane: str = "") -> None:
        super().__init__(f"{role}{' for ' + lane if lane else ''}")
        self.role = role
        self.lane = lane


@dataclass(frozen=True, slots=True)
class Person:
    """A person with a session."""

    id: int
    name: str
    roles: Mapping[Role, tuple[str, ...]]
    """Role to the patterns of its lanes."""
    language: str = ""
    theme: str = ""
    local: bool = True
    """Whether the person has a password here."""

    def may(self, role: Role, lane: str = "") -> bool:
        """Returns whether the person has the role, for this lane if one is given; ANY_LANE is all lanes."""
        held = self.patterns(role)
        if lane == ANY_LANE:
            return are_all_lanes(held)
        return _fits(lane, held) if lane else bool(held)

    def require(self, role: Role, lane: str = "") -> None:
        """Raises Forbidden where `may` returns False."""
        if not self.may(role, lane):
            raise Forbidden(role, lane)

    def patterns(self, role: Role) -> tuple[str, ...]:
        """Returns the patterns of the lanes for which the person has the role."""
        held = self.roles.values() if role is Role.VIEWER else [self.roles.get(role, ())]
        return tuple(dict.fromkeys(pattern for patterns in held for pattern in patterns))

    def among(self, lanes: Iterable[str], role: Role = Role.VIEWER) -> list[str]:
        """Returns those of the lanes for which the person has the role."""
        held = self.patterns(role)
        return list(lanes) if ANY_LANE in held else [lane for lane in lanes if _fits(lane, held)]

    def everywhere(self, role: Role) -> bool:
        """Returns whether the person has the role for all lanes."""
        return are_all_lanes(self.patterns(role))


def are_all_lanes(patterns: Collection[str]) -> bool:
    """Returns whether one of the patterns is that of all lanes."""
    return ANY_LANE in patterns or "*.*" in patterns


def _fits(lane: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(lane, one) for one in patterns)


@dataclass(frozen=True, slots=True)
class Access:
    """The rule of one route."""

    role: Role | None = None
    """The role that it needs; None with `signed_in`: any person; None without: everybody."""
    lane: str = ""
    """The parameter of path, query or form that names its lane; OF_ROW; empty: not bound to a lane."""
    signed_in: bool = True


def needs(role: Role, lane: str = "") -> dict[str, Any]:
    """Returns the options of a route that needs the role."""
    return {OPTION: Access(role, lane)}


def for_everybody() -> dict[str, Any]:
    """Returns the options of a route that needs no session: login, static files, health."""
    return {OPTION: Access(signed_in=False)}


def for_signed_in() -> dict[str, Any]:
    """Returns the options of a route for any person."""
    return {OPTION: Access()}
