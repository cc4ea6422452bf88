"""The program, called in this process or as one of its own, in an empty folder."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import structlog
from typer.testing import CliRunner

from backends.kafka.embedded import EmbeddedKafka
from backends.settings import load
from hongyan import terminal
from hongyan.cli import app
from hongyan.errors import judged
from hongyan.usage.command_line import part_of
from tests.harness.databases import upgraded

PROGRAM = Path(sys.executable).with_name("hongyan")


class Said(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Said]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("HONGYAN_")]:
        if not name.startswith(("HONGYAN_STACK_", "HONGYAN_REQUIRE_")):
            monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def hongyan() -> Iterator[Run]:
    """Call a command here. Expected errors are judged as the program judges them."""

    def run(*arguments: str, stdin: bytes | None = None) -> Said:
        terminal.out.cache_clear()
        terminal.err.cache_clear()
        done = CliRunner().invoke(part_of(app, arguments), list(arguments), input=stdin)
        # A thread that outlives its test must not log to this command's closed stream.
        structlog.reset_defaults()
        verdict = judged(done.exception) if done.exception else None
        if verdict is not None:
            return Said(verdict[1], done.stdout, verdict[0])
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Said(done.exit_code, done.stdout, done.stderr)

    yield run
    structlog.reset_defaults()
    terminal.out.cache_clear()
    terminal.err.cache_clear()


def make_ledger() -> None:
    """Brings the configured database to this version, as `hongyan db upgrade` does. A SQLite file costs no
    migration."""
    upgraded(load())


@pytest.fixture
def program(folder: Path) -> Run:
    """Call the installed program, as a shell would."""

    def run(*arguments: str, stdin: bytes | None = None, **environ: str) -> Said:
        done = subprocess.run(
            [str(PROGRAM), *arguments],
            input=stdin,
            capture_output=True,
            cwd=folder,
            env={**os.environ, **environ},
            timeout=60,
            check=False,
        )
        return Said(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture(scope="session")
def cluster() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as started:
        yield started


@pytest.fixture
def kafka(cluster: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> str:
    """The embedded cluster, given to commands by environment."""
    monkeypatch.setenv("HONGYAN_KAFKA__BOOTSTRAP", cluster.bootstrap)
    return cluster.bootstrap
