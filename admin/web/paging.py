"""Cursors of keyset pages: the keys of the last row, as text for a link. A cursor is checked as input."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

Row = TypeVar("Row")
_LONGEST = 1_000


class WrongCursor(Exception):
    """A cursor that this page did not make."""


class PageRows(NamedTuple, Generic[Row]):
    """One page of a table."""

    rows: Sequence[Row]
    next: str
    """Cursor of the next page; empty: this is the last one."""


def page_of(rows: Sequence[Row], limit: int, keys: Callable[[Row], Any]) -> PageRows[Row]:
    """Returns a page of rows that were read with `limit + 1`; `keys` are those of the order."""
    some = rows[:limit]
    return PageRows(some, cursor(keys(some[-1])) if len(rows) > limit else "")


def cursor(keys: Any) -> str:
    """Returns the text of a row's keys."""
    return base64.urlsafe_b64encode(msgspec.json.encode(keys)).decode().rstrip("=")


def keys_of(text: str, kind: type[Row]) -> Row | None:
    """Returns the keys of a cursor, of this type; None for no cursor. Raises WrongCursor."""
    if not text:
        return None
    try:
        if len(text) > _LONGEST:
            raise ValueError
        content = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return msgspec.json.decode(content, type=kind)
    except (ValueError, binascii.Error, msgspec.DecodeError) as exc:
        raise WrongCursor(text) from exc
