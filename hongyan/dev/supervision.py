"""Starts the processes of an environment, waits until they answer, and starts again what died."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Final

from hongyan.dev.environment import World
from hongyan.dev.process_tree import ProcessTree
from hongyan.errors import NotDone

WORKER: Final = "worker"
RECOVERY: Final = "recovery"
RECEIPTS: Final = "receipts"
READY_S: Final = 60.0
"""Longest wait for a process to answer."""
QUICK_S: Final = 10.0
"""A process that dies sooner after its start counts as failing."""
MOST_FAILURES: Final = 3
"""After this many failures of one process in a row, the whole tree ends."""
_LOOK_S: Final = 0.1

Say = Callable[[str], None]


class Supervision:
    """Keeps worker, recovery and receipts of one environment running. For one thread."""

    def __init__(self, world: World, tree: ProcessTree, say: Say) -> None:
        self._world = world
        self._tree = tree
        self._say = say
        self._arguments = {
            WORKER: ("worker",),
            RECOVERY: ("recovery", *world.scheduler),
            RECEIPTS: ("receipts",),
        }
        self._started: dict[str, float] = {}
        self._failures: dict[str, int] = {}

    @property
    def logs(self) -> Path:
        """The folder of logs and pid files."""
        return self._tree.folder

    def start(self, stop: Event) -> bool:
        """Starts the worker and waits for it, then starts the others. Returns False if `stop` was set
        before. Raises NotDone."""
        self._launch(WORKER)
        deadline = time.monotonic() + READY_S
        while not self._tree.ready(WORKER):
            for name, code in self._tree.ended():
                raise NotDone(self._epitaph(name, code))
            self._check_world()
            if time.monotonic() > deadline:
                raise NotDone(f"the worker does not answer; its log is {self._tree.log(WORKER)}")
            if stop.wait(_LOOK_S):
                return False
        self._launch(RECOVERY)
        self._launch(RECEIPTS)
        return True

    def run(self, stop: Event) -> None:
        """Watches until `stop` is set. Raises NotDone if the environment or one process fails for good."""
        while not stop.wait(_LOOK_S):
            self.look()

    def look(self) -> None:
        """Starts again what died. Raises NotDone."""
        self._check_world()
        for name, code in self._tree.ended():
            lived = time.monotonic() - self._started[name]
            self._failures[name] = self._failures.get(name, 0) + 1 if lived < QUICK_S else 1
            if self._failures[name] >= MOST_FAILURES and lived < QUICK_S:
                raise NotDone(self._epitaph(name, code))
            self._say(f"{self._epitaph(name, code)}; started again")
            self._launch(name)

    def _launch(self, name: str) -> None:
        own = {f"{name.upper()}__ID": f"{name}-1"} if name != RECEIPTS else {}
        self._tree.start(name, *self._arguments[name], **self._world.settings, **own)
        self._started[name] = time.monotonic()

    def _check_world(self) -> None:
        if trouble := self._world.trouble():
            raise NotDone(trouble)

    def _epitaph(self, name: str, code: int) -> str:
        if code < 0:
            return f"{name} was ended by signal {-code}"
        cause = self._tree.last_error(name)
        ended = f"{name} ended with code {code}"
        return f"{ended}{f' ({cause})' if cause else ''}; its log is {self._tree.log(name)}"
