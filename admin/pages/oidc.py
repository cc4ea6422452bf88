"""`/login/oidc`: to the provider, and back from it with a code."""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

import structlog
from litestar import Response, get
from litestar.enums import MediaType
from litestar.params import FromQuery

from admin.access import for_everybody
from admin.oidc.id_token import OidcRefused
from admin.oidc.settings import CALLBACK
from admin.pages.login import LONGEST_NEXT, LoginOvertaken, form_page, signed_in
from admin.parts import ConsoleParts, OidcParts
from admin.people.passwords import TooManySignIns, place_among
from admin.people.users import ConsoleUser
from admin.web import cookies
from admin.web.errors import Missing
from admin.web.given import GivenParts, GivenView
from admin.web.view import AnyRequest, Page, View, csrf_cookie, local_path
from idempotency.error_mapping import errors

log = structlog.get_logger(__name__)
MOST_AT_ONCE: Final = 8
"""Requests that may wait for the provider. With MOST_SIGN_INS they leave 12 of 40 threads to pages."""
_PLACES: Final = threading.BoundedSemaphore(MOST_AT_ONCE)
_LONGEST_CODE: Final = 4_000
_STATUS: Final = {"login.oidc_away": 503}


@get("/login/oidc", opt=for_everybody(), sync_to_thread=True)
def begin(
    request: AnyRequest,
    view: GivenView,
    parts: GivenParts,
    next: FromQuery[str] = "/",  # noqa: A002
) -> Page:
    """Sends the browser to the provider. Raises Missing without one."""
    oidc = _oidc(parts)
    wanted = local_path(next[:LONGEST_NEXT])
    cookie = csrf_cookie(request, parts.secure)
    try:
        with place_among(_PLACES):
            begun = oidc.logins.begin(cookie, wanted)
            target = oidc.provider.login_address(begun.state, begun.nonce, begun.verifier)
    except OidcRefused as exc:
        return _refused(view, parts, wanted, exc)
    except TooManySignIns:
        return _put_off(view, parts, wanted)
    kept = cookies.secret_cookie(cookies.BEFORE_LOGIN, cookie, secure=parts.secure)
    return Response(
        "",
        status_code=303,
        headers={"location": target},
        cookies=[kept],
        media_type=MediaType.HTML,
    )


@get(CALLBACK, opt=for_everybody(), sync_to_thread=True)
def callback(
    request: AnyRequest,
    view: GivenView,
    parts: GivenParts,
    code: FromQuery[str] = "",
    iss: FromQuery[str] = "",
    error: FromQuery[str] = "",
) -> Page:
    """Takes the provider's answer. Raises Missing without a provider. An answer that finds no place is
    neither counted nor used up: the browser may load it again."""
    oidc = _oidc(parts)
    name = cookies.cookie_name(cookies.BEFORE_LOGIN, parts.secure)
    state = request.query_params.get("state", "")
    answer = _Answer(request.cookies.get(name, ""), state, code, iss, error)
    try:
        with place_among(_PLACES):
            return _taken(view, parts, oidc, answer)
    except TooManySignIns:
        return _put_off(view, parts, "/")


class _Answer(NamedTuple):
    """The provider's answer, and the cookie of the browser that brings it."""

    cookie: str
    state: str
    code: str
    issuer: str
    error: str


def _taken(view: View, parts: ConsoleParts, oidc: OidcParts, answer: _Answer) -> Page:
    limits, who = parts.people.limits, f"oidc {view.address}"
    if not limits.admits(who, view.address):
        return form_page(view, parts, "/", problem="login.limited", status=429)
    begun = oidc.logins.take(answer.cookie, answer.state)
    try:
        if begun is None:
            raise OidcRefused("login.oidc_state")
        oidc.provider.check_answer_issuer(answer.issuer)
        if answer.error or not answer.code or len(answer.code) > _LONGEST_CODE:
            raise OidcRefused("login.oidc_refused", answer.error[:100])
        claims = oidc.provider.claims(answer.code, begun.verifier, begun.nonce)
        user = _user(view, parts, oidc, claims)
    except OidcRefused as exc:
        return _refused(view, parts, begun.next if begun else "/", exc)
    limits.succeeded(who, view.address)
    try:
        return signed_in(view, parts, user, begun.next, "login.oidc")
    except LoginOvertaken:
        overtaken = OidcRefused("login.oidc_unknown", "the user was changed meanwhile")
        return _refused(view, parts, begun.next, overtaken)


def _user(
    view: View, parts: ConsoleParts, oidc: OidcParts, claims: dict[str, object]
) -> ConsoleUser:
    with errors(), parts.databases.primary.begin() as connection:
        return oidc.members.user_of(connection, claims, view.address)


def _put_off(view: View, parts: ConsoleParts, wanted: str) -> Page:
    log.warning("login_put_off", address=view.address)
    return form_page(view, parts, wanted, problem="login.busy", status=503)


def _refused(view: View, parts: ConsoleParts, wanted: str, exc: OidcRefused) -> Page:
    log.warning("login_refused", address=view.address, cause=str(exc))
    return form_page(view, parts, wanted, problem=exc.key, status=_STATUS.get(exc.key, 401))


def _oidc(parts: ConsoleParts) -> OidcParts:
    if parts.oidc is None:
        raise Missing("oidc")
    return parts.oidc


HANDLERS = [begin, callback]
