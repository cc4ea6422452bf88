"""The answer as adapters read it: httpx's own Response, made without what it has no use for."""

from __future__ import annotations

from datetime import timedelta

import httpx


class Answer(httpx.Response):
    """A Response whose body is already here, as it came: no content coding is asked for.

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
