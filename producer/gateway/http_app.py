"""The application: routes, the guard that admits keys, errors as problems, the access log.

Each route has its scope in `opt`; a route without a rule admits nobody. The access log names route, status,
key and times: never a query, an id, a receiver, a header or a body.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec
import structlog
from litestar import Litestar, Request, Response, get, post
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.enums import HttpMethod
from litestar.exceptions import HTTPException, MethodNotAllowedException
from litestar.handlers.base import BaseRouteHandler

from backends.http_server.request_times import OnAnswer, RequestTimes, Scope, route_of
from idempotency.ledger import LedgerError
from producer.gateway.api_keys import KeyScope
from producer.gateway.endpoint import Caller, GatewayEndpoint, PostedRequest
from producer.gateway.envelope_limits import MOST_BATCH_BODY, MOST_BODY, items_of
from producer.gateway.idempotency import SentAnswer
from producer.gateway.key_ring import KeysStale
from producer.gateway.openapi import document
from producer.gateway.problems import GatewayProblem, answer_of, keys_unknown, not_now
from producer.gateway.request_bodies import JSON, KeyBodies, body_too_large, read_body

log = structlog.get_logger(__name__)
AnyRequest = Request[Any, Any, Any]
PUBLIC: Final = {"scope": None}
ADMISSION: Final = 1
"""Tokens that a request pays before its body is read."""
_ONE: Final = "/v1/notifications/"
_CALLER: Final = "caller"
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)


def needs_scope(scope: KeyScope) -> dict[str, KeyScope]:
    """Returns the rule of a route."""
    return {"scope": scope}


@post("/v1/notifications", opt=needs_scope(KeyScope.SEND), status_code=202)
async def send(request: AnyRequest) -> Response[bytes]:
    """Accepts one notification."""
    endpoint = _endpoint(request)
    answer = await endpoint.send(await _send_request(request, MOST_BODY))
    return _sent(answer, located=True)


@post("/v1/notifications:batch", opt=needs_scope(KeyScope.SEND), status_code=202)
async def send_batch(request: AnyRequest) -> Response[bytes]:
    """Accepts up to 1,000 notifications."""
    endpoint = _endpoint(request)
    wanted = await _send_request(request, MOST_BATCH_BODY)
    items = items_of(wanted.body)
    await endpoint.parts.rates.take(wanted.caller.key, len(items), paid=ADMISSION)
    return _sent(await endpoint.send_batch(wanted, items))


@post("/v1/notifications:recall", opt=needs_scope(KeyScope.RECALL), status_code=200)
async def recall(request: AnyRequest) -> Response[bytes]:
    """Recalls a notification, or those of a business id."""
    body = await _body(request, MOST_BODY)
    return _sent(await _endpoint(request).recall(_caller(request), body))


@get(f"{_ONE}{{message_id:path}}", opt=needs_scope(KeyScope.READ))
async def read(request: AnyRequest) -> Response[bytes]:
    """Returns one notification. Its id may have slashes, which `Location` percent-encodes."""
    name = unquote(request.scope["raw_path"].decode()).removeprefix(_ONE)
    story = await _endpoint(request).read(_caller(request), name)
    return _json(200, msgspec.json.encode(story))


@get("/v1/notifications", opt=needs_scope(KeyScope.READ))
async def read_biz(request: AnyRequest) -> Response[bytes]:
    """Returns the notifications of a business id."""
    given = request.query_params.getall("biz_id", [])
    if len(given) != 1 or not given[0] or len(request.query_params) != 1:
        raise GatewayProblem(
            422, "no_biz_id", "give one biz_id and no more, as in ?biz_id=order-1001"
        )
    stories = await _endpoint(request).read_biz(_caller(request), given[0])
    return _json(200, msgspec.json.encode({"notifications": stories}))


@get("/openapi.json", opt=PUBLIC, sync_to_thread=False)
def openapi() -> Response[bytes]:
    """Returns the description of this interface."""
    return _json(200, _DOCUMENT)


_DOCUMENT: Final = msgspec.json.encode(document())
HANDLERS: Final = [send, send_batch, recall, read, read_biz, openapi]


def build_gateway(endpoint: GatewayEndpoint, *, access_log: bool = True) -> Litestar:
    """Returns the ASGI application."""
    app = Litestar(
        route_handlers=HANDLERS,
        guards=[admit],
        openapi_config=None,
        logging_config=None,
        request_max_body_size=MOST_BATCH_BODY,
        exception_handlers={
            GatewayProblem: _problem,
            LedgerError: _ledger_away,
            HTTPException: _http_error,
            Exception: _fault,
        },
        state=State({"endpoint": endpoint, "bodies": KeyBodies()}),
    )
    # Around the router: an answer for a path without a route passes no middleware of Litestar's.
    noted = _noted(endpoint, access_log=access_log)
    app.asgi_handler = RequestTimes(app.asgi_handler, noted, headers=_HEADERS)
    return app


async def admit(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Admits a valid key with the route's scope, within its rate. Raises GatewayProblem."""
    scope = handler.opt.get("scope", "")
    if scope is None:
        return
    if connection.scope.get("method") == HttpMethod.OPTIONS:
        raise MethodNotAllowedException(headers={"allow": _methods_of(handler.paths)})
    endpoint: GatewayEndpoint = connection.app.state.endpoint
    caller = _admitted(endpoint, connection.headers.get("authorization", ""))
    connection.scope["state"][_CALLER] = caller
    if scope not in set(KeyScope) or not caller.key.may(scope):
        detail = f"this key has no scope {scope!s}: it has {', '.join(caller.key.terms.scopes)}"
        raise GatewayProblem(403, "scope_missing", detail)
    await endpoint.parts.rates.take(caller.key, ADMISSION)


def _methods_of(paths: Collection[str]) -> str:
    """Returns the methods of a path, each of which has a handler of its own."""
    found = [one for one in HANDLERS if not one.paths.isdisjoint(paths)]
    return ", ".join(sorted({method for one in found for method in one.http_methods}))


def _admitted(endpoint: GatewayEndpoint, authorization: str) -> Caller:
    kind, _, token = authorization.partition(" ")
    try:
        found = endpoint.parts.ring.of_token(token.strip())
    except KeysStale as exc:
        raise keys_unknown() from exc
    if kind.lower() != "bearer" or found is None:
        detail = "give a valid API key, as in Authorization: Bearer hyk_…"
        raise GatewayProblem(401, "unauthenticated", detail)
    return Caller(*found)


def _endpoint(request: AnyRequest) -> GatewayEndpoint:
    endpoint: GatewayEndpoint = request.app.state.endpoint
    return endpoint


def _caller(request: AnyRequest) -> Caller:
    caller: Caller = request.scope["state"][_CALLER]
    return caller


async def _send_request(request: AnyRequest, most: int) -> PostedRequest:
    keys = request.headers.getall("idempotency-key", [])
    if len(keys) > 1:
        raise GatewayProblem(400, "bad_idempotency_key", "give one Idempotency-Key and no more")
    body = await _body(request, most)
    traceparent = request.headers.get("traceparent", "")
    key = keys[0] if keys else None
    return PostedRequest(_caller(request), request.scope["path"], body, key, traceparent)


async def _body(request: AnyRequest, most: int) -> bytes:
    return await read_body(request, _caller(request).key.id, most, request.app.state.bodies)


def _sent(answer: SentAnswer, *, located: bool = False) -> Response[bytes]:
    headers = {"Idempotent-Replayed": "true"} if answer.replayed else {}
    if answer.retry_after_s:
        headers["Retry-After"] = str(answer.retry_after_s)
    if located:
        name = msgspec.json.decode(answer.body)["id"]
        headers["Location"] = f"{_ONE}{quote(name, safe='')}"
    return _json(answer.status, answer.body, headers)


def _json(status: int, body: bytes, headers: dict[str, str] | None = None) -> Response[bytes]:
    return Response(body, status_code=status, headers=headers or {}, media_type=JSON)


def _problem(request: AnyRequest, exc: GatewayProblem) -> Response[bytes]:
    _endpoint(request).parts.metrics.refused.labels(exc.code).inc()
    return answer_of(exc)


def _ledger_away(request: AnyRequest, exc: LedgerError) -> Response[bytes]:
    log.warning("gateway_ledger_away", cause=str(exc))
    return _problem(request, not_now("the database does not answer"))


def _http_error(request: AnyRequest, exc: HTTPException) -> Response[bytes]:
    """Maps Litestar's own errors."""
    if exc.status_code == 413:
        return _problem(request, body_too_large(MOST_BATCH_BODY))
    codes = {404: "no_such_path", 405: "method_not_allowed"}
    code = codes.get(exc.status_code, "bad_request")
    detail = "there is no such path" if exc.status_code == 404 else exc.detail
    problem = GatewayProblem(exc.status_code, code, detail or "refused")
    _endpoint(request).parts.metrics.refused.labels(code).inc()
    headers = dict(exc.headers or {})
    if "allow" in headers:  # Litestar counts its own handler of OPTIONS
        methods = {*headers["allow"].split(", ")} - {HttpMethod.OPTIONS}
        headers["allow"] = ", ".join(sorted(methods))
    return answer_of(problem, headers)


def _fault(request: AnyRequest, exc: Exception) -> Response[bytes]:
    log.error("gateway_fault", exc_info=exc)
    problem = GatewayProblem(
        500, "fault", "this is a fault of ours; repeat it with the same Idempotency-Key or id"
    )
    return _problem(request, problem)


def _noted(endpoint: GatewayEndpoint, *, access_log: bool) -> OnAnswer:
    """Returns what counts and times each answer, and logs it with the key that asked."""
    metrics = endpoint.parts.metrics

    def note(scope: Scope, status: int, took_s: float) -> None:
        route = route_of(scope)
        metrics.answered(route, status, took_s)
        if access_log:
            caller = scope.get("state", {}).get(_CALLER)
            named = {"key": caller.key.name, "prefix": caller.prefix} if caller else {}
            took_ms = round(took_s * 1_000, 1)
            log.info("request", route=route, status=status, took_ms=took_ms, **named)

    return note
