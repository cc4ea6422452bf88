"""`/account`: one's own language, theme and password."""

from __future__ import annotations

from litestar import get, post

from admin.access import for_signed_in
from admin.pages.login import signed_in
from admin.people.passwords import fits, problem_of
from admin.web.forms import WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.view import Page
from idempotency.error_mapping import errors


@get("/account", opt=for_signed_in(), sync_to_thread=False)
def account(view: GivenView) -> Page:
    """The page."""
    return view.page("account.html")


@post("/account/looks", opt=for_signed_in(), status_code=200, sync_to_thread=True)
def looks(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """Sets language and theme."""
    with errors(), parts.databases.primary.begin() as connection:
        parts.people.users.set_looks(
            connection, person.id, form.text("language"), form.text("theme")
        )
    return view.redirect("/account")


@post("/account/password", opt=for_signed_in(), status_code=200, sync_to_thread=True)
def password(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """Changes the password. All sessions end, and a new one begins. Raises WrongForm."""
    new = form.exactly("new")
    if not parts.people.limits.admits(person.name, view.address):
        raise WrongForm("login.limited")
    with errors(), parts.databases.primary.begin() as connection:
        user = parts.people.users.numbered(connection, person.id)
    if user is None or not fits(user.password_hash, form.exactly("old")):
        raise WrongForm("account.wrong_old", "old")
    parts.people.limits.succeeded(person.name, view.address)
    if problem := problem_of(new, person.name):
        raise WrongForm(problem, "new")
    if new != form.exactly("again"):
        raise WrongForm("account.not_again", "again")
    with errors(), parts.databases.primary.begin() as connection:
        if not parts.people.users.held(connection, user):
            raise WrongForm("account.wrong_old", "old")
        parts.people.users.set_password(connection, user.id, new)
        parts.journal.record(
            connection,
            person=person.name,
            action="user.password",
            subject=person.name,
            address=view.address,
        )
        changed = parts.people.users.numbered(connection, user.id)
    assert changed is not None  # in the same transaction
    return signed_in(view, parts, changed, "/account", "login.password_changed")


HANDLERS = [account, looks, password]
