"""The transport for HTTP/1.1: httpx's interface over libcurl, called directly by every lane.

`send` always returns a value: a Response, or a Failure that says whether the provider may have acted on the
request. `begin` does not wait: one thread reads the answers of all calls
(channels/http_client/answer_reader.py). `handle_request` is `send` for an `httpx.Client` mounted on it
(tokens, queries), and raises TransportFailure instead. The reasons for libcurl:
docs/decisions/020-transport.md.

It reads from `request.extensions`: `timeout` (`total` and `connect` in seconds; `total` covers the whole
call, from resolving to the last byte), `ca_file` (a PEM file of authorities to trust beside the public
ones) and `not_after` (monotonic; no first byte leaves later).
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, Final, NamedTuple

import httpx

from channels.channel import Failure, Phase
from channels.http_client.answer_reader import AnswerReader
from channels.http_client.connection import Connection
from channels.http_client.dialer import Dialer
from channels.http_client.exchange import Exchange
from channels.http_client.failures import BadRequest, TransportFailure
from channels.http_client.response import LeanResponse
from channels.idle_pool import IdlePool
from channels.tls.context import CaBundles, TlsPeer

DEFAULT_TIMEOUT_S: Final = 30.0
MAX_TIMEOUT_S: Final = 86_400.0
DEFAULT_IDLE_S: Final = 60.0


Origin = tuple[str, bytes, str]
"""Scheme, host with port, CA file: calls with the same origin may share a connection."""


class _Begun(NamedTuple):
    """A call whose request is written, and its connection."""

    origin: Origin
    connection: Connection
    exchange: Exchange


class Transport(httpx.BaseTransport):
    """Thread-safe. One kept-alive connection per call in flight and origin."""

    def __init__(
        self,
        *,
        ca_bundle: str = "",
        proxy: str = "",
        idle_s: float = DEFAULT_IDLE_S,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._trust = CaBundles(ca_bundle, ["http/1.1"])
        self._peers: dict[Origin, TlsPeer] = {}
        self._dialer = Dialer(proxy=proxy)
        self._clock = clock
        self._idle: IdlePool[Origin, Connection] = IdlePool("transport-janitor", idle_s, clock)
        self._answers = AnswerReader()

    def send(self, request: httpx.Request) -> LeanResponse | Failure:
        """Makes one call on the wire, never two. Raises only BadRequest: then nothing was sent."""
        begun = self._begin(request)
        return begun if isinstance(begun, Failure) else self._wait(begun)

    def begin(
        self, request: httpx.Request, done: Callable[[LeanResponse | Failure], None]
    ) -> LeanResponse | Failure | None:
        """As `send`, without waiting for the answer: the thread that reads answers calls `done`, which must
        not wait. A result known at once is returned, and `done` is not called."""
        begun = self._begin(request)
        if isinstance(begun, Failure):
            return begun

        def ended(answer: LeanResponse | Failure) -> None:
            try:
                self._give_back(begun)
            finally:
                done(answer)

        return None if self._answers.add(begun.exchange, ended) else self._wait(begun)

    def _begin(self, request: httpx.Request) -> _Begun | Failure:
        """Writes the request over a connection. The thread that ends the call gives the connection back."""
        if self._idle.closed.is_set():
            return Failure(Phase.NOT_WRITTEN, "closed", "the transport is closed")
        url, extensions = request.url, request.extensions
        origin = (url.scheme, url.netloc, extensions.get("ca_file", ""))
        try:
            connection = self._idle.take(origin) or Connection(
                self._dialer, self._peer(origin), clock=self._clock
            )
        except OSError as exc:
            return Failure(Phase.NOT_WRITTEN, "tls", f"the CA file cannot be read: {exc}")
        exchange: Exchange | Failure | None = None
        try:
            exchange = connection.begin(request, *timeouts(extensions.get("timeout")))
        finally:
            if not isinstance(exchange, Exchange):
                self._idle.put(origin, connection)
        return exchange if isinstance(exchange, Failure) else _Begun(origin, connection, exchange)

    def _wait(self, begun: _Begun) -> LeanResponse | Failure:
        try:
            return begun.exchange.wait()
        finally:
            self._give_back(begun)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """`send` for httpx: raises TransportFailure, or LocalProtocolError for a BadRequest."""
        try:
            answer = self.send(request)
        except BadRequest as exc:
            raise httpx.LocalProtocolError(str(exc), request=request) from exc
        if isinstance(answer, Failure):
            raise TransportFailure(answer, request)
        return answer

    def close(self) -> None:
        """Closes every idle connection; those in use close when their call ends. Idempotent."""
        self._idle.close()
        self._answers.close()

    @property
    def beat(self) -> float:
        """Time of the last pass of the thread that reads answers, monotonic; now while it is idle."""
        return self._answers.beat

    @property
    def idle(self) -> int:
        """Number of kept-alive connections that no call is using."""
        return self._idle.size

    def sweep(self) -> None:
        """Closes connections that were idle for too long; the janitor calls it, and any thread may."""
        self._idle.sweep()

    def _peer(self, origin: Origin) -> TlsPeer | None:
        """Returns the origin's peer, for TLS alone. Raises OSError for a CA file that cannot be read."""
        scheme, netloc, ca_file = origin
        if scheme != "https":
            return None
        peer = self._peers.get(origin)
        if peer is None:
            host = httpx.URL(scheme=scheme, netloc=netloc).raw_host.decode("ascii").rstrip(".")
            peer = self._peers.setdefault(origin, TlsPeer(self._trust.context(ca_file), host))
        return peer

    def _give_back(self, begun: _Begun) -> None:
        self._idle.put(begun.origin, begun.connection)


def timeouts(timeout: dict[str, Any] | None) -> tuple[float, float]:
    """Returns total and connect, in seconds; of httpx's four timeouts `read` is the nearest to a total."""
    if not timeout:
        return DEFAULT_TIMEOUT_S, DEFAULT_TIMEOUT_S
    total = timeout.get("total") or timeout.get("read") or DEFAULT_TIMEOUT_S
    total = min(total, MAX_TIMEOUT_S)
    return total, min(timeout.get("connect") or total, total)
