"""The navigation: its entries in order. An entry is shown once its page is registered."""

from __future__ import annotations

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
    shown: bool = False
    """Whether the page exists."""


ENTRIES: Final = (
    Entry("overview", "/", "o", shown=True),
    Entry("search", "/search", "s"),
    Entry("doubt", "/doubt", "d"),
    Entry("resend", "/resend", "r"),
    Entry("lost", "/lost", "l"),
    Entry("dead", "/dead", "x"),
    Entry("lanes", "/lanes", "n"),
    Entry("fleet", "/fleet", "f"),
    Entry("alerts", "/alerts", "a"),
    Entry("policy", "/policy", "p"),
    Entry("templates", "/templates", "t"),
    Entry("accounts", "/accounts", "c"),
    Entry("archive", "/archive", "h"),
    Entry("people", "/people", "e", Role.ADMIN, shown=True),
    Entry("audit", "/audit", "u", Role.ADMIN, shown=True),
)
"""Set `shown=True` when the page exists."""


def entries_for(person: Person) -> list[Entry]:
    """Returns the entries that the person may open."""
    return [entry for entry in ENTRIES if entry.shown and person.may(entry.role)]
