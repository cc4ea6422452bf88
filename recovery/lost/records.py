"""Bodies and dead letters of found deliveries, in Kafka.

A dead letter is searched from the start of the run that found the delivery: the run itself saw the letters
before. So one search reads what was written since, for all findings of a round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from backends.kafka.message_headers import headers_of
from backends.kafka.topic_reader import read_topic, records_at
from backends.settings import KafkaSettings
from message.delivery import Origin
from message.vocabulary import dead_letter_topic
from sending.dead_letters.headers import ORIGIN, last_header_text

MARGIN_MS: Final = 600_000
"""Time before the run from which letters are read: they may have another machine's clock."""


class LostRecords:
    """Reads Kafka for one round; one thread's. Every method raises KafkaTrouble, and SettingsError while a
    file that `kafka.client` names cannot be read."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._letters: frozenset[str] = frozenset()
        self._letters_since: int | None = None

    def begin(self) -> None:
        """Forgets what an earlier round read."""
        self._letters, self._letters_since = frozenset(), None

    def bodies(self, origins: Collection[Origin]) -> Mapping[Origin, bytes]:
        """Returns the values of the records that Kafka still has at these places. A topic made anew may
        have others there: compare the ids."""
        found = records_at(self._settings, {(o.topic, o.partition, o.offset) for o in origins})
        return {Origin(*place): record.value() or b"" for place, record in found.items()}

    def dead(self, since_ms: int) -> frozenset[str]:
        """Returns the origins, `topic/partition/offset`, of all dead letters since then, and maybe of
        some before."""
        wanted = max(since_ms - MARGIN_MS, 0)
        if self._letters_since is None or wanted < self._letters_since:
            topic = dead_letter_topic(self._settings.topic_prefix)
            letters = read_topic(self._settings, topic, wanted)
            self._letters = frozenset(_origins(letters))
            self._letters_since = wanted
        return self._letters


def _origins(letters: Iterable[Any]) -> Iterable[str]:
    for letter in letters:
        if origin := last_header_text(headers_of(letter) or (), ORIGIN):
            yield origin
