"""Errors as pages: one sentence each, in the person's language.

401  no session: to the login, and back afterwards      403  a role is missing, or a foreign form
404  nothing there        409  another was first         422  a form or filter that is refused
500  a fault of ours      503  the database is away: the last page stays; or the audit takes no row

A page stays, too, if one of its parts gets an error: the error's page has no place in the part.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import structlog
from litestar import Response
from litestar.enums import MediaType
from litestar.exceptions import HTTPException

from admin.access import Forbidden
from admin.audit.journal import AuditRefused
from admin.guards import CsrfRefused, NoRule, NotSignedIn
from admin.people.users import UserRefused
from admin.web.forms import Conflict, WrongForm
from admin.web.paging import WrongCursor
from admin.web.view import CURRENT, AnyRequest, Page, View, is_part, local_path, page_named
from idempotency.ledger import LedgerError

log = structlog.get_logger(__name__)

TOO_SLOW: Final = "57014"
"""PostgreSQL's state of a statement that its timeout ended."""
REASON: Final = "x-hongyan-reason"
"""Header with the reason for which a page stays as it is, percent-encoded."""


class Missing(Exception):
    """Nothing of that name, or nothing that the person may see: one answer for both (ID guessing)."""


def _to_login(request: AnyRequest, _exc: Exception) -> Page:
    if request.headers.get("accept") == "text/event-stream":
        return Response("", status_code=401, media_type=MediaType.TEXT)
    wanted = _wanted(request)
    target = "/login" + ("?next=" + quote(wanted, safe="/") if wanted != "/" else "")
    if request.headers.get("hx-request"):
        return Response(
            "", status_code=401, headers={"hx-redirect": target}, media_type=MediaType.HTML
        )
    return Response("", status_code=303, headers={"location": target}, media_type=MediaType.HTML)


def _wanted(request: AnyRequest) -> str:
    """Returns the page to come back to: this one, or the page that holds the form or the part."""
    part = is_part(request)
    if request.method in ("GET", "HEAD") and not part:
        asked = request.scope["query_string"].decode("latin-1")
        return local_path(quote(request.scope["path"]) + (f"?{asked}" if asked else ""))
    return page_named(request, CURRENT if part else "referer") or "/"


def _forbidden(request: AnyRequest, exc: Forbidden) -> Page:
    view = view_of(request)
    role = view.text(f"role.{exc.role}")
    key = "frame.forbidden_lane" if exc.lane else "frame.forbidden_role"
    return _page(view, 403, view.text(key, role=role, lane=exc.lane))


def _csrf(request: AnyRequest, _exc: Exception) -> Page:
    view = view_of(request)
    return _page(view, 403, view.text("frame.csrf"))


def _missing(request: AnyRequest, _exc: Exception) -> Page:
    view = view_of(request)
    return _page(view, 404, view.text("frame.missing"))


def _conflict(request: AnyRequest, exc: Conflict) -> Page:
    view = view_of(request)
    return _page(view, 409, view.refusal(exc.key, exc.arguments))


def _wrong_form(request: AnyRequest, exc: WrongForm) -> Page:
    view = view_of(request)
    return _page(view, 422, view.refusal(exc.key, exc.arguments))


def _refused_user(request: AnyRequest, exc: UserRefused) -> Page:
    view = view_of(request)
    return _page(view, 422, view.text(str(exc)))


def _audit_refused(request: AnyRequest, exc: AuditRefused) -> Page:
    view = view_of(request)
    log.error("audit_refused", path=request.scope["path"], cause=str(exc))
    return _page(view, 503, view.text(str(exc)))


def _wrong_cursor(request: AnyRequest, _exc: Exception) -> Page:
    view = view_of(request)
    return _page(view, 422, view.text("frame.cursor"))


def _away(request: AnyRequest, exc: LedgerError) -> Page:
    view = view_of(request)
    if is_too_slow(exc):
        return _page(view, 422, view.text("frame.too_slow"))
    text = view.text(_away_key(request), reason=str(exc))
    log.warning("console_without_database", path=request.scope["path"], cause=str(exc))
    if request.headers.get("hx-request"):
        return _stays(503, text)
    return _page(view, 503, text)


def _away_key(request: AnyRequest) -> str:
    """Returns the key of the sentence: an order that came to its handler may have been done in part."""
    if request.method in ("GET", "HEAD"):
        return "frame.away"
    came_in = view_of(request).person is not None
    return "frame.away_midway" if came_in else "frame.away_action"


def is_too_slow(exc: BaseException) -> bool:
    """Returns whether a statement's time limit is behind the error."""
    cause: BaseException | None = exc
    while cause is not None:
        original = getattr(cause, "orig", None)
        if TOO_SLOW in (getattr(cause, "sqlstate", ""), getattr(original, "sqlstate", "")):
            return True
        cause = cause.__cause__
    return False


def _http(request: AnyRequest, exc: HTTPException) -> Page:
    view = view_of(request)
    known = {404: "frame.missing", 405: "frame.missing", 413: "frame.field_long"}
    status = exc.status_code if exc.status_code < 500 else 500
    if status == 500:
        log.error("page_failed", path=request.scope["path"], exc_info=exc)
    return _page(view, status, view.text(known.get(status, "frame.refused")))


def _bug(request: AnyRequest, exc: Exception) -> Page:
    log.error("page_failed", path=request.scope["path"], exc_info=exc)
    view = view_of(request)
    return _page(view, 500, view.text("frame.bug", kind=type(exc).__name__))


def _page(view: View, status: int, sentence: str) -> Page:
    if view.is_part:
        return _stays(status, sentence)
    return view.page("error.html", status=status, sentence=sentence, code=status)


def _stays(status: int, sentence: str) -> Page:
    """Returns the answer by which the page that is shown stays, and shows the sentence as its reason."""
    headers = {REASON: quote(sentence), "hx-reswap": "none"}
    return Response("", status_code=status, headers=headers, media_type=MediaType.HTML)


def view_of(request: AnyRequest) -> View:
    """Returns the view of a request that did not come to its handler."""
    scope: Any = request.scope
    return View(request, request.app.state.parts, scope.get("user"))


HANDLERS: Final[dict[Any, Any]] = {
    NotSignedIn: _to_login,
    Forbidden: _forbidden,
    CsrfRefused: _csrf,
    Missing: _missing,
    Conflict: _conflict,
    WrongForm: _wrong_form,
    UserRefused: _refused_user,
    AuditRefused: _audit_refused,
    WrongCursor: _wrong_cursor,
    LedgerError: _away,
    HTTPException: _http,
    NoRule: _bug,
    Exception: _bug,
}
