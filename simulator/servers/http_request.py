"""One request as the simulator's servers hand it on, whichever version of HTTP it came by."""

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
        """Header fields as they came, but for the Idempotency-Key's place in `key`."""
        self.body = b""
        self.version = "1.1"
        """Of HTTP: `1.1`, whatever an earlier one is called, or `2`."""
        self.connection: object = None
        """What tells its HTTP/2 connection from others; None for HTTP/1.1."""

    @property
    def path(self) -> str:
        """The target before its query, as it came."""
        return self.target.partition(b"?")[0].decode("latin-1")

    @property
    def query(self) -> str:
        """The target after its path, as it came."""
        return self.target.partition(b"?")[2].decode("latin-1")

    def field(self, name: str) -> str:
        """A header field by its lower-case name; empty where there is none, the first of several."""
        wanted = name.encode("latin-1")
        found = (value for given, value in self.fields if given.lower() == wanted)
        return next(found, b"").decode("latin-1")


class RequestClient(Protocol):
    """Whoever made one request, and takes its answer: a connection, or a stream of one."""

    def answer(self, status: int, body: bytes, retry_after: str = "", fields: Fields = ()) -> None:
        """Write the whole answer; nothing happens once the client is gone."""
        ...

    def drip(self, status: int, body: bytes, fields: Fields, pause_s: float) -> None:
        """Write an answer a byte at a time."""
        ...

    def close(self) -> None:
        """End it in order, without an answer."""
        ...

    def reset(self) -> None:
        """End it out of order."""
        ...


class Handler(Protocol):
    """What serves requests; it answers through the client, now or later or never."""

    def __call__(self, connection: RequestClient, request: Request) -> None: ...


class Carrier(Protocol):
    """The connection that a session of HTTP/2 runs over."""

    def write(self, data: bytes) -> bool:
        """Sends the bytes; False once the connection is closed."""
        ...

    def rest(self) -> None:
        """Nothing is under way."""
        ...

    def close(self) -> None:
        """Closes it."""
        ...
