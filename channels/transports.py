"""One sender for all providers: the request's scheme chooses the transport.

    http, https    channels/http_client/transport.py
    h2c, h2        channels/http2_client/transport.py, for providers that speak HTTP/2 alone
    smtp, smtps    channels/smtp_client/transport.py

The first call opens a transport: a worker without e-mail opens none for mail.
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
    """A transport that can be closed."""

    @property
    def beat(self) -> float:
        """The oldest last pass of its loops, monotonic."""

    def send(self, request: httpx.Request) -> httpx.Response | Failure:
        """Makes one call on the wire. Raises BadRequest alone."""

    def begin(
        self, request: httpx.Request, done: Callable[[LeanResponse | Failure], None]
    ) -> httpx.Response | Failure | None:
        """As `send`. Returns None if another thread waits for the answer; that thread calls `done`."""

    def close(self) -> None:
        """Closes every connection. Idempotent."""


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
        """By scheme; `_opened_for` writes it under `_opening`, any thread reads it without."""
        self._opening = threading.Lock()
        self._opened = ExitStack()
        self._closed = False
        """`close` writes it under `_opening`: nothing is opened afterwards."""

    def send(self, request: httpx.Request) -> httpx.Response | Failure:
        """Makes one call with its scheme's transport. Raises BadRequest alone: then nothing was sent."""
        wire = self._for(request)
        return _CLOSED if wire is None else wire.send(request)

    def begin(
        self, request: httpx.Request, done: Callable[[LeanResponse | Failure], None]
    ) -> httpx.Response | Failure | None:
        """As the transport's own `begin`."""
        wire = self._for(request)
        return _CLOSED if wire is None else wire.begin(request, done)

    @property
    def beat(self) -> float:
        """The oldest last pass among the transports' loops, monotonic; now if none is open."""
        return min((wire.beat for wire in list(self._open.values())), default=monotonic())

    def close(self) -> None:
        """Closes the transports that were opened. Idempotent."""
        with self._opening:
            self._closed = True
            self._opened.close()

    def _for(self, request: httpx.Request) -> ProviderTransport | None:
        scheme = request.url.scheme
        return self._open.get(scheme) or self._opened_for(scheme)

    def _opened_for(self, scheme: str) -> ProviderTransport | None:
        """Returns the scheme's transport, opened if need be; None once closed. Raises BadRequest."""
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
