"""Fixtures for all tests. Those that need a real server ask for one of these, and for no more:

stack             all of it: addresses, and the names of its servers
kafka_bootstrap   the brokers' addresses           topic_prefix    topics of this test's own
database          the URL of a fresh PostgreSQL    redis_url       an empty Redis database
sqlite_database   the URL of a fresh SQLite file   private_stack   one to break at will
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

import psycopg
import pytest
import redis
from confluent_kafka.admin import AdminClient

from deploy.local import stack as local
from deploy.local.redis_server import DATABASES
from deploy.local.stack import Stack
from tests.services import Services, started

_SERVICES = pytest.StashKey[Services]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "services" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.stack)
        if _shares_with_its_module(item):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def _shares_with_its_module(item: pytest.Item) -> bool:
    """What a module makes once is made once in one process; all else runs wherever there is room."""
    known = getattr(item, "_fixtureinfo", None)
    made = known.name2fixturedefs.values() if known else ()
    return any(definition.scope == "module" for definitions in made for definition in definitions)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the stack before the first test, so that a download counts against no time limit."""
    needed = any("services" in getattr(item, "fixturenames", ()) for item in session.items)
    if needed and not session.config.option.collectonly:
        session.config.stash[_SERVICES] = started()


def pytest_unconfigure(config: pytest.Config) -> None:
    services = config.stash.get(_SERVICES, None)
    if services is not None:
        services.leave()


@pytest.fixture(scope="session")
def services(pytestconfig: pytest.Config) -> Services:
    return pytestconfig.stash[_SERVICES]


@pytest.fixture(scope="session")
def stack(services: Services) -> Stack:
    """The whole shared stack. Do not break it: others may be using it; see `private_stack`."""
    services.require_all()
    return services.stack


@pytest.fixture
def private_stack(
    services: Services, tmp_path: Path
) -> Callable[..., AbstractContextManager[Stack]]:
    """`with private_stack(brokers=3) as stack:` gives one that this test may kill; `only` names
    the servers it needs, if not all."""
    services.require_all()  # what keeps the shared one from starting would keep this one too
    return partial(local.private_stack, tmp_path)


@pytest.fixture(scope="session")
def kafka_bootstrap(services: Services) -> str:
    services.require(*services.stack.brokers)
    return services.stack.bootstrap


@pytest.fixture
def topic_prefix(kafka_bootstrap: str) -> Iterator[str]:
    """For `kafka.topic_prefix`; topics that begin with it are deleted afterwards."""
    prefix = f"t{uuid.uuid4().hex[:10]}"
    yield prefix
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    topics = [name for name in admin.list_topics(timeout=10).topics if name.startswith(prefix)]
    if topics:
        for done in admin.delete_topics(topics, operation_timeout=10).values():
            done.result()


@pytest.fixture
def database(services: Services) -> Iterator[str]:
    """The URL of an empty PostgreSQL database, dropped afterwards."""
    services.require("postgres")
    url = services.stack.database_url
    name = f"t_{uuid.uuid4().hex[:16]}"
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')
        yield url.rpartition("/")[0] + "/" + name
        admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@pytest.fixture
def sqlite_database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'hongyan.db'}"


@pytest.fixture
def redis_url(services: Services) -> Iterator[str]:
    """The URL of an empty Redis database that no other run uses meanwhile."""
    services.require("redis")
    base = services.stack.redis_url.rpartition("/")[0]
    with ExitStack() as held:
        register = held.enter_context(redis.Redis.from_url(f"{base}/0"))
        number = _reserve(register)
        held.callback(register.delete, _key(number))
        mine = held.enter_context(redis.Redis.from_url(f"{base}/{number}"))
        mine.flushdb()
        held.callback(mine.flushdb)
        yield f"{base}/{number}"


def _reserve(register: "redis.Redis") -> int:
    for number in range(1, DATABASES):
        if register.set(_key(number), "1", nx=True, ex=900):
            return number
    raise RuntimeError("every database of the test Redis is taken; run `make down` and try again.")


def _key(number: int) -> str:
    return f"hongyan-tests:database:{number}"
