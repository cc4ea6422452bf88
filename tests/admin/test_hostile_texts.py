"""Whatever a message, a provider or a person writes is text in every page: no tag, no address that runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from urllib.parse import quote, urljoin

import httpx
import pytest
from litestar import Litestar
from sqlalchemy import text

from admin.access import Role
from admin.parts import ConsoleParts
from admin.web.view import HOME, environment
from tests.admin.conftest import Browser
from tests.admin.hostile import HOSTILE, LANE, MARKER, LiveParts, fill
from tests.admin.test_authorisation import path_of, routes_of

Open = Callable[[], Browser]
User = Callable[..., int]
EVERYTHING = dict.fromkeys(Role, ("*",))
MOST_PAGES = 120
OF_NO_LANE = ("/alerts", "/account", "/lost/runs", "/lost/audits", "/fleet", "/runbook")
"""Pages of the whole fleet, whose texts are of no lane: each viewer sees them."""
_UNSTABLE = re.compile(
    r'nonce="[^"]*"|token": "\w*"|name="csrf" value="\w*"|<time[^>]*>[^<]*</time>'
)
_WRITTEN = ("live", "figures")
"""Names that are written as markup: parts that a template of ours made."""
_WRITERS = {
    *("web/badges.py", "web/foreign_text.py", "web/moments.py"),
    "pages/deliveries/result_rows.py",
}
"""Modules that write markup themselves: test_badges_and_moments.py and test_result_rows.py give them
strange values."""
_MAKERS = ("board_text(", "figures_text(", "view.written(", '""', "live,")
"""Beginnings of the values that modules give them."""


def pages_of(app: Litestar) -> list[str]:
    """Returns a path for each page that a GET may open, without streams and files."""
    found = {path_of(p) for method, p, _ in routes_of(app) if method == "GET"}
    return sorted(p for p in found if not p.startswith(("/live/", "/static/")))


def walk(browser: Browser, starts: list[str]) -> Iterator[tuple[str, httpx.Response]]:
    """Yields every page that links lead to, each path pattern with its query at most MOST_PAGES in all."""
    todo, seen = list(starts), set(starts)
    while todo and len(seen) <= MOST_PAGES:
        path = todo.pop(0)
        answer = browser.get(path)
        yield path, answer
        if "text/html" not in answer.headers.get("content-type", ""):
            continue
        for link in sorted(LiveParts(answer.text).links):
            target = urljoin(path, link).partition("#")[0]
            if target not in seen and not target.startswith("/static/"):
                seen.add(target)
                todo.append(target)


@pytest.mark.parametrize("value", HOSTILE, ids=["markup", "address", "marks"])
def test_no_page_has_a_live_part_of_a_text(
    app: Litestar, parts: ConsoleParts, browser: Open, user: User, value: str
) -> None:
    fill(parts, value)
    user("lin", EVERYTHING)
    lin = browser()
    lin.sign_in("lin")
    shown = set()
    for path, answer in walk(lin, pages_of(app)):
        assert answer.status_code < 500, f"{path}: {answer.text[:300]}"
        if "text/html" not in answer.headers.get("content-type", ""):
            continue
        page = LiveParts(answer.text)
        assert page.found == [], path
        assert not re.search("[\u202a-\u202e\u2066-\u2069]", answer.text), path
        if MARKER in page.text:
            shown.add(path.partition("?")[0])
    assert {"/", "/audit"} <= shown, "the texts are shown"


def test_a_query_that_is_hostile_is_text_in_its_page_and_its_error(
    app: Litestar, browser: Open, user: User
) -> None:
    user("lin", EVERYTHING)
    lin = browser()
    lin.sign_in("lin")
    for path in pages_of(app):
        fields = {"q", "next", "after", "lane", "action", "person", "since", "until", "state"}
        for value in HOSTILE:
            asked = "&".join(f"{name}={quote(value)}" for name in sorted(fields))
            answer = lin.get(f"{path}?{asked}")
            if "text/html" in answer.headers.get("content-type", ""):
                assert LiveParts(answer.text).found == [], path
    for value in HOSTILE:
        answer = lin.get("/" + quote(value, safe=""))
        assert LiveParts(answer.text).found == []


def test_a_person_of_other_lanes_sees_none_of_a_lanes_objects(
    app: Litestar, parts: ConsoleParts, browser: Open, user: User
) -> None:
    """ID guessing: each page that a person of all lanes reaches, asked for by its address."""
    keys = fill(parts, HOSTILE[0], LANE)
    with parts.databases.primary.begin() as connection:
        connection.execute(text("DELETE FROM console_views"))  # a shared one is everybody's
    user("lin", EVERYTHING)
    user("bo", {Role.OPERATOR: ("email.notice",), Role.APPROVER: ("email.notice",)})
    lin, bo = browser(), browser()
    lin.sign_in("lin")
    bo.sign_in("bo")
    paths = [path for path, _ in walk(lin, pages_of(app))]
    for path in paths:
        answer = bo.get(path)
        if answer.status_code == 403 or path.startswith(OF_NO_LANE):
            continue
        shown = LiveParts(answer.text).text
        assert not any(key in answer.text for key in keys if key not in path), path
        if path != "/":
            assert MARKER not in shown or MARKER in path, path
    details = [p for p in paths if any(key in p for key in keys)]
    for path in details:
        key = next(one for one in keys if one in path)
        theirs, missing = bo.get(path), bo.get(path.replace(key, "0" * len(key)))
        assert (theirs.status_code, missing.status_code) == (404, 404), path
        assert stable(theirs.text) == stable(missing.text), path


def stable(page: str) -> str:
    return _UNSTABLE.sub("", page)


def test_no_template_has_an_inline_script_or_style() -> None:
    made = environment()
    for file in sorted(HOME.joinpath("templates").rglob("*.html")):
        name = str(file.relative_to(HOME / "templates"))
        tokens = made.lex(file.read_text())
        markup = "".join(value for _, kind, value in tokens if kind == "data")
        page = LiveParts(markup.replace("<script ", "<script nonce src=/ "))
        found = [one for one in page.found if not one.startswith("<script")]
        assert found == [], name
        assert not re.search(r"<script(?![^>]* src=)", file.read_text()), name


def test_nothing_but_our_own_parts_is_written_as_markup() -> None:
    unescaped = re.compile(r"(\w+)\s*\|\s*safe\b")
    for file in sorted(HOME.joinpath("templates").rglob("*.html")):
        name, source = str(file.relative_to(HOME / "templates")), file.read_text()
        assert set(unescaped.findall(source)) <= {*_WRITTEN}, name
        assert "autoescape" not in source, name
    given = re.compile(rf"\b(?:{'|'.join(_WRITTEN)}) ?= ?(.+)")
    for module in sorted(HOME.rglob("*.py")):
        source = module.read_text()
        assert "autoescape=False" not in source, module
        assert str(module.relative_to(HOME)) in _WRITERS or "Markup(" not in source, module
        for value in given.findall(source):
            assert value.startswith(_MAKERS), f"{module}: {value}"


def test_every_field_is_written_as_it_is_sent_back() -> None:
    """A field of a form that shows marks by their number would send the number."""
    value = r'"(?:\{\{.*?\}\}|[^"])*"'
    tag = re.compile(rf"<(?:input|option)\b(?:\{{%.*?%\}}|{value}|[^>\"])*>")
    content = re.compile(r"<textarea\b[^>]*>\n?(.*?)</textarea>", re.DOTALL)
    for file in sorted(HOME.joinpath("templates").rglob("*.html")):
        name, source = str(file.relative_to(HOME / "templates")), file.read_text()
        values = [
            found for one in tag.findall(source) for found in re.findall(rf" value=({value})", one)
        ]
        for written in [*values, *content.findall(source)]:
            for expression in re.findall(r"\{\{(.*?)\}\}", written):
                escaped = expression.strip().startswith("query(") or expression.endswith("| exact ")
                assert escaped, f"{name}: {expression}"
        assert not re.search(r"<option[^>]*>\{\{", re.sub(r"<option value=", "", source)), name
