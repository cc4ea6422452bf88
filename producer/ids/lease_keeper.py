"""The thread that renews a generator's lease, so that callers need not wait for the database."""

from __future__ import annotations

import threading
import weakref
from typing import Any, Final, Protocol

import structlog

from producer.ids.errors import IdTrouble

log: Any = structlog.get_logger(__name__)
RETRY_S: Final = 1.0
"""Pause after a renewal that failed."""


class Renewable(Protocol):
    """A generator with a lease."""

    def renew(self) -> None:
        """Renews the lease. Raises IdTrouble."""


class LeaseKeeper:
    """A daemon thread. It ends with `stop`, or when nobody uses the generator any more."""

    def __init__(self, generator: weakref.ReferenceType[Any], every_s: float) -> None:
        self._generator = generator
        self._every_s = every_s
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="id-lease", daemon=True).start()

    def stop(self) -> None:
        """Ends the thread after its renewal, if one is under way. Idempotent."""
        self._ended.set()

    def _run(self) -> None:
        wait_s = self._every_s
        while not self._ended.wait(wait_s):
            generator: Renewable | None = self._generator()
            if generator is None:
                return
            wait_s = self._renewed(generator)
            del generator

    def _renewed(self, generator: Renewable) -> float:
        """Renews. Returns the time until the next renewal."""
        try:
            generator.renew()
        except IdTrouble as exc:
            log.warning("id_lease_not_renewed", error=str(exc))
            return RETRY_S
        except (
            Exception
        ):  # a fault of ours: the thread goes on, and the lease or the mark ends the ids
            log.exception("id_lease_not_renewed")
            return RETRY_S
        return self._every_s
