"""Follows the dead letters' topic and indexes each letter as it comes; one recovery of the fleet does.

The places up to which the topic was read are in the ledger's database, in the transaction of the letters:
a killed recovery loses and doubles none, and the next one reads on. While Kafka or the ledger is away it
tries again; nothing else of recovery waits for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import structlog

from backends.kafka.clients import KafkaTrouble
from backends.kafka.topic_follower import TopicFollower
from backends.settings import KafkaSettings, SettingsError
from idempotency.dead_letters.index import LetterIndex, PlaceMoved
from idempotency.ledger import LedgerError
from message.vocabulary import dead_letter_topic
from recovery.dead_letters.entries import entry_of
from sending.dead_letters.reader import letter_of

log = structlog.get_logger(__name__)
DUTY: Final = "dead-letters"
LEASE_S: Final = 30.0
BATCH: Final = 50
"""Letters of one transaction; each may have 1 MiB until it is a row."""
_RENEW_S: Final = LEASE_S / 3
_LOOK_S: Final = 10.0
"""Interval between two looks at the topic's bounds, and at its id."""
_READ_S: Final = 0.5
_ASK_S: Final = LEASE_S / 2
_AWAY_S: Final = 5.0
_MS: Final = 1_000


class DeadLetterIndexer:
    """`run` is one thread's; any thread may call `stop`."""

    def __init__(
        self,
        settings: KafkaSettings,
        index: LetterIndex,
        *,
        hold: Callable[[str, int], bool],
        drop: Callable[[str], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`hold` takes or renews a duty for so many milliseconds; `drop` gives it up."""
        self._settings = settings
        self._index = index
        self._hold = hold
        self._drop = drop
        self._monotonic = monotonic
        self._follower: TopicFollower | None = None
        self._topic_id = ""
        self._places: dict[int, int] = {}
        """Next offset by partition, as the index has it."""
        self._held_until = self._look_at = float("-inf")
        self._cause = ""
        """The last trouble, as it was logged."""
        self._ended = threading.Event()

    def run(self) -> None:
        """Indexes until `stop`."""
        pause_s = 0.0
        while not self._ended.wait(pause_s):
            pause_s = self.run_once()
        self._leave()
        with suppress(LedgerError):  # else it lapses
            self._drop(DUTY)

    def stop(self) -> None:
        """Ends `run` after the letters under way; idempotent."""
        self._ended.set()

    def run_once(self) -> float:
        """Enters one batch, if this recovery has the duty. Returns the pause in seconds."""
        try:
            if not self._has_duty():
                self._leave()
                return _ASK_S
            pause_s = self._step()
        except PlaceMoved as exc:
            log.info("dead_letters_read_by_another", cause=str(exc))
            self._leave()
            return 0.0
        except (KafkaTrouble, LedgerError, SettingsError) as exc:
            self._note(str(exc))
        except Exception:  # recovery goes on without the index
            log.exception("dead_letter_index_failed")
        else:
            self._note("")
            return pause_s
        self._leave()
        return _AWAY_S

    def _step(self) -> float:
        if self._follower is None:
            topic = dead_letter_topic(self._settings.topic_prefix)
            self._follower = TopicFollower(self._settings, topic)
        if self._monotonic() >= self._look_at and not self._look(self._follower):
            return _LOOK_S
        letters = self._follower.read(BATCH, _READ_S)
        if letters:
            self._enter(letters)
        return 0.0

    def _look(self, follower: TopicFollower) -> bool:
        """Looks at the topic's bounds. Returns False if there is no topic."""
        extent = follower.extent()
        if extent is None:
            return False
        found = self._index.look(extent.topic_id, extent.bounds)
        self._index.forget(extent.bounds)
        places = {p: one.next_offset for p, one in found.items() if p in extent.bounds}
        if places != self._places or extent.topic_id != self._topic_id:
            follower.assign(places)
            self._places, self._topic_id = places, extent.topic_id
        self._look_at = self._monotonic() + _LOOK_S
        return True

    def _enter(self, messages: Sequence[Any]) -> None:
        prefix = self._settings.topic_prefix
        nexts = {message.partition(): message.offset() + 1 for message in messages}
        moves = {p: (self._places[p], after) for p, after in nexts.items()}
        entries = [entry_of(letter_of(message, prefix)) for message in messages]
        self._index.enter(self._topic_id, entries, moves)
        self._places |= nexts

    def _has_duty(self) -> bool:
        now = self._monotonic()
        if now < self._held_until - LEASE_S + _RENEW_S:
            return True
        held = self._hold(DUTY, int(LEASE_S * _MS))
        self._held_until = now + LEASE_S if held else float("-inf")
        return held

    def _leave(self) -> None:
        """Forgets the places: whoever has the duty next reads on from those of the index."""
        follower, self._follower = self._follower, None
        self._places, self._topic_id, self._look_at = {}, "", float("-inf")
        if follower is not None:
            follower.close()

    def _note(self, cause: str) -> None:
        """Logs a new cause once, and its end."""
        if cause and cause != self._cause:
            log.warning("dead_letters_not_indexed", cause=cause)
        elif self._cause and not cause:
            log.info("dead_letters_indexed_again")
        self._cause = cause
