"""Searches that people keep under a name. A line that may name a person is not kept."""

from __future__ import annotations

from litestar import post
from litestar.params import FromPath

from admin.access import Role, needs
from admin.pages.deliveries.search_line import is_personal, problem_of
from admin.web.errors import Missing
from admin.web.forms import WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.view import Page
from idempotency.search.language import QueryError, parse


@post("/search/views", opt=needs(Role.VIEWER), status_code=200, sync_to_thread=True)
def save(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """Keeps a line, in the place of the person's view of that name. Raises WrongForm."""
    name, line = form.required("name"), form.required("q")
    try:
        terms = parse(line, view.now_ms)
    except QueryError as exc:
        raise WrongForm("search.not_saved", problem=problem_of(exc, view.texts).text) from exc
    if is_personal(line, terms):
        raise WrongForm("search.not_saved_personal")
    shared = bool(form.text("shared"))
    if not parts.ledger.views().save(person.name, name, line, shared=shared):
        raise WrongForm("search.not_saved_name", "name")
    return view.redirect("/search")


@post(
    "/search/views/{saved:int}/delete", opt=needs(Role.VIEWER), status_code=200, sync_to_thread=True
)
def delete(view: GivenView, parts: GivenParts, person: GivenPerson, saved: FromPath[int]) -> Page:
    """Deletes one's own view. Raises Missing."""
    if not parts.ledger.views().drop(person.name, saved):
        raise Missing(str(saved))
    return view.redirect("/search")


HANDLERS = [save, delete]
