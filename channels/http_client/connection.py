"""One connection for one call at a time. libcurl opens it (channels/http_client/dialer.py).

Our own code writes the request (channels/http_client/exchange.py): only the writer knows the written bytes.
The differences of libcurl's own HTTP, and their cost: docs/decisions/020-transport.md.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import httpx
import pycurl

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
        peer: TlsPeer | None = None,
        *,
        proxy: str = "",
        names: pycurl.CurlShare | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`peer`: for https. `proxy`: by http alone. `names`: of all connections of the transport."""
        self.used_at = 0.0
        """Monotonic; `_ended` writes it, the transport's janitor reads it."""
        self._clock = clock
        self._wire: Wire | None = None
        """The open connection; None: no usable one."""
        self._dialer = Dialer(peer, proxy=proxy, names=names)

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
        """Closes it for good."""
        if isinstance(self._wire, TlsWire):
            self._wire.say_goodbye()
        self._wire = None
        self._dialer.close()

    def _alive(self) -> Wire | None:
        """Returns the kept connection if it may carry a call. A readable idle connection was closed by the
        peer or holds a stray answer: it must not be reused."""
        wire = self._wire
        return wire if wire is not None and wire.silent() else None

    def _open(self, url: httpx.URL, timeout_s: float, connect_s: float) -> Wire | Failure:
        self._wire = None
        wire = self._dialer.open(url, timeout_s, connect_s)
        if not isinstance(wire, Failure):
            self._wire = wire
        return wire

    def _ended(self, clean: bool) -> None:
        """Ends the exchange; unless it ended clean, no other call goes over this wire."""
        wire = self._wire
        if not clean and wire is not None:
            self._wire = None
            wire.hang_up()
        self.used_at = self._clock()
