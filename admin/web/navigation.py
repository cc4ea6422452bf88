"""The navigation: its entries in order. An entry is shown if its page exists."""

from __future__ import annotations

from collections.abc import Container
from typing import Final, NamedTuple

from admin.access import Person, Role


class Entry(NamedTuple):
    """One page of the navigation."""

    name: str
    """Key of its text, `nav.NAME`."""
    path: str
    letter: str
    """After `g`, it leads there."""
    role: Role = Role.VIEWER


ENTRIES: Final = (
    Entry("overview", "/", "o"),
    Entry("search", "/search", "s"),
    Entry("doubt", "/doubt", "d"),
    Entry("resend", "/resend", "r"),
    Entry("campaigns", "/campaigns", "m"),
    Entry("lost", "/lost", "l"),
    Entry("dead", "/dead", "x"),
    Entry("lookback", "/lookback", "b"),
    Entry("outbox", "/outbox", "q"),
    Entry("spools", "/spools", "w"),
    Entry("lanes", "/lanes", "n"),
    Entry("fleet", "/fleet", "f"),
    Entry("alerts", "/alerts", "a"),
    Entry("policy", "/policy", "p"),
    Entry("templates", "/templates", "t"),
    Entry("accounts", "/accounts", "c"),
    Entry("archive", "/archive", "h"),
    Entry("doctor", "/doctor", "i", Role.OPERATOR),
    Entry("people", "/people", "e", Role.ADMIN),
    Entry("api_keys", "/keys", "k", Role.ADMIN),
    Entry("audit", "/audit", "u", Role.ADMIN),
)
"""All of them; an entry without a page is not shown."""


def entries_for(person: Person, paths: Container[str]) -> list[Entry]:
    """Returns the entries that the person may open; `paths` are those of the application's routes."""
    return [entry for entry in ENTRIES if entry.path in paths and person.may(entry.role)]
