"""Orders of a person about long work, a resend job or a campaign: one route an order, each with a reason
and a row in the audit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from litestar import post
from litestar.params import FromPath

from admin.access import OF_ROW, Person, Role, needs
from admin.parts import ConsoleParts
from admin.web.forms import SentForm, WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.view import Page, View


class OrderGiven(NamedTuple):
    """One order as it came."""

    view: View
    parts: ConsoleParts
    person: Person
    form: SentForm
    job: str
    """The id of the job or campaign."""
    order: str
    reason: str


class OrderedWork(NamedTuple):
    """One kind of long work."""

    path: str
    """Of its page, without the id."""
    require: Callable[[ConsoleParts, Person, Role, str], None]
    """Raises Missing, and Forbidden for a person without the role for all that it sends."""
    obey: Callable[[OrderGiven], object]
    """Carries the order out."""
    page: Callable[..., Page]
    """Shows one, with a status and a sentence why an order was refused."""
    refusal: type[Exception]
    """The error of `obey` for an order that changes nothing; its text is for the person."""


def order_routes(work: OrderedWork, orders: Sequence[tuple[str, Role]]) -> list[Any]:
    """Returns a handler for each order, of a person with the role."""
    return [_route(work, order, role) for order, role in orders]


def _route(work: OrderedWork, order: str, role: Role) -> Any:
    @post(
        f"{work.path}/{{job:str}}/{order}",
        opt=needs(role, OF_ROW),
        status_code=200,
        sync_to_thread=True,
    )
    def handler(
        view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm, job: FromPath[str]
    ) -> Page:
        work.require(parts, person, role, job)
        return _given(work, OrderGiven(view, parts, person, form, job, order, ""))

    return handler


def _given(work: OrderedWork, asked: OrderGiven) -> Page:
    """Gives the order and shows the work. A refused one changes nothing, and its reason is on the page."""
    view, parts, person, job = asked.view, asked.parts, asked.person, asked.job
    try:
        work.obey(asked._replace(reason=asked.form.reason()))
    except WrongForm as wrong:
        refusal = view.refusal(wrong.key, wrong.arguments)
        return work.page(view, parts, person, job, status=422, refused=refusal)
    except work.refusal as exc:
        return work.page(view, parts, person, job, status=409, refused=str(exc))
    return view.redirect(f"{work.path}/{quote(job, safe='')}")
