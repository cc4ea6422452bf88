"""Runs the demo: two workers send a few thousand notifications, and one is killed with −9 midway.
Recovery then settles the deliveries that the killed worker left in doubt."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from backends.sql.database import Database, database_url
from hongyan.demo.stage import DemoEnvironment
from hongyan.demo.tally import (
    OPEN,
    Book,
    Doubt,
    Tally,
    doubt_in,
    is_over,
    progress,
    tally,
    witnesses,
)
from hongyan.enqueue import EnqueueOutcome, NotificationSender, read_lines
from tracing.timeline import Story, find

FIRST: Final = "worker-1"
SECOND: Final = "worker-2"
RECOVERY: Final = "recovery"
KILL_AT: Final = 0.35
"""Share of the deliveries that are in the ledger when the first worker dies."""
PATIENCE_S: Final = 75.0
_LOOK_S: Final = 0.1
_TRACE_S: Final = 3.0

Say = Callable[[str], None]
Show = Callable[[Mapping[str, int], int], None]
"""Takes the deliveries by state, and the expected number of deliveries."""


class DemoFailed(RuntimeError):
    """The demo cannot go on; the text says why and where the logs are."""


def run(folder: Path, file: Path, *, say: Say, show: Show) -> tuple[Tally, list[Story]]:
    """Runs the demo. Returns the tally and some messages' stories. Raises DemoFailed."""
    with DemoEnvironment(folder) as stage:
        say("embedded Kafka, SQLite ledger and provider are up; starting two workers")
        stage.start_worker(FIRST)
        stage.start_worker(SECOND)
        began = time.monotonic()
        book = _send(stage, file)
        say(f"{book.notifications:,} notifications ({len(book):,} deliveries) handed to Kafka")
        database = Database(database_url(stage.settings.database.url, stage.settings.base))
        try:
            _watch(stage, database, len(book), say, show)
            seconds = time.monotonic() - began
            doubt = doubt_in(database, stage.provider.report())
            _recover(stage, database, len(book), doubt, say, show)
            result = tally(book, database, stage.provider.report(), doubt, seconds)
            return result, _stories(database, doubt)
        finally:
            database.close()


def _send(stage: DemoEnvironment, file: Path) -> Book:
    book, outcome = Book(), EnqueueOutcome()
    sender = NotificationSender(stage.settings.kafka, outcome)
    with file.open("rb") as lines:
        for ready in read_lines(lines, outcome.bad):
            sender.send(ready)
            book.add(ready.notification, ready.value)
    sender.finish(30.0)
    if not outcome.ok:
        raise DemoFailed(f"not everything reached the embedded Kafka: {outcome}")
    return book


def _watch(stage: DemoEnvironment, database: Database, expected: int, say: Say, show: Show) -> None:
    """Shows progress, kills the first worker midway, waits until no delivery is in flight."""
    deadline = time.monotonic() + PATIENCE_S
    killed = False
    while True:
        states = progress(database)
        show(states, expected)
        if not killed and sum(states.values()) >= expected * KILL_AT:
            killed = True
            stage.kill_worker(FIRST)
            say(f"kill -9 {FIRST}: {states['IN_FLIGHT']} deliveries were in flight in the fleet")
        if killed and is_over(states, expected):
            return
        _check(stage, deadline)
        time.sleep(_LOOK_S)


def _recover(
    stage: DemoEnvironment, database: Database, expected: int, doubt: Doubt, say: Say, show: Show
) -> None:
    """Starts the recovery and waits until nothing is open."""
    say(f"{len(doubt.messages)} are in doubt; recovery asks the provider about each of them")
    stage.start_recovery(RECOVERY)
    deadline = time.monotonic() + PATIENCE_S
    while not is_over(states := progress(database), expected, OPEN):
        show(states, expected)
        _check(stage, deadline)
        time.sleep(_LOOK_S)
    show(states, expected)
    stage.end(RECOVERY)


def _check(stage: DemoEnvironment, deadline: float) -> None:
    if dead := stage.dead_processes():
        raise DemoFailed(f"{dead[0]} ended by itself; its log is {stage.folder / dead[0]}.log")
    if time.monotonic() > deadline:
        raise DemoFailed(f"not done within {PATIENCE_S:.0f} s; the logs are in {stage.folder}")


def _stories(database: Database, doubt: Doubt) -> list[Story]:
    """Returns the timelines of a few messages, once their trace has been written."""
    deadline = time.monotonic() + _TRACE_S
    while True:
        stories = [story for name in witnesses(database, doubt) for story in find(database, name)]
        # The ledger row gives the claim; the trace adds the rest a moment later.
        complete = all(len(d.moments) > 1 for story in stories for d in story.deliveries)
        if complete or time.monotonic() > deadline:
            return stories
        time.sleep(_LOOK_S)
