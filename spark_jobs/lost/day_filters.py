"""A Bloom filter for each archived day: which of many delivery keys are surely not of that day.

    <folder>/deliveries_20260101.filter     one line of JSON, then the filter's bits

"Surely absent" saves a question. "Present" says nothing: the archive is asked, so a false positive is never
taken for a row. A filter that is missing, damaged or of another table is not used: then the archive is
asked about every key. docs/decisions/247-filters-for-archived-days.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from rbloom import Bloom

FALSE_POSITIVES: Final = 0.001
"""14.4 bits a key: 18 MB for a day of ten million."""
VERSION: Final = 1
_SUFFIX: Final = ".filter"
_HALF: Final = 1 << 127
_LEAST: Final = 1_000
_HEAD: Final = 8
"""Bytes before the bits: rbloom ends the process on fewer."""


class ArchivedDay(NamedTuple):
    """A day in the archive, as it is now."""

    name: str
    """Name of the table."""
    identity: str
    """The table's id in the database; empty while the day is not whole in the archive."""


class DayFilters:
    """The filters in one folder. One process writes them: the one that runs the jobs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def admitted(
        self, days: Sequence[ArchivedDay], keys: Collection[str]
    ) -> dict[ArchivedDay, set[str]]:
        """Returns, by day that has a good filter, the keys that may be of it. Other days are left out."""
        found = {}
        for day in days:
            bloom = self._load(day)
            if bloom is not None:
                found[day] = {key for key in keys if key in bloom}
        return found

    def build(self, day: ArchivedDay, keys: Iterable[str], count: int) -> bool:
        """Makes the filter of a day with `count` keys. Returns False, with nothing written, if there were
        more or fewer: the day changed meanwhile."""
        bloom, added = Bloom(max(count, _LEAST), FALSE_POSITIVES, _hash), 0
        for key in keys:
            bloom.add(key)
            added += 1
        if added != count:
            return False
        bits = bloom.save_bytes()
        head = {"v": VERSION, **day._asdict(), "keys": count, "sha256": sha256(bits).hexdigest()}
        self._write(day, json.dumps(head).encode() + b"\n" + bits)
        return True

    def drop_others(self, days: Iterable[ArchivedDay]) -> int:
        """Deletes the filters of days that left the archive. Returns their number."""
        kept = {self._file(day) for day in days}
        gone = [file for file in self._folder.glob(f"*{_SUFFIX}") if file not in kept]
        for file in gone:
            file.unlink(missing_ok=True)
        return len(gone)

    def _load(self, day: ArchivedDay) -> Bloom | None:
        """Returns the day's filter; None if there is no good one."""
        try:
            head, _, bits = self._file(day).read_bytes().partition(b"\n")
            found = json.loads(head)
            wanted = {"v": VERSION, **day._asdict(), "sha256": sha256(bits).hexdigest()}
            if {name: found.get(name) for name in wanted} != wanted or len(bits) <= _HEAD:
                return None
            return Bloom.load_bytes(bits, _hash)
        except (OSError, ValueError, AttributeError):
            return None

    def _write(self, day: ArchivedDay, content: bytes) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._file(day).with_suffix(".part")
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._file(day))

    def _file(self, day: ArchivedDay) -> Path:
        return self._folder / f"{day.name}{_SUFFIX}"


def _hash(key: str) -> int:
    """Returns the key's own 128 bits: a delivery key is a digest already."""
    return int(key, 16) - _HALF
