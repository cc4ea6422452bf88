"""Reads the bodies of POSTs, which are bounded each, for each key, and all together."""

from __future__ import annotations

from typing import Any, Final

from litestar import Request
from litestar.exceptions import InternalServerException

from backends.http_server.connection_limits import MOST_BODY_BYTES, BodyBudget
from producer.gateway.envelope_limits import too_large
from producer.gateway.problems import COME_AGAIN_S, GatewayProblem, not_now

MOST_OF_A_KEY: Final = MOST_BODY_BYTES // 4
"""Bytes of the bodies of one key that are read at once: slow ones of one key keep nobody else out."""


JSON: Final = "application/json"


class KeyBodies:
    """Bytes of bodies that are being read. Belongs to the event loop's thread."""

    def __init__(self, most: int = MOST_BODY_BYTES, most_of_a_key: int = MOST_OF_A_KEY) -> None:
        self._all = BodyBudget(most)
        self._most_of_a_key = most_of_a_key
        self._held: dict[str, int] = {}
        """Bytes by key; keys without a body under way have no entry."""

    def take(self, key_id: str, size: int) -> None:
        """Reserves `size` bytes. Raises GatewayProblem with Retry-After if there is no room."""
        held = self._held.get(key_id, 0) + size
        if held > self._most_of_a_key:
            detail = f"bodies of this key under way have {self._most_of_a_key:,} bytes at most"
            raise GatewayProblem(429, "rate_limited", detail, retry_after_s=COME_AGAIN_S)
        if not self._all.take(size):
            raise not_now("too many bodies at once")
        self._held[key_id] = held

    def give_back(self, key_id: str, size: int) -> None:
        """Frees `size` bytes."""
        self._all.give_back(size)
        left = self._held.get(key_id, 0) - size
        if left > 0:
            self._held[key_id] = left
        else:
            self._held.pop(key_id, None)


async def read_body(
    request: Request[Any, Any, Any], key_id: str, most: int, bodies: KeyBodies
) -> bytes:
    """Returns the whole body. Raises GatewayProblem for another kind of body, over the limits, and if the
    client goes away."""
    _check_kind(
        request.headers.get("content-type", JSON), request.headers.get("content-encoding", "")
    )
    parts: list[bytes] = []
    held = 0
    try:
        async for part in request.stream():
            if held + len(part) > most:
                raise body_too_large(most)
            bodies.take(key_id, len(part))
            held += len(part)
            parts.append(part)
        return b"".join(parts)
    except InternalServerException as exc:  # Litestar's word for it
        raise GatewayProblem(
            499, "client_gone", "the client went away before its body ended"
        ) from exc
    finally:
        bodies.give_back(key_id, held)


def _check_kind(content_type: str, encoding: str) -> None:
    if content_type.partition(";")[0].strip().lower() != JSON:
        raise GatewayProblem(415, "not_json", f"send {JSON}")
    if encoding.strip().lower() not in ("", "identity"):
        detail = "a compressed body is not taken: send it without Content-Encoding"
        raise GatewayProblem(415, "encoded", detail)


def body_too_large(most: int) -> GatewayProblem:
    """Returns the 413 of a body."""
    return too_large(f"the body has more than {most:,} bytes")
