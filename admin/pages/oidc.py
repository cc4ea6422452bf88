"""`/login/oidc`: to the provider, and back from it with a code."""

from __future__ import annotations

from typing import Final

import structlog
from litestar import Response, get
from litestar.enums import MediaType
from litestar.params import FromQuery

from admin.access import for_everybody
from admin.oidc.id_token import OidcRefused
from admin.oidc.settings import CALLBACK
from admin.pages.login import LONGEST_NEXT, form_page, signed_in
from admin.parts import ConsoleParts, OidcParts
from admin.people.users import ConsoleUser
from admin.web import cookies
from admin.web.errors import Missing
from admin.web.given import GivenParts, GivenView
from admin.web.view import AnyRequest, Page, View, csrf_cookie, local_path
from idempotency.error_mapping import errors

log = structlog.get_logger(__name__)
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
    begun = oidc.logins.begin(cookie, wanted)
    try:
        target = oidc.provider.login_address(begun.state, begun.nonce, begun.verifier)
    except OidcRefused as exc:
        return _refused(view, parts, wanted, exc)
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
    """Takes the provider's answer. Raises Missing without a provider."""
    oidc, limits = _oidc(parts), parts.people.limits
    who = f"oidc {view.address}"
    if not limits.admits(who, view.address):
        return form_page(view, parts, "/", problem="login.limited", status=429)
    name = cookies.cookie_name(cookies.BEFORE_LOGIN, parts.secure)
    state = request.query_params.get("state", "")
    begun = oidc.logins.take(request.cookies.get(name, ""), state)
    try:
        if begun is None:
            raise OidcRefused("login.oidc_state")
        oidc.provider.check_answer_issuer(iss)
        if error or not code or len(code) > _LONGEST_CODE:
            raise OidcRefused("login.oidc_refused", error[:100])
        user = _user(view, parts, oidc, oidc.provider.claims(code, begun.verifier, begun.nonce))
    except OidcRefused as exc:
        return _refused(view, parts, begun.next if begun else "/", exc)
    limits.succeeded(who, view.address)
    return signed_in(view, parts, user, begun.next, "login.oidc")


def _user(
    view: View, parts: ConsoleParts, oidc: OidcParts, claims: dict[str, object]
) -> ConsoleUser:
    with errors(), parts.databases.primary.begin() as connection:
        return oidc.members.user_of(connection, claims, view.address)


def _refused(view: View, parts: ConsoleParts, wanted: str, exc: OidcRefused) -> Page:
    log.warning("login_refused", address=view.address, cause=str(exc))
    return form_page(view, parts, wanted, problem=exc.key, status=_STATUS.get(exc.key, 401))


def _oidc(parts: ConsoleParts) -> OidcParts:
    if parts.oidc is None:
        raise Missing("oidc")
    return parts.oidc


HANDLERS = [begin, callback]
