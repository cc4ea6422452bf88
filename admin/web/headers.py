"""Security headers of every answer."""

from __future__ import annotations

import secrets
from typing import Final

from litestar.enums import ScopeType
from litestar.status_codes import HTTP_200_OK
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from admin.web.static_files import is_asset

NONCE: Final = "nonce"
"""Key of the nonce in the scope's state."""
_POLICY: Final = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_EVERY: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
)
_HSTS: Final = (b"strict-transport-security", b"max-age=31536000")


def _kept(scope: Scope, status: int) -> bytes:
    """Returns for how long browsers keep the answer: a static file for a year, if it was asked for with the
    digest that it has here. During a change of versions another console may have been meant."""
    address = scope["path"], scope["query_string"].decode("latin-1")
    whole = status == HTTP_200_OK and is_asset(*address)
    return b"public, max-age=31536000, immutable" if whole else b"no-store"


class SecurityHeaders:
    """ASGI middleware: makes a nonce for each request, and adds the headers to its answer."""

    def __init__(self, app: ASGIApp, *, secure: bool) -> None:
        self._app = app
        self._more = (_HSTS,) if secure else ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        nonce = secrets.token_urlsafe(16)
        scope["state"][NONCE] = nonce
        policy = _POLICY.format(nonce=nonce).encode()

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message["headers"])
                names = {name.lower() for name, _ in headers}
                headers += [*_EVERY, *self._more, (b"content-security-policy", policy)]
                if b"cache-control" not in names:
                    headers.append((b"cache-control", _kept(scope, message["status"])))
                message["headers"] = headers
            await send(message)

        await self._app(scope, receive, send_with_headers)
