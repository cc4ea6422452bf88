"""The answer as adapters read it: httpx's own Response, made without what it has no use for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import httpx

_CODED = (b"content-encoding",)


class Answer(httpx.Response):
    """A Response whose body is already here, as bytes without a content coding.

    httpx's own constructor spends most of its time on streams and decoders; this one skips them.
    That it still behaves like any other Response is held by tests/channels/test_answer.py.
    """

    def __init__(
        self,
        status_code: int,
        headers: list[tuple[bytes, bytes]],
        content: bytes,
        request: httpx.Request,
        elapsed: timedelta,
    ) -> None:
        super().__init__(
            status_code, headers=headers, stream=httpx.ByteStream(content), request=request
        )
        self.elapsed = elapsed
        self._content = content
        self._num_bytes_downloaded = len(content)
        self.is_closed = True
        self.is_stream_consumed = True


def parse_head(lines: Sequence[bytes]) -> list[tuple[bytes, bytes]] | None:
    """The header fields of the last head in `lines`, one per line as they came off the wire; None
    for a head that was cut off before its empty line.

    An interim answer (100, 103) brings a head of its own before it. Trailers, which follow the
    empty line, are left out: what decides about a message stands before its body. So is the content
    coding, since the body is handed on decoded.
    """
    fields: list[tuple[bytes, bytes]] = []
    ended = False
    for line in lines:
        name, colon, value = line.partition(b":")
        if line.startswith(b"HTTP/"):
            fields, ended = [], False
        elif not line.strip():
            ended = True
        elif colon and not ended and name.lower() not in _CODED:
            fields.append((name, value.strip()))
    return fields if ended else None
