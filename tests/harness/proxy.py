"""A TCP proxy that can lose an answer: what was asked happened, and the asker never hears of it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

_CHUNK = 1 << 16


class Proxy:
    """Forwards to one address. `cut_replies(n)` loses the next n answers, each with its connection."""

    def __init__(self, host: str, port: int) -> None:
        self.cuts = 0
        """Answers lost so far."""
        self._target = (host, port)
        self._to_cut = 0
        self._fits: Callable[[bytes], bool] = bool
        self._lock = threading.Lock()  # guards the two counters
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)

    def cut_replies(self, count: int, fits: Callable[[bytes], bool] = bool) -> None:
        """Lose so many of the next answers, of those that `fits` says yes to."""
        with self._lock:
            self._to_cut, self._fits = count, fits

    def lead_to(self, host: str, port: int) -> None:
        """Forwards later connections to another address; open ones stay."""
        self._target = (host, port)

    @property
    def pending(self) -> int:
        """Answers still to be lost."""
        return self._to_cut

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._open):
            _end(connection)
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                asker, _address = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                _end(asker)
                continue
            self._open |= {asker, server}
            for source, target, answers in ((asker, server, False), (server, asker, True)):
                threading.Thread(
                    target=self._pump, args=(source, target, answers), daemon=True
                ).start()

    def _pump(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                if answers and self._cuts_now(data):
                    break
                target.sendall(data)
        _end(source)
        _end(target)
        self._open -= {source, target}

    def _cuts_now(self, data: bytes) -> bool:
        with self._lock:
            if not self._to_cut or not self._fits(data):
                return False
            self._to_cut -= 1
            self.cuts += 1
            return True


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
