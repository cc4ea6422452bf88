"""The harness of integration and chaos tests: a fleet of real workers and an oracle over them.

Plain classes, no pytest in them: `make chaos` and programs use them too. Fixtures stand on top, in
tests/integration/conftest.py.
"""

from tests.harness.databases import fresh_database, fresh_ledger
from tests.harness.fleet import Fleet
from tests.harness.ground import Ground, fresh_redis, fresh_topics, ground_on
from tests.harness.notifications import LANE, keys_of, notification, notifications, now_ms
from tests.harness.oracle import LedgerVerdict
from tests.harness.waiting import TimedOut, await_
from tests.harness.wire import Committed, DeadLetter, Place, Sent
from tests.harness.worker import WorkerProcess

__all__ = [
    "LANE",
    "Committed",
    "DeadLetter",
    "Fleet",
    "Ground",
    "LedgerVerdict",
    "Place",
    "Sent",
    "TimedOut",
    "WorkerProcess",
    "await_",
    "fresh_database",
    "fresh_ledger",
    "fresh_redis",
    "fresh_topics",
    "ground_on",
    "keys_of",
    "notification",
    "notifications",
    "now_ms",
]
