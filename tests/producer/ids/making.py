"""Generators on a database whose clock the test sets."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from backends.sql.database import Database, database_url
from idempotency.sql_ledger import clock_of
from producer.ids.generator import IdGenerator
from producer.ids.worker_numbers import WorkerNumbers
from sending.runtime.clock import Clock
from tests.idempotency.making import World

LEASE_S = 30.0
_databases: WeakKeyDictionary[World, Database] = WeakKeyDictionary()


class Times:
    """A monotonic clock that stands still until it is set."""

    def __init__(self) -> None:
        self.monotonic_s = 1_000.0

    def clock(self) -> Clock:
        return Clock(lambda: self.monotonic_s, lambda: 0.0)


def numbers_of(world: World) -> WorkerNumbers:
    database = _databases.get(world) or Database(database_url(world.url), pool_size=2)
    _databases[world] = database
    return WorkerNumbers(database, clock_of(database, lambda: world.now))


def generator_of(world: World, times: Times) -> IdGenerator:
    """A generator without a thread."""
    return IdGenerator(numbers_of(world), lease_s=LEASE_S, clock=times.clock(), keeps=False)


def closed(world: World) -> None:
    """Closes the world and what was opened on it here."""
    database = _databases.pop(world, None)
    if database is not None:
        database.close()
    world.close()
