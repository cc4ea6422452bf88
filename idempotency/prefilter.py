"""The pre-filter's contract: a cheap "this is settled already" in front of the ledger.

It may be down, flushed or failed over at any moment: then it answers "not known", and the ledger
decides. A mark is written only after the ledger committed a settled state, so a hit is never a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Prefilter(Protocol):
    """Never raises: a failing Redis is counted, logged once per outage, and answers "not known"."""

    def lookup(self, keys: Sequence[str]) -> list[bytes | None]:
        """Returns the mark of each delivery key (the digest of the settled body); None where not known.
        One round trip."""

    def mark(self, settled: Sequence[tuple[str, bytes]]) -> None:
        """Remembers (delivery key, body digest) of settled rows. One round trip."""

    def first(self, keys: Sequence[str]) -> list[bool]:
        """SET NX for `best_effort` lanes. Returns True where this call named the key first, or where Redis
        does not answer: best effort prefers a double to a loss. One round trip."""


class NoPrefilter:
    """The twin for an empty `redis.url`."""

    def lookup(self, keys: Sequence[str]) -> list[bytes | None]:
        """Knows nothing."""
        return [None] * len(keys)

    def mark(self, settled: Sequence[tuple[str, bytes]]) -> None:
        """Keeps nothing."""

    def first(self, keys: Sequence[str]) -> list[bool]:
        """Lets everything pass."""
        return [True] * len(keys)
