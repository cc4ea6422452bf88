"""Watches for a new policy version: a thread of its own asks the database once a second.

`adopt` gets the whole policy. A version that cannot be followed changes nothing and is logged once. While
the database is away, the policy stays as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Final, Protocol

import structlog

from backends.sql.errors import SqlError
from policy.active import policy_of
from policy.schema import Policy
from policy.versions import Version

LOOK_S: Final = 1.0
log = structlog.get_logger(__name__)


class VersionSource(Protocol):
    """The policy's versions in the database (policy/versions.py)."""

    def newer_than(self, number: int) -> Version | None:
        """Returns the version in force if its number is greater; else None."""
        ...


class PolicyWatcher:
    """One thread calls `look`; any thread may read the numbers and call `stop`."""

    def __init__(
        self,
        versions: VersionSource,
        accounts: Collection[str],
        adopt: Callable[[Policy], None],
        *,
        number: int,
        look_s: float = LOOK_S,
        beside: Callable[[], None] | None = None,
    ) -> None:
        """`number` is that of the version followed now, 0 for none; `accounts` are those of hongyan.toml.
        `adopt` raises ValueError for a policy that this process cannot follow, and then changed nothing.
        `beside` looks at the templates after each look, and never raises."""
        self.number = number
        """Number of the version that is followed."""
        self.seen = number
        """Number of the newest version found; above `number` while that one is refused."""
        self._versions = versions
        self._accounts = accounts
        self._adopt = adopt
        self._look_s = look_s
        self._beside = beside
        self._away = False
        self._stop = threading.Event()

    @property
    def refused(self) -> bool:
        """Whether the newest version is not the one that is followed."""
        return self.seen != self.number

    def run(self) -> None:
        """Looks again and again until `stop`."""
        while not self._stop.wait(self._look_s):
            self.look()
            if self._beside is not None:
                self._beside()

    def stop(self) -> None:
        """Adopts nothing more; idempotent, safe before `run`."""
        self._stop.set()

    def look(self) -> None:
        """Adopts the newest version if there is a newer one than last time. Never raises."""
        try:
            found = self._versions.newer_than(self.seen)
        except Exception as exc:  # after any error the policy that is followed still holds
            self._note_away(exc)
            return
        if self._away:
            self._away = False
            log.info("policy_watched_again")
        if found is not None and not self._stop.is_set():
            self.seen = found.number
            self._follow(found)

    def _follow(self, version: Version) -> None:
        try:
            self._adopt(policy_of(version, self._accounts))
        except ValueError as exc:  # PolicyError and SettingsError among them
            log.error("policy_refused", version=version.name, cause=str(exc), keeps=self.number)
        except Exception:  # after any error of `adopt` the policy before stays in force
            log.exception("policy_refused", version=version.name, keeps=self.number)
        else:
            self.number = version.number

    def _note_away(self, exc: Exception) -> None:
        if not self._away:
            self._away = True
            expected = isinstance(exc, SqlError)
            log.warning(
                "policy_not_watched",
                cause=str(exc),
                exc_info=None if expected else exc,
                what="the policy that is followed still holds",
            )
