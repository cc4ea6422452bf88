"""The names of a crowd file's columns, and the number of its rows. Reads the whole file, keeps no row."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from producer.campaigns.contract import CrowdSource, RunPlace
from producer.campaigns.crowd_file import CrowdReader, opened_crowd
from producer.campaigns.crowd_rows import CrowdRow

MOST_NAMES: Final = 1_000
"""Names in JSON lines that a provider's template takes."""


class CrowdNames(NamedTuple):
    """The number of a file's rows, and the names of its columns."""

    rows: int
    titles: list[str]
    """The names of CSV's header; of JSON lines the first MOST_NAMES, and those that were asked for."""
    are_all: bool = True


def names_of_crowd(source: CrowdSource, wanted: Collection[str]) -> CrowdNames:
    """Returns what the whole file has. Raises CampaignRefused, CrowdUnusable."""
    with opened_crowd(source) as file:
        reader = CrowdReader(file, source, RunPlace())
        if reader.header:
            return CrowdNames(sum(1 for _ in reader), reader.header)
        return _names_in(reader, wanted)


def _names_in(rows: Iterable[CrowdRow], wanted: Collection[str]) -> CrowdNames:
    """Returns the names in JSON lines: any row may have one that the rows before it have not."""
    names: dict[str, None] = {}
    count, are_all = 0, True
    for row in rows:
        count += 1
        for name in row.fields:
            if name in names:
                continue
            if len(names) < MOST_NAMES or name in wanted:
                names[name] = None
            else:
                are_all = False
    return CrowdNames(count, list(names), are_all)
