"""Ports of judges' servers on this machine, and the wait until one answers."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterable
from typing import Final

_READY_S: Final = 20.0
_LOOK_S: Final = 0.02


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def all_answer(process: subprocess.Popen[bytes], ports: Iterable[int]) -> bool:
    """Waits until the server answers at each port. Returns False if it ended, or not in time."""
    deadline = time.monotonic() + _READY_S
    for port in ports:
        while not answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_S)
    return True
