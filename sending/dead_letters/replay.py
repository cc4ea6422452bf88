"""Replays dead letters: unchanged, to the topic of their origin, each once.

A replay is put on record before it is produced, so two concurrent replays of a letter send it once. The
record of an unacknowledged replay stays: the broker may have it, and only `again` sends it once more. A
second copy of a valid notification does no harm: it has the same id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from idempotency.dead_letter_replays import Replay, Replays
from sending.dead_letters.reader import DeadLetter

REPLAY_OF: Final = "hongyan-replay-of"
"""Header of a replayed record: the origin of the letter."""
_FLUSH_S: Final = 30.0


class ReplayStatus(StrEnum):
    """The outcome of one letter's replay, done or planned."""

    REPLAYED = "replayed"
    WOULD = "would_replay"
    """Result of a dry run."""
    BEFORE = "replayed_before"
    TRUNCATED = "truncated"
    """Only the beginning of its value was kept."""
    STUB = "stub"
    """Only its name was kept; the record is in its lane's topic, if anywhere."""
    NO_ORIGIN = "no_origin"
    """Foreign or damaged: it names no topic of origin."""
    FAILED = "failed"


class ReplayResult(NamedTuple):
    """One letter with the status of its replay."""

    letter: DeadLetter
    target: str
    fate: ReplayStatus
    why: str = ""


class Replayer:
    """Produces letters; `producer` is `backends.kafka.clients.producer`'s."""

    def __init__(
        self,
        producer: Any,
        replays: Replays,
        *,
        target: str = "",
        on_sent: Callable[[DeadLetter, Any], None] = lambda _letter, _message: None,
    ) -> None:
        """`target`: a topic that replaces each letter's own. `on_sent` gets each letter that the broker
        acknowledged, with its new record."""
        self._producer = producer
        self._replays = replays
        self._target = target
        self._on_sent = on_sent

    def plan(self, letters: Sequence[DeadLetter], *, again: bool) -> list[ReplayResult]:
        """Returns what `run` would do now; sends nothing. Raises LedgerError."""
        known = self._replays.known([letter.origin for letter in letters])
        return [self._planned(letter, known.get(letter.origin), again) for letter in letters]

    def run(self, letters: Sequence[DeadLetter], *, again: bool) -> list[ReplayResult]:
        """Sends them together. Raises LedgerError; begun replays are on record by then."""
        planned = self.plan(letters, again=again)
        sent = iter(
            self._replayed([one for one in planned if one.fate is ReplayStatus.WOULD], again)
        )
        return [next(sent) if one.fate is ReplayStatus.WOULD else one for one in planned]

    def _planned(self, letter: DeadLetter, earlier: Replay | None, again: bool) -> ReplayResult:
        target = self._target or letter.topic
        if not letter.origin or not target:
            return ReplayResult(letter, target, ReplayStatus.NO_ORIGIN)
        if letter.stub is not None:
            why = f"the original ({letter.stub.value_bytes:,} bytes) is at {letter.origin} alone"
            return ReplayResult(letter, target, ReplayStatus.STUB, why)
        if letter.truncated:
            return ReplayResult(
                letter, target, ReplayStatus.TRUNCATED, f"it had {letter.truncated:,} bytes"
            )
        if earlier is not None and not again:
            sure = "" if earlier.sent_at else ", unacknowledged"
            return ReplayResult(letter, target, ReplayStatus.BEFORE, f"to {earlier.target}{sure}")
        return ReplayResult(letter, target, ReplayStatus.WOULD)

    def _replayed(self, going: Sequence[ReplayResult], again: bool) -> list[ReplayResult]:
        if not going:
            return []
        begun = self._replays.begin([(d.letter.origin, d.target) for d in going], again=again)
        errors = self._produced([done for done, ours in zip(going, begun, strict=True) if ours])
        self._replays.end(
            [origin for origin, error in errors.items() if error is None],
            [origin for origin, error in errors.items() if error and not error.maybe],
        )
        return [
            _ended(done, errors[done.letter.origin])
            if ours
            else done._replace(fate=ReplayStatus.BEFORE, why="by somebody else just now")
            for done, ours in zip(going, begun, strict=True)
        ]

    def _produced(self, going: Sequence[ReplayResult]) -> dict[str, _Failure | None]:
        """Returns each origin's failure; None where the broker has the record."""
        answers: dict[str, Any] = {}
        found: dict[str, _Failure | None] = {}
        for done in going:
            if (failure := self._handed_over(done, answers)) is not None:
                found[done.letter.origin] = failure
        self._producer.flush(_FLUSH_S)
        for done in going:
            origin = done.letter.origin
            if origin not in found:
                found[origin] = _failure(answers[origin]) if origin in answers else _UNANSWERED
        return found

    def _handed_over(self, done: ReplayResult, answers: dict[str, Any]) -> _Failure | None:
        """`answers` gets the broker's answer under the letter's origin."""
        letter = done.letter
        headers = [*letter.theirs(), (REPLAY_OF, letter.origin.encode())]

        def delivered(error: Any, message: Any) -> None:
            answers[letter.origin] = error
            if error is None:
                self._on_sent(letter, message)

        try:
            self._producer.produce(
                done.target,
                key=letter.key,
                value=letter.value,
                headers=headers,
                on_delivery=delivered,
            )
        except Exception as exc:  # KafkaException, BufferError: nothing was handed over
            return _Failure(str(exc), maybe=False)
        return None


class _Failure(NamedTuple):
    text: str
    maybe: bool
    """Whether the broker may have the record nevertheless."""


_UNANSWERED: Final = _Failure("the broker did not answer; it may have it", maybe=True)


def _failure(error: Any) -> _Failure | None:
    """Returns the failure; None without an error. After a timeout the broker may have the record."""
    return error and _Failure(error.str(), maybe=error.name() == "_MSG_TIMED_OUT")


def _ended(done: ReplayResult, failure: _Failure | None) -> ReplayResult:
    if failure is None:
        return done._replace(fate=ReplayStatus.REPLAYED)
    return done._replace(fate=ReplayStatus.FAILED, why=failure.text)
