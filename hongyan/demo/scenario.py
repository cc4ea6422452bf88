"""Runs the demo: two workers send notifications at a steady rate, and one is killed with −9 in mid-call.
Recovery then decides about the deliveries that the killed worker left in doubt."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import chain, islice
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple

from backends.kafka.clients import KafkaTrouble
from backends.sql.database import Database, database_url
from hongyan.demo.environment import CHANNEL, DemoEnvironment
from hongyan.demo.progress import OPEN, FleetProgress, ProgressReader
from hongyan.demo.proof import (
    AcknowledgedSends,
    DemoSummary,
    Doubt,
    ProviderProof,
    doubt_in,
    duration_s,
    ledger_states,
    prove,
    quantile,
    waits_ms,
)
from hongyan.enqueue import BadLine, EnqueueOutcome, NotificationSender, Ready, read_lines
from simulator import SimulatorError
from tracing.stories import find
from tracing.timeline import Story

FIRST: Final = "worker-1"
SECOND: Final = "worker-2"
RECOVERY: Final = "recovery"
KILL_AT: Final = 0.35
"""Share of the deliveries that are in the ledger when the first worker dies."""
PER_SECOND: Final = 500
"""Notifications handed to Kafka a second, at most."""
SHORTEST_S: Final = 2.0
"""Time over which the notifications of a small file are spread: the first worker is killed meanwhile."""
PATIENCE_S: Final = 120.0
_LOOK_S: Final = 0.1
_TRACE_S: Final = 3.0
_THAWED_S: Final = 0.02
"""Time between two tries to freeze the first worker in mid-call."""
_FLUSH_S: Final = 30.0

Say = Callable[[str], None]
Show = Callable[[FleetProgress, int], None]
"""Takes the progress, and the expected number of deliveries."""


class DemoFailed(RuntimeError):
    """The demo cannot go on; the text says why and where the logs are."""


class DemoResult(NamedTuple):
    """The findings of one run."""

    summary: DemoSummary
    proof: ProviderProof
    stories: list[Story]


def run(folder: Path, file: Path, *, say: Say, show: Show) -> DemoResult:
    """Runs the demo. Raises DemoFailed."""
    try:
        with DemoEnvironment(folder) as environment:
            say("embedded Kafka, SQLite ledger and provider are up; starting two workers")
            environment.start_worker(FIRST)
            environment.start_worker(SECOND)
            _await_ready(environment, FIRST, SECOND)
            settings = environment.settings
            database = Database(database_url(settings.database.url, settings.base))
            try:
                return DemoRun(environment, database, say, show).play(file)
            finally:
                database.close()
    except (KafkaTrouble, SimulatorError) as exc:
        raise DemoFailed(f"the demo's environment failed: {exc}") from exc


class DemoRun:
    """One run, from the first notification to the proof. For one thread."""

    def __init__(
        self, environment: DemoEnvironment, database: Database, say: Say, show: Show
    ) -> None:
        self._environment = environment
        self._database = database
        self._say = say
        self._show = show
        self._reader = ProgressReader(database)
        self._sends = AcknowledgedSends()
        self._expected = 0
        self._killed_at = 0.0
        self._takeover_s = 0.0

    def play(self, file: Path) -> DemoResult:
        """Returns the result. Raises DemoFailed."""
        self._expected = _receivers_in(file)
        with file.open("rb") as lines:
            self._send_and_kill(read_lines(lines, []))
        states = ledger_states(self._database)
        seconds = duration_s(self._sends, self._environment.book())
        doubt = doubt_in(states, self._environment.book())
        self._recover(doubt)
        stories = self._stories(doubt)
        return self._judge(doubt, seconds, stories)

    def _send_and_kill(self, lines: Iterator[Ready]) -> None:
        """Sends at a steady rate, kills the first worker midway, waits until no delivery is in flight.

        A line without created_at is created when it is read, right before it is handed to Kafka."""
        outcome = EnqueueOutcome()
        sender = NotificationSender(self._environment.settings.kafka, outcome)
        began, per_second = time.monotonic(), rate_of(self._expected)
        self._say(f"both workers are ready; sending {per_second} notifications a second")
        while True:
            due = int((time.monotonic() - began) * per_second) - self._sends.notifications
            self._send(sender, islice(lines, max(due, 0)))
            progress = self._reader.look()
            self._show(progress, self._expected)
            tries = not self._killed_at and progress.states.total() >= self._expected * KILL_AT
            if tries:
                self._try_to_kill(progress)
            self._note_takeover()
            if progress.is_over(self._expected):
                break
            self._check(began)
            time.sleep(_THAWED_S if tries else _LOOK_S)
        if not self._killed_at:
            log = self._environment.tree.log(FIRST)
            raise DemoFailed(
                f"{FIRST} never had a call under way that the provider knew; its log is {log}; run it again"
            )
        sender.finish(_FLUSH_S)
        if not outcome.ok:
            raise DemoFailed(f"not everything reached the embedded Kafka: {outcome}")

    def _send(self, sender: NotificationSender, lines: Iterator[Ready]) -> None:
        for line in lines:
            sender.send(line)
            self._sends.add(line.notification)

    def _try_to_kill(self, progress: FleetProgress) -> None:
        """Freezes the first worker, and kills it as it is if it has a call under way. Else it goes on."""
        tree = self._environment.tree
        tree.freeze(FIRST)
        held = self._reader.in_flight(FIRST)
        arrived = sum(self._has_accepted(key) for key in held)
        if not arrived:
            tree.thaw(FIRST)
            return
        tree.kill(FIRST)
        self._killed_at = time.monotonic()
        self._reader.killed.append(FIRST)
        self._say(
            f"kill -9 {FIRST} after {progress.seconds:.1f} s, in mid-call: it had "
            f"{len(held)} deliveries in flight, and the provider had {arrived} of them"
        )

    def _has_accepted(self, key: str) -> bool:
        seen = self._environment.provider.seen(key)
        return seen is not None and seen.accepted > 0

    def _note_takeover(self) -> None:
        """Takes the time at which the second worker first claimed from the first one's partitions."""
        if not self._killed_at or self._takeover_s:
            return
        if self._reader.shares_partitions(FIRST, SECOND):
            self._takeover_s = time.monotonic() - self._killed_at
            self._say(f"{SECOND} took over its partitions {self._takeover_s:.1f} s after the kill")

    def _recover(self, doubt: Doubt) -> None:
        """Starts the recovery and waits until nothing is open."""
        self._say(f"{len(doubt.messages)} are in doubt; recovery asks the provider about each one")
        self._environment.start_recovery(RECOVERY)
        began = time.monotonic()
        while not (progress := self._reader.look()).is_over(self._expected, OPEN):
            self._show(progress, self._expected)
            self._check(began)
            time.sleep(_LOOK_S)
        self._show(progress, self._expected)
        self._environment.tree.end(RECOVERY)

    def _judge(self, doubt: Doubt, seconds: float, stories: list[Story]) -> DemoResult:
        book = list(self._environment.book())
        proof = prove(self._sends, book)
        states = self._reader.look().states
        waits = waits_ms(self._sends, book)
        summary = DemoSummary(
            notifications=self._sends.notifications,
            expected=proof.expected,
            sent_once=proof.once,
            lost=len(proof.lost),
            doubled=len(proof.doubled),
            unasked=len(proof.unasked),
            in_doubt=len(doubt.messages),
            in_doubt_arrived=doubt.arrived,
            ledger=dict(states),
            takeover_s=round(self._takeover_s, 2),
            p50_ms=quantile(waits, 50),
            p99_ms=quantile(waits, 99),
            seconds=round(seconds, 2),
            per_second=round(proof.once / seconds, 1) if seconds else 0.0,
        )
        return DemoResult(summary, proof, stories)

    def _check(self, began: float) -> None:
        tree, folder = self._environment.tree, self._environment.folder
        for name, code in tree.ended():
            raise DemoFailed(f"{name} ended with code {code}; its log is {tree.log(name)}")
        if time.monotonic() > began + PATIENCE_S:
            raise DemoFailed(f"not done within {PATIENCE_S:.0f} s; the logs are in {folder}")

    def _stories(self, doubt: Doubt) -> list[Story]:
        """Returns the timelines of two messages, once their trace has been written."""
        deadline = time.monotonic() + _TRACE_S
        plain = (
            m for k, (_, m) in ledger_states(self._database).items() if k not in doubt.messages
        )
        names = list(chain(islice(plain, 1), islice(doubt.messages.values(), 1)))
        while True:
            stories = [story for name in names for story in find(self._database, name)]
            # The ledger row gives the claim; the trace adds the rest a moment later.
            complete = all(len(d.moments) > 1 for story in stories for d in story.deliveries)
            if complete or time.monotonic() > deadline:
                return stories
            time.sleep(_LOOK_S)


def rate_of(notifications: int) -> int:
    """Returns how many notifications go to Kafka a second."""
    return min(PER_SECOND, ceil(notifications / SHORTEST_S))


def _await_ready(environment: DemoEnvironment, *names: str) -> None:
    tree, deadline = environment.tree, time.monotonic() + PATIENCE_S
    while not all(tree.ready(name) for name in names):
        for name, code in tree.ended():
            raise DemoFailed(f"{name} ended with code {code}; its log is {tree.log(name)}")
        if time.monotonic() > deadline:
            raise DemoFailed(f"the workers are not ready; the logs are in {environment.folder}")
        time.sleep(_LOOK_S)


def _receivers_in(file: Path) -> int:
    """Returns the number of deliveries in the file. Raises DemoFailed for a line that cannot be sent."""
    bad: list[BadLine] = []
    with file.open("rb") as lines:
        found = [one.notification for one in read_lines(lines, bad)]
    if bad:
        first = bad[0]
        raise DemoFailed(f"{file}: line {first.line}: {first.path}: {first.detail}; mend the file")
    if not found:
        raise DemoFailed(f"{file} has no notification; give one JSON object a line")
    if others := sorted({one.lane.name for one in found if one.channel != CHANNEL}):
        raise DemoFailed(
            f"{file}: {', '.join(others)}: the demo sends {CHANNEL}.* alone; "
            "try other channels with `hongyan dev`"
        )
    return sum(len(set(one.receivers)) for one in found)
