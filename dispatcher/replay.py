"""Dead letters sent again: as they came, to where they came from, each once.

It is put on record before it is produced, so two who replay the same letter send it once. The record of one
whose acknowledgement never came stays: it may stand there, and only `again` sends it once more. A second
copy does no harm where the letter is a notification by now: it has the same id.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from dispatcher.letters import Letter
from idempotency.replays import Replay, Replays

REPLAY_OF: Final = "hongyan-replay-of"
"""Header of a replayed record: the origin of the letter."""
_FLUSH_S: Final = 30.0


class Fate(StrEnum):
    """What becomes, or would become, of one letter."""

    REPLAYED = "replayed"
    WOULD = "would_replay"
    """A dry run."""
    BEFORE = "replayed_before"
    TRUNCATED = "truncated"
    """Only its beginning was kept: what would be sent is not what came."""
    NO_ORIGIN = "no_origin"
    """Not ours, or damaged: nobody knows where it belongs."""
    FAILED = "failed"


class Done(NamedTuple):
    """One letter's."""

    letter: Letter
    target: str
    fate: Fate
    why: str = ""


class Replayer:
    """Produces letters one by one; `producer` is `backends.kafka.producer`'s."""

    def __init__(self, producer: Any, replays: Replays, *, target: str = "") -> None:
        """`target`: another topic than the one each came from."""
        self._producer = producer
        self._replays = replays
        self._target = target

    def plan(self, letters: Sequence[Letter], *, again: bool) -> list[Done]:
        """What `run` would do now; nothing is sent. Raises LedgerError."""
        known = self._replays.known([letter.origin for letter in letters])
        return [self._planned(letter, known.get(letter.origin), again) for letter in letters]

    def run(self, letters: Sequence[Letter], *, again: bool) -> list[Done]:
        """Send them; raises LedgerError, then those before it are on record."""
        planned = self.plan(letters, again=again)
        return [
            self._replayed(done, again) if done.fate is Fate.WOULD else done for done in planned
        ]

    def _planned(self, letter: Letter, earlier: Replay | None, again: bool) -> Done:
        target = self._target or letter.topic
        if not letter.origin or not target:
            return Done(letter, target, Fate.NO_ORIGIN)
        if letter.truncated:
            return Done(letter, target, Fate.TRUNCATED, f"it had {letter.truncated:,} bytes")
        if earlier is not None and not again:
            sure = "" if earlier.sent_at else ", unacknowledged"
            return Done(letter, target, Fate.BEFORE, f"to {earlier.target}{sure}")
        return Done(letter, target, Fate.WOULD)

    def _replayed(self, done: Done, again: bool) -> Done:
        origin = done.letter.origin
        if not self._replays.begin(origin, done.target, again=again):
            return done._replace(fate=Fate.BEFORE, why="by somebody else just now")
        error = self._produced(done)
        if error is None:
            self._replays.end(origin, sent=True)
            return done._replace(fate=Fate.REPLAYED)
        if not error.maybe:
            self._replays.end(origin, sent=False)
        return done._replace(fate=Fate.FAILED, why=error.text)

    def _produced(self, done: Done) -> _Failure | None:
        """None once the broker has it."""
        letter, told = done.letter, list[Any]()
        headers = [*letter.theirs(), (REPLAY_OF, letter.origin.encode())]
        try:
            self._producer.produce(
                done.target,
                key=letter.key,
                value=letter.value,
                headers=headers,
                on_delivery=lambda error, _message: told.append(error),
            )
        except Exception as exc:  # KafkaException, BufferError: nothing was handed over
            return _Failure(str(exc), maybe=False)
        self._producer.flush(_FLUSH_S)
        if not told:
            return _Failure("the broker did not answer; it may have it", maybe=True)
        # A timeout of the client's is no word of the broker's.
        return told[0] and _Failure(told[0].str(), maybe=told[0].name() == "_MSG_TIMED_OUT")


class _Failure(NamedTuple):
    text: str
    maybe: bool
    """Whether the broker may have it all the same."""
