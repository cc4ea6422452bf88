"""Accounts that a person paused, as the selectors of one process see them."""

from __future__ import annotations

from typing import Final

HELD_LOOK_S: Final = 5.0
"""Wait of a delivery that only paused accounts may send, before it is looked at again."""


class HeldAccounts:
    """Shared by all lanes of a process. `hold` replaces the set as a whole; any thread reads it."""

    __slots__ = ("names",)

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        """`ControlWatcher`'s thread replaces it."""

    def hold(self, names: frozenset[str]) -> None:
        """Holds exactly these accounts from now on."""
        self.names = names
