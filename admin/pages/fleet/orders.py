"""Parts that the forms of orders share: times, and the row of each order in the audit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection

from admin.access import Person
from admin.parts import ConsoleParts
from admin.web.forms import SentForm, WrongForm
from admin.web.view import View
from backends.durations import milliseconds
from idempotency.error_mapping import errors

TIMES: Final = ("15m", "30m", "1h", "2h", "8h", "1d")
"""Times that the forms offer."""


def time_ms(form: SentForm, name: str = "for") -> int | None:
    """Returns the length of time that a form gives; None: no end. Raises WrongForm."""
    written = form.text(name)
    if not written:
        return None
    try:
        found = milliseconds(written)
    except ValueError:
        found = 0
    if not found:
        raise WrongForm("fleet.bad_time", name)
    return found


@contextmanager
def ordered(
    view: View,
    parts: ConsoleParts,
    person: Person,
    action: str,
    subject: str,
    *,
    reason: str,
    lanes: str = "",
) -> Iterator[Connection]:
    """Yields the connection of one transaction on the primary. If the order raises nothing, its row in the
    audit is in it. Raises LedgerError."""
    with errors(), parts.databases.primary.begin() as connection:
        yield connection
        parts.journal.record(
            connection,
            person=person.name,
            action=action,
            subject=subject,
            lane=lanes,
            reason=reason,
            address=view.address,
        )
