"""The business's side of a check: one question in, one reply out; for WSGI, ASGI and any other server.

    handler = CheckHandler({"order": barrier.decide}, secrets=[SECRET])
    app.mount("/hongyan/check", handler.asgi)           # Starlette, FastAPI: the url is …/hongyan/check/
    status, body = handler.answer(query, headers)       # any server

An error of the business's function is status 503, never a decision.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from time import time
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs

from hongyan_client.lookback.errors import BadIdentity, LookupFailed, NotSigned
from hongyan_client.lookback.identity import TransactionRef, checked
from hongyan_client.lookback.signature import QuestionVerifier
from hongyan_client.lookback.transaction_state import StateReply, TransactionState

log = logging.getLogger("hongyan_client")

Lookup = Callable[[TransactionRef], StateReply]
"""Returns the state of a transaction: `Barrier.decide`, or the business's own."""
OK: Final = 200
_BAD: Final = 400
_REFUSED: Final = 401
_AWAY: Final = 503
_REASONS: Final = {OK: "OK", _BAD: "Bad Request", _REFUSED: "Unauthorized"} | {
    _AWAY: "Service Unavailable"
}
_TYPE: Final = "application/json"


class HttpReply(NamedTuple):
    """Status and JSON body."""

    status: int
    body: bytes


class CheckHandler:
    """Answers the questions of the look-back service. Safe from any thread."""

    def __init__(
        self,
        lookups: Mapping[str, Lookup],
        secrets: Sequence[str],
        now: Callable[[], float] = time,
    ) -> None:
        """`lookups`: by business type. `secrets`: those that questions may be signed with; an empty
        sequence answers unsigned questions too, for networks that let nobody else in."""
        self._lookups = dict(lookups)
        self._verifier = QuestionVerifier(secrets, now) if secrets else None

    def reply_to(self, ref: TransactionRef, headers: Mapping[str, str]) -> StateReply:
        """Returns the state of a transaction. Raises NotSigned, BadIdentity, LookupFailed."""
        if self._verifier is not None:
            self._verifier.verify(headers, ref)
        lookup = self._lookups.get(checked(ref).biz_type)
        if lookup is None:
            return StateReply(
                TransactionState.UNKNOWN, ref.biz_id, "no check for this business type"
            )
        try:
            return _reply_in(lookup(ref))
        except Exception as exc:  # the business's own function: anything may come out of it
            log.exception("the check of a %s transaction failed", ref.biz_type)
            raise LookupFailed(f"the check failed ({type(exc).__name__})") from exc

    def answer(self, query: str, headers: Mapping[str, str]) -> HttpReply:
        """Returns the answer to `GET …?biz_type&biz_id&tx_id`. Never raises."""
        try:
            reply = self.reply_to(_ref_of(query), headers)
        except BadIdentity as exc:
            return _error(_BAD, exc)
        except NotSigned as exc:
            return _error(_REFUSED, exc)
        except LookupFailed as exc:
            return _error(_AWAY, exc)
        return HttpReply(OK, json.dumps(reply.fields()).encode())

    def wsgi(
        self, environ: Mapping[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """The handler as a WSGI application."""
        headers = {
            name[len("HTTP_") :].replace("_", "-"): value
            for name, value in environ.items()
            if name.startswith("HTTP_")
        }
        found = self.answer(environ.get("QUERY_STRING", ""), headers)
        fields = [("Content-Type", _TYPE), ("Content-Length", str(len(found.body)))]
        start_response(f"{found.status} {_REASONS[found.status]}", fields)
        return [found.body]

    async def asgi(
        self,
        scope: Mapping[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        """The handler as an ASGI application; the lookup runs in a thread."""
        if scope["type"] != "http":
            raise RuntimeError(f"the check answers HTTP alone, not {scope['type']}")
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        query = scope["query_string"].decode("latin-1")
        found = await asyncio.to_thread(self.answer, query, headers)
        fields = [(b"content-type", _TYPE.encode()), (b"content-length", b"%d" % len(found.body))]
        await send({"type": "http.response.start", "status": found.status, "headers": fields})
        await send({"type": "http.response.body", "body": found.body})


def _reply_in(found: object) -> StateReply:
    """Returns what a lookup returned. Raises TypeError for anything but a StateReply."""
    if not isinstance(found, StateReply) or not isinstance(found.state, TransactionState):
        raise TypeError(f"a check returns a StateReply with a TransactionState, not {found!r:.80}")
    return found


def _ref_of(query: str) -> TransactionRef:
    """Returns the names of a query. Raises BadIdentity unless each is given once."""
    try:
        found = parse_qs(query, keep_blank_values=True, max_num_fields=16)
    except ValueError as exc:
        raise BadIdentity(f"the query cannot be read ({exc})") from exc
    values = [found.get(field, []) for field in TransactionRef._fields]
    if any(len(one) != 1 for one in values):
        raise BadIdentity("give biz_type, biz_id and tx_id, each of them once")
    return checked(TransactionRef(*(one[0] for one in values)))


def _error(status: int, exc: Exception) -> HttpReply:
    return HttpReply(status, json.dumps({"error": str(exc)}).encode())
