"""A process that issues ids, and sets its database's clock back by 10 s in the middle.

    python -m tests.producer.ids.issuer URL LIVES BATCHES SIZE FILE

Each life ends without giving its number back, as after a kill. The ids go to FILE, 8 bytes each.
"""

from __future__ import annotations

import sys
from array import array
from pathlib import Path

from sqlalchemy import Connection

from backends.sql.database import Database, database_url
from idempotency.sql_ledger import clock_of
from producer.ids.generator import IdGenerator
from producer.ids.worker_numbers import WorkerNumbers

BACK_MS = 10_000


def issue(url: str, lives: int, batches: int, size: int) -> array[int]:
    """Returns the ids of all lives."""
    database = Database(database_url(url), pool_size=1)
    clock, back = clock_of(database), [0]

    def set_back(connection: Connection) -> int:
        return clock(connection) - back[0]

    issued = array("q")
    for _ in range(lives):
        generator = IdGenerator(WorkerNumbers(database, set_back), keeps=False)
        for batch in range(batches):
            issued.extend(generator.batch(size))
            if batch == batches // 2:
                back[0] = BACK_MS - back[0]
                generator.renew()
    return issued


if __name__ == "__main__":
    _url, _lives, _batches, _size = sys.argv[1], *map(int, sys.argv[2:5])
    Path(sys.argv[5]).write_bytes(issue(_url, _lives, _batches, _size).tobytes())
