"""Reads the positions that a run of the jobs begins with (spark_jobs/positions.py)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from backends.kafka.group_positions import GroupPosition, group_positions
from backends.settings import KafkaSettings
from dispatcher.kafka.offset_metadata import decode
from message.vocabulary import LANES, dead_letter_topic, trace_topic
from spark_jobs.positions import PartitionPosition, Positions

_MS: Final = 1_000_000


def read_positions(settings: KafkaSettings, earlier: Positions | None = None) -> Positions:
    """Returns the positions of all lanes' topics, the trace and the dead letters.

    `earlier` are those of the run before: their partitions that exist no more are in `gone`. Raises
    KafkaUnavailable, SettingsError.
    """
    taken_at = time.time_ns() // _MS
    prefix = settings.topic_prefix
    lanes = {lane.topic(prefix): lane.name for lane in LANES}
    topics = [*lanes, trace_topic(prefix), dead_letter_topic(prefix)]
    found = [_position(one, lanes.get(one.topic)) for one in group_positions(settings, topics)]
    return Positions(taken_at, found, _gone(found, earlier))


def _position(one: GroupPosition, lane: str | None) -> PartitionPosition:
    committed = one.committed if lane is not None else None
    if committed is not None and committed > one.end:
        committed = None  # of an earlier log of that name: this one is read from its start
    runs = decode(one.metadata, committed) if committed is not None else []
    done = [(run.start, run.end) for run in runs]
    return PartitionPosition(
        one.topic, one.topic_id, lane, one.partition, committed, one.first, one.end, done
    )


def _gone(found: Sequence[PartitionPosition], earlier: Positions | None) -> list[PartitionPosition]:
    there = {(one.topic, one.topic_id, one.partition) for one in found}
    known = earlier.partitions if earlier is not None else ()
    return [one for one in known if (one.topic, one.topic_id, one.partition) not in there]
