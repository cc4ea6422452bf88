"""The transport for providers that speak HTTP/2 alone: many calls at once over one connection an origin.

As channels/http_client/transport.py it always returns a value, which says whether the provider may have
acted on the request; it reads the same `request.extensions`. channels/http2_client/connection.py knows the
written bytes. https (or h2) agrees on HTTP/2 by ALPN; http (or h2c) speaks it at once ("prior knowledge",
RFC 9113 §3.3), for a simulator on loopback.

`extensions["login"]`: only calls of the same login share a connection. Apple takes the tokens of one key
over one connection ("Handling notification responses from APNs", UnrelatedKeyIdInToken; read 2026-11-22).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic
from typing import Final

import httpx

from channels.channel import Failure, Phase
from channels.endpoints import HTTP, HTTP_2, over_http
from channels.http2_client.connection import Http2Connection
from channels.http2_client.reader import Http2Reader
from channels.http2_client.stream import Stream
from channels.http_client.dialer import Dialer
from channels.http_client.failures import BadRequest
from channels.http_client.response import LeanResponse
from channels.http_client.transport import timeouts
from channels.tls.context import CaBundles, TlsPeer
from channels.tls.tls_socket import TlsWire

DEFAULT_IDLE_S: Final = 900.0
"""Apple asks to keep connections open, and takes many short ones for an attack."""
_ALPN: Final = "h2"
_SECURED: Final = ("https", "h2")
_TRIES: Final = 3
"""Retired connections that a call meets before it gives up; nothing was written on any."""
_SCHEMES: Final = (*HTTP, *HTTP_2)


class _Route:
    """The connection to one origin. `_opened` writes its fields under `lock`, but for `peer`."""

    def __init__(self, peer: TlsPeer | None) -> None:
        self.peer = peer
        self.lock = threading.Lock()
        self.connection: Http2Connection | None = None
        self.failures = 0
        """Failed tries, and the failure of the last."""
        self.failed: Failure | None = None


class Http2Transport:
    """Safe from any number of threads."""

    def __init__(
        self,
        *,
        ca_bundle: str = "",
        proxy: str = "",
        idle_s: float = DEFAULT_IDLE_S,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._trust = CaBundles(ca_bundle, [_ALPN])
        self._dialer = Dialer(proxy=proxy)
        self._clock = clock
        self._routes: dict[tuple[str, bytes, str, str], _Route] = {}
        """By scheme, host with port, CA file and login: calls that share a connection agree in them."""
        self._reader = Http2Reader(idle_s)
        self._closed = threading.Event()

    def send(self, request: httpx.Request) -> LeanResponse | Failure:
        """Makes one call on the wire, never two. Raises only BadRequest: then nothing was sent."""
        results: SimpleQueue[LeanResponse | Failure] = SimpleQueue()
        known = self.begin(request, results.put)
        return results.get() if known is None else known

    def begin(
        self, request: httpx.Request, done: Callable[[LeanResponse | Failure], None]
    ) -> LeanResponse | Failure | None:
        """As `send`, without waiting for the answer: the thread that reads answers calls `done`, which must
        not wait. A result known at once is returned, and `done` is not called."""
        if request.url.scheme not in _SCHEMES:
            raise BadRequest(f"HTTP/2 does not serve {request.url.scheme}://")
        total_s, connect_s = timeouts(request.extensions.get("timeout"))
        stream = Stream(request, total_s, done)
        try:
            route = self._route(request)
        except OSError as exc:
            return Failure(Phase.NOT_WRITTEN, "tls", f"the CA file cannot be read: {exc}")
        for _ in range(_TRIES):
            connection = self._connection(route, stream, connect_s)
            if isinstance(connection, Failure):
                return connection
            begun = connection.begin(stream)
            self._reader.begun(connection)
            if not isinstance(begun, bool):
                return begun
            if begun:
                return None
        return Failure(Phase.NOT_WRITTEN, "closed", "each connection was retired at once")

    def close(self) -> None:
        """Closes every connection, once the calls on it have ended. Idempotent."""
        self._closed.set()
        self._reader.close()

    @property
    def beat(self) -> float:
        """Time of the last pass of the thread that reads answers, monotonic; now while it is idle."""
        return self._reader.beat

    def _route(self, request: httpx.Request) -> _Route:
        """Returns the origin's route. Raises OSError for a CA file that cannot be read."""
        url, extensions = request.url, request.extensions
        ca_file = extensions.get("ca_file", "")
        origin = (url.scheme, url.netloc, ca_file, extensions.get("login", ""))
        route = self._routes.get(origin)
        if route is None:
            peer = None
            if url.scheme in _SECURED:
                host = url.raw_host.decode("ascii").rstrip(".")
                peer = TlsPeer(self._trust.context(ca_file), host)
            route = self._routes.setdefault(origin, _Route(peer))
        return route

    def _connection(
        self, route: _Route, stream: Stream, connect_s: float
    ) -> Http2Connection | Failure:
        """Returns the origin's connection. One thread opens it, while others wait for its result."""
        connection = route.connection
        if connection is not None and connection.usable:
            return connection
        awaited = route.failures
        left_s = min(connect_s, stream.deadline - monotonic())
        if left_s <= 0 or not route.lock.acquire(timeout=left_s):
            return Failure(Phase.NOT_WRITTEN, "timeout", "no connection was opened in time")
        try:
            if route.connection is not None and route.connection.usable:
                return route.connection
            if route.failed is not None and route.failures > awaited:
                return route.failed  # of the try that this call waited for
            return self._opened(route, stream, connect_s)
        finally:
            route.lock.release()

    def _opened(self, route: _Route, stream: Stream, connect_s: float) -> Http2Connection | Failure:
        if self._closed.is_set():
            return Failure(Phase.NOT_WRITTEN, "closed", "the transport is closed")
        left_s = max(stream.deadline - monotonic(), 0.0)
        made = self._dialled(route, over_http(stream.request.url), left_s, min(connect_s, left_s))
        if isinstance(made, Failure):
            route.failures += 1
            route.failed = made
        else:
            route.connection = made
        return made

    def _dialled(
        self, route: _Route, url: httpx.URL, left_s: float, connect_s: float
    ) -> Http2Connection | Failure:
        wire = self._dialer.open(url, left_s, connect_s, route.peer)
        if isinstance(wire, Failure):
            return wire
        if isinstance(wire, TlsWire) and wire.protocol != _ALPN:
            wire.close()
            return Failure(Phase.NOT_WRITTEN, "protocol", "the provider does not speak HTTP/2")
        connection = Http2Connection(wire, clock=self._clock)
        if not self._reader.add(connection):
            connection.give_up("closed", "the transport is closed")
            connection.release()
            return Failure(Phase.NOT_WRITTEN, "closed", "the transport is closed")
        return connection
