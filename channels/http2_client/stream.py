"""One call over an HTTP/2 connection: its request, its written bytes, its answer as it comes."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Final

import httpx

from channels.channel import Failure, Phase
from channels.http2_client.frames import Field, fields_of
from channels.http_client.response import LeanResponse
from channels.http_client.wire_format import MAX_BODY

Ended = Callable[[LeanResponse | Failure], None]
"""Receives the result of a call; must not wait."""
_NEVER: Final = -1


class Stream:
    """The connection's lock guards it, but for fields that are set once."""

    __slots__ = (
        "_room",
        "_started",
        "answered",
        "body",
        "content",
        "deadline",
        "done",
        "ends_at",
        "fields",
        "headers",
        "id",
        "not_after",
        "request",
        "result",
        "sent",
        "status",
    )

    def __init__(self, request: httpx.Request, total_s: float, done: Ended) -> None:
        """Raises BadRequest: then nothing was sent."""
        self.request = request
        self.body = request.read()
        self.fields: list[Field] = fields_of(request, len(self.body))
        self.done = done
        self._started = monotonic()
        self.deadline = self._started + total_s
        """Monotonic; time by which the answer must be whole."""
        self.not_after: float = request.extensions.get("not_after", inf)
        """Monotonic; no frame leaves later."""
        self.id = 0
        """0: not begun."""
        self.sent = 0
        """Bytes of the body given to `h2`."""
        self.ends_at = _NEVER
        """Place of END_STREAM in all that the connection wrote or will write; -1: not given to `h2`."""
        self.answered = False
        """A part of an answer came, interim ones included."""
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.content: list[bytes] = []
        self._room = MAX_BODY
        self.result: LeanResponse | Failure | None = None

    def complete(self, written: int) -> bool:
        """Returns whether the peer may have the whole request, of a connection that wrote so many bytes.

        Without END_STREAM, or without the last byte of its frame, the request is no message (RFC 9113
        §8.1). At least one byte is missing: of the content that Content-Length announced (§8.1.1), or of
        the field section, which cannot be decoded in part (§4.3).
        """
        return self.ends_at != _NEVER and self.ends_at <= written

    def take(self, data: bytes) -> bool:
        """Takes in a part of the answer's content. Returns False if it is too long."""
        self._room -= len(data)
        if self._room >= 0:
            self.content.append(data)
        return self._room >= 0

    def answer(self) -> LeanResponse:
        """Returns the whole answer."""
        seconds = monotonic() - self._started
        return LeanResponse(
            self.status, self.headers, b"".join(self.content), self.request, seconds
        )

    def failed(self, written: int, code: str, detail: str) -> Failure:
        """Returns the end without an answer, of a connection that wrote so many bytes.

        A peer that began to answer has acted on something, whatever we wrote: in doubt."""
        if self.answered or self.complete(written):
            return Failure(Phase.WRITTEN, code, detail)
        return Failure(Phase.NOT_WRITTEN, code, f"{detail}; the request was not whole")

    def unprocessed(self, code: str, detail: str) -> Failure:
        """Returns the end of a stream that the peer did not process; not believed once it answered."""
        phase = Phase.WRITTEN if self.answered else Phase.NOT_WRITTEN
        return Failure(phase, code, detail)
