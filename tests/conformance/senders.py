"""The transports under one interface: ours, and httpx's own as the reference."""

from queue import SimpleQueue
from typing import Protocol

import httpx

from channels.channel import Failure, Phase
from channels.http2_client.transport import Http2Transport
from channels.http_client.response import LeanResponse
from channels.http_client.transport import Transport

TOTAL_S = 5.0
WAIT_S = 60.0
NOT_WRITTEN = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
)


class Sender(Protocol):
    """What the suite asks of a transport."""

    def send(self, request: httpx.Request) -> httpx.Response | Failure: ...

    def close(self) -> None: ...


class Reference:
    """httpx.HTTPTransport as it comes. It has no total deadline and no bound on an answer."""

    def __init__(self, _authority: str = "") -> None:
        self._transport = httpx.HTTPTransport(trust_env=False)

    def send(self, request: httpx.Request) -> httpx.Response | Failure:
        total = request.extensions["timeout"]["total"]
        request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), total)
        try:
            answer = self._transport.handle_request(request)
            answer.read()
        except httpx.TransportError as exc:
            early = isinstance(exc, NOT_WRITTEN)
            return Failure(Phase.NOT_WRITTEN if early else Phase.WRITTEN, "reference", repr(exc))
        return answer

    def close(self) -> None:
        self._transport.close()


class Unwaited(Transport):
    """Ours, its answers told by the thread that reads them all."""

    def send(self, request: httpx.Request) -> LeanResponse | Failure:
        told: SimpleQueue[LeanResponse | Failure] = SimpleQueue()
        known = self.begin(request, told.put)
        return told.get(timeout=WAIT_S) if known is None else known


def lean(authority: str = "") -> Sender:
    return Transport(ca_bundle=authority)


def unwaited(authority: str = "") -> Sender:
    return Unwaited(ca_bundle=authority)


class UnwaitedHttp2(Http2Transport):
    """HTTP/2, its answers told by the thread that reads them all."""

    def send(self, request: httpx.Request) -> LeanResponse | Failure:
        told: SimpleQueue[LeanResponse | Failure] = SimpleQueue()
        known = self.begin(request, told.put)
        return told.get(timeout=WAIT_S) if known is None else known


def http2(authority: str = "") -> Sender:
    return Http2Transport(ca_bundle=authority)


def unwaited_http2(authority: str = "") -> Sender:
    return UnwaitedHttp2(ca_bundle=authority)


def post(url: str, total_s: float = TOTAL_S, body: bytes = b'{"attempt":1}') -> httpx.Request:
    """One notification's request."""
    extensions = {"timeout": {"total": total_s}}
    return httpx.Request("POST", url, content=body, extensions=extensions)
