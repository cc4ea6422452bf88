"""One call over an HTTP/2 connection: its request, how much of it was written, its answer as it comes."""

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
"""Gets what became of a call; must not wait."""
_NEVER: Final = -1


class Stream:
    """Belongs to its connection, under the connection's lock, but for what is set once."""

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
        """Raises BadRequest, and then nothing was sent."""
        self.request = request
        self.body = request.read()
        self.fields: list[Field] = fields_of(request, len(self.body))
        self.done = done
        self._started = monotonic()
        self.deadline = self._started + total_s
        """Monotonic; the answer must be whole by then."""
        self.not_after: float = request.extensions.get("not_after", inf)
        """Monotonic; no frame leaves later."""
        self.id = 0
        """0: it has not begun."""
        self.sent = 0
        """Bytes of the body that were given to `h2`."""
        self.ends_at = _NEVER
        """Where END_STREAM stands in all that the connection wrote or will write; -1: not given to `h2`."""
        self.answered = False
        """A part of an answer came, interim ones too."""
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.content: list[bytes] = []
        self._room = MAX_BODY
        self.result: LeanResponse | Failure | None = None

    def complete(self, written: int) -> bool:
        """Whether the peer may have the whole request, of a connection that wrote so many bytes.

        Without END_STREAM, or without the last byte of the frame that bears it, the request is no message
        (RFC 9113 §8.1): at least one byte is missing of the content that Content-Length announced
        (§8.1.1), or of the field section, which cannot be decoded in part (§4.3).
        """
        return self.ends_at != _NEVER and self.ends_at <= written

    def take(self, data: bytes) -> bool:
        """Takes in a part of the answer's content; False: it is too long."""
        self._room -= len(data)
        if self._room >= 0:
            self.content.append(data)
        return self._room >= 0

    def answer(self) -> LeanResponse:
        """The whole answer."""
        seconds = monotonic() - self._started
        return LeanResponse(
            self.status, self.headers, b"".join(self.content), self.request, seconds
        )

    def failed(self, written: int, code: str, detail: str) -> Failure:
        """The end without an answer, of a connection that wrote so many bytes.

        A peer that began to answer has acted on something, whatever we wrote: in doubt.
        """
        if self.answered or self.complete(written):
            return Failure(Phase.WRITTEN, code, detail)
        return Failure(Phase.NOT_WRITTEN, code, f"{detail}; the request was not whole")

    def unprocessed(self, code: str, detail: str) -> Failure:
        """The peer said that it did not process it; not believed once it began to answer."""
        phase = Phase.WRITTEN if self.answered else Phase.NOT_WRITTEN
        return Failure(phase, code, detail)
