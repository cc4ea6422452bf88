"""PostgreSQL arrays for whole columns, at a fraction of the driver's cost per element.

A driver adapts a list value by value in Python. A JSON encoder in C gives the same text once its brackets
are exchanged: JSON and array literals quote and escape `"` and `\\` alike and spell null alike. A column
with JSON's other escapes (control characters) is quoted in Python. Bytes have the server's binary form:
as text they would be twice as long, and the server would read them twice. Figures: docs/decisions/011.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec
from psycopg import adapters
from psycopg.adapt import Dumper
from psycopg.pq import Format

_BYTEA: Final = 17
_BYTEA_ARRAY: Final = 1001
"""The server's numbers for the two types; they never change."""
_DIMENSIONS, _FIRST = 1, 1
_HEAD: Final = struct.Struct("!iiIii")
"""Dimensions, whether there are nulls, element type, elements, number of the first."""
_length: Final = struct.Struct("!i").pack
_NULL: Final = _length(-1)
_encode = msgspec.json.Encoder().encode


def array(values: Sequence[str | int | None]) -> str:
    """Returns `{…}` of text or of integers, for a parameter that is cast to text[] or bigint[]."""
    try:
        text = _encode(values).decode()
    except UnicodeEncodeError:  # half a surrogate pair
        return _quoted(values)
    if "\\" in text and ("\\u" in text or any(e in text for e in _CONTROL_ESCAPES)):
        return _quoted(values)
    return f"{{{text[1:-1]}}}"


class ByteArray(bytes):
    """A bytea[] as the server's array_recv reads it."""


class _AsItIs(Dumper):
    format = Format.BINARY
    oid = _BYTEA_ARRAY

    def dump(self, obj: ByteArray) -> ByteArray:
        return obj


adapters.register_dumper(ByteArray, _AsItIs)


def byte_array(values: Collection[bytes | None]) -> ByteArray:
    """Returns a parameter of type bytea[]."""
    parts = [_HEAD.pack(_DIMENSIONS, None in values, _BYTEA, len(values), _FIRST)]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            parts += _length(len(value)), value
    return ByteArray(b"".join(parts))


_CONTROL_ESCAPES = ("\\b", "\\f", "\\n", "\\r", "\\t")


def _quoted(values: Iterable[str | int | None]) -> str:
    return f"{{{','.join(map(_element, values))}}}"


def _element(value: str | int | None) -> str:
    if value is None:
        return "null"
    text = str(value).replace("\0", "\ufffd").encode(errors="replace").decode()
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
