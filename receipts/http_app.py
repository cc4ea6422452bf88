"""The endpoints: `POST /receipts/{account}` for providers, `/healthz`, `/readyz`, `/metrics` for us.

    2xx   the receipts are durable; the body is what the provider takes for "received"
    400   signed, but unreadable        401   no valid signature or secret      404   unknown account
    413   a body over 1 MiB             503   the database is away, or too much at once: come again

backends/http_server/connection_limits.py bounds the bytes of a client that has shown no valid
signature yet.

The log has the account of a refused push and the cause, and nothing else of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import structlog
from litestar import HttpMethod, Litestar, Request, Response, route
from litestar.exceptions import HTTPException
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from backends.http_server.connection_limits import BodyBudget
from idempotency.ledger import LedgerError
from receipts.group_commit import Full, GroupCommit
from receipts.matcher import Matcher
from receipts.metrics import ReceiptMetrics
from receipts.push import Malformed, Parsed, Push, RefusedPush, Unauthentic
from receipts.sources import ReceiptSource

log = structlog.get_logger(__name__)

MAX_BODY: Final = 1 << 20
STUCK_AFTER_S: Final = 60.0
_COME_AGAIN_S: Final = "5"
_COMPLAIN_S: Final = 60.0
_STATUSES: Final = ((Unauthentic, 401), (Malformed, 400))
_READ: Final = (HttpMethod.GET, HttpMethod.HEAD)
AnyRequest = Request[Any, Any, Any]


class ReceiptEndpoint:
    """Takes pushes in; everything belongs to the event loop's thread."""

    def __init__(
        self,
        sources: Mapping[str, ReceiptSource],
        intake: GroupCommit,
        metrics: ReceiptMetrics,
        *,
        now_s: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sources = sources
        self._intake = intake
        self._metrics = metrics
        self._now_s = now_s
        self._monotonic = monotonic
        self._budget = BodyBudget()
        self._complained: dict[str, float] = {}

    async def receive(self, account: str, request: AnyRequest) -> Response[bytes]:
        """Checks, reads and stores a push. Returns its answer."""
        source = self._sources.get(account)
        if source is None or source.parser is None:
            return _said(404, "no account of this name takes receipts")
        body = await self._body(request)
        if body is None:
            return self._put_off(account, "too many bodies at once")
        push = Push(
            account,
            request.method,
            request.scope["query_string"].decode("latin-1"),
            {name.lower(): value for name, value in request.headers.items()},
            body,
            self._now_s(),
        )
        try:
            parsed = source.parser.parse(push, source.options)
        except RefusedPush as exc:
            return self._refused(account, exc)
        return await self._kept(account, parsed)

    async def _body(self, request: AnyRequest) -> bytes | None:
        """Returns the whole body; None where too much is being read. Raises HTTPException over MAX_BODY."""
        parts: list[bytes] = []
        held = 0
        try:
            async for part in request.stream():
                if not self._budget.take(len(part)):
                    return None
                held += len(part)
                parts.append(part)
            return b"".join(parts)
        finally:
            self._budget.give_back(held)

    async def _kept(self, account: str, parsed: Parsed) -> Response[bytes]:
        self._metrics.unreadable.labels(account).inc(parsed.unreadable)
        if parsed.unreadable:
            self._complain(account, "entries_unreadable", entries=parsed.unreadable)
        try:
            await self._intake.keep(parsed.receipts)
        except (LedgerError, Full) as exc:
            return self._put_off(account, str(exc) or "too many wait")
        self._metrics.pushes.labels(account, "200").inc()
        return Response(parsed.answer, media_type=parsed.media_type)

    def _refused(self, account: str, refused: RefusedPush) -> Response[bytes]:
        status = next(code for kind, code in _STATUSES if isinstance(refused, kind))
        self._metrics.pushes.labels(account, str(status)).inc()
        self._complain(account, "push_refused", status=status, cause=str(refused))
        return _said(status, str(refused))

    def _put_off(self, account: str, cause: str) -> Response[bytes]:
        self._complain(account, "receipts_put_off", cause=cause)
        self._metrics.pushes.labels(account, "503").inc()
        return _said(503, "come again", {"Retry-After": _COME_AGAIN_S})

    def _complain(self, account: str, event: str, **fields: object) -> None:
        """Logs at most once a minute for each account and event: strangers cause the calls."""
        now, key = self._monotonic(), f"{account}/{event}"
        if now - self._complained.get(key, float("-inf")) >= _COMPLAIN_S:
            self._complained[key] = now
            log.warning(event, account=account, **fields)


def build_app(
    endpoint: ReceiptEndpoint,
    matcher: Matcher,
    metrics: ReceiptMetrics,
    monotonic: Callable[[], float] = time.monotonic,
) -> Litestar:
    """Returns the ASGI application."""

    @route("/receipts/{account:str}", http_method=["GET", "POST"], status_code=200)
    async def receipts(request: AnyRequest) -> Response[bytes]:
        return await endpoint.receive(request.path_params["account"], request)

    @route("/healthz", http_method=_READ, status_code=200, sync_to_thread=False)
    def healthz() -> Response[bytes]:
        age = monotonic() - matcher.beat
        stuck = age > STUCK_AFTER_S and not matcher.away
        return _json(503 if stuck else 200, {"matcher_age_s": round(age, 3), "stuck": stuck})

    @route("/readyz", http_method=_READ, status_code=200, sync_to_thread=False)
    def readyz() -> Response[bytes]:
        return _json(503 if matcher.away else 200, {"reason": matcher.away or None})

    @route("/metrics", http_method=_READ, status_code=200, sync_to_thread=True)
    def show() -> Response[bytes]:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return Litestar(
        route_handlers=[receipts, healthz, readyz, show],
        openapi_config=None,
        logging_config=None,
        request_max_body_size=MAX_BODY,
        exception_handlers={HTTPException: _http_error, Exception: _bug},
    )


def _http_error(_request: AnyRequest, exc: HTTPException) -> Response[bytes]:
    return _said(exc.status_code, exc.detail)


def _bug(_request: AnyRequest, exc: Exception) -> Response[bytes]:
    log.error("push_failed", exc_info=exc)
    return _said(500, "this is a fault of ours; come again")


def _said(status: int, text: str, headers: dict[str, str] | None = None) -> Response[bytes]:
    answer = _json(status, {"error": text})
    answer.headers.update(headers or {})
    return answer


def _json(status: int, value: object) -> Response[bytes]:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")
