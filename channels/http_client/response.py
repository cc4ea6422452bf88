"""The answer as adapters read it: httpx's own Response, without its unused parts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import httpx

_MADE_LATER: Final = frozenset(
    {
        "headers",
        "extensions",
        "history",
        "stream",
        "next_request",
        "is_closed",
        "is_stream_consumed",
        "default_encoding",
        "_num_bytes_downloaded",
    }
)
"""Attributes that httpx.Response.__init__ sets beside status and request."""


class LeanResponse(httpx.Response):
    """A Response whose body is already here, without a content coding.

    httpx's own constructor spends most of its time on header objects, streams and decoders. It runs only
    when more than status and content is read. tests/channels/http_client/test_response.py holds this class
    to the behaviour of any other Response.
    """

    def __init__(
        self,
        status_code: int,
        headers: list[tuple[bytes, bytes]],
        content: bytes,
        request: httpx.Request,
        seconds: float,
    ) -> None:
        self.status_code = status_code
        self._raw = headers
        self._content = content
        self._request = request
        self._seconds = seconds

    @property
    def elapsed(self) -> timedelta:
        """Time from the request's start to the whole answer."""
        return timedelta(seconds=self._seconds)

    @elapsed.setter
    def elapsed(self, elapsed: timedelta) -> None:
        self._seconds = elapsed.total_seconds()

    def __getattr__(self, name: str) -> Any:
        if name not in _MADE_LATER:
            raise AttributeError(name)
        stream = httpx.ByteStream(self._content)
        super().__init__(self.status_code, headers=self._raw, stream=stream, request=self._request)
        self._num_bytes_downloaded = len(self._content)
        self.is_closed = True
        self.is_stream_consumed = True
        return getattr(self, name)
