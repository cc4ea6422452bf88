"""Poison records of the look-back topic: to the dead letters, acknowledged, before their offset passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import structlog

from backends.kafka.clients import KafkaException
from backends.kafka.message_headers import Headers, headers_of
from message.kafka_errors import is_fatal
from sending.dead_letters.headers import DETAIL, ORIGIN, REASON

log = structlog.get_logger(__name__)
PRODUCER: Final = {"delivery.timeout.ms": 8_000, "topic.metadata.propagation.max.ms": 5_000}
"""A missing topic is reported within seconds; every attempt ends before the flush gives up."""
_FLUSH_S: Final = 10.0
_DETAIL_CHARACTERS: Final = 500
_HEADERS_LEFT_OUT: Final = (
    "; the name of a header is not UTF-8, and the letter has none of the headers"
)


class PoisonRecord(NamedTuple):
    """One record that cannot be applied."""

    record: Any
    """The Kafka message, as it came."""
    reason: str
    """A code."""
    detail: str
    """One sentence."""

    @property
    def origin(self) -> str:
        """topic/partition/offset of the record."""
        one = self.record
        return f"{one.topic()}/{one.partition()}/{one.offset()}"


class _Letter(NamedTuple):
    """A dead letter as Kafka takes it."""

    key: bytes | None
    value: bytes | None
    headers: Headers


class PoisonWriter:
    """Belongs to the consumer's thread."""

    def __init__(self, producer: Any, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    def write(self, poison: Sequence[PoisonRecord], wait: Callable[[str], bool]) -> bool:
        """Writes all of them, as often as it takes. `wait` gets the cause after a failed try, and returns
        whether to try again. Returns False if not all were acknowledged: their offsets must not pass then.
        Raises KafkaException after a fatal error."""
        left = {one.origin: _letter(one) for one in poison}
        while left:
            failed = self._write_once(left)
            left = {origin: left[origin] for origin in failed}
            if not left:
                break
            cause = next(iter(failed.values()))
            log.error("dead_letters_held", topic=self._topic, records=len(left), cause=cause)
            if not wait(f"{self._topic} takes no dead letters ({cause})"):
                return False
        return True

    def _write_once(self, letters: Mapping[str, _Letter]) -> dict[str, str]:
        """Returns the cause by origin for those without an acknowledgement."""
        open_ = dict.fromkeys(letters, "no answer")

        def report(origin: str, error: Any) -> None:
            if error is None:
                open_.pop(origin, None)
            else:
                open_[origin] = error.name()

        for origin, one in letters.items():
            try:
                self._producer.produce(
                    self._topic,
                    one.value,
                    one.key,
                    headers=one.headers,
                    on_delivery=lambda error, _message, origin=origin: report(origin, error),
                )
            except Exception as exc:  # BufferError or KafkaException: it is tried again
                if isinstance(exc, KafkaException) and is_fatal(exc.args[0]):
                    raise
                open_[origin] = str(exc)
        self._producer.flush(_FLUSH_S)
        return open_


def _letter(one: PoisonRecord) -> _Letter:
    headers, detail = headers_of(one.record), one.detail[:_DETAIL_CHARACTERS]
    if headers is None:
        headers, detail = [], detail + _HEADERS_LEFT_OUT
    marks: Headers = [
        (REASON, one.reason.encode()),
        (DETAIL, detail.encode("utf-8", "replace")),
        (ORIGIN, one.origin.encode()),
    ]
    return _Letter(one.record.key(), one.record.value(), [*headers, *marks])
