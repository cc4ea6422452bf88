"""A simulator that starts by the fork server: as `simulator.spawn`, without its imports."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import simulator
from simulator.process import ChildProcess
from tests.harness.fork_server import SIMULATOR, Program
from tests.harness.fork_server import start as start_program

_STDERR: Final = 2


def _start(arguments: Sequence[str]) -> ChildProcess:
    program = Program(SIMULATOR, arguments, os.environ, str(Path.cwd()))
    theirs, ours = os.pipe()
    process = start_program(program, ours, _STDERR)
    os.close(ours)
    process.stdout = os.fdopen(theirs, "rb")
    return process


spawn = partial(simulator.spawn, starter=_start)
