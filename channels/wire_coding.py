"""Undoes a content coding that nobody asked for: some servers zip whatever they send."""

from __future__ import annotations

import zlib
from typing import Final

from channels.http1 import MAX_BODY, BadAnswer

_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS
_UNZIPPED: Final = frozenset({b"gzip", b"x-gzip", b"deflate"})
_PLAIN: Final = frozenset({b"identity", b""})


def plain(body: bytes, fields: list[tuple[bytes, bytes]]) -> bytes:
    """The body as it was meant, within the bound. Raises BadAnswer for a coding that is not known."""
    codings = [value for name, value in fields if name.lower() == b"content-encoding"]
    if not codings or not body:
        return body
    coding = b", ".join(codings).strip().lower()
    if coding in _PLAIN:
        return body
    if coding not in _UNZIPPED:
        raise BadAnswer("protocol", f"the answer's body is coded as {coding!r}")
    return _unzipped(body)


def _unzipped(body: bytes) -> bytes:
    unzip = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        whole = unzip.decompress(body, MAX_BODY + 1)
    except zlib.error as exc:
        raise BadAnswer("protocol", f"the answer's body cannot be unzipped: {exc}") from exc
    if len(whole) > MAX_BODY:
        raise BadAnswer("too_large", f"the answer's body unzips to over {MAX_BODY:,} bytes")
    if not unzip.eof:
        raise BadAnswer("protocol", "the answer's zipped body is cut short")
    return whole
