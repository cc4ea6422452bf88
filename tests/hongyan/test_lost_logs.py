"""A log that cannot be written costs its lines alone: no process ends, and none leaves its work undone."""

import errno
import io
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from time import sleep

import pytest

from backends.library_output import lossy_output
from backends.settings import DatabaseSettings, Settings
from tests.harness.databases import upgraded
from tests.hongyan.test_signals import CONFIG, PROGRAM


@contextmanager
def full_disk() -> Iterator[int]:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    yield descriptor
    os.close(descriptor)


@contextmanager
def reader_that_ended() -> Iterator[int]:
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


LOGS = [full_disk, reader_that_ended]


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("command", ["recovery", "receipts"])
def test_a_process_without_its_log_serves_and_ends_in_order(
    command: str,
    log: Callable[[], AbstractContextManager[int]],
    sqlite_database: str,
    tmp_path: Path,
) -> None:
    upgraded(Settings(database=DatabaseSettings(url=sqlite_database)))
    config, url = tmp_path / "hongyan.toml", tmp_path / "url"
    config.write_text(CONFIG.format(pipe=url))
    url.write_text(sqlite_database)
    (tmp_path / "key").write_text("key-of-ali")
    (tmp_path / "secret").write_text("s3cret-of-ali")
    file = sqlite_database.removeprefix("sqlite:///")
    with log() as stderr:
        process = subprocess.Popen([*PROGRAM, "-c", str(config), command], stderr=stderr)
        try:
            while not beats(file):
                assert process.poll() is None, f"{command} ended with {process.returncode}"
                sleep(0.05)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
            process.wait()
    assert not beats(file), "it gave its lease back"


def beats(file: str) -> list[tuple[str]]:
    """Returns the processes that have a heartbeat in the ledger."""
    with closing(sqlite3.connect(file, timeout=10)) as database:
        return database.execute("SELECT state FROM workers WHERE state <> 'RETIRED'").fetchall()


class FullStream(io.StringIO):
    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_stream_that_lost_something_stays_so_for_the_last_flush(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full, good = FullStream(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", full)
    monkeypatch.setattr(sys, "stdout", good)
    with lossy_output():
        print("a line", file=sys.stderr, flush=True)
        print("a line", flush=True)
    assert sys.stdout is good
    assert good.getvalue() == "a line\n"
    assert sys.stderr is not full
    sys.stderr.flush()


def test_a_process_may_begin_without_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with lossy_output():
        print("a line", file=sys.stderr, flush=True)
        assert not sys.stderr.isatty()
