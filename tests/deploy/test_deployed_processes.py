"""compose.yaml, the Kubernetes demo and the systemd units come up as they are.

Each process runs here with exactly the command, environment, files and secrets that its file gives it, and
answers exactly its probe. tests/deploy/deployment.py lists the replacements.
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from backends.settings import Settings, load
from deploy.local.stack import Stack
from hongyan_client.outbox import Outbox
from hongyan_client.outbox.engine import outbox_engine
from tests.deploy.deployment import Deployment, EndedEarly, deployment
from tests.deploy.launches import Launch, of_compose, of_overlay, of_units
from tests.harness.databases import connected
from tests.harness.waiting import await_

_ACCOUNTS = re.compile(r"^\[(receipts\.)?accounts\.\w+\]\n(?:(?!\[).*\n)*", re.MULTILINE)
_SMS = ["--to", "+8613800000001", "--template", "SMS_154950909", "--param", "code=4711"]
_PRODUCTION = {
    "orders-check": "d",
    "aliyun-access-key-secret": "a",
    "aliyun-receipts": "b",
    "mail-password": "c",
}
_OUTBOX_URL = "postgresql://orders:a-password@orders-db/orders"
_WAITS = {"wait-for-migrate": "hongyan db upgrade", "wait-for-outbox": "migration.upgrade"}
"""Containers that wait, and what their logs ask for."""
_RELAY = ("outbox", "relay", "wait-for-outbox")
_CONSOLE = {"console": "a key of the audit, 32 characters or more"}
_WAIT_S = 60.0
_UNITS = {
    "aliyun": "a",
    "aliyun-receipts": "b",
    "database-url": "postgresql://postgres:5432/h",
    "redis-url": "redis://redis:6379/0",
    "outbox-url": _OUTBOX_URL,
    **_CONSOLE,
}


def _address(url: str) -> str:
    """Returns what follows the login in a URL."""
    return url.rpartition("@")[2] or url.rpartition("//")[2]


def servers(stack: Stack, database: str, redis_url: str) -> dict[str, str]:
    """Returns the stack's addresses by those of the files."""
    brokers = ("kafka-1:9092,kafka-2:9092,kafka-3:9092", "kafka-bootstrap:9092", "kafka:9092")
    return {
        **dict.fromkeys(brokers, stack.bootstrap),
        "postgres:5432/hongyan": _address(database),
        "redis:6379/0": redis_url.removeprefix("redis://"),
    }


@pytest.fixture
def fleet(
    stack: Stack, database: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> Iterator[Deployment]:
    with deployment(tmp_path, servers(stack, database, redis_url), topic_prefix) as opened:
        yield opened


@pytest.fixture
def migrated(
    stack: Stack, ledger_database: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> Iterator[Deployment]:
    """A deployment on an upgraded ledger."""
    with deployment(tmp_path, servers(stack, ledger_database, redis_url), topic_prefix) as opened:
        yield opened


def states(database: str, message_id: str) -> set[str]:
    """Returns the states of a notification's deliveries."""
    query = "SELECT state FROM hongyan_deliveries WHERE message_id = %s"
    with connected(database) as connection:
        return {row[0] for row in connection.execute(query, (message_id,))}


def has_receipt(database: str, message_id: str) -> bool:
    """Returns whether a receipt has ended a delivery of the notification."""
    return bool(states(database, message_id) & {"DELIVERED", "UNDELIVERED"})


@pytest.fixture(params=["compose", "demo"])
def deployed(request: pytest.FixtureRequest) -> tuple[list[Launch], list[Launch], list[Launch]]:
    """Processes that wait for the migration, that run once, in order, and that serve."""
    ours = of_compose() if request.param == "compose" else of_overlay("demo")
    once = [one for one in ours.values() if one.name in ("migrate", "tables", "topics", "outbox")]
    waiting = {one.name: one for one in ours.values() if one.name in _WAITS}
    return [*waiting.values()], once, [one for one in ours.values() if one.ready]


def committed(database: str, topic_prefix: str, message_id: str) -> None:
    """Writes a notification into the outbox, as a business's transaction does."""
    found = {"channel": "sms", "kind": "notice", "receivers": ["+8613800000001"], "id": message_id}
    template = {"id": "SMS_154950909", "params": {"code": "4711"}}
    engine = outbox_engine(database)
    with engine.begin() as connection:
        Outbox(topic_prefix=topic_prefix).add(connection, {**found, "template": template})
    engine.dispose()


@pytest.mark.timeout(300)  # some fifteen processes of their own
@pytest.mark.soak(small="::test_production_reads_every_secret_that_it_names")
def test_every_process_is_ready_with_exactly_its_configuration(
    deployed: tuple[list[Launch], list[Launch], list[Launch]],
    fleet: Deployment,
    database: str,
    topic_prefix: str,
) -> None:
    waiting, once, serving = deployed
    assert sorted(one.name for one in serving) == [
        *("console", "gateway", "lookback", "receipts", "recovery", "relay", "simulator", "worker")
    ]
    assert len(once) == 3
    waits = [fleet.start(launch) for launch in waiting]
    simulator = fleet.start(next(one for one in serving if one.name == "simulator"))
    for pod in waits:
        asked = _WAITS[pod.launch.name]
        await_(partial(pod.has_written, asked), what="the reason in its log")
    for launch in once:
        fleet.run(launch)
    others = [fleet.start(launch) for launch in serving if launch.name != "simulator"]
    for process in (simulator, *others):
        process.wait_ready()
    assert [pod.wait(_WAIT_S) for pod in waits] == [0] * len(waits)

    with urllib.request.urlopen(f"{fleet.pages}/login", timeout=10) as page:
        assert b'name="password"' in page.read()
    worker = next(one for one in others if one.launch.name == "worker")
    send = ["hongyan", "send", "--lane", "sms.notice", "--id", "first", *_SMS]
    assert worker.run_beside(send) == 0, worker.tail()
    committed(database, topic_prefix, "second")
    for message_id in ("first", "second"):
        await_(
            partial(has_receipt, database, message_id),
            what=lambda: f"a receipt for each message\n{worker.tail()}",
        )
    if worker.launch.healthcheck:
        assert worker.run_beside(worker.launch.healthcheck) == 0, worker.tail()
    assert [process.stop() for process in (*others, simulator)] == [0] * 8


def without_accounts(launch: Launch) -> Launch:
    """Returns the launch without any account in hongyan.toml."""
    files = {
        path: _ACCOUNTS.sub("", text) if path.endswith("/hongyan.toml") else text
        for path, text in launch.files.items()
    }
    assert files != launch.files
    return replace(launch, files=files)


def without_key(launch: Launch) -> Launch:
    """Returns the launch without the secret of its provider."""
    files = {path: text for path, text in launch.files.items() if not path.endswith("/provider")}
    assert len(files) == len(launch.files) - 1
    return replace(launch, files=files)


def test_a_process_without_its_account_or_key_is_never_ready(migrated: Deployment) -> None:
    ours = of_compose()
    serving = [ours[name] for name in ("worker", "recovery", "receipts")]
    started = [(migrated.start(without_accounts(one)), "account") for one in serving]
    started.append((migrated.start(without_key(ours["worker"])), "provider"))
    for process, word in started:
        with pytest.raises(EndedEarly, match="ended with 2"):
            process.wait_ready()
        assert word in process.tail()


def loaded(launch: Launch, root: Path) -> Settings:
    """Returns the settings of a launch as its process reads them."""

    def here(text: str) -> str:
        for folder in ("/etc/hongyan", "/run"):
            text = text.replace(folder, f"{root}{folder}")
        return text

    for path, text in launch.files.items():
        file = Path(here(path))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(here(text))
    return load(environ={name: here(one) for name, one in launch.environment.items()})


def settings_of(launch: Launch, root: Path) -> Mapping[str, object]:
    """Returns the accounts of a launch as its process reads them, and the names of those with receipts."""
    from channels.registry import load_accounts
    from receipts.sources import load_sources

    settings = loaded(launch, root)
    return {**load_accounts(settings.accounts), "receipts": sorted(load_sources(settings))}


def _files_of_units() -> dict[str, str]:
    return {f"/etc/hongyan/secrets/{key}": text for key, text in _UNITS.items()}


@pytest.mark.parametrize(
    "name", ["worker", "recovery", "receipts", "gateway", "console", "lookback"]
)
def test_a_unit_reads_its_accounts_from_its_credentials(name: str, tmp_path: Path) -> None:
    found = settings_of(of_units(_files_of_units())[f"hongyan-{name}"], tmp_path)
    assert set(found) == {"aliyun", "receipts"}
    assert found["receipts"] == ["aliyun"]


def production_secrets() -> dict[str, dict[str, str]]:
    """Returns the keys of the Secrets that the overlay asks for, by the Secret's name."""
    servers = {"database-url": "postgresql://db/h", "redis-url": "redis://r/0"}
    return {
        "hongyan-secrets": {**servers, **_CONSOLE, **_PRODUCTION},
        "hongyan-relay": {"outbox-url": _OUTBOX_URL},
    }


def test_production_reads_every_secret_that_it_names(tmp_path: Path) -> None:
    secrets = production_secrets()
    pods = of_overlay("production", secrets)
    for number, launch in enumerate(one for one in pods.values() if one.ready):
        found = settings_of(launch, tmp_path / str(number))
        assert set(found) == {"aliyun", "mail", "receipts"}
    missing = dict(list(secrets["hongyan-secrets"].items())[:-1])
    broken = of_overlay("production", {"hongyan-secrets": missing})["hongyan-worker-0/worker"]
    with pytest.raises(ValueError, match="mail-password"):
        settings_of(broken, tmp_path / "broken")


@pytest.mark.parametrize("way", ["compose", "demo", "production", "systemd"])
def test_the_relay_alone_knows_the_business_database(way: str, tmp_path: Path) -> None:
    ways: dict[str, Callable[[], dict[str, Launch]]] = {
        "compose": of_compose,
        "demo": lambda: of_overlay("demo"),
        "production": lambda: of_overlay("production", production_secrets()),
        "systemd": lambda: of_units(_files_of_units()),
    }
    launches = ways[way]()
    for name, launch in launches.items():
        knows = [path for path in launch.files if path.endswith("/outbox-url")]
        of_relay = launch.name.removeprefix("hongyan-") in _RELAY
        assert bool(knows) == of_relay, name
        assert not any("://" in value for value in launch.environment.values()), name
        if launch.name.endswith("relay"):
            settings = loaded(launch, tmp_path)
            assert settings.relay.outbox_url == launch.files[knows[0]]
            assert settings.relay.drain_s < launch.grace_s
    assert any(one.name.endswith("relay") for one in launches.values())
