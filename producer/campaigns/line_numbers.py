"""Ascending line numbers as a short text: `7 3 1*5` is 7, 10, 11, 12, 13, 14, 15."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby


def packed_lines(lines: Iterable[int]) -> str:
    """Returns the text of ascending numbers: each one's distance from the one before, and `*` for a
    repetition."""
    found = []
    for step, same in groupby(_steps(lines)):
        times = sum(1 for _ in same)
        found.append(f"{step}*{times}" if times > 1 else str(step))
    return " ".join(found)


def unpacked_lines(text: str) -> Iterator[int]:
    """Yields the numbers of a text."""
    last = 0
    for part in text.split():
        step, _, times = part.partition("*")
        for _ in range(int(times or 1)):
            last += int(step)
            yield last


def _steps(lines: Iterable[int]) -> Iterator[int]:
    last = 0
    for line in lines:
        yield line - last
        last = line
