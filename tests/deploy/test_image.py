"""deploy/Dockerfile by itself: a container without hongyan.toml is reached from outside."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest

from backends.settings import Settings, load
from deploy.local.layout import REPOSITORY
from tests.deploy.launches import DEPLOY, HEALTH_PORT, IMAGE

LISTENERS: Final = ("listen", "health_address")
"""Keys of addresses that a program opens."""
TABLES: Final = {"campaign run": "campaigns"}
"""Tables of commands that are named otherwise."""
NO_SERVERS: Final = ("db upgrade", "topics apply")
_ROW: Final = re.compile(r"^\| `(hongyan-\w+)` \| (.+?) \| (.+?) \|$", re.MULTILINE)
_COMMAND: Final = re.compile(r"`([^`]+)`")
_PORT: Final = re.compile(r"\b\d{4}\b")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings of a container that has the image's variables alone."""
    monkeypatch.chdir(tmp_path)
    variables = IMAGE.environment("hongyan-worker:0.1.0")
    return load(None, {name: one for name, one in variables.items() if name.startswith("HONGYAN_")})


def listeners(settings: Settings, table: str) -> dict[str, tuple[str, int]]:
    """Returns host and port of each listener of a table, by key."""
    found = {}
    for key in LISTENERS:
        if address := getattr(getattr(settings, table), key, ""):
            host, _, port = address.rpartition(":")
            found[key] = host, int(port)
    return found


def tables() -> list[str]:
    """Returns the tables of programs that listen."""
    every = msgspec.structs.asdict(Settings())
    return [name for name in every if listeners(Settings(), name)]


def table_of_images() -> Iterator[tuple[str, list[str], set[int]]]:
    """Yields the rows of docs/deploy.md: image, commands, ports."""
    page = (REPOSITORY / "docs" / "deploy.md").read_text("utf-8")
    for name, commands, ports in _ROW.findall(page):
        yield name, _COMMAND.findall(commands), set(map(int, _PORT.findall(ports)))


def test_programs_that_listen_are_found() -> None:
    assert {"gateway", "relay", "receipts", "lookback", "campaigns", "console"} <= set(tables())


@pytest.mark.parametrize("table", tables())
def test_every_listener_of_the_image_is_reached_from_outside(
    settings: Settings, table: str
) -> None:
    found = listeners(settings, table)
    assert {host for host, _ in found.values()} == {"0.0.0.0"}, found
    ports = [port for _, port in found.values()]
    assert len(set(ports)) == len(ports), "two listeners of one process"
    assert HEALTH_PORT in ports
    assert f":{HEALTH_PORT}/healthz" in IMAGE.healthcheck[-1]


def test_the_exposed_ports_are_those_of_the_pages_images(settings: Settings) -> None:
    rows = {name: (commands, ports) for name, commands, ports in table_of_images()}
    _, of_simulator = rows.pop("hongyan-simulator")
    for name, (commands, ports) in rows.items():
        served = [TABLES.get(one, one) for one in commands if one not in NO_SERVERS]
        opened = {port for one in served for _, port in listeners(settings, one).values()}
        assert ports == opened, name
    scenario = DEPLOY / "kubernetes" / "overlays" / "demo" / "simulator.toml"
    demo = tomllib.loads(scenario.read_text("utf-8"))
    assert demo["host"] == "0.0.0.0"
    assert of_simulator == {demo["port"], demo["smtp_port"]}
    assert IMAGE.ports == of_simulator.union(*(ports for _, ports in rows.values()))


def test_every_program_that_listens_is_in_an_image() -> None:
    served = {TABLES.get(one, one) for _, commands, _ in table_of_images() for one in commands}
    assert set(tables()) <= served
