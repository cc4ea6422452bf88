"""Attempts of strangers: forged forms, injected SQL, redirects, cookies, hosts, bodies, paths.

Most cases are made from the routes of the application, so that a new page is tried, too.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest
from litestar import Litestar
from litestar.testing import TestClient
from sqlalchemy import text

from admin.access import OPTION, Role
from admin.app import MOST_BODY, create_app, furnish
from admin.pages.login import login_page
from admin.parts import ConsoleParts, open_parts
from admin.people import login_limits
from admin.web.csrf import csrf_token
from admin.web.forms import LONGEST_FIELD
from admin.web.static_files import asset
from tests.admin.conftest import PASSWORD, Browser
from tests.admin.hostile import LiveParts, fill
from tests.admin.test_authorisation import SAMPLES, path_of, routes_of
from tests.admin.test_hostile_texts import pages_of, walk

Open = Callable[[], Browser]
User = Callable[..., int]
EVERYTHING = dict.fromkeys(Role, ("*",))
INJECTED = (
    "'",
    '"',
    "' OR '1'='1",
    "'; DROP TABLE console_users; --",
    "1; SELECT pg_sleep(9)",
    "%' ESCAPE '",
    "\\",
    ":name %(name)s ? $1 {0} %s",
    "-1",
    "9" * 30,
    "1e400",
    "NaN",
    "\x00",
    "a" * 5_000,
    "../../etc/passwd",
)
ALONE = {quote("'"), quote("'; DROP TABLE console_users; --"), "9" * 30, "%00"}
"""Tried in one parameter at a time, too: the refusal of another one could hide it."""
BAD_BYTES = ("%FF%FE", "%ED%A0%80", "%")
OUR_SITE = "http://testserver.local"
ON_SQLITE = pytest.mark.parametrize("parts", ["sqlite"], indirect=True)


@pytest.fixture
def lin(browser: Open, user: User) -> Browser:
    """Somebody with every role, signed in."""
    user("lin", EVERYTHING)
    one = browser()
    one.sign_in("lin")
    return one


def posts_of(app: Litestar) -> list[str]:
    return sorted(path_of(p) for method, p, _ in routes_of(app) if method not in ("GET", "HEAD"))


def content(parts: ConsoleParts) -> dict[str, list[Any]]:
    """Returns the rows of every table but those that a mere request changes."""
    with parts.databases.primary.begin() as connection:
        tables = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'table'"))
        names = [one for one in tables.scalars() if one not in ("console_sessions",)]
        return {
            n: [tuple(row) for row in connection.execute(text(f"SELECT * FROM {n}"))] for n in names
        }


# -- forged forms --

Forge = Callable[[Browser, Browser], tuple[dict[str, str], dict[str, str]]]
FORGERIES: dict[str, Forge] = {
    "no_token": lambda _lin, _bo: ({}, {}),
    "an_empty_token": lambda _lin, _bo: ({"csrf": ""}, {}),
    "another_sessions_token": lambda _lin, bo: ({"csrf": bo.token()}, {}),
    "a_token_for_no_cookie": lambda _lin, _bo: ({"csrf": csrf_token("x")}, {}),
    "another_sites_origin": lambda lin, _bo: (
        {"csrf": lin.token()},
        {"origin": "https://evil.example"},
    ),
    "an_origin_without_a_name": lambda lin, _bo: ({"csrf": lin.token()}, {"origin": "null"}),
    "a_name_that_begins_as_ours": lambda lin, _bo: (
        {"csrf": lin.token()},
        {"origin": f"{OUR_SITE}.evil.example"},
    ),
    "another_site_by_the_browsers_word": lambda lin, _bo: (
        {"csrf": lin.token()},
        {"sec-fetch-site": "cross-site"},
    ),
    "a_site_beside_ours": lambda lin, _bo: (
        {"csrf": lin.token()},
        {"sec-fetch-site": "same-site"},
    ),
}


@ON_SQLITE
@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_form_is_refused_by_every_route_and_changes_nothing(
    app: Litestar, parts: ConsoleParts, browser: Open, user: User, lin: Browser, forgery: str
) -> None:
    fill(parts, "a text")
    user("bo", EVERYTHING)
    bo = browser()
    bo.sign_in("bo")
    fields, headers = FORGERIES[forgery](lin, bo)
    fields |= {"reason": "forged", "language": "zh", "name": "eve", "password": PASSWORD}
    before = content(parts)
    tried = posts_of(app)
    assert {"/people", "/account/looks", "/logout"} <= set(tried)
    for path in tried:
        answer = lin.raw(path, fields, headers=headers)
        assert answer.status_code == 403, f"{path}: {answer.status_code}"
    assert content(parts) == before
    assert lin.get("/account").status_code == 200, "nobody signed lin out"


@ON_SQLITE
def test_a_token_holds_for_its_own_session_only_and_no_page_repeats_one(
    browser: Open, lin: Browser
) -> None:
    first, second = lin.token(), lin.token()
    assert first != second
    lin.post("/logout")
    lin.sign_in("lin")
    assert lin.raw("/account/looks", {"csrf": first}).status_code == 403


@ON_SQLITE
def test_no_get_changes_anything(app: Litestar, parts: ConsoleParts, lin: Browser) -> None:
    fill(parts, "a text")
    before = content(parts)
    for path, _ in walk(lin, pages_of(app)):
        lin.get(path, headers={"origin": "https://evil.example"})
    assert content(parts) == before


# -- headers --

HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
DIRECTIVES = {
    "default-src": "'none'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
    "form-action": "'self'",
    "connect-src": "'self'",
    "img-src": "'self' data:",
}


def check_headers(answer: httpx.Response, path: str) -> str:
    """Checks an answer's headers. Returns its nonce."""
    assert {n: answer.headers.get(n) for n in HEADERS} == HEADERS, path
    policy = answer.headers["content-security-policy"]
    found = dict(one.strip().split(" ", 1) for one in policy.split(";"))
    assert DIRECTIVES.items() <= found.items(), path
    nonce = re.fullmatch(r"'nonce-([\w-]{20,})'", found["script-src"])
    assert nonce, path
    assert found["style-src"] == found["script-src"], path
    assert "unsafe" not in policy, path
    assert "server" not in answer.headers, path
    return nonce[1]


@ON_SQLITE
def test_every_answer_has_the_headers_and_a_nonce_of_its_own(
    app: Litestar, parts: ConsoleParts, lin: Browser
) -> None:
    fill(parts, "a text")
    nonces = []
    pages = list(walk(lin, [*pages_of(app), "/nothing-here"]))
    for path, answer in pages:
        nonces.append(check_headers(answer, path))
        assert answer.headers["cache-control"] == "no-store", path
        scripts = re.findall(r"<script[^>]*>", answer.text)
        assert all(f'nonce="{nonces[-1]}"' in one for one in scripts), path
    assert len(set(nonces)) == len(pages)
    check_headers(lin.get("/static/console.css"), "/static/console.css")
    for path in posts_of(app):
        check_headers(lin.raw(path, {}), path)
    check_headers(lin.client.request("PATCH", "/login"), "a method without a handler")


@ON_SQLITE
def test_a_static_file_is_kept_for_a_year_by_its_own_digest_alone(browser: Open) -> None:
    own, one = asset("console.js"), browser()
    assert own.startswith("/static/console.js?v=")
    kept = one.get(own)
    assert (kept.status_code, kept.headers["cache-control"]) == (
        200,
        "public, max-age=31536000, immutable",
    )
    for path, status in {
        "/static/console.js": 200,
        "/static/console.js?v=": 200,
        "/static/console.js?v=000000000000": 200,
        f"{own}&w=1": 200,
        own.replace("console.js", "console.css"): 200,
        "/static/of-the-next-version.js?v=000000000000": 404,
        own.replace("console.js", "of-the-next-version.js"): 404,
    }.items():
        other = one.get(path)
        assert (other.status_code, other.headers["cache-control"]) == (status, "no-store"), path


# -- injected SQL --


def parameters_of(app: Litestar) -> Iterator[tuple[str, list[str]]]:
    """Yields each GET's path and the names of its parameters, by the handlers' signatures."""
    for method, pattern, handler in routes_of(app):
        if method != "GET" or pattern.startswith(("/live", "/static")):
            continue
        names = inspect.signature(handler.fn).parameters
        yield pattern, [n for n in names if n not in ("view", "parts", "person", "form", "request")]


def test_the_signatures_name_the_parameters(app: Litestar) -> None:
    found = dict(parameters_of(app))
    assert found["/login"] == ["next"]
    assert "next" in inspect.signature(login_page.fn).parameters
    assert {"action", "after"} <= set(found["/audit"])


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.soak(cases="sqlite")
def test_no_parameter_reaches_the_database_as_sql(
    app: Litestar, parts: ConsoleParts, lin: Browser
) -> None:
    fill(parts, "a text")
    forms = {path: names for p in pages_of(app) for path, names in forms_at(lin, p)}
    for pattern, names in parameters_of(app):
        path = path_of(pattern)
        tried = {*names, *forms.get(path, set())} - set(SAMPLES)
        for value in (*map(quote, INJECTED), *BAD_BYTES):
            for name in sorted(tried) if value in ALONE else ():
                refuse_500(lin, f"{path}?{name}={value}")
            if tried:
                refuse_500(lin, f"{path}?" + "&".join(f"{n}={value}" for n in sorted(tried)))
            for part in re.findall(r"\{(\w+)", pattern):
                samples = {**SAMPLES, part: value.replace("/", "%2F")}
                refuse_500(lin, re.sub(r"\{(\w+)[^}]*\}", lambda m: samples[m[1]], pattern))  # noqa: B023
    with parts.databases.primary.begin() as connection:
        assert connection.execute(text("SELECT count(*) FROM console_users")).scalar() == 1


def forms_at(browser: Browser, path: str) -> Iterator[tuple[str, set[str]]]:
    answer = browser.get(path)
    if "text/html" in answer.headers.get("content-type", ""):
        yield from LiveParts(answer.text).fields.items()


def refuse_500(browser: Browser, path: str) -> None:
    answer = browser.get(path)
    assert answer.status_code < 500, f"{path[:200]}: {answer.status_code}"


@pytest.mark.soak(cases="sqlite")
def test_a_login_takes_no_sql(browser: Open, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_limits, "PER_ADDRESS", 1_000)
    user("lin", EVERYTHING)
    one = browser()
    for value in INJECTED:
        answer = one.post("/login", "/login", name=value, password="wrong", next=value)
        assert answer.status_code in (401, 422), value


# -- redirects --

ELSEWHERE = (
    "https://evil.example",
    "//evil.example",
    "///evil.example",
    "/\\evil.example",
    "\\\\evil.example",
    "/\t/evil.example",
    "/%09/evil.example\r\nset-cookie: a=b",
    "http:evil.example",
    "javascript:alert(1)",
    "data:text/html,x",
    " //evil.example",
    "evil.example",
    "/\u2028/evil.example",
)


@ON_SQLITE
@pytest.mark.parametrize("wanted", ELSEWHERE)
def test_a_login_never_leads_elsewhere(browser: Open, user: User, wanted: str) -> None:
    user("lin", EVERYTHING)
    one = browser()
    page = LiveParts(one.get(f"/login?next={quote(wanted)}").text)
    assert page.found == []
    location = one.sign_in("lin", wanted=wanted).headers["location"]
    assert re.fullmatch(r"/(?![/\\])[\x21-\x7e]*", location)
    assert "evil" not in location


@ON_SQLITE
def test_a_form_from_elsewhere_does_not_choose_the_page_after_the_login(browser: Open) -> None:
    headers = {"referer": "https://evil.example/people"}
    location = browser().raw("/people", {}, headers=headers).headers["location"]
    assert location == "/login"


# -- sessions and cookies --


@ON_SQLITE
def test_a_login_makes_a_new_token_and_the_old_one_is_worth_nothing(
    browser: Open, lin: Browser
) -> None:
    first = token_of(lin)
    lin.sign_in("lin")
    second = token_of(lin)
    assert first != second
    assert len(second) >= 43
    thief = browser()
    thief.cookies.set("hongyan-session", second)
    assert thief.get("/account").status_code == 200
    lin.post("/logout")
    assert thief.get("/account").status_code == 303


@ON_SQLITE
def test_what_a_stranger_planted_before_the_login_opens_nothing_afterwards(
    parts: ConsoleParts, browser: Open, user: User
) -> None:
    user("lin", EVERYTHING)
    planted = "planted-by-somebody-who-waits-for-lins-login"
    one, stranger = browser(), browser()
    one.cookies.set("hongyan-session", planted)
    one.cookies.set("hongyan-login", planted)
    one.sign_in("lin")
    stranger.cookies.set("hongyan-session", planted)
    assert stranger.get("/account").status_code == 303
    with parts.databases.primary.begin() as connection:
        rows = connection.execute(text("SELECT count(*) FROM console_sessions")).scalar()
    assert rows == 1


def token_of(browser: Browser) -> str:
    [found] = [c.value for c in browser.cookies.jar if c.name == "hongyan-session" and c.value]
    return str(found)


@pytest.fixture
def over_tls(parts: ConsoleParts) -> Iterator[TestClient[Litestar]]:
    """A console whose address is https, on the same ledger."""
    console = msgspec.structs.replace(
        parts.settings.console, url="https://console.example.com", secret="s" * 32
    )
    settings = msgspec.structs.replace(parts.settings, console=console)
    with ExitStack() as stack:
        app = create_app(open_parts(settings, stack))
        base = "https://console.example.com"
        yield stack.enter_context(TestClient(app, base_url=base))


@ON_SQLITE
@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://Console.Example.com:443/", "https://console.example.com"),
        ("https://console.example.com:8443", "https://console.example.com:8443"),
        ("http://console.example.com:80", "http://console.example.com"),
    ],
)
def test_a_form_fits_the_address_however_it_is_written(
    parts: ConsoleParts, browser: Open, url: str, origin: str
) -> None:
    """Browsers name a host in lower case, and no port that the scheme means: nobody could sign in."""
    console = msgspec.structs.replace(parts.settings.console, url=url)
    settings = msgspec.structs.replace(parts.settings, console=console)
    client = browser().client
    furnish(client.app, replace(parts, settings=settings))
    for host, status in ((origin, 401), (f"{origin}0", 403), ("https://elsewhere.com", 403)):
        client.cookies.clear()
        page = client.get("/login", headers={"cookie": ""})
        token = re.search(r'name="csrf" value="(\w+)"', page.text)
        assert token
        cookie = page.headers["set-cookie"].partition(";")[0]
        fields = {"csrf": token[1], "name": "lin", "password": PASSWORD}
        answer = client.post("/login", data=fields, headers={"origin": host, "cookie": cookie})
        assert answer.status_code == status, host


PART = 'content-disposition: form-data; name="csrf"\r\n'
MALFORMED: dict[str, tuple[str, str, dict[str, str], bytes, int]] = {
    "next": ("GET", "/login?next=//[", {}, b"", 200),
    "next_scheme": ("GET", "/login?next=http://[x", {}, b"", 200),
    "origin": ("POST", "/login", {"origin": "http://["}, b"", 403),
    "bytes": ("POST", "/login", {}, f"--X\r\n{PART}\r\n\xff\r\n--X--".encode("latin-1"), 400),
    "charset": (
        *("POST", "/login", {}),
        f"--X\r\n{PART}content-type: text/plain; charset=none\r\n\r\na\r\n--X--".encode(),
        400,
    ),
    "options": ("OPTIONS", "/people", {}, b"", 405),
}


@ON_SQLITE
@pytest.mark.parametrize("name", MALFORMED)
def test_a_strangers_malformed_request_is_no_fault_of_ours(browser: Open, name: str) -> None:
    method, path, headers, body, status = MALFORMED[name]
    if body:
        headers = {"content-type": "multipart/form-data; boundary=X"}
    answer = browser().client.request(
        method, path, headers=headers, content=body, follow_redirects=False
    )
    assert answer.status_code == status


@ON_SQLITE
def test_over_tls_every_cookie_is_for_this_host_and_for_no_script(
    over_tls: TestClient[Litestar], user: User
) -> None:
    user("lin", EVERYTHING)
    page = over_tls.get("/login")
    token = re.search(r'name="csrf" value="(\w+)"', page.text)
    assert token
    fields = {"csrf": token[1], "name": "lin", "password": PASSWORD}
    origin = {"origin": "https://console.example.com"}
    login = over_tls.post("/login", data=fields, headers=origin, follow_redirects=False)
    assert login.status_code == 303
    written = [*page.headers.get_list("set-cookie"), *login.headers.get_list("set-cookie")]
    assert {one.partition("=")[0] for one in written} == {
        "__Host-hongyan-login",
        "__Host-hongyan-session",
    }
    for cookie in written:
        flags = {one.strip().lower() for one in cookie.split(";")[1:]}
        assert {"secure", "httponly", "path=/", "samesite=lax"} <= flags, cookie
        assert not any(one.startswith("domain=") for one in flags), cookie
    for answer in (page, login):
        assert answer.headers["strict-transport-security"].startswith("max-age=31536000")
    over_tls.cookies.clear()
    over_tls.cookies.set("hongyan-session", "x")  # the name without TLS is another cookie
    assert over_tls.get("/account", follow_redirects=False).status_code == 303


# -- hosts --


@ON_SQLITE
def test_no_page_repeats_the_host_that_a_request_names(app: Litestar, lin: Browser) -> None:
    forged = ("host", "x-forwarded-host", "x-original-host", "forwarded", "x-forwarded-server")
    for name in forged:
        headers = {name: "host=evil.example" if name == "forwarded" else "evil.example"}
        for path in (*pages_of(app), "/nothing", "/login"):
            answer = lin.get(path, headers=headers)
            assert "evil.example" not in answer.text + str(answer.headers), f"{path} {name}"


@ON_SQLITE
def test_a_host_that_the_request_names_is_not_ours_where_the_address_is_set(
    over_tls: TestClient[Litestar],
) -> None:
    page = over_tls.get("/login")
    token = re.search(r'name="csrf" value="(\w+)"', page.text)
    assert token
    fields = {"csrf": token[1], "name": "lin", "password": PASSWORD}
    forged = {"host": "evil.example", "origin": "https://evil.example"}
    assert over_tls.post("/login", data=fields, headers=forged).status_code == 403


@ON_SQLITE
def test_an_address_that_a_stranger_names_does_not_lift_the_login_limit(
    browser: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_limits, "PER_ADDRESS", 3)
    one = browser()
    csrf = one.token("/login")
    codes = [
        one.raw(
            "/login",
            {"csrf": csrf, "name": f"nobody-{number}", "password": "wrong"},
            headers={"x-forwarded-for": f"192.0.2.{number}", "x-real-ip": f"192.0.2.{number}"},
        ).status_code
        for number in range(5)
    ]
    assert codes == [401, 401, 401, 429, 429]


# -- sizes --


@ON_SQLITE
def test_a_body_over_the_limit_is_refused_by_every_route(app: Litestar, lin: Browser) -> None:
    body = b"csrf=" + b"x" * MOST_BODY
    kind = {"content-type": "application/x-www-form-urlencoded"}
    for path in posts_of(app):
        if path == "/campaigns":  # it takes files: tests/admin/test_campaign_pages.py
            continue
        answer = lin.client.post(path, content=body, headers=kind, follow_redirects=False)
        assert answer.status_code == 413, f"{path}: {answer.status_code}"


@ON_SQLITE
def test_a_field_and_a_reason_have_a_length(lin: Browser) -> None:
    long = lin.post("/people", name="x" * (LONGEST_FIELD + 1), password=PASSWORD, reason="so")
    wordy = lin.post("/people", name="eve", password=PASSWORD, reason="x" * 1_001)
    assert (long.status_code, wordy.status_code) == (422, 422)
    assert "A field is too long." in long.text, "another rule refused the name"


# -- files --


@ON_SQLITE
@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static/%2e%2e%2fapp.py",
        "/static/..%5capp.py",
        "/static/....//app.py",
        "/static/vendor/../../app.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/console.css%00.html",
        "/static/",
        "/static/vendor",
        "/static/vendor/",
    ],
)
def test_no_file_outside_the_static_ones_is_read(lin: Browser, path: str) -> None:
    answer = lin.client.request("GET", httpx.URL(OUR_SITE + path), follow_redirects=False)
    assert answer.status_code in (404, 400), path
    assert "create_app" not in answer.text
    assert "root:" not in answer.text
    assert "uplot.LICENSE" not in answer.text, "no folder is listed"
    check_headers(answer, path)


# -- roles --


@ON_SQLITE
def test_a_change_of_role_through_the_page_ends_the_session_at_once(
    browser: Open, user: User, lin: Browser
) -> None:
    number = user("bo", {Role.ADMIN: ("*",)})
    bo = browser()
    bo.sign_in("bo")
    assert bo.get("/people").status_code == 200
    lin.post(f"/people/{number}/roles", role_viewer="1", lanes_viewer="*", reason="moved on")
    assert bo.get("/people").status_code == 303
    bo.sign_in("bo")
    assert bo.get("/people").status_code == 403


@ON_SQLITE
def test_a_role_for_some_lanes_is_no_admin_of_all(app: Litestar, browser: Open, user: User) -> None:
    user("bo", {Role.ADMIN: ("sms.*",)})
    bo = browser()
    bo.sign_in("bo")
    for method, pattern, handler in routes_of(app):
        if handler.opt[OPTION].role is Role.ADMIN:
            path = path_of(pattern)
            data = None if method == "GET" else {"csrf": bo.token()}
            answer = bo.client.request(method, path, follow_redirects=False, data=data)
            assert answer.status_code == 403, path
