"""One guard, how it is switched off, and who must notice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """`old`, which stands once in `path`, becomes `new`; then each of `killers` must fail."""

    guard: str
    path: str
    old: str
    new: str
    killers: tuple[str, ...]
