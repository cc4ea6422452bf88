"""Fixtures for all tests. Those that need a real server ask for one of these, and for no more:

stack             all of it: addresses, and the names of its servers
kafka_bootstrap   the brokers' addresses           topic_prefix    topics of this test's own
database          the URL of a fresh PostgreSQL    redis_url       an empty Redis database
ledger_database   one with an upgraded ledger      private_stack   one to break at will
still_database    the same, whose clock a World moves
sqlite_database   the URL of a fresh SQLite file
mariadb_database  the URL of a fresh MariaDB database, whose server starts only then

library_log       a text of all that libraries log, at every level
"""

import gc
import io
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, cast

import hypothesis
import pytest
import structlog

from deploy.local import stack as local
from deploy.local.stack import Stack
from tests import soak
from tests.harness.databases import drop_kept, fresh_database, fresh_ledger, fresh_mariadb
from tests.harness.ground import fresh_redis, fresh_topics
from tests.scheduling import GroupScheduling, GroupsFile, write_groups
from tests.services import Services, started

_SERVICES = pytest.StashKey[Services]()
_GC_THRESHOLDS = (10_000, 10, 10)
"""Python's own are (700, 10, 10)."""

# An example may take its time on a busy machine; what hangs is ended by pytest-timeout.
hypothesis.settings.register_profile(
    "hongyan", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("hongyan")


_configure_logs = structlog.configure


def _configure_without_cache(**settings: Any) -> None:
    """A command that a test calls in its process must not fix the level of every module's logger."""
    _configure_logs(**settings | {"cache_logger_on_first_use": False})


structlog.configure = cast(Any, _configure_without_cache)


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(GroupsFile(), GroupsFile.NAME)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    return GroupScheduling(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    soak.add_option(parser)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    soak.choose(config, items)
    for item in items:
        if "services" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.stack)
    write_groups(config, items)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Stops the collector of garbage: what is imported and collected stays to the end."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Starts the stack before the first test, so that a download counts against no time limit. The
    collector of garbage works from here on, seldom, and never looks at what is imported and collected."""
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.enable()
    needed = any("services" in getattr(item, "fixturenames", ()) for item in session.items)
    if needed and not session.config.option.collectonly:
        session.config.stash[_SERVICES] = started()


def pytest_unconfigure(config: pytest.Config) -> None:
    drop_kept()
    services = config.stash.get(_SERVICES, None)
    if services is not None:
        services.leave()


@pytest.fixture
def library_log() -> Iterator[io.StringIO]:
    """A text that grows by all that libraries log in this process."""
    text, root = io.StringIO(), logging.getLogger()
    handler, level = logging.StreamHandler(text), root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield text
    root.setLevel(level)
    root.removeHandler(handler)


@pytest.fixture(scope="session")
def services(pytestconfig: pytest.Config) -> Services:
    if _SERVICES not in pytestconfig.stash:  # the test asked by a name that its parameter gave
        pytestconfig.stash[_SERVICES] = started()
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
    with fresh_topics(kafka_bootstrap) as prefix:
        yield prefix


@pytest.fixture
def database(services: Services) -> Iterator[str]:
    """The URL of an empty PostgreSQL database, dropped afterwards."""
    services.require("postgres")
    with fresh_database(services.stack.database_url) as url:
        yield url


@pytest.fixture
def ledger_database(services: Services) -> Iterator[str]:
    """The URL of a PostgreSQL database with an upgraded ledger, dropped afterwards."""
    services.require("postgres")
    with fresh_ledger(services.stack.database_url) as url:
        yield url


@pytest.fixture
def still_database(services: Services) -> Iterator[str]:
    """The URL of a PostgreSQL database with an upgraded ledger whose clock a World moves."""
    from tests.idempotency.making import stand_still

    services.require("postgres")
    with fresh_ledger(services.stack.database_url, stand_still) as url:
        yield url


@pytest.fixture
def mariadb_database(services: Services) -> Iterator[str]:
    """The URL of an empty MariaDB database, dropped afterwards. The server starts when a test asks; one
    that runs already is named by HONGYAN_TEST_MARIADB_URL."""
    url = os.environ.get("HONGYAN_TEST_MARIADB_URL")
    if not url:
        services.require_started("mariadb")
        url = services.stack.layout.mariadb_url
    with fresh_mariadb(url) as made:
        yield made


@pytest.fixture
def sqlite_database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'hongyan.db'}"


@pytest.fixture
def redis_url(services: Services) -> Iterator[str]:
    """The URL of an empty Redis database that no other run uses meanwhile."""
    services.require("redis")
    with fresh_redis(services.stack.redis_url) as url:
        yield url
