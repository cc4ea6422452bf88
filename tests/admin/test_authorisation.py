"""Every route has a rule, and the rule holds: role by route, generated from the routes of the app."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from litestar import Litestar, get
from litestar.testing import TestClient

from admin.access import OPTION, Access, Person, Role
from admin.guards import admit
from admin.parts import ConsoleParts

SAMPLES = {
    "user": "1",
    "job": "rj-1",
    "campaign": "cm-1",
    "finding": "1",
    "name": "overview",
    "rest": "nothing",
    "rule": "parked",
    "file_path": "console.css",
    "lane": "sms.notice",
    "number": "1",
    "process": "worker-1",
    "account": "main",
    "key": "0" * 32,
    "saved": "1",
    "notification": "0192f3c47b1a7cc0a1b2c3d4e5f60718",
    "tx": "0192f3c47b1a7cc0a1b2c3d4e5f60718",
}
"""A value for each parameter of a path. A new parameter without one fails here."""
PUBLIC = {
    "/login",
    "/login/oidc",
    "/login/oidc/callback",
    "/healthz",
    "/readyz",
    "/static/{file_path:path}",
}


def routes_of(app: Litestar) -> Iterator[tuple[str, str, Any]]:
    for route in app.routes:
        for handler in getattr(route, "route_handlers", []):
            for method in sorted(getattr(handler, "http_methods", [])):
                if method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
                    yield method, route.path_format, handler


def path_of(pattern: str) -> str:
    for name, value in SAMPLES.items():
        for form in (name, f"{name}:str", f"{name}:int", f"{name}:path"):
            pattern = pattern.replace("{" + form + "}", value)
    assert "{" not in pattern, f"{pattern}: give SAMPLES a value for its parameter"
    return pattern


def test_every_route_has_a_rule_and_only_these_are_public(app: Litestar) -> None:
    public = set()
    for _method, pattern, handler in routes_of(app):
        access = handler.opt.get(OPTION)
        assert isinstance(access, Access), f"{pattern} has no rule: see admin/access.py"
        if not access.signed_in:
            public.add(pattern.replace("{file_path}", "{file_path:path}"))
    assert public == PUBLIC


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_without_a_session_every_other_route_leads_to_the_login(
    app: Litestar, browser: Callable[[], Any]
) -> None:
    stranger = browser()
    for method, pattern, handler in routes_of(app):
        if not handler.opt[OPTION].signed_in:
            continue
        answer = stranger.client.request(method, path_of(pattern), follow_redirects=False)
        assert answer.status_code == 303, pattern
        assert answer.headers["location"].startswith("/login"), pattern


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
@pytest.mark.parametrize("role", list(Role))
def test_a_role_passes_its_own_routes_and_no_other(
    app: Litestar, browser: Callable[[], Any], user: Callable[..., int], role: Role
) -> None:
    """A GET that may pass answers without 403; a POST that may pass comes as far as its form."""
    user("lin", {role: ("*",)})
    one = browser()
    one.sign_in("lin")
    token = one.token()
    for method, pattern, handler in routes_of(app):
        access: Access = handler.opt[OPTION]
        if not access.signed_in or pattern.startswith(("/live", "/logout")):
            continue
        needed = access.role
        may = needed is None or needed in (role, Role.VIEWER)
        fields = {"data": {"csrf": token}} if method != "GET" else {}
        path = path_of(pattern)
        answer = one.client.request(method, path, follow_redirects=False, **fields)
        assert (answer.status_code != 403) == may, f"{role} {method} {path}"


def test_a_route_without_a_rule_shows_nothing(parts: ConsoleParts) -> None:
    @get("/forgotten", sync_to_thread=False)
    def forgotten() -> str:
        return "a secret"

    app = Litestar([forgotten], guards=[admit], openapi_config=None)
    app.state.parts = parts
    with TestClient(app, raise_server_exceptions=False) as client:
        answer = client.get("/forgotten")
    assert answer.status_code == 500
    assert "a secret" not in answer.text


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_a_rule_with_a_lane_holds_for_every_value_in_path_query_and_form(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int], app: Litestar
) -> None:
    from litestar import post

    from admin.access import needs

    @post("/trial/{lane:str}", opt=needs(Role.OPERATOR, "lane"), status_code=200)
    async def trial() -> str:
        return "done"

    app.register(trial)
    user("lin", {Role.OPERATOR: ("sms.*",), Role.VIEWER: ("*",)})
    one = browser()
    one.sign_in("lin")
    csrf = {"csrf": one.token()}
    assert one.raw("/trial/sms.notice", csrf).status_code == 200
    assert one.raw("/trial/email.notice", csrf).status_code == 403
    assert one.raw("/trial/sms.notice?lane=email.notice", csrf).status_code == 403
    assert one.raw("/trial/sms.notice", {**csrf, "lane": "email.notice"}).status_code == 403


def test_roles_hold_for_their_lanes() -> None:
    lin = Person(1, "lin", {Role.OPERATOR: ("sms.*",), Role.APPROVER: ("email.notice",)})
    assert lin.may(Role.OPERATOR, "sms.notice")
    assert not lin.may(Role.OPERATOR, "email.notice")
    assert lin.may(Role.VIEWER, "email.notice")
    assert not lin.may(Role.VIEWER, "push.notice")
    assert not lin.may(Role.ADMIN)
    assert not lin.everywhere(Role.OPERATOR)
    assert not lin.may(Role.OPERATOR, "*")


@pytest.mark.parametrize("pattern", ["*", "*.*"])
def test_both_patterns_of_all_lanes_are_all_lanes(pattern: str) -> None:
    lin = Person(1, "lin", {Role.OPERATOR: (pattern,)})
    assert lin.everywhere(Role.OPERATOR)
    lin.require(Role.OPERATOR, "*")
