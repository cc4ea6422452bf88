"""A page for one request: its language, looks, person, and the templates."""

from __future__ import annotations

import string
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from litestar import Request, Response
from litestar.connection import ASGIConnection
from litestar.datastructures import Cookie
from litestar.enums import MediaType

from admin.access import Person, Role
from admin.parts import ConsoleParts
from admin.web import cookies
from admin.web.badges import badge
from admin.web.csrf import csrf_token
from admin.web.foreign_text import exact, visible, with_marks_shown
from admin.web.headers import NONCE
from admin.web.languages import LANGUAGES, Texts, language_of, texts_of
from admin.web.moments import iso, moment, utc
from admin.web.navigation import Entry, entries_for
from admin.web.sentences import sentences_of
from admin.web.static_files import asset

AnyRequest = Request[Any, Any, Any]
AnyConnection = ASGIConnection[Any, Any, Any, Any]
Page = Response[str]
HOME: Final = Path(__file__).parents[1]
THEMES: Final = ("light", "dark")
_SHARED: Final = ("t", "sentence", "entries")
"""Names of a template's values that language and roles alone decide."""
CURRENT: Final = "hx-current-url"
"""Header with the address that the browser shows."""
_IN_ADDRESS: Final = string.punctuation
"""Marks that an address keeps; a header has no other characters than ASCII."""
NEW_COOKIE: Final = "cookie_before_login"
"""Key of a token made for this answer, in the scope's state."""
NOW: Final = "now"
"""Key of the request's time by the database's clock, in the scope's state; see `View.now_ms`."""


@cache
def environment() -> Environment:
    """Returns the templates; every value is escaped, and its marks are visible."""
    made = Environment(
        loader=FileSystemLoader(HOME / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=with_marks_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals |= {"asset": asset, "languages": LANGUAGES, "Role": Role, "query": query}
    made.globals |= {"badge_of": badge, "moment_of": moment}
    made.filters["changed_lines"] = changed_lines
    made.filters |= {"utc": utc, "iso": iso, "count": count, "span": span, "duration": duration}
    made.filters |= {"visible": visible, "exact": exact}
    return made


def count(number: int | None) -> str:
    """Returns `12,345`; a dash for no number."""
    return "–" if number is None else f"{number:,}"


def span(ms: int | None) -> str:
    """Returns a length of time in its two largest units, as `3m 12s`; a dash for none."""
    if ms is None:
        return "–"
    if ms < 1_000:
        return f"{max(ms, 0)}ms"
    rest, found = ms // 1_000, []
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        if rest >= seconds:
            found.append(f"{rest // seconds}{unit}")
            rest %= seconds
    return " ".join(found[:2])


def changed_lines(diff: str) -> str:
    """Returns the counts of added and removed lines of a unified difference, as `+3 −1`."""
    lines = diff.splitlines()[2:]
    added = sum(line.startswith("+") for line in lines)
    return f"+{added} −{sum(line.startswith('-') for line in lines)}"


def duration(ms: int | None) -> str:
    """Returns a measured time: `840 ms`, `3.42 s`, or as `span` from a minute on; a dash for none."""
    if ms is None or ms >= 60_000:
        return span(ms)
    return f"{ms} ms" if ms < 1_000 else f"{ms / 1_000:.2f} s"


def query(**fields: object) -> str:
    """Returns `?name=value&…` without empty values; empty for none."""
    some = [
        f"{name}={quote(str(value))}" for name, value in fields.items() if value not in ("", None)
    ]
    return "?" + "&".join(some) if some else ""


def local_path(wanted: str) -> str:
    """Returns a path of this console; `/` in place of any other address (open redirect)."""
    try:
        parts = urlsplit(wanted)
    except ValueError:
        return "/"
    strange = parts.scheme or parts.netloc or "\\" in wanted or not wanted.isprintable()
    if strange or not wanted.startswith("/") or wanted.startswith("//"):
        return "/"
    return wanted


def page_named(connection: AnyConnection, header: str) -> str:
    """Returns the path of the page that a header names; empty for none, or one of another host."""
    try:
        page = urlsplit(connection.headers.get(header, ""))
    except ValueError:
        return ""
    if not page.netloc or page.netloc != connection.headers.get("host"):
        return ""
    return local_path(page.path + (f"?{page.query}" if page.query else ""))


def is_part(connection: AnyConnection) -> bool:
    """Returns whether htmx asks for a part of the page that is shown, and not for another page."""
    headers = connection.headers
    return bool(headers.get("hx-request")) and not headers.get("hx-boosted")


class View:
    """Writes the pages of one request. Handlers get it as `view`."""

    def __init__(
        self, connection: AnyConnection, parts: ConsoleParts, person: Person | None
    ) -> None:
        self._connection = connection
        self._parts = parts
        self.person = person
        self.texts: Texts = texts_of(self._language())

    @property
    def address(self) -> str:
        """The address of the client."""
        return self._connection.client.host if self._connection.client else ""

    @property
    def is_part(self) -> bool:
        """See `is_part`."""
        return is_part(self._connection)

    @property
    def now_ms(self) -> int:
        """The time of the request by the primary database's clock, epoch milliseconds. Only a request with
        a session has one."""
        found: int = self._connection.scope["state"][NOW]
        return found

    def text(self, key: str, **arguments: object) -> str:
        """Returns a text in the person's language."""
        return self.texts(key, **arguments)

    def sentence(self, sentence: str) -> str:
        """Returns a sentence of another package in the person's language; untranslated ones stay."""
        return sentences_of(self.texts.language)(sentence)

    def refusal(self, key: str, arguments: Mapping[str, object]) -> str:
        """Returns the text of a refused form; sentences among its arguments are translated, too."""
        values = {
            name: self.sentence(v) if isinstance(v, str) else v for name, v in arguments.items()
        }
        return self.text(key, **values)

    def page(
        self,
        template: str,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        new_cookies: list[Cookie] | None = None,
        **context: Any,
    ) -> Page:
        """Returns the page of a template of admin/templates with these values."""
        set_cookies = list(new_cookies or [])
        fresh = self._connection.scope["state"].get(NEW_COOKIE)
        if fresh and self.person is None:
            made = cookies.secret_cookie(cookies.BEFORE_LOGIN, fresh, secure=self._parts.secure)
            set_cookies.append(made)
        return Response(
            self.written(template, **context),
            status_code=status,
            headers=self._address_kept() | dict(headers or {}),
            cookies=set_cookies,
            media_type=MediaType.HTML,
        )

    def written(self, template: str, **context: Any) -> str:
        """Returns the text of a template."""
        return environment().get_template(template).render(self._context() | context)

    def written_for_all(self, template: str, **context: Any) -> str:
        """Returns a text for all who have the person's language and roles. What belongs to one person or
        one moment is not there: a template that asks for it raises UndefinedError."""
        own = self._context()
        shared = {name: own[name] for name in _SHARED}
        return environment().get_template(template).render(shared | context)

    def redirect(self, path: str, new_cookies: list[Cookie] | None = None) -> Page:
        """Returns a redirect to a path of this console."""
        return Response(
            "",
            status_code=303,
            headers={"location": quote(local_path(path), safe=_IN_ADDRESS)},
            cookies=new_cookies or [],
            media_type=MediaType.HTML,
        )

    def _address_kept(self) -> dict[str, str]:
        """Returns the header by which the browser keeps its address: a page that answers an order has none
        of its own that could be loaded again. Both a step back and a reload show the page of the form."""
        scope: Any = self._connection.scope
        loadable: frozenset[str] = self._connection.app.state.loadable
        is_own = scope["method"] in ("GET", "HEAD") or scope.get("path_template", "") in loadable
        return {} if is_own else {"hx-push-url": page_named(self._connection, CURRENT) or "false"}

    def _context(self) -> dict[str, Any]:
        path = self._connection.scope["path"]
        return {
            "t": self.texts,
            "sentence": self.sentence,
            "person": self.person,
            "theme": self._theme(),
            "nonce": self._connection.scope["state"].get(NONCE, ""),
            "csrf": csrf_token(csrf_cookie(self._connection, self._parts.secure)),
            "path": path,
            "entries": self._entries(),
            "now_ms": self._parts.wall_ms(),
        }

    def _entries(self) -> list[Entry]:
        paths: frozenset[str] = self._connection.app.state.paths
        return entries_for(self.person, paths) if self.person else []

    def _language(self) -> str:
        wanted = self.person.language if self.person else ""
        cookie = self._cookie(cookies.LANGUAGE)
        return language_of(wanted or cookie, self._connection.headers.get("accept-language", ""))

    def _theme(self) -> str:
        wanted = (self.person.theme if self.person else "") or self._cookie(cookies.THEME)
        return wanted if wanted in THEMES else ""

    def _cookie(self, name: str) -> str:
        return self._connection.cookies.get(cookies.cookie_name(name, self._parts.secure), "")


def csrf_cookie(connection: AnyConnection, secure: bool) -> str:
    """Returns the cookie that CSRF tokens are made under: the session's; without a person, the one before
    the login, which may be new."""
    if connection.scope.get("user") is not None:
        return connection.cookies.get(cookies.cookie_name(cookies.SESSION, secure), "")
    state: dict[str, Any] = connection.scope["state"]
    name = cookies.cookie_name(cookies.BEFORE_LOGIN, secure)
    return state.get(NEW_COOKIE) or connection.cookies.get(name, "")
