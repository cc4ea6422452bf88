"""Sign-in at `oidc-provider` (npm), a certified OpenID Connect provider: discovery, PKCE, codes, tokens."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import httpx
import pytest
from litestar.testing import TestClient

from admin.access import Role
from admin.app import create_app
from admin.parts import ConsoleParts, open_parts
from backends.settings import ConsoleSettings, DatabaseSettings, Settings
from tests.admin.conftest import Browser
from tests.foreign.node_programs import ready
from tests.harness.databases import upgraded

JUDGE: Final = Path(__file__).parent / "oidc"
URL: Final = "http://testserver.local"
CLIENT, SECRET = "console", "a secret: with / and + of the tests"


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    folder = ready(JUDGE)
    command = ["node", "serve.mjs", f"{URL}/login/oidc/callback", CLIENT, SECRET]
    with subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as node:
        assert node.stdin is not None
        assert node.stdout is not None
        lines = iter(node.stdout)
        yield next(line.strip() for line in lines if line.startswith("http://"))
        node.stdin.close()
        node.wait(10)


@pytest.fixture
def parts(issuer: str, sqlite_database: str) -> Iterator[ConsoleParts]:
    console = ConsoleSettings(
        url=URL,
        oidc_issuer=issuer,
        oidc_client_id=CLIENT,
        oidc_client_secret=SECRET,
        oidc_roles_claim="groups",
        oidc_roles={"sre": "operator:sms.*"},
    )
    settings = Settings(database=DatabaseSettings(url=sqlite_database), console=console)
    upgraded(settings)
    with ExitStack() as stack:
        yield open_parts(settings, stack)


@pytest.fixture
def one(parts: ConsoleParts) -> Iterator[Browser]:
    with TestClient(create_app(parts), base_url=URL) as client:
        yield Browser(client)


def signed_in_at(address: str, login: str) -> str:
    """Signs in and consents at the provider, as a person does; the address that it leads back to."""
    with httpx.Client(follow_redirects=False, timeout=10) as person:
        answer = person.get(address)
        for _ in range(12):
            if answer.is_redirect:
                target = answer.headers["location"]
                if target.startswith(URL):
                    return str(target)
                answer = person.get(httpx.URL(address).join(target))
                continue
            form = re.search(r'<form[^>]* action="([^"]+)"', answer.text)
            prompt = re.search(r'name="prompt" value="(\w+)"', answer.text)
            assert form, answer.text[:500]
            assert prompt, answer.text[:500]
            fields = {"prompt": prompt[1], "login": login, "password": "any"}
            answer = person.post(httpx.URL(address).join(form[1]), data=fields)
    raise AssertionError("the provider leads nowhere")


def came_back(one: Browser, login: str) -> tuple[str, httpx.Response]:
    begun = one.get("/login/oidc", params={"next": "/account"})
    assert begun.status_code == 303, begun.text
    back = signed_in_at(begun.headers["location"], login).removeprefix(URL)
    return back, one.get(back)


def test_a_person_of_the_provider_comes_in_with_the_roles_of_its_group(
    parts: ConsoleParts, one: Browser
) -> None:
    _, answer = came_back(one, "bo")
    assert (answer.status_code, answer.headers.get("location")) == (303, "/account"), answer.text
    page = one.get("/account")
    assert "bo@example.com" in page.text
    with parts.databases.primary.begin() as connection:
        found = parts.people.users.named(connection, "bo@example.com")
    assert found is not None
    assert found.roles == {Role.OPERATOR: ("sms.*",)}


def test_a_person_without_a_group_stays_outside(one: Browser) -> None:
    _, answer = came_back(one, "eve")
    assert (answer.status_code, "gives you no role" in answer.text) == (401, True)


def test_the_provider_takes_a_code_once(parts: ConsoleParts, one: Browser) -> None:
    back, answer = came_back(one, "bo")
    assert answer.status_code == 303
    code = httpx.URL(back).params["code"]
    begun = one.get("/login/oidc")
    state = httpx.URL(begun.headers["location"]).params["state"]
    issuer = parts.settings.console.oidc_issuer
    fields = {"code": code, "state": state, "iss": issuer}
    again = one.get("/login/oidc/callback", params=fields)
    assert (again.status_code, "does not take the code" in again.text) == (401, True)
