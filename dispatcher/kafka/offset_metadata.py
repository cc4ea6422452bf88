"""Runs of completed offsets, and their form in Kafka's commit metadata.

The commit carries the runs completed above the committed offset, so that a successor skips them. The text
is `hy1:` + base64 of a CRC, the committed offset, and each run as two varints (gap since the run before,
length). Foreign or damaged metadata reads as "no runs": then the ledger answers instead.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from heapq import nlargest
from itertools import pairwise
from typing import Final, NamedTuple
from zlib import crc32

PREFIX: Final = "hy1:"
METADATA_LIMIT: Final = 4095
"""Bytes; a broker refuses a commit whose metadata reaches `offset.metadata.max.bytes`, 4096 by default."""
_CRC_BYTES = 4
_BITS = 7
_MORE = 1 << _BITS
_MAX_SHIFT = 63


class OffsetRange(NamedTuple):
    """Offsets from `start` up to, not including, `end`."""

    start: int
    end: int


def encode(watermark: int, runs: Sequence[OffsetRange], limit: int = METADATA_LIMIT) -> str:
    """Returns the metadata for a commit at `watermark`; `runs` are sorted, apart, above it.

    If not all fit into `limit` bytes the longest stay: an omitted run costs its length in look-ups only.
    """
    if not runs:
        return ""
    kept: Sequence[OffsetRange] = runs
    while kept:
        text = _text(watermark, kept)
        if len(text) <= limit:
            return text
        fitting = max(len(kept) * limit // (len(text) + 1), 0)
        kept = sorted(nlargest(fitting, kept, key=_length))
    return ""


def decode(metadata: str | None, watermark: int) -> list[OffsetRange]:
    """Returns the runs of a commit at `watermark`; empty for foreign, damaged or stale metadata."""
    if not metadata or not metadata.startswith(PREFIX):
        return []
    try:
        data = b64decode(metadata[len(PREFIX) :], validate=True)
    except (Base64Error, ValueError):
        return []
    body = data[_CRC_BYTES:]
    if crc32(body).to_bytes(_CRC_BYTES, "big") != data[:_CRC_BYTES]:
        return []
    numbers = _varints(body)
    if not numbers or numbers[0] != watermark or len(numbers) % 2 == 0:
        return []
    return _runs(watermark, numbers[1:])


def _length(run: OffsetRange) -> int:
    return run.end - run.start


def _text(watermark: int, runs: Sequence[OffsetRange]) -> str:
    body = bytearray()
    _append_varint(body, watermark)
    position = watermark
    for start, end in runs:
        _append_varint(body, start - position)
        _append_varint(body, end - start)
        position = end
    return PREFIX + b64encode(crc32(body).to_bytes(_CRC_BYTES, "big") + body).decode("ascii")


def _runs(watermark: int, numbers: Sequence[int]) -> list[OffsetRange]:
    runs = []
    position = watermark
    for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
        runs.append(OffsetRange(position + gap, position + gap + length))
        position += gap + length
    apart = all(a.end < b.start for a, b in pairwise(runs))
    sound = apart and all(run.end > run.start > watermark for run in runs)
    return runs if sound else []


def _append_varint(out: bytearray, number: int) -> None:
    while number >= _MORE:
        out.append(number % _MORE | _MORE)
        number >>= _BITS
    out.append(number)


def _varints(data: bytes) -> list[int]:
    """Returns the varints in `data`; empty if one is cut off or too long."""
    numbers = []
    number = shift = 0
    for byte in data:
        number |= byte % _MORE << shift
        shift += _BITS
        if byte < _MORE:
            numbers.append(number)
            number = shift = 0
        elif shift > _MAX_SHIFT:
            return []
    return numbers if shift == 0 else []
