"""Every route of the gateway with every kind of key: the matrix comes from the routes themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from producer.gateway.api_keys import KeyScope
from producer.gateway.http_app import HANDLERS
from producer.gateway.key_store import KeyMade
from tests.producer.gateway.conftest import NOTICE, OpenGateway, bearer

BODIES: dict[str, Any] = {
    "/v1/notifications": NOTICE,
    "/v1/notifications:batch": {"notifications": [NOTICE]},
    "/v1/notifications:recall": {"id": "of-another-lane"},
}
SAMPLES = {"{message_id:path}": "of-another-lane"}
QUERY = {"biz_id": "of-another-lane"}


class Route(NamedTuple):
    method: str
    path: str
    scope: KeyScope | None


def routes() -> list[Route]:
    found = []
    for handler in HANDLERS:
        for method in handler.http_methods:
            for path in handler.paths:
                for name, sample in SAMPLES.items():
                    path = path.replace(name, sample)
                found.append(Route(str(method), path, handler.opt["scope"]))
    return sorted(found)


GUARDED = [route for route in routes() if route.scope is not None]
ON_SQLITE = pytest.mark.parametrize("settings", ["sqlite"], indirect=True)


def ask(gateway: OpenGateway, route: Route, headers: dict[str, str]) -> Any:
    body = BODIES[route.path] if route.method == "POST" else None
    return gateway.client.request(
        route.method, route.path, json=body, params=QUERY, headers=headers
    )


def test_only_the_description_is_public() -> None:
    assert [route.path for route in routes() if route.scope is None] == ["/openapi.json"]


@ON_SQLITE
@pytest.mark.parametrize("route", GUARDED, ids=str)
def test_without_a_valid_key_every_route_says_401(
    gateway: OpenGateway, token: str, route: Route
) -> None:
    other = token[:-1] + ("A" if token[-1] != "A" else "B")
    for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": token}, bearer(other)):
        answer = ask(gateway, route, headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.json()["code"] == "unauthenticated"
    assert gateway.publisher.records == []


@ON_SQLITE
@pytest.mark.parametrize("path", [route.path for route in routes()])
def test_a_path_names_its_methods(gateway: OpenGateway, token: str, path: str) -> None:
    methods = {route.method for route in routes() if route.path == path}
    for headers in ({}, bearer(token)):
        for method in ("OPTIONS", "DELETE"):
            answer = gateway.client.request(method, path, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
            assert {*answer.headers["allow"].split(", ")} == methods


@ON_SQLITE
@pytest.mark.parametrize("scope", [*KeyScope])
@pytest.mark.parametrize("route", GUARDED, ids=str)
def test_a_key_opens_the_routes_of_its_scope_alone(
    gateway: OpenGateway, make_key: Callable[..., KeyMade], route: Route, scope: KeyScope
) -> None:
    answer = ask(gateway, route, bearer(make_key(scopes=(scope,)).token))
    if scope is route.scope:
        assert answer.status_code in (200, 202, 404)
    else:
        assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")
        assert gateway.publisher.records == []


@ON_SQLITE
@pytest.mark.parametrize("route", GUARDED, ids=str)
def test_a_key_reaches_nothing_of_other_lanes(
    gateway: OpenGateway, make_key: Callable[..., KeyMade], route: Route
) -> None:
    answer = ask(gateway, route, bearer(make_key(lanes=("sms.*",)).token))
    if route.path.endswith(":batch"):
        assert answer.status_code == 207
        assert answer.json()["results"][0]["problem"]["code"] == "lane_not_allowed"
    elif route.scope is KeyScope.SEND:
        assert (answer.status_code, answer.json()["code"]) == (403, "lane_not_allowed")
    elif route.path == "/v1/notifications":
        assert answer.json() == {"notifications": []}
    else:
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert gateway.publisher.records == []
