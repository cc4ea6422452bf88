"""Times of what `hongyan status`, `hongyan lanes` and `hongyan deliveries list` ask a large ledger.

Run: `python -m benchmarks.status_queries [--url postgresql://…] [--rows 1000000] [--json]`

Without --url it fills an SQLite file; with it a database of its own on that server, dropped afterwards.
Exits 1 if one takes longer than the bound.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from backends.settings import DatabaseSettings, KafkaSettings, Settings
from benchmarks.ground import LANE, fresh_database, notification
from hongyan.commands import deliveries, lanes, status
from idempotency.ledger import Claim, Settlement, WorkerInfo
from idempotency.recovery.selection import Wanted
from idempotency.sql_ledger import SqlLedger, open_ledger, upgrade
from message.delivery import deliveries_of
from message.envelope import encode
from message.ids import new_token
from message.states import Event, State
from message.vocabulary import lanes_matching

ROWS: Final = 1_000_000
BOUND_MS: Final = 200.0
_TIMES: Final = 7
_BATCH: Final = 20_000
_DAY_MS: Final = 86_400_000
# In ten rows: what is sent, what waits, what is in doubt, what ended otherwise.
_STATE: Final = """CASE n - n / 10 * 10 WHEN 0 THEN 'RETRY' WHEN 1 THEN 'UNKNOWN' WHEN 2 THEN 'PARKED'
 WHEN 3 THEN 'REJECTED' ELSE 'SENT' END"""


def main() -> int:
    """Fills the ledger, measures, prints. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="", help="a PostgreSQL server's database")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--json", action="store_true")
    flags = parser.parse_args()
    with _ledger(flags.url) as (settings, ledger):
        _fill(ledger, flags.rows)
        report = {name: _median_ms(ask) for name, ask in _asked(settings, ledger).items()}
    slow = [name for name, took in report.items() if took > BOUND_MS]
    if flags.json:
        print(json.dumps({"rows": flags.rows, "median_ms": report, "bound_ms": BOUND_MS}))
    else:
        for name, took in report.items():
            print(f"{took:8.1f} ms  {name}")
        print(f"bound {BOUND_MS:.0f} ms at {flags.rows:,} rows: {'missed' if slow else 'kept'}")
    return 1 if slow else 0


@contextmanager
def _ledger(server: str) -> Iterator[tuple[Settings, SqlLedger]]:
    with tempfile.TemporaryDirectory() as folder:
        if not server:
            url = f"sqlite:///{Path(folder) / 'ledger.db'}"
            upgrade(Settings(database=DatabaseSettings(url=url)))
            with closing(open_ledger(_settings(url))) as ledger:
                yield _settings(url), ledger
            return
        with (
            fresh_database(server, f"b{uuid.uuid4().hex[:12]}") as url,
            closing(open_ledger(_settings(url))) as ledger,
        ):
            yield _settings(url), ledger


def _settings(url: str) -> Settings:
    """Nothing listens at the broker's address: a refusal costs no wait."""
    return Settings(
        database=DatabaseSettings(url=url), kafka=KafkaSettings(bootstrap="127.0.0.1:9")
    )


def _fill(ledger: SqlLedger, rows: int) -> None:
    """Copies one settled row, in ten states and over all accounts; the last tenth is in one lane."""
    ledger.register(WorkerInfo("bench", "host", 1, [LANE.name], 1, 600_000))
    one = notification(0, None)
    (item,) = deliveries_of(one, encode(one), expires_at=ledger.now_ms() + _DAY_MS)
    claim = Claim(item, new_token())
    item.day, item.token = ledger.claim([claim], "bench")[0].day, claim.token
    ledger.settle([Settlement(item, Event.ACCEPTED)])
    with ledger.database.begin() as connection:
        if ledger.database.is_postgres:
            names = (
                "SELECT column_name FROM information_schema.columns WHERE table_name = 'deliveries'"
            )
        else:
            names = "SELECT name FROM pragma_table_info('deliveries')"
        columns = [name for (name,) in connection.exec_driver_sql(names)]
    changed = {
        "delivery_key": "'row' || n",
        "message_id": "'message' || n",
        "state": _STATE,
        "account": "'account-' || (n / 100000)",
        "next_at": "CASE WHEN n - n / 20 * 20 < 10 THEN created_at ELSE expires_at END",
        "updated_at": "updated_at + n",
        "provider_id": "NULL",
    }
    picked = ", ".join(changed.get(name, name) for name in columns)
    for begin in range(0, rows, _BATCH):
        end = min(begin + _BATCH, rows)
        series = (
            f"generate_series({begin + 1}, {end}) AS s (n)"
            if ledger.database.is_postgres
            else f"(WITH RECURSIVE s (n) AS (SELECT {begin + 1} UNION ALL SELECT n + 1 FROM s"
            f" WHERE n < {end}) SELECT n FROM s)"
        )
        with ledger.database.begin() as connection:
            connection.exec_driver_sql(
                f"INSERT INTO deliveries ({', '.join(columns)}) SELECT {picked}"
                f" FROM deliveries, {series} WHERE delivery_key = '{item.key}'"
            )


def _asked(settings: Settings, ledger: SqlLedger) -> dict[str, Callable[[], object]]:
    every = [lane.name for lane in lanes_matching(["*"])]

    def listed(template: str = "", **criteria: object) -> Callable[[], object]:
        chosen = Wanted(**{"states": [State.PARKED, State.UNKNOWN], "lanes": every, **criteria})  # type: ignore[arg-type]
        return lambda: deliveries.listed(ledger, chosen, template, 50)

    opened = lanes.Opened(settings, ledger, ledger.controls())
    return {
        "hongyan status": lambda: status.read_status(ledger, settings, every, 10, every=True),
        "hongyan lanes list": lambda: lanes.rows_of(opened, every),
        "deliveries list": listed(),
        "deliveries list --state REJECTED --lane": listed(
            states=[State.REJECTED], lanes=[LANE.name]
        ),
        "deliveries list --state RETRY": listed(states=[State.RETRY]),
        "deliveries list --account, of the newest rows": listed(account="account-9"),
        "deliveries list --account, of no row": listed(account="nobody"),
        "deliveries list --template, of no row": listed(template="nobody"),
    }


def _median_ms(ask: Callable[[], object]) -> float:
    took = []
    for _ in range(_TIMES):
        begun = time.perf_counter()
        ask()
        took.append((time.perf_counter() - begun) * 1_000)
    return round(statistics.median(took), 1)


if __name__ == "__main__":
    sys.exit(main())
