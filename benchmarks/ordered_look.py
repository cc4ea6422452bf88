"""What one look of recovery costs at a lane with few and with many rows behind one key."""

from __future__ import annotations

import statistics
import time
import uuid
from typing import Any, Final

from backends.settings import DatabaseSettings, Settings
from benchmarks.ground import LANE, Servers, fresh_database, notification, with_key
from idempotency.ledger import Claim, Settlement
from idempotency.lines import ASLEEP_AT
from idempotency.recovery.contract import DueQuery, RecoveryStore
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.delivery import deliveries_of
from message.envelope import encode
from message.ids import new_token
from message.states import Event

FEW: Final = 100
MANY: Final = 100_000
WANTED: Final = 1.5
LOOKS: Final = 60
_FAR_MS: Final = 12 * 3_600_000
_OWNER: Final = "bench"


def look_ratio(servers: Servers) -> dict[str, Any]:
    """The time of a look at MANY rows behind one key over that at FEW, as an entry of a report."""
    took = {rows: _look_ms(servers, rows) for rows in (FEW, MANY)}
    ratio = round(took[MANY] / took[FEW], 2)
    return {
        "ratio": f"one look at {MANY:,} rows behind / at {FEW}",
        "median": ratio,
        "wanted": WANTED,
        "at_most": True,
        "holds": ratio <= WANTED,
        "rounds": [ratio],
        "milliseconds": took,
    }


def _look_ms(servers: Servers, rows: int) -> float:
    """The median of several looks, each of which takes the head and gives it back."""
    with fresh_database(servers.database_url, f"b{uuid.uuid4().hex[:12]}") as url:
        ledger = open_ledger(Settings(database=DatabaseSettings(url=url)))
        try:
            _fill(ledger, rows)
            recovering = ledger.recovering()
            took = [_look(recovering) for _ in range(LOOKS)]
        finally:
            ledger.close()
    return round(statistics.median(took[LOOKS // 6 :]), 3)


def _look(rows: RecoveryStore) -> float:
    began = time.perf_counter()
    due, _ = rows.lanes_with_work([LANE.name])
    again = rows.take(DueQuery(LANE.name, 1_000, ordered=True), _OWNER, new_token())
    first = rows.take(DueQuery(LANE.name, 1_000, ordered=True, first=True), _OWNER, new_token())
    took = (time.perf_counter() - began) * 1_000
    if due != [LANE.name] or len(again.taken) != 1 or first.taken:
        raise RuntimeError("a look found something else than the head of the line")
    rows.give_back(again.taken)
    return took


def _fill(ledger: SqlLedger, rows: int) -> None:
    """A head that was refused and is due, and so many rows asleep behind it."""
    item = with_key(notification(0), "key")
    (head,) = deliveries_of(item, encode(item), expires_at=int(time.time() * 1_000) + _FAR_MS)
    claim = Claim(head, new_token())
    (answer,) = ledger.claim([claim], _OWNER, ordered=True)
    head.token, head.day = claim.token, answer.day
    ledger.settle([Settlement(head, Event.NOT_SENT, "http_503")], frozenset({LANE.name}))
    with ledger.database.begin() as connection:
        columns = connection.exec_driver_sql(
            "SELECT column_name FROM information_schema.columns WHERE table_name = 'deliveries'"
            " AND table_schema = current_schema() ORDER BY ordinal_position"
        ).scalars()
        own = {
            "delivery_key": "'row' || n",
            "message_id": "'message' || n",
            "attempt": "0",
            "reason": "'behind'",
            "next_at": str(ASLEEP_AT),
            "created_at": "created_at + n",
        }
        names = list(columns)
        picked = ", ".join(own.get(name, name) for name in names)
        connection.exec_driver_sql(
            f"INSERT INTO deliveries ({', '.join(names)}) SELECT {picked}"
            f" FROM deliveries, generate_series(1, {rows}) AS s (n)"
            f" WHERE delivery_key = '{head.key}'"
        )
    with ledger.database.connection() as connection:
        connection.execute("VACUUM (ANALYZE) deliveries")
