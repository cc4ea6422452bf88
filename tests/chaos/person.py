"""A person who retries by hand what recovery is about to retry by itself, or pauses a lane."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import closing
from typing import NamedTuple

from backends.settings import DatabaseSettings, Settings
from idempotency.ledger import LedgerError
from idempotency.recovery.contract import RecoveryStore
from idempotency.sql_ledger import open_ledger
from message.states import State
from tests.harness import await_, now_ms
from tests.harness.operator_moves import operator_retry

OBEYED_MS = 5_000
_PAUSE_S = 0.02


def race(database_url: str, keys: Collection[str], seconds: float) -> tuple[int, int]:
    """For so long retry by hand whatever of these waits for its retry; (moves made, moves that came
    second)."""
    won = lost = 0
    with closing(open_ledger(Settings(database=DatabaseSettings(url=database_url)))) as ledger:
        rows, deadline = ledger.recovering(), time.monotonic() + seconds
        while time.monotonic() < deadline:
            for key in keys:
                made = _retry(rows, key)
                won, lost = won + (made is True), lost + (made is False)
            time.sleep(_PAUSE_S)
    return won, lost


class Paused(NamedTuple):
    """A pause that was. Epoch milliseconds of this machine."""

    quiet_ms: tuple[int, int]
    """From when until when nothing of the lane may be sent."""
    resumed_ms: int
    """When the ledger had the order to resume."""


def pause(database_url: str, lane: str, seconds: float, meanwhile: Callable[[], object]) -> Paused:
    """Pause the lane for so long, and call `meanwhile` once nobody may send any more."""
    by = {"author": "chaos", "reason": "a fault of the plan"}
    with closing(open_ledger(Settings(database=DatabaseSettings(url=database_url)))) as ledger:
        controls = ledger.controls()
        _insist(lambda: controls.pause([lane], None, **by))
        paused_at = now_ms()
        time.sleep(OBEYED_MS / 1_000)
        meanwhile()
        time.sleep(max(0.0, seconds - (now_ms() - paused_at) / 1_000))
        until = now_ms()
        _insist(lambda: controls.resume([lane], **by))
        resumed_at = now_ms()
    return Paused((paused_at + OBEYED_MS, until), resumed_at)


def _insist(order: Callable[[], object]) -> None:
    """Give the order until the ledger takes it."""

    def given() -> bool:
        try:
            order()
        except LedgerError:
            return False
        return True

    await_(given, what="the ledger takes the order")


def _retry(rows: RecoveryStore, key: str) -> bool | None:
    """Whether the move was made; None where there was nothing to retry, or no ledger."""
    try:
        found = rows.version_of(key)
        if found is None or found[2] is not State.RETRY:
            return None
        day, version, state = found
        return rows.move([operator_retry(key, day, version, state)])[0]
    except LedgerError:
        return None
