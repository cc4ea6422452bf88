"""`/people`: users and their roles. Each change ends the user's sessions and is in the audit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from litestar import get, post
from litestar.params import FromPath, FromQuery
from sqlalchemy import Connection

from admin.access import Person, Role, needs
from admin.parts import ConsoleParts
from admin.people.passwords import problem_of
from admin.people.users import ConsoleUser, UserState, lanes_of, written
from admin.web.errors import Missing
from admin.web.forms import Conflict, SentForm, WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.paging import keys_of, page_of
from admin.web.view import Page, View
from idempotency.error_mapping import errors

_PER_PAGE: Final = 50


@get("/people", opt=needs(Role.ADMIN), sync_to_thread=True)
def people(view: GivenView, parts: GivenParts, after: FromQuery[str] = "") -> Page:
    """The list."""
    found = parts.people.users.page(keys_of(after, str) or "", _PER_PAGE + 1)
    rows = page_of(found, _PER_PAGE, lambda user: user.name)
    return view.page("people.html", users=rows, oidc=parts.oidc is not None, written=written)


@post("/people", opt=needs(Role.ADMIN), status_code=200, sync_to_thread=True)
def add(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """Adds a user with roles, and with a password; without one it signs in at the provider alone. Raises
    WrongForm, UserRefused."""
    name, password, reason = form.required("name"), form.exactly("password"), form.reason()
    provided = parts.oidc is not None and not password
    if not provided and (problem := problem_of(password, name)):
        raise WrongForm(problem, "password")
    name = name.lower() if provided else name  # the provider's address is compared in lower case
    roles = _roles(form)
    with errors(), parts.databases.primary.begin() as connection:
        number = parts.people.users.add(connection, name, by=person.name, password=password)
        parts.people.users.set_roles(connection, number, roles)
        parts.journal.record(
            connection,
            person=person.name,
            action="user.add",
            subject=name,
            reason=f"{written(roles)}: {reason}",
            address=view.address,
        )
    return view.redirect("/people")


@post("/people/{user:int}/roles", opt=needs(Role.ADMIN), status_code=200, sync_to_thread=True)
def roles(
    view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm, user: FromPath[int]
) -> Page:
    """Replaces a user's roles. Raises WrongForm, UserRefused, Missing; Conflict if they are not as the
    person saw them: a role that another admin took away must not come back unnoticed."""
    wanted = _roles(form)

    def change(connection: Connection, found: ConsoleUser) -> str:
        if form.text("seen", written(found.roles)) != written(found.roles):
            raise Conflict("people.roles_moved", name=found.name, roles=written(found.roles) or "–")
        parts.people.users.set_roles(connection, found.id, wanted)
        return written(wanted)

    _changed(view, parts, person, form, user, "user.role", change)
    return view.redirect("/people")


@post("/people/{user:int}/state", opt=needs(Role.ADMIN), status_code=200, sync_to_thread=True)
def state(
    view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm, user: FromPath[int]
) -> Page:
    """Disables or enables a user. Raises WrongForm, UserRefused, Missing."""
    active = form.text("state") == UserState.ACTIVE

    def change(connection: Connection, found: ConsoleUser) -> str:
        wanted = UserState.ACTIVE if active else UserState.DISABLED
        parts.people.users.set_state(connection, found.id, wanted)
        return ""

    action = "user.enable" if active else "user.disable"
    _changed(view, parts, person, form, user, action, change)
    return view.redirect("/people")


@contextmanager
def _found(parts: ConsoleParts, user: int) -> Iterator[tuple[Connection, ConsoleUser]]:
    with errors(), parts.databases.primary.begin() as connection:
        found = parts.people.users.numbered(connection, user)
        if found is None:
            raise Missing(str(user))
        yield connection, found


def _changed(
    view: View,
    parts: ConsoleParts,
    person: Person,
    form: SentForm,
    user: int,
    action: str,
    change: Callable[[Connection, ConsoleUser], str],
) -> None:
    """Changes a user, with its row in the audit; `change` returns what the row says before the reason."""
    reason = form.reason()
    with _found(parts, user) as (connection, found):
        detail = change(connection, found)
        parts.journal.record(
            connection,
            person=person.name,
            action=action,
            subject=found.name,
            reason=f"{detail}: {reason}" if detail else reason,
            address=view.address,
        )


def _roles(form: SentForm) -> dict[Role, tuple[str, ...]]:
    """Returns the roles that are ticked, each with its lanes. Raises WrongForm."""
    found = {}
    for role in Role:
        if form.text(f"role_{role}"):
            try:
                found[role] = lanes_of(form.text(f"lanes_{role}"))
            except ValueError:
                raise WrongForm("people.bad_lanes", f"lanes_{role}") from None
    return found


HANDLERS = [people, add, roles, state]
