import random
import threading
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest
from sqlalchemy import event

from backends.sql.database import Database, database_url
from backends.sql.errors import SqlAway
from backends.sql.fair_pool import FairPool, FairSemaphore
from tests.harness.waiting import await_


@pytest.fixture
def database(sqlite_database: str) -> Iterator[Database]:
    """Two connections at most."""
    made = Database(database_url(sqlite_database), pool_size=1)
    yield made
    made.close()


def permits_of(database: Database) -> FairSemaphore:
    pool = database.engine.pool
    assert isinstance(pool, FairPool)
    return pool.permits


def test_a_thread_that_gives_a_connection_back_and_asks_again_passes_by_nobody(
    database: Database,
) -> None:
    order = list[int]()

    def ask(number: int) -> None:
        with database.connection():
            order.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    with database.connection():
        with database.connection():
            for count, thread in enumerate(threads, start=1):
                thread.start()
                await_(lambda: permits_of(database).waiting == count)  # noqa: B023 - at once
        with database.connection():
            assert order == [0, 1, 2, 3]
    for thread in threads:
        thread.join(10)


def test_after_any_use_every_permit_is_free_again(database: Database) -> None:
    """More threads than connections; some connections cannot be made, and some break in use."""
    failed, broken, used = list[int](), list[int](), list[int]()

    def sometimes(*_event: object) -> None:
        if random.random() < 0.3:
            failed.append(1)
            raise psycopg.OperationalError("connection refused")

    event.listen(database.engine, "do_connect", sometimes)

    def use() -> None:
        for _ in range(200):
            with suppress(SqlAway), database.connection():
                used.append(1)
                if random.random() < 0.3:
                    broken.append(1)
                    raise psycopg.OperationalError("server closed the connection unexpectedly")

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed
    assert broken
    assert len(used) > len(broken)
    assert (permits_of(database).free, permits_of(database).waiting) == (2, 0)


def test_permits_go_to_threads_in_the_order_in_which_they_asked() -> None:
    permits, order = FairSemaphore(1), list[int]()
    assert permits.acquire(1)

    def wait(number: int) -> None:
        assert permits.acquire(10)
        order.append(number)
        permits.release()

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(4)]
    for count, thread in enumerate(threads, start=1):
        thread.start()
        await_(lambda: permits.waiting == count)  # noqa: B023 - at once
    permits.release()
    assert permits.acquire(10)  # behind all four, though this thread released just before
    for thread in threads:
        thread.join(10)
    assert order == [0, 1, 2, 3]


def test_a_thread_whose_time_is_up_gets_no_permit_later() -> None:
    permits = FairSemaphore(1)
    assert permits.acquire(1)
    assert not permits.acquire(0.01)
    assert permits.waiting == 0
    permits.release()
    assert permits.acquire(0)
    assert not permits.acquire(0)
