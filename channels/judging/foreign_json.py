"""JSON of foreign origin: read whole, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors of msgspec's decoders: no JSON or not of the expected form, no UTF-8, nested too deep."""


def decoded(decode: Callable[[bytes], T], content: bytes) -> T | None:
    """Returns the decoder's result; None where it cannot read the content."""
    try:
        return decode(content)
    except UNREADABLE:
        return None
