"""Poison records of the look-back topic: to the dead letters, acknowledged, before their offset passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import structlog

from backends.kafka.clients import KafkaException
from backends.kafka.message_headers import headers_of
from message.kafka_errors import is_fatal
from sending.dead_letters.forms import TOO_LARGE, LetterForm, LetterParts, letter_in, next_form

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


class _OpenLetter:
    """One dead letter until the broker has it. It shrinks while the topic refuses its size."""

    def __init__(self, parts: LetterParts) -> None:
        self.parts = parts
        self.form = LetterForm.WHOLE
        self.alone = False
        """Whether it is produced by itself: a batch with it was too large."""

    def refused(self, *, by_itself: bool) -> None:
        """Takes a refusal of the size. A broker refuses a whole batch, so only a letter that was alone in
        it takes its next form."""
        if by_itself:
            self.form = next_form(self.form, len(self.parts.value or b""))
        self.alone = True


class PoisonWriter:
    """Belongs to the consumer's thread."""

    def __init__(self, producer: Any, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    def write(self, poison: Sequence[PoisonRecord], wait: Callable[[str], bool]) -> bool:
        """Writes all of them, as often as it takes. `wait` gets the cause after a failed try, and returns
        whether to try again. Returns False if not all were acknowledged: their offsets must not pass then.
        Raises KafkaException after a fatal error."""
        left = [_OpenLetter(_parts(one)) for one in poison]
        while left:
            failed = self._write_once(left)
            left = [one for one in left if one.parts.origin in failed]
            if not left:
                break
            cause = next(iter(failed.values()))
            log.error("dead_letters_held", topic=self._topic, records=len(left), cause=cause)
            if not wait(f"{self._topic} takes no dead letters ({cause})"):
                return False
        return True

    def _write_once(self, letters: Sequence[_OpenLetter]) -> dict[str, str]:
        """Returns the cause by origin for those without an acknowledgement."""
        alone = [one for one in letters if one.alone]
        failed = self._produced([one for one in letters if not one.alone])
        # After any other cause nothing would be taken now.
        while alone and set(failed.values()) <= set(TOO_LARGE):
            failed |= self._produced([alone.pop(0)])
        return failed | {one.parts.origin: "not tried" for one in alone}

    def _produced(self, letters: Sequence[_OpenLetter]) -> dict[str, str]:
        """Produces them together. Returns as `_write_once`."""
        failed = {one.parts.origin: "no answer" for one in letters}
        for one in letters:
            self._produce(one, failed)
        if letters:
            self._producer.flush(_FLUSH_S)
        for one in letters:
            cause = failed.get(one.parts.origin)
            if cause in TOO_LARGE:
                one.refused(by_itself=len(letters) == 1)
            elif cause is None and one.form is LetterForm.STUB:
                log.warning("dead_letter_is_a_stub", origin=one.parts.origin, topic=self._topic)
        return dict(failed)

    def _produce(self, one: _OpenLetter, failed: dict[str, str]) -> None:
        """Takes the letter out of `failed` once the broker has it. Raises KafkaException after a fatal
        error."""
        origin = one.parts.origin

        def report(error: Any, _message: Any) -> None:
            if error is None:
                failed.pop(origin, None)
            else:
                failed[origin] = error.name()

        letter = letter_in(one.form, one.parts)
        try:
            self._producer.produce(
                self._topic, letter.value, letter.key, headers=letter.headers, on_delivery=report
            )
        except KafkaException as exc:
            if is_fatal(exc.args[0]):
                raise
            failed[origin] = exc.args[0].name()
        except Exception as exc:  # BufferError: it is tried again
            failed[origin] = str(exc)


def _parts(one: PoisonRecord) -> LetterParts:
    headers, detail = headers_of(one.record), one.detail[:_DETAIL_CHARACTERS]
    if headers is None:
        headers, detail = [], detail + _HEADERS_LEFT_OUT
    return LetterParts(
        one.record.key(), one.record.value(), headers, one.reason, detail, one.origin
    )
