"""`/login` and `/logout`."""

from __future__ import annotations

from typing import Final

import structlog
from litestar import get, post
from litestar.params import FromQuery

from admin.access import for_everybody, for_signed_in
from admin.parts import ConsoleParts
from admin.people.passwords import TooManySignIns, fits, sign_in_place
from admin.people.users import ConsoleUser, UserState
from admin.web import cookies
from admin.web.given import GivenForm, GivenParts, GivenView
from admin.web.view import AnyRequest, Page, View, local_path
from idempotency.error_mapping import errors

log = structlog.get_logger(__name__)

LONGEST_NEXT: Final = 2_000
LONGEST_FORM: Final = 16 << 10
"""Bytes of a sign-in: a stranger's form is read whole before its token is checked."""


class LoginOvertaken(Exception):
    """The user's password or state was changed after it was checked."""


@get("/login", opt=for_everybody(), sync_to_thread=False)
def login_page(view: GivenView, parts: GivenParts, next: FromQuery[str] = "/") -> Page:  # noqa: A002
    """The form."""
    return form_page(view, parts, next)


@post(
    "/login",
    opt=for_everybody(),
    status_code=200,
    sync_to_thread=True,
    request_max_body_size=LONGEST_FORM,
)
def login(view: GivenView, parts: GivenParts, form: GivenForm) -> Page:
    """Checks name and password. The answer to a wrong name is that to a wrong password. The limits do not
    count a sign-in that finds no place."""
    name, password = form.text("name"), form.exactly("password")
    wanted = local_path(form.text("next", "/")[:LONGEST_NEXT])
    try:
        with sign_in_place():
            return _checked(view, parts, name, password, wanted)
    except TooManySignIns:
        log.warning("login_put_off", address=view.address)
        return form_page(view, parts, wanted, problem="login.busy", name=name, status=503)


def _checked(view: View, parts: ConsoleParts, name: str, password: str, wanted: str) -> Page:
    limits = parts.people.limits
    if not limits.admits(name, view.address):
        log.warning("login_limited", address=view.address)
        return form_page(view, parts, wanted, problem="login.limited", name=name, status=429)
    with errors(), parts.databases.primary.begin() as connection:
        user = parts.people.users.named(connection, name)
    good = fits(user.password_hash if user else "", password)
    if user is None or not good or user.state != UserState.ACTIVE:
        log.warning("login_refused", address=view.address)
        return form_page(view, parts, wanted, problem="login.wrong", name=name, status=401)
    limits.succeeded(name, view.address)
    try:
        return signed_in(view, parts, user, wanted, "login.local")
    except LoginOvertaken:
        log.warning("login_overtaken", address=view.address)
        return form_page(view, parts, wanted, problem="login.wrong", name=name, status=401)


def signed_in(view: View, parts: ConsoleParts, user: ConsoleUser, wanted: str, action: str) -> Page:
    """Begins a session with its row in the audit. Returns the redirect that sets its cookie. Raises
    LoginOvertaken: a session must not outlive the change that ended all sessions."""
    with errors(), parts.databases.primary.begin() as connection:
        if not parts.people.users.held(connection, user):
            raise LoginOvertaken
        token = parts.people.sessions.begin(connection, user.id, view.address)
        parts.journal.record(connection, person=user.name, action=action, address=view.address)
    secure = parts.secure
    set_cookies = [
        cookies.secret_cookie(cookies.SESSION, token, secure=secure),
        cookies.ended_cookie(cookies.BEFORE_LOGIN, secure=secure),
    ]
    return view.redirect(wanted, set_cookies)


@post("/logout", opt=for_signed_in(), status_code=200, sync_to_thread=True)
def logout(request: AnyRequest, view: GivenView, parts: GivenParts) -> Page:
    """Ends the session."""
    name = cookies.cookie_name(cookies.SESSION, parts.secure)
    parts.people.sessions.end(request.cookies.get(name, ""))
    answer = view.redirect("/login", [cookies.ended_cookie(cookies.SESSION, secure=parts.secure)])
    answer.headers["clear-site-data"] = '"storage"'  # drafts of forms
    return answer


def form_page(
    view: View,
    parts: ConsoleParts,
    wanted: str,
    *,
    problem: str = "",
    name: str = "",
    status: int = 200,
) -> Page:
    """Returns the login page; `problem` is the key of a sentence."""
    return view.page(
        "login.html",
        status=status,
        next=local_path(wanted[:LONGEST_NEXT]),
        problem=problem,
        name=name[:100],
        oidc=parts.oidc.provider.settings.name if parts.oidc else "",
    )


HANDLERS = [login_page, login, logout]
