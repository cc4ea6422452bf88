"""Where the fleet's group and Kafka's logs were at one moment, before anything else was read.

Every proof of a loss rests on this order: positions, then the topics, then the ledger. An offset that was
committed when the positions were read has its rows in the ledger by the time the ledger is asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class PartitionPosition:
    """One partition of one topic, or of a topic that is gone."""

    topic: str
    topic_id: str
    """Kafka's, so that a topic made anew is another one; empty on the embedded cluster."""
    lane: str | None
    """None for the trace and dead-letter topics."""
    partition: int
    committed: int | None
    """The group's; None: nothing was committed for this log."""
    first: int
    """The log's first offset."""
    end: int
    """The offset after the log's last record."""
    done: Sequence[tuple[int, int]] = ()
    """Offsets completed above the committed one: first inclusive, next exclusive."""


@dataclass(frozen=True)
class Positions:
    """All partitions of the lanes', trace and dead-letter topics."""

    taken_at: int
    """Epoch milliseconds at which reading them began."""
    partitions: Sequence[PartitionPosition]
    gone: Sequence[PartitionPosition] = ()
    """Partitions of the positions before that exist no more, as they were then: their topic was deleted,
    or made anew under another id."""

    def as_json(self) -> str:
        """Returns the text for `spark_runs.positions`."""
        return json.dumps(asdict(self), separators=(",", ":"))


def positions_from(text: str) -> Positions | None:
    """Returns the positions of `Positions.as_json`; None for an empty text."""
    if not text:
        return None
    found = json.loads(text)
    return Positions(
        taken_at=found["taken_at"],
        partitions=[_partition(one) for one in found["partitions"]],
        gone=[_partition(one) for one in found.get("gone", ())],
    )


def _partition(found: Mapping[str, Any]) -> PartitionPosition:
    done = [(first, next_) for first, next_ in found["done"]]
    return PartitionPosition(**{**found, "done": done})
