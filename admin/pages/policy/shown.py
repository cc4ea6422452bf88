"""`/policy`: what is in force, each lane's values and where they come from, the versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from litestar import get
from litestar.params import FromPath, FromQuery

from admin.access import Person, Role, needs
from admin.pages.policy.draft import FILE, policy_now
from admin.pages.policy.tables import tables_in, value_in, written
from admin.web.errors import Missing
from admin.web.given import GivenParts, GivenPerson, GivenView
from admin.web.paging import keys_of, page_of
from admin.web.view import Page
from idempotency.error_mapping import errors
from message.vocabulary import LANES, Lane, lane_named
from policy.active import ActivePolicy
from policy.parser import PolicyParser
from policy.schema import LanePolicy
from policy.schema_fields import PolicyField, policy_fields
from policy.versions import Versions

PER_PAGE: Final = 20
_DEFAULTS: Final = ""


class LaneValue(NamedTuple):
    """One field of one lane."""

    field: PolicyField
    value: str
    origin: str
    """Table that sets it, as `lanes.sms.*`; empty: the built-in default of the kind."""


class PolicyRow(NamedTuple):
    """One lane in the list."""

    lane: Lane
    policy: LanePolicy
    set: int
    """Fields that the text sets for it."""


@get("/policy", opt=needs(Role.VIEWER), sync_to_thread=True)
def policy_page(
    view: GivenView, parts: GivenParts, person: GivenPerson, before: FromQuery[str] = ""
) -> Page:
    """The policy in force, the lanes, the newest versions."""
    now = policy_now(parts)
    places = _origins(now)
    lanes = [
        PolicyRow(lane, now.policy.of(lane), len(places[lane.name]))
        for lane in LANES
        if person.may(Role.VIEWER, lane.name)
    ]
    with errors():
        versions = Versions(parts.databases.reads)
        found = versions.history(PER_PAGE + 1, keys_of(before, int))
    return view.page(
        "policy/list.html",
        now=now,
        newest=versions_newest(parts, now),
        lanes=lanes,
        tables=tables_in(now.text),
        versions=page_of(found, PER_PAGE, lambda one: one.number),
    )


def versions_newest(parts: GivenParts, now: ActivePolicy) -> Any:
    """Returns the version in force; None if none was ever applied."""
    with errors():
        return Versions(parts.ledger.database).numbered(now.number) if now.number else None


@get("/policy/lanes/{lane:str}", opt=needs(Role.VIEWER, "lane"), sync_to_thread=True)
def lane_page(lane: FromPath[str], view: GivenView, parts: GivenParts) -> Page:
    """The values of one lane, each with the table that sets it. Raises Missing."""
    named = lane_named(lane)
    if named is None:
        raise Missing(lane)
    now = policy_now(parts)
    values = _values(now.policy.of(named), _origins(now)[named.name])
    return view.page("policy/lane.html", lane=named, now=now, values=values)


@get("/policy/versions/{number:int}", opt=needs(Role.VIEWER), sync_to_thread=True)
def version_page(
    number: FromPath[int], view: GivenView, parts: GivenParts, person: GivenPerson
) -> Page:
    """One version: what it changed, its text, and the way back to it. Raises Missing."""
    with errors():
        found = Versions(parts.databases.reads).numbered(number)
    if found is None:
        raise Missing(str(number))
    if not sees_text(person):
        raise Missing(str(number))
    now = policy_now(parts)
    return view.page("policy/version.html", version=found, now=now)


def sees_text(person: Person) -> bool:
    """Returns whether the person may see texts, which are of all lanes."""
    return person.everywhere(Role.VIEWER) or person.may(Role.POLICY_ADMIN)


def _origins(now: ActivePolicy) -> Mapping[str, Mapping[str, Sequence[str]]]:
    return PolicyParser(FILE, now.text.encode(), None).origins()


def _values(policy: LanePolicy, places: Mapping[str, Sequence[str]]) -> list[LaneValue]:
    return [
        LaneValue(field, written(value_in(policy, field)), _origin(field.key, places))
        for field in policy_fields()
    ]


def _origin(key: str, places: Mapping[str, Sequence[str]]) -> str:
    """Returns the table that sets the field."""
    place = places.get(key, ())
    return ".".join(place[: len(place) - len(key.split("."))]) if place else _DEFAULTS


HANDLERS = [policy_page, lane_page, version_page]
