"""Stubs: dead letters for records that the topic cannot take in any other form.

A stub names the record (origin, sizes, digest of its value) and has the first bytes of its value. The
record itself is in its lane's topic alone, for as long as that keeps it (docs/dead-letters.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import msgspec

STUB: Final = "hongyan-dead-stub"
"""Header, always a stub's last one. A producer's header of that name is never last."""
FIRST_BYTES: Final = 512
LONGEST_DETAIL: Final = 300
"""Characters; a detail may quote the record."""

Headers = Sequence[tuple[str, bytes | None]]


class StubFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The header's value, as JSON."""

    key_bytes: int
    value_bytes: int
    headers: int
    header_bytes: int
    sha256: str
    """Digest of the value, hexadecimal."""


def facts_of(key: bytes | None, value: bytes | None, headers: Headers) -> StubFacts:
    """Returns sizes and digest of one record."""
    return StubFacts(
        key_bytes=len(key or b""),
        value_bytes=len(value or b""),
        headers=len(headers),
        header_bytes=sum(len(name.encode()) + len(text or b"") for name, text in headers),
        sha256=sha256(value or b"").hexdigest(),
    )


def stub_in(headers: Headers) -> StubFacts | None:
    """Returns the facts if these are the headers of a stub; None otherwise."""
    name, value = headers[-1] if headers else ("", None)
    if name != STUB:
        return None
    try:
        return msgspec.json.decode(value or b"", type=StubFacts)
    except msgspec.MsgspecError:
        return None
