"""HTTP/2 beside the state machine `h2`: the request's fields, and GOAWAY frames.

`h2` refuses every frame after a GOAWAY (python-hyper/h2, issue 1181, open on 2026-11-22). RFC 9113 §6.8
lets the streams up to its last stream id finish. So `Frames` takes GOAWAY frames out, and `h2` never sees
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import httpx
from hpack import HeaderTuple, NeverIndexedHeaderTuple

from channels.endpoints import over_http
from channels.http_client.failures import BadRequest
from channels.http_client.request import JsonPost

Field = HeaderTuple | tuple[bytes, bytes]
_HEAD: Final = 9
"""Bytes of a frame's head: length in three, type, flags, stream id in four (RFC 9113 §4.1)."""
_MAX_FRAME: Final = 16_384
"""Bytes of a frame that we take: the default of SETTINGS_MAX_FRAME_SIZE (§6.5.2)."""
_GOAWAY: Final = 7
_LEAST_GOAWAY: Final = 8
_STREAM_ID: Final = 0x7FFF_FFFF
_MAX_DETAIL: Final = 200
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE = re.compile(rb"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?")
_OURS: Final = frozenset(
    {
        b"accept-encoding",
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Fields of one connection, which HTTP/2 forbids (§8.2.2), or written here."""


class GoAway(NamedTuple):
    """The peer takes no new streams; it has not processed those above `last_stream`."""

    last_stream: int
    code: int
    detail: str
    """The peer's own words, for people; Apple sends its reason as JSON."""


class Frames:
    """Splits the bytes of one connection into whole frames."""

    def __init__(self) -> None:
        self._rest = b""

    def split(self, data: bytes) -> Iterator[bytes | GoAway]:
        """Yields GOAWAY frames, and the bytes before and between them, in order. Raises ValueError for a
        frame that is longer than we take: `h2` would wait for all of it."""
        data, self._rest = self._rest + data, b""
        begin = end = 0
        while end + _HEAD <= len(data):
            size = int.from_bytes(data[end : end + 3], "big")
            if size > _MAX_FRAME:
                raise ValueError(f"a frame of {size:,} bytes is no frame that we take")
            after = end + _HEAD + size
            if after > len(data):
                break
            if data[end + 3] == _GOAWAY and size >= _LEAST_GOAWAY:
                if begin < end:
                    yield data[begin:end]
                yield _goaway(data[end + _HEAD : after])
                begin = after
            end = after
        self._rest = data[end:]
        if begin < end:
            yield data[begin:end]


def fields_of(request: httpx.Request, size: int) -> list[Field]:
    """Returns the field section of a request with a body of so many bytes. Raises BadRequest for a field
    that HTTP cannot carry.

    HPACK never indexes the path: it names one device, and would drive repeated fields out of the table.
    """
    url = request.url
    path = NeverIndexedHeaderTuple(b":path", url.raw_path)
    fields: list[Field] = [
        (b":method", request.method.encode("ascii", "replace")),
        (b":scheme", over_http(url).scheme.encode("ascii")),
        (b":authority", url.netloc),
        path,
    ]
    if type(request) is JsonPost:
        given = [*request.fields, (b"content-type", b"application/json")]
    else:
        given = list(request.headers.raw)
    pseudo = len(fields)
    fields += [(name.lower(), value) for name, value in given if name.lower() not in _OURS]
    if size or request.method in ("POST", "PUT", "PATCH"):
        fields.append((b"content-length", b"%d" % size))
    named = all(_NAME.fullmatch(name) for name, _ in fields[pseudo:])
    if not named or not all(_VALUE.fullmatch(value) for _, value in fields):
        raise BadRequest("the request's method or a header field holds what HTTP cannot carry")
    return fields


def _goaway(payload: bytes) -> GoAway:
    last = int.from_bytes(payload[:4], "big") & _STREAM_ID
    code = int.from_bytes(payload[4:8], "big")
    detail = payload[8 : 8 + _MAX_DETAIL].decode("ascii", "replace")
    return GoAway(last, code, detail if detail.isprintable() else "")
