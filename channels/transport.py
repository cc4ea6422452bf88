"""The one transport: httpx's interface over libcurl, called directly on the send path of every lane.

`send` answers with a value, whatever happens: a Response, or a Failure that says whether the
provider may have acted on the request. `handle_request` is the same for an `httpx.Client` mounted on
it (tokens, queries), and raises TransportFailure instead. Why libcurl:
docs/decisions/020-transport.md.

`request.extensions` it reads: `timeout` (`total` and `connect` in seconds; `total` covers the whole
call, from resolving to the last byte) and `ca_file` (a PEM file of authorities to trust beside the
public ones).
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from time import monotonic
from typing import Any, Final, NamedTuple

import httpx

from channels.answer import Answer
from channels.channel import Failure, Phase
from channels.curl import Handle
from channels.failures import BadRequest, TransportFailure
from channels.tls import Trust

DEFAULT_TIMEOUT_S: Final = 30.0
DEFAULT_IDLE_S: Final = 60.0


class Origin(NamedTuple):
    """What calls must share to share a connection."""

    scheme: str
    netloc: bytes
    ca_file: str


class Transport(httpx.BaseTransport):
    """Safe from any number of threads. One kept-alive connection per call in flight and origin.

    Idle handles lie on a stack per origin: the hottest connection is used first, and what a burst
    left over grows cold at the bottom, where the janitor closes it after `idle_s`. No handle belongs
    to a thread, so a thread that ends leaves none behind.
    """

    def __init__(
        self,
        *,
        ca_bundle: str = "",
        proxy: str = "",
        idle_s: float = DEFAULT_IDLE_S,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._trust = Trust(ca_bundle)
        self._proxy = proxy
        self._idle_s = idle_s
        self._clock = clock
        self._idle: defaultdict[Origin, deque[Handle]] = defaultdict(deque)
        self._closed = threading.Event()
        self._janitor: threading.Thread | None = None
        self._starting = threading.Lock()

    def send(self, request: httpx.Request) -> Answer | Failure:
        """One call on the wire, never two. Raises only BadRequest, and then nothing was sent."""
        if self._closed.is_set():
            return Failure(Phase.NOT_WRITTEN, "closed", "the transport is closed")
        extensions = request.extensions
        origin = Origin(request.url.scheme, request.url.netloc, extensions.get("ca_file", ""))
        try:
            handle = self._take(origin)
        except OSError as exc:
            return Failure(Phase.NOT_WRITTEN, "tls", f"the CA file cannot be read: {exc}")
        try:
            return handle.perform(request, *_timeouts(extensions.get("timeout")))
        finally:
            self._give_back(origin, handle)

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
        """Close every idle connection; those in use close when their call ends. Idempotent."""
        self._closed.set()
        self._discard(lambda _: True)
        self._trust.close()

    @property
    def idle(self) -> int:
        """Kept-alive connections that no call is using."""
        return sum(len(handles) for handles in list(self._idle.values()))

    def sweep(self) -> None:
        """Close what has been idle for too long; the janitor calls it, and so may anyone."""
        oldest = self._clock() - self._idle_s
        self._discard(lambda handle: handle.used_at < oldest)

    def _take(self, origin: Origin) -> Handle:
        try:
            return self._idle[origin].pop()
        except IndexError:
            bundle = self._trust.with_extra(origin.ca_file)
            return Handle(bundle, proxy=self._proxy, idle_s=self._idle_s, clock=self._clock)

    def _give_back(self, origin: Origin, handle: Handle) -> None:
        self._idle[origin].append(handle)
        if self._closed.is_set():
            self._discard(lambda _: True)
        elif self._janitor is None:
            self._start_janitor()

    def _discard(self, cold: Callable[[Handle], bool]) -> None:
        """Close handles from the cold end. A deque's own operations are atomic: no lock needed."""
        for handles in list(self._idle.values()):
            while (handle := _pop_left(handles)) is not None:
                if not cold(handle):
                    handles.appendleft(handle)
                    break
                handle.close()

    def _start_janitor(self) -> None:
        with self._starting:
            if self._janitor is None:
                self._janitor = threading.Thread(
                    target=self._keep_house, name="transport-janitor", daemon=True
                )
                self._janitor.start()

    def _keep_house(self) -> None:
        while not self._closed.wait(self._idle_s / 2):
            self.sweep()


def _pop_left(handles: deque[Handle]) -> Handle | None:
    try:
        return handles.popleft()
    except IndexError:
        return None


def _timeouts(timeout: dict[str, Any] | None) -> tuple[float, float]:
    """Total and connect, in seconds; of httpx's own four, reading is the nearest to a total."""
    if not timeout:
        return DEFAULT_TIMEOUT_S, DEFAULT_TIMEOUT_S
    total = timeout.get("total") or timeout.get("read") or DEFAULT_TIMEOUT_S
    return total, timeout.get("connect") or total
