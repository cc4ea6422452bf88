"""A request as the bytes of HTTP/1.1: one buffer, so that one call of the kernel takes it whole."""

from __future__ import annotations

import re
from typing import Final

import httpx

from channels.failures import BadRequest

_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_METHOD: Final = re.compile(r"[A-Z][A-Z\-]{0,30}", re.ASCII)
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_OURS: Final = frozenset({b"content-length", b"transfer-encoding", b"expect"})
"""Follow from the body; an adapter's own could contradict it."""
_LEFT_OUT: Final = b""
_HOST: Final = b"Host: "
_MOST_NAMES: Final = 1_024

_beginnings: dict[bytes, bytes] = {}
"""Field name as given, to how its line begins. Any thread writes; an entry is always the same."""


def encode(request: httpx.Request) -> bytes:
    """Head and body. `Host` is the request's own or the URL's, `Content-Length` always the body's.

    Raises BadRequest for what would not be the one request that was meant.
    """
    body = request.read()
    lines, hosts = _lines(request)
    if not hosts:
        lines.insert(1, _HOST + request.url.netloc)
    elif hosts > 1:
        raise BadRequest("the request has more than one Host field")
    if body or request.method in _WITH_BODY:
        lines.append(b"Content-Length: %d" % len(body))
    head = b"\r\n".join(lines)
    _refuse_breaks(head, len(lines) - 1)
    return b"%b\r\n\r\n%b" % (head, body)


def _lines(request: httpx.Request) -> tuple[list[bytes], int]:
    """The request line and the request's own fields; how many of them are Host."""
    lines, hosts = [_request_line(request.method, request.url.raw_path)], 0
    for name, value in request.headers.raw:
        beginning = _beginnings.get(name)
        if beginning is None:
            beginning = _beginning(name)
        if beginning is _HOST:
            hosts += 1
        if beginning is not _LEFT_OUT:
            lines.append(beginning + value)
    return lines, hosts


def _request_line(method: str, target: bytes) -> bytes:
    if method not in _WITH_BODY and (not _METHOD.fullmatch(method) or method == "CONNECT"):
        raise BadRequest(f"{method!r} is not a method that can be sent")
    if b" " in target:
        raise BadRequest("the request's target holds a blank")
    return b"%b %b HTTP/1.1" % (method.encode("ascii"), target)


def _beginning(name: bytes) -> bytes:
    if not _TOKEN.fullmatch(name):
        raise BadRequest(f"{name!r} cannot be the name of a header field")
    lower = name.lower()
    beginning = _LEFT_OUT if lower in _OURS else _HOST if lower == b"host" else name + b": "
    if len(_beginnings) >= _MOST_NAMES:  # an adapter that makes names up
        _beginnings.clear()
    _beginnings[name] = beginning
    return beginning


def _refuse_breaks(head: bytes, breaks: int) -> None:
    if head.count(b"\n") != breaks or head.count(b"\r") != breaks or b"\0" in head:
        raise BadRequest("a header field of the request holds a line break or a NUL")
