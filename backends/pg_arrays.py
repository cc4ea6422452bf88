"""PostgreSQL array literals for whole columns, at a fraction of the driver's cost per element.

A driver adapts a list value by value in Python; a JSON encoder written in C gives the same text once
its brackets are exchanged, because JSON and array literals quote and escape `"` and `\\` alike and
spell null alike. Only JSON's other escapes (control characters) mean something else: those columns
go the long way. Figures: docs/decisions/011.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

_encode = msgspec.json.Encoder().encode


def array(values: Sequence[str | int | None]) -> str:
    """`{…}` of text or of integers, for a parameter that is cast to text[] or bigint[]."""
    try:
        text = _encode(values).decode()
    except UnicodeEncodeError:  # half a surrogate pair
        return _quoted(values)
    if "\\" in text and ("\\u" in text or any(e in text for e in _CONTROL_ESCAPES)):
        return _quoted(values)
    return f"{{{text[1:-1]}}}"


def byte_array(values: Iterable[bytes | None]) -> str:
    """`{…}` for a parameter that is cast to bytea[]."""
    parts = [f'"\\\\x{value.hex()}"' if value is not None else "null" for value in values]
    return f"{{{','.join(parts)}}}"


_CONTROL_ESCAPES = ("\\b", "\\f", "\\n", "\\r", "\\t")


def _quoted(values: Iterable[str | int | None]) -> str:
    return f"{{{','.join(map(_element, values))}}}"


def _element(value: str | int | None) -> str:
    if value is None:
        return "null"
    text = str(value).replace("\0", "\ufffd").encode(errors="replace").decode()
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
