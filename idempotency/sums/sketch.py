"""Latency sketches: counts of times in fixed buckets, 16 to each doubling, so that sketches can be added.

A time below 32 ms has a bucket of its own. A longer one is known to 1/32 of its length (3.2 %) at worst.
LONGEST_MS bounds a sketch to a few hundred buckets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from math import ceil
from typing import Final

import msgspec

LONGEST_MS: Final = (1 << 33) - 1
"""A hundred days; longer times count as this."""
ERROR: Final = 1 / 32
"""Largest relative error of a quantile."""
_BITS: Final = 4
_WIDTH: Final = 1 << _BITS
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[int]).decode


def bucket_of(ms: int) -> int:
    """Returns the bucket of a time. A time below 0 counts as 0: clocks differ."""
    if ms < 2 * _WIDTH:
        return max(ms, 0)
    ms = min(ms, LONGEST_MS)
    shift = ms.bit_length() - _BITS - 1
    return shift * _WIDTH + (ms >> shift)


def middle_of(bucket: int) -> int:
    """Returns the time in the middle of a bucket, milliseconds."""
    if bucket < 2 * _WIDTH:
        return bucket
    shift = bucket // _WIDTH - 1
    low = (bucket - shift * _WIDTH) << shift
    return low + ((1 << shift) - 1) // 2


class LatencySketch:
    """Times of many deliveries."""

    __slots__ = ("buckets",)

    def __init__(self, buckets: dict[int, int] | None = None) -> None:
        self.buckets = {} if buckets is None else buckets

    def add(self, times_ms: Iterable[int]) -> None:
        """Counts these times."""
        buckets = self.buckets
        for ms, number in Counter(times_ms).items():
            bucket = bucket_of(ms)
            buckets[bucket] = buckets.get(bucket, 0) + number

    def merge(self, text: str) -> None:
        """Adds the counts of an encoded sketch."""
        if not text:
            return
        buckets, flat = self.buckets, iter(_decode(text))
        for bucket, number in zip(flat, flat, strict=True):
            buckets[bucket] = buckets.get(bucket, 0) + number

    def encoded(self) -> str:
        """Returns `[bucket,count,…]`; empty for no times."""
        if not self.buckets:
            return ""
        return _encode([*chain.from_iterable(sorted(self.buckets.items()))]).decode()

    def quantile(self, share: float) -> int | None:
        """Returns the time within which this share of the deliveries was; None without any."""
        rank = ceil(share * sum(self.buckets.values()))
        for bucket, number in sorted(self.buckets.items()):
            rank -= number
            if rank <= 0:
                return middle_of(bucket)
        return None
