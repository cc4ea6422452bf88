"""Sign-in at a provider: who comes in, and each answer that nobody comes in by."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import sha256
from itertools import count
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import httpx
import msgspec
import pytest
from joserfc.jwk import RSAKey
from litestar import Litestar
from litestar.testing import TestClient
from sqlalchemy import text

from admin.access import Role
from admin.audit.journal import AuditFilter
from admin.oidc.id_token import OidcRefused
from admin.oidc.kept_fetch import FAILURE_KEPT_S, KeptFetch
from admin.pages.oidc import MOST_AT_ONCE
from admin.parts import ConsoleParts, open_parts
from backends.settings import SettingsError
from channels.json_fetch import FetchFailed
from idempotency.error_mapping import errors
from tests.admin.conftest import PASSWORD, Browser, served_with
from tests.admin.providers import CLIENT, SECRET, BentProvider
from tests.idempotency.making import wait_until

URL = "http://testserver.local"
MAIL = "bo@example.com"
MakeConsole = Callable[..., ConsoleParts]


@pytest.fixture
def provider() -> Iterator[BentProvider]:
    with BentProvider() as one:
        yield one


@pytest.fixture
def console(parts: ConsoleParts, provider: BentProvider) -> Iterator[MakeConsole]:
    """Opens a console on the same ledger with the provider, and further settings."""
    with ExitStack() as stack:

        def make(**more: Any) -> ConsoleParts:
            fields = {
                "url": URL,
                "oidc_issuer": provider.issuer,
                "oidc_client_id": CLIENT,
                "oidc_client_secret": SECRET,
                "oidc_name": "Example",
            }
            changed = msgspec.structs.replace(parts.settings.console, **fields | more)
            return open_parts(msgspec.structs.replace(parts.settings, console=changed), stack)

        yield make


@pytest.fixture
def browse() -> Iterator[Callable[[ConsoleParts], Callable[[], Browser]]]:
    """Starts a console; its result opens browsers."""
    with ExitStack() as stack:
        places = count()

        def start(parts: ConsoleParts) -> Callable[[], Browser]:
            app = served_with(parts, next(places))
            client = stack.enter_context(TestClient(app, base_url=URL))
            return lambda: Browser(client)

        yield start


def added(parts: ConsoleParts, name: str = MAIL, password: str = "", subject: str = "") -> int:
    with parts.databases.primary.begin() as connection:
        users = parts.people.users
        number = users.add(connection, name, by="test", password=password, subject=subject)
        users.set_roles(connection, number, {Role.VIEWER: ("sms.*",)})
    return number


def begin(one: Browser, provider: BentProvider, wanted: str = "/account") -> dict[str, str]:
    """Goes to the provider; the request as it comes there."""
    answer = one.get("/login/oidc", params={"next": wanted})
    assert answer.status_code == 303
    target = urlsplit(answer.headers["location"])
    assert f"{target.scheme}://{target.netloc}" == provider.issuer
    asked = {name: values[0] for name, values in parse_qs(target.query).items()}
    provider.nonce = asked["nonce"]
    return asked


def come_back(
    one: Browser, asked: dict[str, str], code: str = "c-1", **more: str
) -> httpx.Response:
    return one.get("/login/oidc/callback", params={"code": code, "state": asked["state"], **more})


def is_in(one: Browser) -> bool:
    return one.get("/account").status_code == 200


def test_a_user_that_was_added_beforehand_comes_in_and_is_bound_to_its_subject(
    console: MakeConsole, browse: Any, provider: BentProvider
) -> None:
    parts = console()
    added(parts)
    one = browse(parts)()
    assert "Sign in with Example" in one.get("/login").text
    before = one.cookies.get("hongyan-session")
    asked = begin(one, provider)
    assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
    assert asked["redirect_uri"] == f"{URL}/login/oidc/callback"
    done = come_back(one, asked)
    assert (done.status_code, done.headers["location"]) == (303, "/account")
    assert is_in(one)
    assert one.cookies.get("hongyan-session") != before
    (form,) = provider.asked
    challenge = base64.urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest())
    assert challenge.decode().rstrip("=") == asked["code_challenge"]
    assert form["login"].startswith("Basic ")
    assert SECRET not in str(form)
    rows = [row.action for row in parts.journal.page(AuditFilter(), 10)]
    assert rows == ["login.oidc", "user.oidc"]
    provider.claims["email"] = "renamed@example.com"
    again = browse(parts)()
    assert come_back(again, begin(again, provider)).status_code == 303, "the subject is the name"


def bent(provider: BentProvider, **claims: Any) -> None:
    provider.claims |= claims


def unsigned(provider: BentProvider) -> None:
    now = int(time.time())
    claims = {"iss": provider.issuer, "aud": CLIENT, "iat": now, "exp": now + 60, "sub": "s-1"}
    parts = (
        {"alg": "none"},
        claims | {"nonce": provider.nonce, "email": MAIL, "email_verified": True},
    )
    coded = [base64.urlsafe_b64encode(json.dumps(x).encode()).decode().rstrip("=") for x in parts]
    provider.token = ".".join([*coded, ""])


def other_key(provider: BentProvider) -> None:
    provider.key = RSAKey.generate_key(2048, {"kid": "k1"})


def shared_key(provider: BentProvider) -> None:
    provider.header = {"alg": "HS256", "kid": "k1"}


@pytest.mark.parametrize(
    ("bend", "sentence"),
    [
        (lambda p: bent(p, nonce="another"), "belongs to another sign-in"),
        (lambda p: p.claims.update(nonce=None), "belongs to another sign-in"),
        (lambda p: bent(p, aud="another"), "is for another application"),
        (lambda p: bent(p, aud=[CLIENT, "b"]), "is for another application"),
        (lambda p: bent(p, azp="another"), "is for another application"),
        (lambda p: bent(p, exp=int(time.time()) - 120), "is too old"),
        (lambda p: bent(p, iss="https://evil.example.com"), "from another provider"),
        (lambda p: bent(p, sub=""), "cannot be used"),
        (lambda p: bent(p, sub=["s-1"]), "cannot be used"),
        (unsigned, "is not signed"),
        (other_key, "is not signed"),
        (shared_key, "is not signed"),
        (lambda p: setattr(p, "token", "x.y"), "is not signed"),
        (lambda p: setattr(p, "status", 400), "does not take the code"),
        (lambda p: setattr(p, "status", 500), "does not answer"),
    ],
)
def test_a_bent_answer_lets_nobody_in_and_is_one_sentence(
    console: MakeConsole, browse: Any, provider: BentProvider, bend: Any, sentence: str
) -> None:
    parts = console()
    added(parts)
    one = browse(parts)()
    asked = begin(one, provider)
    bend(provider)
    answer = come_back(one, asked)
    assert answer.status_code in (401, 503)
    assert sentence in answer.text
    assert answer.text.count('class="line bad"') == 1
    assert not is_in(one)


def test_an_answer_is_taken_once_and_in_the_browser_that_began(
    console: MakeConsole, browse: Any, provider: BentProvider
) -> None:
    parts = console()
    added(parts)
    open_one = browse(parts)
    victim, thief = open_one(), open_one()
    asked = begin(victim, provider)
    begin(thief, provider)
    stolen = come_back(thief, asked)
    assert (stolen.status_code, "not begun in this browser" in stolen.text) == (401, True)
    assert not is_in(thief)
    assert come_back(open_one(), asked).status_code == 401, "a browser without a cookie"
    provider.nonce = asked["nonce"]
    assert come_back(victim, asked).status_code == 303
    victim.cookies.delete("hongyan-session")
    assert come_back(victim, asked).status_code == 401, "the same answer again"
    assert len(provider.asked) == 1


def test_an_answer_that_comes_too_late_is_none(
    console: MakeConsole, browse: Any, provider: BentProvider
) -> None:
    parts = console()
    added(parts)
    one = browse(parts)()
    asked = begin(one, provider)
    with parts.databases.primary.begin() as connection:
        connection.execute(text("UPDATE console_oidc_logins SET ends_at = 1"))
    assert come_back(one, asked).status_code == 401
    assert provider.asked == []


def test_another_provider_s_answer_is_refused_before_its_code_is_sent(
    console: MakeConsole, browse: Any, provider: BentProvider
) -> None:
    parts = console()
    one = browse(parts)()
    answer = come_back(one, begin(one, provider), iss="https://evil.example.com")
    assert "from another provider" in answer.text
    provider_says = console()
    provider.metadata = {"authorization_response_iss_parameter_supported": True}
    two = browse(provider_says)()
    assert "from another provider" in come_back(two, begin(two, provider)).text
    assert provider.asked == []


def test_a_discovery_document_of_another_issuer_or_without_tls_is_refused(
    console: MakeConsole, browse: Any, provider: BentProvider
) -> None:
    for metadata in (
        {"issuer": "https://evil.example.com"},
        {"token_endpoint": "http://evil.example.com/"},
    ):
        provider.metadata = metadata
        one = browse(console())()
        assert one.get("/login/oidc").status_code in (401, 503)


def test_a_provider_that_is_away_leaves_the_passwords(
    console: MakeConsole, browse: Any, user: Callable[..., int]
) -> None:
    user("lin", {Role.VIEWER: ("*",)})
    one = browse(console(oidc_issuer="http://127.0.0.1:9"))()
    answer = one.get("/login/oidc")
    assert (answer.status_code, "does not answer" in answer.text) == (503, True)
    assert one.sign_in("lin", PASSWORD).status_code == 303


class HangingFetch:
    """A provider whose packets are lost: each request ends with its time limit."""

    def __init__(self) -> None:
        self.asked = 0
        self.time_out = threading.Event()

    def get(self, _address: str, _fields: Any = ()) -> dict[str, Any]:
        self.asked += 1
        assert self.time_out.wait(60)
        raise FetchFailed("timeout")


async def strangers(app: Litestar, hanging: HangingFetch, count: int) -> tuple[list[int], int]:
    """Begins `count` sign-ins at once. Returns the answers that came while the provider hangs, and that of
    a page that was asked for meanwhile."""
    transport = httpx.ASGITransport(app=cast(Any, app))
    async with httpx.AsyncClient(transport=transport, base_url=URL) as client:
        asked = [asyncio.create_task(client.get("/login/oidc")) for _ in range(count)]
        try:
            coming = asyncio.as_completed(asked, timeout=20)
            early = [(await next(coming)).status_code for _ in range(count - MOST_AT_ONCE)]
            session = {"cookie": "hongyan-session=unknown"}
            page = await asyncio.wait_for(client.get("/account", headers=session), 20)
        finally:
            hanging.time_out.set()
        late = [(await one).status_code for one in coming]
        assert late == [503] * MOST_AT_ONCE
        return early, page.status_code


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_a_provider_that_hangs_leaves_threads_to_pages(
    console: MakeConsole, provider: BentProvider
) -> None:
    """Without places 45 strangers take all 40 threads for as long as the provider hangs."""
    parts, hanging = console(), HangingFetch()
    assert parts.oidc is not None
    parts.oidc.provider._fetch = cast(Any, hanging)
    early, page = asyncio.run(strangers(served_with(parts), hanging, 45))
    assert early == [503] * (45 - MOST_AT_ONCE)
    assert page == 303, "to the login"
    assert hanging.asked == 1, "one fetch for all"


@pytest.mark.parametrize("parts", ["postgres"], indirect=True)
@pytest.mark.parametrize("bound", [False, True], ids=["new", "bound"])
def test_a_first_sign_in_and_a_change_of_roles_do_not_wait_for_each_other(
    console: MakeConsole, bound: bool
) -> None:
    """The sign-in held the audit, and waited for the roles; the change did so the other way round."""
    parts = console(oidc_roles_claim="groups", oidc_roles={"ops": "operator:sms.*"})
    assert parts.oidc is not None
    other, members, primary = added(parts, "carl"), parts.oidc.members, parts.databases.primary
    if bound:
        added(parts, MAIL)
    claims = {"sub": "s-1", "email": MAIL, "email_verified": True, "groups": ["ops"]}
    came: list[str] = []

    def sign_in() -> None:
        with errors(), primary.begin() as connection:
            came.append(members.user_of(connection, claims, "").name)

    thread = threading.Thread(target=sign_in)
    with errors(), primary.begin() as connection:
        parts.people.users.set_roles(connection, other, {Role.VIEWER: ("*",)})
        thread.start()
        wait_until(lambda: waiting_for_locks(parts) == 1)
        parts.journal.record(connection, person="lin", action="user.role", subject="carl")
    thread.join(10)
    assert came == [MAIL]


def waiting_for_locks(parts: ConsoleParts) -> int:
    with parts.databases.reads.begin() as connection:
        query = text(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return int(connection.execute(query).scalar() or 0)


class CountedFetch:
    """Fails while it shall; counts."""

    def __init__(self) -> None:
        self.asked, self.fails = 0, True

    def fetch(self) -> int:
        self.asked += 1
        if self.fails:
            raise OidcRefused("login.oidc_away", "timeout")
        return self.asked


def test_a_failed_fetch_is_not_repeated_at_once_and_leaves_the_value_of_before() -> None:
    now, counted = [0.0], CountedFetch()
    kept = KeptFetch(counted.fetch, lambda: now[0])
    for _ in range(3):
        with pytest.raises(OidcRefused) as refused:
            kept.newer_than(60)
        assert refused.value.key == "login.oidc_away"
    assert counted.asked == 1
    now[0], counted.fails = FAILURE_KEPT_S, False
    assert [kept.newer_than(60) for _ in range(3)] == [2] * 3
    now[0], counted.fails = FAILURE_KEPT_S + 30, True
    for _ in range(2):
        with pytest.raises(OidcRefused):
            kept.newer_than(30)
        assert kept.newer_than(60) == 2
    assert counted.asked == 3


def test_nobody_comes_in_who_was_not_let_in(
    console: MakeConsole, browse: Any, provider: BentProvider
) -> None:
    parts = console()
    open_one = browse(parts)

    def tried() -> str:
        one = open_one()
        answer = come_back(one, begin(one, provider))
        assert not is_in(one)
        return answer.text

    assert "no active account" in tried()
    number = added(parts, "local@example.com", password=PASSWORD)
    bent(provider, email="local@example.com")
    assert "no active account" in tried(), "a local user is not taken over by its address"
    bent(provider, email=MAIL, email_verified=False)
    added(parts)
    assert "no active account" in tried(), "anybody may write an unverified address"
    bent(provider, email_verified=True)
    one = open_one()
    assert come_back(one, begin(one, provider)).status_code == 303
    bent(provider, sub="s-2")
    assert "no active account" in tried(), "the address is bound to another subject"
    with parts.databases.primary.begin() as connection:
        connection.execute(text("UPDATE console_users SET state = 'DISABLED'"))
    bent(provider, sub="s-1")
    assert "no active account" in tried()
    assert number


def test_roles_follow_the_claim_at_each_sign_in(
    console: MakeConsole, browse: Any, provider: BentProvider
) -> None:
    roles = {"sre": "operator:sms.* viewer", "mail": "operator:email.notice"}
    parts = console(oidc_roles_claim="groups", oidc_roles=roles)
    open_one = browse(parts)

    def tried(groups: Any) -> Browser:
        bent(provider, groups=groups)
        one: Browser = open_one()
        come_back(one, begin(one, provider))
        return one

    def held() -> dict[Role, tuple[str, ...]]:
        with parts.databases.primary.begin() as connection:
            found = parts.people.users.named(connection, MAIL)
        return found.roles if found else {}

    assert not is_in(tried(["others"]))
    assert held() == {}
    first = tried(["sre", "mail"])
    assert is_in(first)
    assert held() == {Role.OPERATOR: ("sms.*", "email.notice"), Role.VIEWER: ("*",)}
    assert is_in(tried(["mail", "sre", "sre"]))
    assert is_in(first), "the same groups in another order change nothing"
    assert is_in(tried("mail"))
    assert held() == {Role.OPERATOR: ("email.notice",)}
    assert not is_in(first), "fewer roles end the older sessions"
    assert not is_in(tried([]))


def test_the_way_back_leads_to_no_other_site(
    console: MakeConsole, browse: Any, provider: BentProvider
) -> None:
    parts = console()
    added(parts)
    for wanted in ("https://evil.example.com", "//evil.example.com", "/\\evil.example.com"):
        one = browse(parts)()
        done = come_back(one, begin(one, provider, wanted))
        assert done.headers["location"] == "/"


def test_keys_that_the_provider_changed_are_fetched_again(
    console: MakeConsole, browse: Any, provider: BentProvider
) -> None:
    parts = console()
    added(parts)
    open_one = browse(parts)
    one = open_one()
    assert come_back(one, begin(one, provider)).status_code == 303
    provider.key = RSAKey.generate_key(2048, {"kid": "k2", "use": "sig", "alg": "RS256"})
    provider.published, provider.header = [provider.key], {"alg": "RS256", "kid": "k2"}
    assert parts.oidc is not None
    keys = parts.oidc.provider._keys
    assert keys._fetched is not None
    keys._fetched = keys._fetched[0] - 60, keys._fetched[1]  # they were fetched a minute ago
    two = open_one()
    assert come_back(two, begin(two, provider)).status_code == 303


def test_failed_answers_are_limited(console: MakeConsole, browse: Any) -> None:
    one = browse(console())()
    answers = [come_back(one, {"state": "x"}).status_code for _ in range(11)]
    assert answers == [401] * 10 + [429]


def test_without_a_provider_there_is_no_way(browser: Callable[[], Browser]) -> None:
    one = browser()
    assert "/login/oidc" not in one.get("/login").text
    assert one.get("/login/oidc").status_code == 404
    assert one.get("/login/oidc/callback").status_code == 404


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"oidc_issuer": "http://id.example.com"}, "console.oidc_issuer"),
        ({"oidc_client_id": ""}, "console.oidc_client_id"),
        ({"url": ""}, "console.url"),
        ({"oidc_roles_claim": "groups"}, "console.oidc_roles"),
        ({"oidc_roles_claim": "groups", "oidc_roles": {"sre": "king"}}, "console.oidc_roles: sre"),
    ],
)
def test_a_configuration_that_would_not_be_safe_is_refused(
    console: MakeConsole, more: dict[str, Any], key: str
) -> None:
    with pytest.raises(SettingsError, match=key):
        console(**more)
