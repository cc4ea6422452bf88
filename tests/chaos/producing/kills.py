"""The rotation of kills: every kind in turn, at a pace, with times from the seed."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import Final

from tests.chaos.producing.brokers import Brokers
from tests.chaos.producing.places import Places

BROKER: Final = "broker"
_LEAST_S, _MOST_S = 0.2, 3.0


class Kills:
    """Belongs to the driver's thread."""

    def __init__(
        self, seed: int, places: Sequence[Places], brokers: Brokers, *, every_s: float
    ) -> None:
        self._luck = random.Random(f"kills/{seed}")
        self._places = {one.name: one for one in places}
        self._brokers = brokers
        self._every_s = every_s
        self._round: list[str] = []
        self._next_at = time.monotonic() + every_s

    @property
    def counts(self) -> Mapping[str, int]:
        """Kills so far, by kind."""
        places = {name: one.book.kills for name, one in self._places.items()}
        return {**places, BROKER: sum(self._brokers.kills.values())}

    @property
    def total(self) -> int:
        """Kills so far."""
        return sum(self.counts.values())

    def strike_if_due(self, now: float) -> str:
        """Kills one of the next kind. Returns the kind; empty if nothing was due or there to be killed."""
        if now < self._next_at:
            return ""
        self._next_at = now + self._every_s * self._luck.uniform(0.5, 1.5)
        if not self._round:
            self._round = [*self._places, BROKER]
            self._luck.shuffle(self._round)
        kind = self._round.pop()
        down_s, luck = self._luck.uniform(_LEAST_S, _MOST_S), self._luck.random()
        return kind if self._kill(kind, luck, down_s) else ""

    def _kill(self, kind: str, luck: float, down_s: float) -> bool:
        if kind == BROKER:
            return self._brokers.kill(down_s)
        return self._places[kind].kill(luck, down_s)
