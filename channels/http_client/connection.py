"""One connection for one call at a time. libcurl opens it (channels/http_client/dialer.py).

Our own code writes the request (channels/http_client/exchange.py): only the writer knows the written bytes.
The differences of libcurl's own HTTP, and their cost: docs/decisions/020-transport.md.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import httpx

from channels.channel import Failure
from channels.http_client.dialer import Dialer
from channels.http_client.exchange import Exchange
from channels.http_client.sockets import Wire
from channels.http_client.wire_format import written
from channels.tls.context import TlsPeer
from channels.tls.tls_socket import TlsWire


class Connection:
    """Belongs to one call at a time; the transport's pool hands it from thread to thread.

    After a failure, or a close by the provider, the next call opens it anew.
    """

    def __init__(
        self,
        dialer: Dialer,
        peer: TlsPeer | None = None,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`peer`: for https."""
        self.used_at = 0.0
        """Monotonic; `_ended` writes it, the transport's janitor reads it."""
        self._dialer = dialer
        self._peer = peer
        self._clock = clock
        self._wire: Wire | None = None
        self._usable = False
        """Whether another call may go over the wire. The thread that ends a call writes it."""

    def begin(
        self, request: httpx.Request, timeout_s: float, connect_s: float
    ) -> Exchange | Failure:
        """Writes the whole request. Raises BadRequest: then nothing was sent."""
        data = written(request)
        deadline = monotonic() + timeout_s
        wire = self._alive() or self._open(request.url, timeout_s, connect_s)
        if isinstance(wire, Failure):
            return wire
        exchange = Exchange(request, wire, deadline - timeout_s, deadline, self._ended)
        return exchange.write(data) or exchange

    def close(self) -> None:
        """Closes it. The next call would open another one."""
        wire, self._wire = self._wire, None
        if wire is None:
            return
        if self._usable and isinstance(wire, TlsWire):
            wire.say_goodbye()
        wire.close()

    def _alive(self) -> Wire | None:
        """Returns the kept connection if it may carry a call. A readable idle connection was closed by the
        peer or holds a stray answer: it must not be reused."""
        wire = self._wire
        return wire if wire is not None and self._usable and wire.silent() else None

    def _open(self, url: httpx.URL, timeout_s: float, connect_s: float) -> Wire | Failure:
        self._usable = False
        self.close()
        wire = self._dialer.open(url, timeout_s, connect_s, self._peer)
        if not isinstance(wire, Failure):
            self._wire, self._usable = wire, True
        return wire

    def _ended(self, clean: bool) -> None:
        """Ends the exchange; unless it ended clean, no other call goes over this wire. It is closed later,
        by the thread that has the connection then: the reader of answers may still know the descriptor."""
        if not clean and self._wire is not None:
            self._usable = False
            self._wire.hang_up()
        self.used_at = self._clock()
