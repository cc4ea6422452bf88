"""`/audit`: who did what, and why; and the check of the chain."""

from __future__ import annotations

from typing import Final

from litestar import get, post
from litestar.params import FromQuery

from admin.access import Role, needs
from admin.audit.journal import AuditFilter
from admin.web.given import GivenParts, GivenView
from admin.web.paging import keys_of, page_of
from admin.web.view import Page

_PER_PAGE: Final = 100


@get("/audit", opt=needs(Role.ADMIN), sync_to_thread=True)
def audit(
    view: GivenView,
    parts: GivenParts,
    after: FromQuery[str] = "",
    person_is: FromQuery[str] = "",
    action: FromQuery[str] = "",
    subject: FromQuery[str] = "",
) -> Page:
    """The rows, the newest first."""
    asked = AuditFilter(person=person_is, action=action, subject=subject)
    if before := keys_of(after, int):
        asked = asked._replace(before=before)
    found = parts.journal.page(asked, _PER_PAGE + 1)
    rows = page_of(found, _PER_PAGE, lambda row: row.number)
    return view.page("audit.html", rows=rows, asked=asked, check=None)


@post("/audit/check", opt=needs(Role.ADMIN), status_code=200, sync_to_thread=True)
def check(view: GivenView, parts: GivenParts) -> Page:
    """Checks the whole chain."""
    found = parts.journal.check()
    rows = page_of(
        parts.journal.page(AuditFilter(), _PER_PAGE + 1), _PER_PAGE, lambda row: row.number
    )
    return view.page("audit.html", rows=rows, asked=AuditFilter(), check=found)


HANDLERS = [audit, check]
