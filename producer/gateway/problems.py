"""Refusals of the gateway as problem+json (RFC 9457).

`type` and `code` name the kind of problem. `detail` is one sentence that says what to do.
The log gets the code alone.

    400 not_json      401 unauthenticated, key_revoked             403 scope_missing, lane_not_allowed
    404 not_found     409 in_progress      413 too_large           422 idempotency_mismatch, the envelope's
    415 not_json, encoded                  429 rate_limited        499 client_gone (for log and metric)
    500 fault         503 unavailable
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec
from litestar import Response
from litestar.status_codes import HTTP_401_UNAUTHORIZED

MEDIA_TYPE: Final = "application/problem+json"
TYPES: Final = "urn:hongyan:problem:"
COME_AGAIN_S: Final = 5
TITLES: Final = {
    400: "The request cannot be read",
    401: "No valid API key",
    403: "The API key does not have this right",
    404: "Nothing of that name",
    405: "Not a method of this path",
    409: "A request with this idempotency key is in progress",
    413: "The request is too large",
    415: "Not a kind of body that is taken",
    422: "The notification or request is refused",
    429: "Too many requests",
    499: "The client went away",
    500: "A fault of the gateway",
    503: "Not now",
}


class GatewayProblem(Exception):
    """One refusal. `retry_after_s`: seconds after which a repeat may succeed."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        path: str = "",
        retry_after_s: float | None = None,
        message_id: str = "",
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.path = path
        self.retry_after_s = retry_after_s
        self.message_id = message_id
        """Id of a notification that may be in Kafka: a repeat carries it."""

    def fields(self) -> dict[str, Any]:
        """Returns the members of the JSON object."""
        found: dict[str, Any] = {
            "type": f"{TYPES}{self.code}",
            "title": TITLES.get(self.status, "Refused"),
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
        }
        if self.path:
            found["path"] = self.path
        if self.message_id:
            found["id"] = self.message_id
        if self.retry_after_s is not None:
            found["retry_after_s"] = max(1, math.ceil(self.retry_after_s))
        return found


def answer_of(problem: GatewayProblem, headers: dict[str, str] | None = None) -> Response[bytes]:
    """Returns the HTTP answer."""
    fields, more = problem.fields(), dict(headers or {})
    if "retry_after_s" in fields:
        more["Retry-After"] = str(fields["retry_after_s"])
    if problem.status == HTTP_401_UNAUTHORIZED:
        more["WWW-Authenticate"] = 'Bearer realm="hongyan"'
    return Response(
        msgspec.json.encode(fields), status_code=problem.status, headers=more, media_type=MEDIA_TYPE
    )


def not_now(detail: str, message_id: str = "") -> GatewayProblem:
    """Returns a 503 with Retry-After."""
    return GatewayProblem(
        503, "unavailable", detail, retry_after_s=COME_AGAIN_S, message_id=message_id
    )


def keys_unknown(message_id: str = "") -> GatewayProblem:
    """Returns the 503 while nobody knows whether a key still holds."""
    return not_now("the keys cannot be checked now: the database does not answer", message_id)


def in_doubt(problem: GatewayProblem, message_id: str) -> GatewayProblem:
    """Returns the refusal of a notification that an earlier try of the same request may have sent."""
    detail = (
        f"{problem.detail}; an earlier try of this request may have reached Kafka with this id: "
        "look it up, or recall it, before you send it under another one"
    )
    return GatewayProblem(
        problem.status,
        problem.code,
        detail,
        path=problem.path,
        retry_after_s=problem.retry_after_s,
        message_id=message_id,
    )


def not_known() -> GatewayProblem:
    """Returns the 404 of a notification: one answer for an unknown one and one of other lanes."""
    return GatewayProblem(
        404,
        "not_found",
        "nothing is known of it in the lanes of this key; it is known once a worker has read it",
    )
