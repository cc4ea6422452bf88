"""The local stack as tests see it: started when a selected test needs it, shared between runs.

Several runs may use one stack at a time. Each holds a shared lock while it does, and the last to
leave stops the stack, if it was tests that started it. `HONGYAN_STACK_KEEP=1` leaves it up.
"""

import fcntl
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.local.errors import StackError
from deploy.local.stack import Stack, shared_stack


class Services:
    """What of the stack is up, and why the rest is not."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self._failed: dict[str, str] = {}
        self._held = ExitStack()

    def start(self) -> None:
        root = self.stack.layout.root
        root.mkdir(parents=True, exist_ok=True)
        users = self._held.enter_context(_users(root).open("a"))
        fcntl.flock(users, fcntl.LOCK_SH)
        if not any(self.stack.running(name) for name in self.stack.names):
            self.stack.layout.started_by_tests.touch()
        try:
            self._failed = self.stack.up()
        except StackError as error:
            self._failed = dict.fromkeys(self.stack.names, str(error))

    def require(self, *names: str) -> None:
        """Skip the test when one of these is not up; fail it where all must be."""
        for name in names:
            if name in self._failed:
                give_up(f"{name} is not up: {self._failed[name]}")

    def require_started(self, name: str) -> None:
        """Starts a server that the stack has only when asked. Skips or fails as `require` does."""
        if name not in self._failed:
            try:
                self._failed |= self.stack.up(only=[name])
            except StackError as error:
                self._failed[name] = str(error)
        self.require(name)

    def require_all(self) -> None:
        self.require(*self.stack.names)

    def leave(self) -> None:
        root = self.stack.layout.root
        self._held.close()
        if (
            self.stack.layout.started_by_tests.exists()
            and os.environ.get("HONGYAN_STACK_KEEP") != "1"
        ):
            self._stop_if_last(root)

    def _stop_if_last(self, root: Path) -> None:
        with _users(root).open("a") as users:
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # another run is at work, and will do this
            self.stack.down()
            self.stack.layout.started_by_tests.unlink(missing_ok=True)


def _users(root: Path) -> Path:
    return root / "users.lock"


def give_up(reason: str) -> None:
    """Skips the test, or fails it where a missing service is a failure."""
    if os.environ.get("HONGYAN_REQUIRE_STACK") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def started() -> Services:
    services = Services(shared_stack(print))
    services.start()
    return services
