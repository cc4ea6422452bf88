"""The fork server's own side: `python -m tests.harness.forked FD KIND`. See `tests.harness.fork_server`.

It has one thread and opens no connection, so that a fork of it is as good as a new process.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, NoReturn

_REQUEST_BYTES: Final = 1 << 20
MODULES: Final = {
    "simulator": ("simulator.cli", "simulator.server", "uvloop"),
    "hongyan": (
        "tests.harness.launch",
        "hongyan.cli",
        "hongyan.program",
        "hongyan.serving",
        "hongyan.configuration",
        "hongyan.flags",
        "typer._adapters",
        "backends.library_output",
        "backends.stack_dump",
        "sqlalchemy.dialects.postgresql",
        "sqlalchemy.dialects.sqlite",
        "sqlite3",
        "tracing.opening",
        "tracing.sinks.database",
        "tracing.sinks.kafka",
        "dispatcher.process",
        "recovery.process",
        "receipts.process",
        "lookback.process",
        "producer.gateway.process",
        "producer.relay.process",
    ),
}
"""Modules that the programs of each server import before they serve."""


def _launch() -> None:
    from tests.harness.launch import main

    main()


def _hongyan() -> None:
    from hongyan.program import main

    main()


def _simulator() -> None:
    from simulator.cli import main

    sys.exit(main())


PROGRAMS: Final[dict[str, Callable[[], None]]] = {
    "tests.harness.launch": _launch,
    "hongyan": _hongyan,
    "simulator": _simulator,
}


class Request(NamedTuple):
    """A program to become, and the files that came with it."""

    program: str
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    leashed: bool
    files: list[int]


class Forks:
    """Forks on request, and reports how each child ended."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._reports: dict[int, tuple[int, int]] = {}
        """The pid and the pipe for its exit code, by the child's pidfd."""
        self._polled = select.poll()
        self._polled.register(control, select.POLLIN)

    def serve(self) -> Request | None:
        """Returns None at the end, and in each child its request."""
        while True:
            for number, _ in self._polled.poll():
                if number != self._control.fileno():
                    self._ended(number)
                elif (request := self._taken()) is None:
                    return None
                elif self._forked(request):
                    return request

    def _taken(self) -> Request | None:
        told, files, _, _ = socket.recv_fds(self._control, _REQUEST_BYTES, 3)
        if not told:
            return None
        program, arguments, environment, folder, leashed = json.loads(told)
        return Request(program, arguments, environment, folder, leashed, files)

    def _forked(self, request: Request) -> bool:
        """Whether this is the child."""
        theirs, ours = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._leave((theirs, ours))
            return True
        handle = os.pidfd_open(pid)
        self._reports[handle] = pid, ours
        self._polled.register(handle, select.POLLIN)
        socket.send_fds(self._control, [str(pid).encode()], [handle, theirs])
        for number in (theirs, *request.files):
            os.close(number)
        return False

    def _leave(self, files: tuple[int, int]) -> None:
        """Closes what is the server's own."""
        self._control.close()
        for handle, (_, report) in self._reports.items():
            os.close(handle)
            os.close(report)
        for number in files:
            os.close(number)

    def _ended(self, handle: int) -> None:
        pid, report = self._reports.pop(handle)
        self._polled.unregister(handle)
        _, status = os.waitpid(pid, 0)
        try:
            os.write(report, str(os.waitstatus_to_exitcode(status)).encode())
        except BrokenPipeError:
            pass  # nobody waits for it any more
        os.close(report)
        os.close(handle)


def become(request: Request) -> None:
    """Gives this child its session, files, environment and arguments, and runs the program."""
    os.setsid()
    take_over(dict(zip((1, 2), request.files, strict=False)), request.environment, request.folder)
    sys.argv = [request.program, *request.arguments]
    if request.leashed:
        from tests.harness.launch import end_with

        threading.Thread(target=end_with, args=(request.files[2],), daemon=True).start()
    end_process(_run(PROGRAMS[request.program]))


def take_over(files: Mapping[int, int], environment: Mapping[str, str], folder: str) -> None:
    """Gives this child its files by their numbers, its environment and its folder."""
    for number, file in files.items():
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)


def _run(program: Callable[[], None]) -> int:
    """Returns the exit code that the interpreter would have."""
    try:
        program()
    except SystemExit as exc:
        if exc.code is None or isinstance(exc.code, int):
            return exc.code or 0
        print(exc.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def end_process(code: int) -> NoReturn:
    """Ends as the interpreter does, without taking apart every module that it shares with its parent."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


def _prepare(kind: str) -> None:
    """Imports. Structs are not described here: a program that forgets to would not crash any more."""
    for name in MODULES[kind]:
        importlib.import_module(name)


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    gc.disable()
    _prepare(sys.argv[2])
    gc.enable()
    assert threading.active_count() == 1, threading.enumerate()
    gc.collect()
    gc.freeze()  # a child that collects writes to no page of ours
    request = Forks(control).serve()
    if request is not None:
        become(request)


if __name__ == "__main__":
    main()
