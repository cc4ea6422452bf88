"""Lanes whose ends are announced, as this process knows them from its policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from backends.sql.pg_arrays import array

TOPIC: Final = "topic"
WEBHOOK: Final = "webhook"
TARGETS: Final = (TOPIC, WEBHOOK)
"""Where events go, as the table `outcome_batches` spells it."""


class AnnouncedLanes:
    """At first no lane is announced. One thread at a time calls `follow`; any thread reads."""

    def __init__(self) -> None:
        self._targets: Mapping[str, str] = {}
        """Lane to target; `follow` replaces it as a whole."""

    def follow(self, targets: Mapping[str, str]) -> None:
        """Announces the ends of these lanes from now on, each to its target."""
        self._targets = dict(targets)

    def __bool__(self) -> bool:
        return bool(self._targets)

    def any_of(self, lanes: Iterable[str]) -> bool:
        """Returns whether one of the lanes is announced."""
        targets = self._targets
        return bool(targets) and any(lane in targets for lane in lanes)

    def of(self, target: str) -> list[str]:
        """Returns the lanes that are announced there."""
        return [lane for lane, where in self._targets.items() if where == target]

    def arrays(self) -> dict[str, str]:
        """Returns the statements' parameters for PostgreSQL."""
        return {f"to_{target}": array(self.of(target)) for target in TARGETS}

    def texts(self) -> dict[str, str]:
        """Returns the statements' parameters for SQLite."""
        return {f"to_{target}": msgspec.json.encode(self.of(target)).decode() for target in TARGETS}
