"""Watching for another policy: one look a second at the database, by a thread that does nothing else.

What it finds is handed to `adopt` as a whole. A version that cannot be followed changes nothing and is said
once; a database that is away is waited for.
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
    """What is asked of the database (policy/versions.py)."""

    def newer_than(self, number: int) -> Version | None:
        """The version in force, if its number is greater."""
        ...


class PolicyWatcher:
    """`look` is one thread's; anyone may read the numbers, and stop it."""

    def __init__(
        self,
        versions: VersionSource,
        accounts: Collection[str],
        adopt: Callable[[Policy], None],
        *,
        number: int,
        look_s: float = LOOK_S,
    ) -> None:
        """`number` is that of the version followed now, 0 for none; `accounts` are those of hongyan.toml.
        `adopt` raises ValueError for a policy that this process cannot follow, and then changed nothing."""
        self.number = number
        """Of the version that is followed."""
        self.seen = number
        """Of the newest version that was found: above `number` while that one is refused."""
        self._versions = versions
        self._accounts = accounts
        self._adopt = adopt
        self._look_s = look_s
        self._away = False
        self._stop = threading.Event()

    @property
    def refused(self) -> bool:
        """Whether the newest version is not the one that is followed."""
        return self.seen != self.number

    def run(self) -> None:
        """Look again and again until `stop`."""
        while not self._stop.wait(self._look_s):
            self.look()

    def stop(self) -> None:
        """Adopt nothing more; idempotent, safe before `run`."""
        self._stop.set()

    def look(self) -> None:
        """Adopt the newest version, if there is another than the last time. Never raises."""
        try:
            found = self._versions.newer_than(self.seen)
        except Exception as exc:  # whatever it is, the policy that is followed still holds
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
        except Exception:  # whatever adopting it raises: the policy before stays in force
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
