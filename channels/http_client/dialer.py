"""Opens connections: libcurl resolves, connects and goes through a proxy (CURLOPT_CONNECT_ONLY).

Our own code writes over them; TLS is in channels/tls/tls_socket.py. A handle of libcurl holds each
connection that it has opened until it is closed, and two descriptors more. So a handle opens one
connection, a descriptor of our own takes the socket over, and the handle is closed (docs/decisions/340).
"""

from __future__ import annotations

import os
import socket
from time import monotonic
from typing import Final

import httpx
import pycurl

from channels.channel import Failure, Phase
from channels.http_client.sockets import PlainWire, Wire
from channels.tls.context import TlsPeer
from channels.tls.tls_socket import TlsWire

_MS: Final = 1_000
_CODES: Final = {
    pycurl.E_COULDNT_RESOLVE_PROXY: "dns",
    pycurl.E_COULDNT_RESOLVE_HOST: "dns",
    pycurl.E_OPERATION_TIMEDOUT: "timeout",
}
"""Words for people; the phase does not depend on them."""


class Dialer:
    """Opens the connections of one transport. Thread-safe; keeps looked-up names for a minute."""

    def __init__(self, *, proxy: str = "") -> None:
        """`proxy`: by http alone."""
        self._proxy = proxy
        self._names = pycurl.CurlShare()
        self._names.setopt(pycurl.SH_SHARE, pycurl.LOCK_DATA_DNS)

    def open(
        self, url: httpx.URL, timeout_s: float, connect_s: float, peer: TlsPeer | None = None
    ) -> Wire | Failure:
        """Returns a new connection to the URL's host, with TLS where there is a `peer`; else a NOT_WRITTEN
        Failure."""
        started = monotonic()
        wire = self._connected(url, timeout_s, connect_s)
        if peer is None or isinstance(wire, Failure):
            return wire
        return _secured(wire, peer, started + min(timeout_s, connect_s) - monotonic())

    def _connected(self, url: httpx.URL, timeout_s: float, connect_s: float) -> PlainWire | Failure:
        curl = _easy(self._proxy)
        try:
            curl.setopt(pycurl.SHARE, self._names)
            curl.setopt(pycurl.URL, _address(url))
            curl.setopt(pycurl.TIMEOUT_MS, max(1, int(timeout_s * _MS)))
            curl.setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(connect_s * _MS)))
            curl.perform()
            return PlainWire(socket.socket(fileno=os.dup(curl.getinfo(pycurl.ACTIVESOCKET))))
        except pycurl.error as exc:
            number, message = _told(exc)
            return Failure(Phase.NOT_WRITTEN, _CODES.get(number, "connect"), message)
        except OSError as exc:  # no descriptor is left
            return Failure(Phase.NOT_WRITTEN, "connect", str(exc))
        finally:
            curl.close()


def _secured(wire: PlainWire, peer: TlsPeer, left_s: float) -> Wire | Failure:
    """Adds TLS; connecting and the handshake share their time."""
    try:
        secured = TlsWire(wire, peer)
        secured.open(left_s)
    except TimeoutError:
        wire.close()
        return Failure(Phase.NOT_WRITTEN, "timeout", "the TLS handshake did not end in time")
    except (OSError, ValueError) as exc:  # ValueError: a name that no certificate can be for
        wire.close()
        return Failure(Phase.NOT_WRITTEN, "tls", str(exc))
    return secured


def _told(exc: pycurl.error) -> tuple[int, str]:
    number, message = exc.args[0], exc.args[-1]
    return int(number), str(message)


def _address(url: httpx.URL) -> str:
    """Returns the address for libcurl, which only opens a socket: https becomes http with a port."""
    if url.scheme != "https":
        return str(url)
    port = "" if url.port else ":443"
    return f"http://{url.netloc.decode('ascii')}{port}"


def _easy(proxy: str) -> pycurl.Curl:
    """Returns a handle that connects, and takes nothing from the environment: no proxy, no netrc."""
    curl = pycurl.Curl()
    for option, value in (
        (pycurl.CONNECT_ONLY, 1),
        (pycurl.NOSIGNAL, 1),  # signals and threads do not go together
        (pycurl.PROTOCOLS, pycurl.PROTO_HTTP),
        (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
        (pycurl.PROXY, proxy),
        (pycurl.NOPROXY, ""),
        (pycurl.HTTPPROXYTUNNEL, 1),
        (pycurl.TCP_KEEPALIVE, 1),
    ):
        curl.setopt(option, value)
    return curl
