"""Reads letters from their places in Kafka, and replays them. Everything raises KafkaTrouble."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from admin.parts import ConsoleParts
from backends.kafka import clients as kafka
from backends.kafka.topic_reader import record_at, records_at
from backends.settings import Settings
from idempotency.dead_letters.rows import IndexedLetter
from message.vocabulary import dead_letter_topic
from sending.accepted_trace import accepted_trace
from sending.dead_letters.batches import batches
from sending.dead_letters.reader import DeadLetter, letter_of
from sending.dead_letters.replay import Replayer, ReplayResult

_AWAY_S: Final = 3.0
"""Longest wait for a broker before a page says that Kafka is away."""
_PRODUCER: Final = {"delivery.timeout.ms": 8_000, "topic.metadata.propagation.max.ms": 5_000}
"""Every attempt ends before the replayer's flush gives up."""
_READ: Final = 25
"""Letters that are read at once; each may have 1 MiB."""


def letter_at(settings: Settings, indexed: IndexedLetter) -> DeadLetter | None:
    """Returns the letter; None if Kafka no longer has it."""
    topic = dead_letter_topic(settings.kafka.topic_prefix)
    kafka.wait_for_broker(settings.kafka, _AWAY_S)
    record = record_at(settings.kafka, topic, indexed.partition, indexed.place)
    found = letter_of(record, settings.kafka.topic_prefix) if record is not None else None
    return found if found is not None and _is_it(found, indexed) else None


def replayed(
    parts: ConsoleParts, chosen: Sequence[IndexedLetter]
) -> Iterator[tuple[list[IndexedLetter], list[ReplayResult]]]:
    """Replays letters, the oldest first. Yields each batch's letters that Kafka no longer has, and the
    results of the others. Raises LedgerError, too."""
    settings = parts.settings
    kafka.wait_for_broker(settings.kafka, _AWAY_S)
    with accepted_trace(settings, "console") as trace:
        producer = kafka.producer(settings.kafka, client_id="hongyan-console", changes=_PRODUCER)
        replayer = Replayer(producer, parts.ledger.replays(), on_sent=trace.replayed)
        for start in range(0, len(chosen), _READ):
            some = chosen[start : start + _READ]
            letters = _letters_at(settings, some)
            gone = [one for one in some if one.origin not in letters]
            results = [
                result
                for batch in batches(letters.values())
                for result in replayer.run(batch, again=False)
            ]
            yield gone, results


def _letters_at(settings: Settings, some: Sequence[IndexedLetter]) -> dict[str, DeadLetter]:
    topic = dead_letter_topic(settings.kafka.topic_prefix)
    places = {(topic, one.partition, one.place): one for one in some}
    found = {}
    for place, record in records_at(settings.kafka, places).items():
        letter = letter_of(record, settings.kafka.topic_prefix)
        if _is_it(letter, places[place]):
            found[letter.origin] = letter
    return found


def _is_it(letter: DeadLetter, indexed: IndexedLetter) -> bool:
    """Whether the record at that place is the indexed letter: the topic may have been made anew."""
    return indexed.origin in (letter.origin, letter.place)
