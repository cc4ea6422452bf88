"""One request as the simulator's servers hand it on, over any version of HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

MAX_BODY: Final = 64 << 20
Fields = Sequence[tuple[str, str]]
"""Header fields of an answer."""


class Request:
    """One request, read to its end."""

    __slots__ = ("body", "connection", "fields", "key", "method", "target", "version")

    def __init__(self) -> None:
        self.method = ""
        self.target = b""
        self.key = ""
        """The Idempotency-Key."""
        self.fields: list[tuple[bytes, bytes]] = []
        """Header fields as they came."""
        self.body = b""
        self.version = "1.1"
        """Of HTTP: `1.1` for that and any earlier one, or `2`."""
        self.connection: object = None
        """Identity of its HTTP/2 connection; None for HTTP/1.1."""

    @property
    def path(self) -> str:
        """The target before its query, as it came."""
        return self.target.partition(b"?")[0].decode("latin-1")

    @property
    def query(self) -> str:
        """The target after its path, as it came."""
        return self.target.partition(b"?")[2].decode("latin-1")

    def field(self, name: str) -> str:
        """Returns a header field by its lower-case name, the first of several; empty if there is none."""
        wanted = name.encode("latin-1")
        found = (value for given, value in self.fields if given.lower() == wanted)
        return next(found, b"").decode("latin-1")


class RequestClient(Protocol):
    """The client of one request: a connection, or a stream of one."""

    def answer(self, status: int, body: bytes, retry_after: str = "", fields: Fields = ()) -> None:
        """Writes the whole answer; does nothing once the client is gone."""

    def drip(self, status: int, body: bytes, fields: Fields, pause_s: float) -> None:
        """Writes an answer a byte at a time."""

    def close(self) -> None:
        """Ends it in order, without an answer."""

    def reset(self) -> None:
        """Ends it out of order."""


class Handler(Protocol):
    """Serves requests; answers through the client, now or later or never."""

    def __call__(self, connection: RequestClient, request: Request) -> None: ...


class Carrier(Protocol):
    """The connection that a session of HTTP/2 runs over."""

    def write(self, data: bytes) -> bool:
        """Sends the bytes. Returns False once the connection is closed."""

    def rest(self) -> None:
        """Notes that nothing is under way."""

    def close(self) -> None:
        """Closes it."""
