"""Rows after the checkpoint that are in Kafka already: a killed process produced them.

Its last checkpoint has the offset after the last acknowledged record of each partition. From there on the
topic is read for the ids of the rows that it may have taken up. Without this look such rows would be in the
topic twice, and the ledger alone would keep them from being sent twice.
"""

from __future__ import annotations

from typing import Final

from backends.kafka.message_headers import headers_of
from backends.kafka.topic_reader import ends_of, read_from
from backends.settings import KafkaSettings
from producer.campaigns.contract import CampaignRun
from producer.campaigns.crowd_file import KeepGoing, no_pause
from producer.campaigns.row_ids import row_id

STRAGGLER_MS: Final = 600_000
"""A record that was produced so long after the last checkpoint is of no process that wrote it: its lease
had lapsed, and its client had given up."""
_ID: Final = "hongyan-id"


class TopicTail:
    """The topic of one lane, as a run's opening asks about it."""

    def __init__(self, settings: KafkaSettings, topic: str, window: int) -> None:
        """`window` is the most rows that are taken up after a checkpoint."""
        self._settings = settings
        self._topic = topic
        self._window = window

    def ends(self) -> dict[int, int]:
        """Returns the end of each partition. Raises KafkaUnavailable."""
        return ends_of(self._settings, self._topic)

    def rows_there(self, run: CampaignRun, keep_going: KeepGoing = no_pause) -> frozenset[int]:
        """Returns the rows after the run's checkpoint that the topic holds. Calls `keep_going` before each
        batch of records. Raises KafkaUnavailable."""
        if not run.positions:
            return frozenset()  # the run ended in order, or did not begin
        numbers = range(run.done + 1, run.done + self._window + 1)
        wanted = {row_id(run.id, number).encode(): number for number in numbers}
        until = run.updated_at + STRAGGLER_MS
        found = set[int]()
        for record in read_from(self._settings, self._topic, run.positions, until, keep_going):
            message_id = dict(headers_of(record) or ()).get(_ID)
            if isinstance(message_id, bytes) and message_id in wanted:
                found.add(wanted[message_id])
        return frozenset(found)
