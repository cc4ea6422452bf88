"""One process at a time runs Spark jobs: it holds the duty `spark`, and renews it while it lives."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

import structlog

from hongyan.errors import NotDone
from idempotency.fleet.duties import Duties
from idempotency.ledger import LedgerError
from idempotency.lost.runs import DUTY, Runs

log = structlog.get_logger(__name__)

LEASE_S: Final = 60.0
"""Time after which a killed process's duty is free."""
_RENEW_S: Final = LEASE_S / 4
_MS: Final = 1_000


class HeldDuty:
    """The duty of this process. Its thread renews it."""

    def __init__(self, duties: Duties, holder: str) -> None:
        self._duties = duties
        self._holder = holder
        self._stop = threading.Event()
        self.until = monotonic() + LEASE_S
        """Written by `_renew`, read by `check`."""
        self._thread = threading.Thread(target=self._renew, name="spark-duty", daemon=True)

    def start(self) -> None:
        """Begins to renew."""
        self._thread.start()

    def check(self) -> None:
        """Raises NotDone once the duty was not renewed in time: another process may have it."""
        if monotonic() > self.until:
            raise NotDone(
                f"this process could not renew its duty for {LEASE_S:.0f} s, so another one may run the"
                " Spark jobs; nothing more is written"
            )

    def end(self) -> None:
        """Ends the renewals and gives the duty up."""
        self._stop.set()
        self._thread.join()
        try:
            self._duties.drop(DUTY, self._holder)
        except LedgerError as exc:
            log.warning("duty_not_given_up", cause=str(exc), free_after_s=LEASE_S)

    def _renew(self) -> None:
        while not self._stop.wait(_RENEW_S):
            asked = monotonic()
            try:
                held = self._duties.hold(DUTY, self._holder, int(LEASE_S * _MS))
            except LedgerError:
                continue
            self.until = asked + LEASE_S if held else 0.0


@contextmanager
def held_duty(duties: Duties, runs: Runs, holder: str) -> Iterator[HeldDuty]:
    """Yields the duty. Raises NotDone, which names the holder, if another process has it; LedgerError."""
    if not duties.hold(DUTY, holder, int(LEASE_S * _MS)):
        raise NotDone(
            f"{runs.holder() or 'another process'} runs Spark jobs already; wait for it, or stop it"
            f" (a killed one is forgotten after {LEASE_S:.0f} s)"
        )
    duty = HeldDuty(duties, holder)
    duty.start()
    try:
        yield duty
    finally:
        duty.end()
