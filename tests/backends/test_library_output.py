"""Libraries' prints, warnings and uncaught errors become JSON lines among the others."""

from __future__ import annotations

import gc
import io
import json
import logging
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from backends.library_output import library_output
from backends.logs import configure, identified
from backends.settings import LogSettings
from backends.stack_dump import stacks_on_signal
from tests.harness.waiting import await_

JSON = LogSettings(format="json")


@pytest.fixture(autouse=True)
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    held = io.StringIO()
    monkeypatch.setattr(sys, "stderr", held)
    configure(JSON)
    yield held
    structlog.reset_defaults()
    root.handlers = handlers
    root.setLevel(level)


def events(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_each_printed_line_is_an_event(stream: io.StringIO) -> None:
    with library_output(JSON):
        print("Restoring 3 unacknowledged message(s)", file=sys.stderr)
        print("one\ntwo", end="")
        sys.stderr.write("half ")
        sys.stderr.write("a line\n")
    found = [(e["event"], e["stream"], e["level"], e["text"]) for e in events(stream)]
    assert found == [
        ("output", "stderr", "warning", "Restoring 3 unacknowledged message(s)"),
        ("output", "stdout", "info", "one"),
        ("output", "stderr", "warning", "half a line"),
        ("output", "stdout", "info", "two"),
    ]


def test_lines_of_two_threads_are_not_mixed(stream: io.StringIO) -> None:
    turns = threading.Barrier(2, timeout=5)

    def write(letter: str) -> None:
        for _ in range(3):
            turns.wait()
            sys.stderr.write(letter)
        sys.stderr.write("\n")

    with library_output(JSON):
        threads = [threading.Thread(target=write, args=(letter,)) for letter in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(e["text"] for e in events(stream)) == ["aaa", "bbb"]


def test_the_end_of_a_thread_a_warning_and_a_destructor_are_events(stream: io.StringIO) -> None:
    class Broken:
        def __del__(self) -> None:
            raise OSError("in a destructor")

    def die() -> None:
        raise ValueError("in a thread")

    with library_output(JSON), warnings.catch_warnings():
        warnings.simplefilter("always")
        thread = threading.Thread(target=die, name="t")
        thread.start()
        thread.join()
        Broken()
        gc.collect()
        logging.captureWarnings(True)  # catch_warnings has put its own in place
        warnings.warn("deprecated", UserWarning, stacklevel=1)
    found = {e["event"]: e for e in events(stream)}
    assert (found["thread_error"]["thread"], found["thread_error"]["cause"]) == (
        "t",
        "ValueError('in a thread')",
    )
    assert "in a destructor" in found["unraisable"]["cause"]
    assert "deprecated" in found["library"]["text"]


def test_everything_is_put_back_at_the_end() -> None:
    def held() -> tuple[Any, ...]:
        hooks = (sys.excepthook, threading.excepthook, sys.unraisablehook)
        return (sys.stdout, sys.stderr, *hooks, warnings.showwarning)

    before = held()
    with library_output(JSON):
        assert all(now is not was for now, was in zip(held(), before, strict=True))
    assert held() == before


def test_a_log_for_people_leaves_the_output_alone() -> None:
    before = sys.stderr
    with library_output(LogSettings(format="console")):
        assert sys.stderr is before


def test_the_fields_of_the_process_are_on_every_event(stream: io.StringIO) -> None:
    with identified(process="worker"), identified(worker="w-1"):
        structlog.get_logger().info("mine", worker="another")
        logging.getLogger("celery").warning("theirs")
    structlog.get_logger().info("after")
    mine, theirs, after = events(stream)
    assert (mine["process"], mine["worker"]) == ("worker", "another")
    assert (theirs["process"], theirs["worker"]) == ("worker", "w-1")
    assert "worker" not in after


def test_a_signal_logs_every_stack_though_the_main_thread_waits(stream: io.StringIO) -> None:
    with stacks_on_signal():
        signal.raise_signal(signal.SIGUSR1)
        await_(lambda: events(stream), what="the dump is logged")
    (dump,) = events(stream)
    assert dump["event"] == "stack_dump"
    assert "--- MainThread" in dump["stacks"]
    assert "test_a_signal_logs_every_stack" in dump["stacks"]
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_a_handler_that_is_there_stays() -> None:
    def mine(*_: object) -> None: ...

    before = signal.signal(signal.SIGUSR1, mine)
    try:
        with stacks_on_signal():
            assert signal.getsignal(signal.SIGUSR1) is mine
    finally:
        signal.signal(signal.SIGUSR1, before)
