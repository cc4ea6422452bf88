"""A person who retries by hand what recovery is about to retry by itself."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import closing

from backends.settings import DatabaseSettings, Settings
from idempotency.ledger import LedgerError
from idempotency.recovery.contract import RecoveryStore
from idempotency.sql_ledger import open_ledger
from message.states import State
from tests.harness.operator_moves import operator_retry

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
