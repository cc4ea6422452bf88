"""Logins, sessions, CSRF, redirects, headers."""

import asyncio
import re
import threading
from collections.abc import Callable
from typing import Any, cast

import httpx
import pytest
from argon2.exceptions import VerifyMismatchError
from litestar import Litestar
from sqlalchemy import text

from admin.access import Role
from admin.audit.journal import Journal
from admin.pages import account, login
from admin.pages.login import LONGEST_FORM
from admin.parts import ConsoleParts
from admin.people import passwords
from admin.people.login_limits import PER_NAME
from admin.people.passwords import AT_ONCE, MOST_SIGN_INS
from admin.people.sessions import Sessions
from admin.people.users import UserState
from admin.web.view import local_path
from idempotency.ledger import LedgerUnavailable
from tests.admin.conftest import PASSWORD, Browser
from tests.idempotency.making import wait_until

Open = Callable[[], Browser]
User = Callable[..., int]
VIEWER = {Role.VIEWER: ("*",)}
ADMIN = {Role.ADMIN: ("*",)}


def test_a_login_shows_the_overview_and_a_logout_ends_it(browser: Open, user: User) -> None:
    user("lin", VIEWER)
    lin = browser()
    assert lin.get("/").status_code == 303
    assert lin.sign_in("lin").headers["location"] == "/"
    assert "Overview" in lin.get("/").text
    lin.post("/logout")
    assert lin.get("/").status_code == 303


def test_a_wrong_name_is_answered_as_a_wrong_password(browser: Open, user: User) -> None:
    user("lin", VIEWER)
    answers = [browser().sign_in(name, "wrong password 1") for name in ("lin", "nobody")]
    assert [one.status_code for one in answers] == [401, 401]
    sentences = {re.search(r'role="alert">(.*?)<', one.text)[1] for one in answers}  # type: ignore[index]
    assert len(sentences) == 1


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_a_name_is_limited_even_with_the_right_password(browser: Open, user: User) -> None:
    user("lin", VIEWER)
    one = browser()
    csrf = one.token("/login")
    fields = {"csrf": csrf, "name": "lin", "password": "wrong"}
    codes = [one.raw("/login", fields).status_code for _ in range(PER_NAME)]
    assert codes == [401] * PER_NAME
    assert one.raw("/login", {**fields, "password": PASSWORD}).status_code == 429


class SlowHasher:
    """A hasher whose checks end when the test says so."""

    def __init__(self) -> None:
        self.arrived = 0
        """Checks that were asked for."""
        self.at_once, self.peak = 0, 0
        self.go_on = threading.Event()
        self._lock = threading.Lock()

    def fits(self, password_hash: str, password: str) -> bool:
        with self._lock:
            self.arrived += 1
        return passwords.fits(password_hash, password)

    def verify(self, _hash: str, _password: str) -> None:
        with self._lock:
            self.at_once += 1
            self.peak = max(self.peak, self.at_once)
        assert self.go_on.wait(60)
        with self._lock:
            self.at_once -= 1
        raise VerifyMismatchError


async def burst(app: Litestar, slow: SlowHasher, count: int) -> tuple[list[int], list[int]]:
    """Signs in `count` times at once. Returns the answers that came while checks wait, and the others."""
    transport = httpx.ASGITransport(app=cast(Any, app))
    async with httpx.AsyncClient(transport=transport, base_url="http://console") as client:
        csrf = re.search(r'name="csrf" value="(\w+)"', (await client.get("/login")).text)
        assert csrf
        form = {"csrf": csrf[1], "password": "wrong password 1"}
        asked = [
            asyncio.create_task(client.post("/login", data={**form, "name": f"nobody{number}"}))
            for number in range(count)
        ]
        try:
            coming = asyncio.as_completed(asked, timeout=20)
            early = [(await next(coming)).status_code for _ in range(count - MOST_SIGN_INS)]
            await asyncio.to_thread(wait_until, lambda: slow.arrived == MOST_SIGN_INS)
        finally:
            slow.go_on.set()
        return early, [(await one).status_code for one in coming]


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_a_burst_of_sign_ins_is_bounded_and_leaves_threads_to_pages(
    app: Litestar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without bounds 45 strangers take all 40 threads, and 64 MiB for each of them."""
    slow = SlowHasher()
    monkeypatch.setattr(passwords, "_HASHER", slow)
    monkeypatch.setattr(login, "fits", slow.fits)
    early, late = asyncio.run(burst(app, slow, 45))
    assert early == [503] * (45 - MOST_SIGN_INS)
    assert late == [401] * MOST_SIGN_INS
    assert slow.peak == AT_ONCE


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_a_stranger_gives_no_form_larger_than_a_login(browser: Open) -> None:
    """It is read before its token can be checked: 8 MiB of fields took 400 MiB of memory."""
    one = browser()
    fields = {"csrf": one.token("/login"), "name": "lin", "password": "p" * 1_024}
    assert one.raw("/login", {**fields, "next": "/" + "a" * 2_000}).status_code == 401
    assert one.raw("/login", {**fields, "next": "/" + "a" * LONGEST_FORM}).status_code == 413
    assert one.raw("/login", {"a": "b" * LONGEST_FORM}).status_code == 413


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_a_sign_in_that_finds_no_place_is_no_failed_one(
    browser: Open, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    user("lin", VIEWER)
    lin = browser()
    with monkeypatch.context() as full:
        full.setattr(passwords, "_PLACES", threading.Semaphore(0))
        answers = [lin.sign_in("lin") for _ in range(PER_NAME + 1)]
    assert {one.status_code for one in answers} == {503}
    assert "at the same time" in answers[0].text
    assert lin.sign_in("lin").headers["location"] == "/"


@pytest.mark.parametrize("change", ["roles", "password", "disable"])
def test_a_change_of_the_user_ends_its_sessions(
    parts: ConsoleParts, browser: Open, user: User, change: str
) -> None:
    number = user("lin", VIEWER)
    lin = browser()
    lin.sign_in("lin")
    assert lin.get("/").status_code == 200
    with parts.databases.primary.begin() as connection:
        if change == "roles":
            parts.people.users.set_roles(connection, number, {Role.OPERATOR: ("*",)})
        elif change == "password":
            parts.people.users.set_password(connection, number, "another password")
        else:
            parts.people.users.set_state(connection, number, UserState.DISABLED)
    assert lin.get("/").status_code == 303


def test_a_sign_in_under_way_does_not_outlive_a_change_of_the_password(
    parts: ConsoleParts, browser: Open, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who has the old password, and signs in over and over, would keep a session."""
    number = user("lin", VIEWER)

    def fits(password_hash: str, password: str) -> bool:
        good = passwords.fits(password_hash, password)
        with parts.databases.primary.begin() as connection:
            parts.people.users.set_password(connection, number, "another password")
        return good

    lin = browser()
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(login, "fits", fits)
        assert lin.sign_in("lin").status_code == 401
    assert lin.get("/").status_code == 303
    assert lin.sign_in("lin", "another password").status_code == 303


def test_two_changes_of_a_password_at_a_time_are_one(
    parts: ConsoleParts, browser: Open, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = user("lin", VIEWER)
    lin = browser()
    lin.sign_in("lin")

    def fits(password_hash: str, password: str) -> bool:
        with parts.databases.primary.begin() as connection:
            parts.people.users.set_password(connection, number, "another password")
        return passwords.fits(password_hash, password)

    monkeypatch.setattr(account, "fits", fits)
    fields = {"old": PASSWORD, "new": "a thief's password", "again": "a thief's password"}
    assert lin.post("/account/password", **fields).status_code == 422
    assert browser().sign_in("lin", "another password").status_code == 303


def test_a_new_password_that_is_refused_is_no_failed_sign_in(browser: Open, user: User) -> None:
    user("lin", VIEWER)
    lin = browser()
    lin.sign_in("lin")
    for _ in range(PER_NAME + 1):
        refused = lin.post("/account/password", old=PASSWORD, new="short", again="short")
        assert "12" in refused.text
    assert browser().sign_in("lin").status_code == 303


@pytest.mark.parametrize(
    "path", ["/accounts/%E8%B4%A6%E5%8F%B7", "/accounts/a%3Fb%25", "/search?q=lane%3A%E4%B8%AD"]
)
def test_a_login_leads_back_to_a_page_whatever_its_address_has(
    browser: Open, user: User, path: str
) -> None:
    user("lin", VIEWER)
    lin = browser()
    asked = lin.get(path).headers["location"]
    page = lin.get(asked)
    wanted = re.search(r'name="next" value="([^"]*)"', page.text)
    assert wanted
    assert lin.sign_in("lin", wanted=wanted[1]).headers["location"] == path


def test_a_redirect_names_each_character_in_ascii(browser: Open, user: User) -> None:
    user("lin", VIEWER)
    answer = browser().sign_in("lin", wanted="/accounts/账号?a=b&c=%20d")
    assert answer.headers["location"] == "/accounts/%E8%B4%A6%E5%8F%B7?a=b&c=%20d"


def test_the_answer_to_an_order_keeps_the_address_that_can_be_loaded_again(
    browser: Open, user: User
) -> None:
    user("lin", ADMIN)
    lin = browser()
    lin.sign_in("lin")
    boosted = {"hx-request": "true", "hx-boosted": "true"}
    sent = {"csrf": lin.token(), "reason": ""}
    for shown, kept in (
        ("http://testserver.local/people?after=%E9%B8%BF", "/people?after=%E9%B8%BF"),
        ("http://elsewhere.com/people", "false"),
        ("http://[", "false"),
    ):
        refused = lin.raw("/people/1/roles", sent, headers=boosted | {"hx-current-url": shown})
        assert (refused.status_code, refused.headers["hx-push-url"]) == (422, kept)
    assert lin.get("/people/1/roles").status_code == 405, "no page has this address"
    refused = lin.raw("/people", sent, headers=boosted)
    assert (refused.status_code, "hx-push-url" in refused.headers) == (422, False)


def test_an_order_that_the_database_leaves_midway_may_have_been_done(
    parts: ConsoleParts, browser: Open, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    user("lin", ADMIN)
    lin = browser()
    lin.sign_in("lin")
    sent = {"csrf": lin.token(), "name": "bo", "password": PASSWORD, "reason": "new"}

    def away(*_: object, **__: object) -> None:
        raise LedgerUnavailable("the ledger's database is away")

    with monkeypatch.context() as later:
        later.setattr(Journal, "record", away)
        midway = lin.raw("/people", sent)
        assert midway.status_code == 503
        assert "Nothing was done" not in midway.text
    monkeypatch.setattr(Sessions, "find", away)
    assert "Nothing was done" in lin.raw("/people", sent).text


@pytest.mark.parametrize("column", ["seen_at", "ends_at"])
def test_a_session_ends_by_idleness_and_by_age(
    parts: ConsoleParts, browser: Open, user: User, column: str
) -> None:
    user("lin", VIEWER)
    lin = browser()
    lin.sign_in("lin")
    with parts.databases.primary.begin() as connection:
        connection.execute(text(f"UPDATE console_sessions SET {column} = 1"))
    assert lin.get("/").status_code == 303


def test_the_database_holds_no_token_and_a_login_makes_a_new_one(
    parts: ConsoleParts, browser: Open, user: User
) -> None:
    user("lin", VIEWER)
    lin = browser()
    lin.cookies.set("hongyan-session", "planted-by-somebody")
    lin.sign_in("lin")
    token = lin.cookies.get("hongyan-session", domain="testserver.local")
    assert token
    assert token != "planted-by-somebody"
    with parts.databases.primary.begin() as connection:
        rows = connection.execute(text("SELECT token_hash FROM console_sessions")).scalars().all()
    assert token not in rows


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_a_form_without_our_token_or_from_another_site_is_refused(
    browser: Open, user: User
) -> None:
    user("lin", VIEWER)
    user("bo", VIEWER)
    lin, bo = browser(), browser()
    lin.sign_in("lin")
    bo.sign_in("bo")
    looks = {"language": "zh"}
    assert lin.raw("/account/looks", looks).status_code == 403
    assert lin.raw("/account/looks", {**looks, "csrf": bo.token()}).status_code == 403
    good = {**looks, "csrf": lin.token()}
    for header in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert lin.raw("/account/looks", good, headers=header).status_code == 403
    assert lin.raw("/account/looks", good).status_code == 303
    assert "总览" in lin.get("/").text


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "/a\nb",
        "x",
    ],
)
def test_no_redirect_leaves_the_console(target: str) -> None:
    assert local_path(target) == "/"


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_a_login_leads_back_to_the_page_that_was_asked_for(browser: Open, user: User) -> None:
    user("lin", ADMIN)
    lin = browser()
    assert lin.get("/audit?action=x").headers["location"] == "/login?next=/audit%3Faction%3Dx"
    assert lin.sign_in("lin", wanted="/audit?action=x").headers["location"] == "/audit?action=x"
    assert lin.sign_in("lin", wanted="//evil.example").headers["location"] == "/"


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("shown", "target"),
    [
        ("http://testserver.local/?over=1h", "/login?next=/%3Fover%3D1h"),
        ("http://testserver.local/resend/rj-1", "/login?next=/resend/rj-1"),
        ("http://evil.example/people", "/login"),
        ("http://testserver.local.evil.example/people", "/login"),
        ("http://testserver.local@evil.example/people", "/login"),
        ("http://testserver.local//evil.example", "/login"),
        ("http://testserver.local/\\evil.example", "/login"),
        ("//testserver.local//evil.example", "/login"),
        ("javascript:alert(1)", "/login"),
        ("http://[", "/login"),
        ("", "/login"),
    ],
)
def test_a_login_for_a_part_leads_back_to_the_page_that_shows_it(
    browser: Open, shown: str, target: str
) -> None:
    headers = {"hx-request": "true", "hx-current-url": shown}
    answer = browser().get("/overview/figures?over=1h", headers=headers)
    assert (answer.status_code, answer.headers["hx-redirect"]) == (401, target)


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_a_login_for_a_boosted_link_leads_to_its_page(browser: Open) -> None:
    headers = {"hx-request": "true", "hx-boosted": "true"}
    headers |= {"hx-current-url": "http://testserver.local/people"}
    answer = browser().get("/audit?action=x", headers=headers)
    assert answer.headers["hx-redirect"] == "/login?next=/audit%3Faction%3Dx"


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_an_error_of_a_part_is_a_reason_and_no_page(browser: Open, user: User) -> None:
    user("lin", VIEWER)
    lin = browser()
    lin.sign_in("lin")
    answer = lin.get("/overview/figures?over=never", headers={"hx-request": "true"})
    assert (answer.status_code, answer.text) == (422, "")
    assert answer.headers["x-hongyan-reason"]


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_every_page_has_the_headers_and_no_inline_script_or_style(
    browser: Open, user: User
) -> None:
    user("lin", ADMIN)
    lin = browser()
    lin.sign_in("lin")
    for path in ("/", "/people", "/audit", "/account", "/nothing", "/login"):
        answer = lin.get(path)
        policy = answer.headers["content-security-policy"]
        nonce = re.search(r"script-src 'nonce-([\w-]+)'", policy)
        assert nonce
        assert "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", answer.text), path
        scripts = re.findall(r"<script[^>]*>", answer.text)
        assert all(f'nonce="{nonce[1]}"' in one for one in scripts)


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_a_page_is_small(browser: Open, user: User) -> None:
    user("lin", ADMIN)
    lin = browser()
    lin.sign_in("lin")
    page = lin.get("/")
    assets = {*re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text)}
    assert sum(len(lin.get(one).content) for one in assets) + len(page.content) <= 150 * 1024
