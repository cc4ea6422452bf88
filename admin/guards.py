"""What every request passes before its handler: session, rule of the route, lane, CSRF.

A route without a rule is refused, so that a forgotten rule shows nothing.
"""

from __future__ import annotations

import re
import secrets
from typing import Any, Final

from anyio import to_thread
from litestar import Request
from litestar.exceptions import MethodNotAllowedException, ValidationException
from litestar.handlers.base import BaseRouteHandler

from admin.access import OF_ROW, OPTION, Access, Forbidden, Person, Role
from admin.parts import ConsoleParts
from admin.web import cookies
from admin.web.csrf import FIELD, csrf_fits, host_of, is_own_site
from admin.web.forms import form_fields
from admin.web.view import NEW_COOKIE, NOW, AnyConnection, csrf_cookie

_LARGEST: Final = 2**63 - 1
_WHOLE: Final = re.compile(r"-?[0-9]{1,400}")
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class NotSignedIn(Exception):
    """The request has no session, or one that is over."""


class CsrfRefused(Exception):
    """The request was not made by one of our pages."""


class NoRule(Exception):
    """A route without a rule: a fault of ours."""


async def admit(connection: AnyConnection, handler: BaseRouteHandler) -> None:
    """Lets the request pass, or raises NotSignedIn, Forbidden, CsrfRefused, NoRule, LedgerError,
    ValidationException, MethodNotAllowedException."""
    if connection.scope.get("method") == "OPTIONS":
        raise MethodNotAllowedException  # Litestar answers these by handlers without a rule
    access = handler.opt.get(OPTION)
    if not isinstance(access, Access):
        raise NoRule(str(handler))
    _refuse_nul(connection)
    _refuse_large(connection, handler)
    parts: ConsoleParts = connection.app.state.parts
    if access.signed_in or access.role is not None:
        person = await _person(connection, parts)
        connection.scope["user"] = person
        await _check_rule(connection, access, person)
    else:
        connection.scope["user"] = None
        _prepare_login(connection, parts)
    if connection.scope.get("method", "GET") not in SAFE:
        await _check_origin(connection, parts)


def _refuse_nul(connection: AnyConnection) -> None:
    """Raises ValidationException for a NUL in path or query: PostgreSQL has no such text. For forms, see
    SentForm."""
    values = [connection.scope["path"], *map(str, connection.query_params.values())]
    if any("\0" in value for value in values):
        raise ValidationException


def _refuse_large(connection: AnyConnection, handler: BaseRouteHandler) -> None:
    """Raises ValidationException for a number of path or query that no database column holds."""
    numbers = [value for value in connection.path_params.values() if isinstance(value, int)]
    for name, field in handler.parsed_fn_signature.parameters.items():
        if field.annotation is int:
            values = connection.query_params.getall(name, [])
            numbers += [int(value) for value in values if _WHOLE.fullmatch(value)]
    if any(abs(number) > _LARGEST for number in numbers):
        raise ValidationException


async def _person(connection: AnyConnection, parts: ConsoleParts) -> Person:
    name = cookies.cookie_name(cookies.SESSION, parts.secure)
    token = connection.cookies.get(name, "")
    found = await to_thread.run_sync(parts.people.sessions.find, token) if token else None
    if found is None:
        raise NotSignedIn
    connection.scope["state"][NOW] = found.now
    return found.person


async def _check_rule(connection: AnyConnection, access: Access, person: Person) -> None:
    if access.role is None:
        return
    person.require(access.role)
    if access.lane and access.lane != OF_ROW:
        for lane in await _values(connection, access.lane):
            person.require(access.role, lane)
    if access.role is Role.ADMIN and not person.everywhere(Role.ADMIN):
        raise Forbidden(Role.ADMIN)


async def _values(connection: AnyConnection, name: str) -> list[str]:
    """Returns all values of a parameter, wherever it is: a rule holds for each of them."""
    found = [str(connection.path_params[name])] if name in connection.path_params else []
    found += [value for value in connection.query_params.getall(name, []) if value]
    if isinstance(connection, Request) and connection.method not in SAFE:
        form = await form_fields(connection)
        found += [str(value) for value in form.getall(name, []) if value]
    return found


def _prepare_login(connection: AnyConnection, parts: ConsoleParts) -> None:
    """Makes the token under which a login's CSRF tokens are made, if the browser has none."""
    name = cookies.cookie_name(cookies.BEFORE_LOGIN, parts.secure)
    if connection.scope.get("method") == "GET" and not connection.cookies.get(name):
        connection.scope["state"][NEW_COOKIE] = secrets.token_urlsafe(24)


async def _check_origin(connection: AnyConnection, parts: ConsoleParts) -> None:
    headers: Any = connection.headers
    host = host_of(parts.settings.console.url) or headers.get("host", "")
    if not is_own_site(headers, host):
        raise CsrfRefused
    token = ""
    if isinstance(connection, Request):
        token = str((await form_fields(connection)).get(FIELD, ""))
    if not csrf_fits(csrf_cookie(connection, parts.secure), token):
        raise CsrfRefused
