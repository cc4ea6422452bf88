"""One sender for all providers: the request's scheme chooses the transport.

    http, https    channels/http_client/transport.py
    h2c, h2        channels/http2_client/transport.py, for providers that speak HTTP/2 alone
    smtp, smtps    channels/smtp_client/transport.py

Each is opened with its first call, so that a worker without e-mail has nothing of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from time import monotonic
from typing import Final, Protocol

import httpx

from channels.channel import Failure, Phase
from channels.endpoints import HTTP, HTTP_2
from channels.http2_client.transport import Http2Transport
from channels.http_client.failures import BadRequest
from channels.http_client.response import LeanResponse
from channels.http_client.transport import Transport
from channels.smtp_client.mail_request import SCHEMES
from channels.smtp_client.transport import SmtpTransport

_CLOSED: Final = Failure(Phase.NOT_WRITTEN, "closed", "the transports are closed")


class ProviderTransport(Protocol):
    """A transport that is closed when nobody needs it any more."""

    @property
    def beat(self) -> float:
        """When the loop that it has last went round, monotonic."""
        ...

    def send(self, request: httpx.Request) -> httpx.Response | Failure:
        """One call on the wire; raises BadRequest alone."""
        ...

    def begin(
        self, request: httpx.Request, done: Callable[[LeanResponse | Failure], None]
    ) -> httpx.Response | Failure | None:
        """As `send`; None where the answer is waited for by another thread, and `done` told there."""
        ...

    def close(self) -> None:
        """Let go of every connection. Idempotent."""
        ...


class TransportRouter:
    """Safe from any number of threads."""

    def __init__(
        self,
        http: Callable[[], ProviderTransport] = Transport,
        mail: Callable[[], ProviderTransport] = SmtpTransport,
        http2: Callable[[], ProviderTransport] = Http2Transport,
    ) -> None:
        self._makers = {
            **dict.fromkeys(HTTP, http),
            **dict.fromkeys(SCHEMES, mail),
            **dict.fromkeys(HTTP_2, http2),
        }
        self._open: dict[str, ProviderTransport] = {}
        """By scheme; written under the lock, read without it."""
        self._opening = threading.Lock()
        self._opened = ExitStack()
        self._closed = False
        """Written under the lock: nothing is opened behind `close`."""

    def send(self, request: httpx.Request) -> httpx.Response | Failure:
        """One call on the wire of its scheme; raises BadRequest alone, and then nothing was sent."""
        wire = self._for(request)
        return _CLOSED if wire is None else wire.send(request)

    def begin(
        self, request: httpx.Request, done: Callable[[LeanResponse | Failure], None]
    ) -> httpx.Response | Failure | None:
        """As `send`, and as the transport's own `begin`."""
        wire = self._for(request)
        return _CLOSED if wire is None else wire.begin(request, done)

    @property
    def beat(self) -> float:
        """When the loop that went round least lately did, monotonic; now, where there is none."""
        return min((wire.beat for wire in list(self._open.values())), default=monotonic())

    def close(self) -> None:
        """Close what was opened. Idempotent."""
        with self._opening:
            self._closed = True
            self._opened.close()

    def _for(self, request: httpx.Request) -> ProviderTransport | None:
        scheme = request.url.scheme
        return self._open.get(scheme) or self._opened_for(scheme)

    def _opened_for(self, scheme: str) -> ProviderTransport | None:
        """The scheme's transport, opened now if need be; None once all are closed."""
        maker = self._makers.get(scheme)
        if maker is None:
            raise BadRequest(f"there is no transport for {scheme}://")
        with self._opening:
            if scheme in self._open or self._closed:
                return self._open.get(scheme)
            wire = maker()
            self._opened.callback(wire.close)
            self._open.update({name: wire for name, made in self._makers.items() if made is maker})
            return wire
