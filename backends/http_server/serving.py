"""Listens at an address, and serves an ASGI application there until a stop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from backends.addresses import address_of, listening
from backends.settings import SettingsError


class AddressTaken(SettingsError):
    """The address cannot be listened on."""


class HttpServer(uvicorn.Server):
    """Leaves signals to the process: uvicorn would raise them again, and they would end it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bound(address: str, key: str, example: str) -> socket.socket:
    """Returns a socket that listens at `address`, the value of setting `key`. Raises SettingsError."""
    wanted = address_of(address, key, example)
    try:
        return listening(wanted)
    except OSError as exc:
        raise AddressTaken(f"{key}: {address}: {exc.strerror or exc}") from exc


def http_server(app: Any, *, grace_s: int, **options: Any) -> HttpServer:
    """Returns a server of the ASGI application, not yet started. `grace_s`: seconds in which requests under
    way may be answered after the stop. `options`: further ones of uvicorn."""
    common = {
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "log_level": "error",  # one line for each stranger's bad request would fill the log
        "ws": "none",
        "timeout_graceful_shutdown": grace_s,
    }
    return HttpServer(uvicorn.Config(app, **common | options))


def serve_until(
    stop: threading.Event,
    server: HttpServer,
    listener: socket.socket,
    ending: Callable[[], None] = lambda: None,
) -> None:
    """Serves until `stop` is set, then until requests under way are answered. `ending` runs first, in a
    thread of its own. uvicorn reads `should_exit` at its start and ten times a second."""

    def end() -> None:
        stop.wait()
        try:
            ending()
        finally:
            server.should_exit = True

    threading.Thread(target=end, name="stop", daemon=True).start()
    asyncio.run(server.serve(sockets=[listener]))
