"""The simulator's process: listeners, start line, signals, and an end that leaves everything on disk."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from simulator.admin import Admin
from simulator.exchange import SimulatedExchange
from simulator.ledger import LedgerWriter, mend, read_ledger
from simulator.options import SimulatorOptions, Started
from simulator.provider import Provider
from simulator.report import Memory
from simulator.servers.http_server import ServerConnection, factory
from simulator.servers.tls_server import server_context

if TYPE_CHECKING:
    from simulator.servers.smtp_server import SmtpServer

_LOOPBACK = "127.0.0.1"
_BACKLOG = 1_024
_MS = 1_000


class Server:
    """Owns the listeners; everything runs on one event loop."""

    def __init__(self, options: SimulatorOptions) -> None:
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._opened: set[ServerConnection] = set()
        """The provider's connections."""
        self._controlling: set[ServerConnection] = set()
        """The admin's connections."""
        self._tls = server_context(options.certificate)
        if self._tls is not None:
            self._tls.set_alpn_protocols(["h2", "http/1.1"])
        self._port = options.port
        self._changing = asyncio.Lock()
        self._listener: asyncio.Server | None = None
        self._smtp_port = options.smtp_port
        self._mail: asyncio.Server | None = None

    async def run(self) -> None:
        """Serves until SIGTERM or SIGINT; a second one changes nothing."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stopping.set)
        memory = _remember(self._options)
        writer = LedgerWriter(self._options.ledger, fsync=self._options.fsync, loop=self._loop)
        self._provider = Provider(self._options, memory, writer)
        self._exchange = SimulatedExchange(self._provider, self._options)
        self._post = self._post_office()
        await self._serve()
        await writer.close()
        _save(self._options, memory)

    async def _serve(self) -> None:
        await self._listen()
        admin = Admin(self._provider, self._refuse)
        admin_listener = await self._loop.create_server(
            factory(admin.serve, self._controlling), _LOOPBACK, self._options.admin_port
        )
        self._announce(_address(_LOOPBACK, _port(admin_listener)))
        if self._options.idle_close_ms:
            self._close_idle()
        await self._stopping.wait()
        admin_listener.close()
        self._deafen()
        for connection in self._opened | self._controlling:
            connection.close()

    async def _listen(self) -> None:
        self._listener = await self._loop.create_server(
            factory(self._exchange.serve, self._opened, self._options.close_after),
            self._options.host,
            self._port,
            backlog=_BACKLOG,
            ssl=self._tls,
        )
        self._port = _port(self._listener)
        if self._post is not None:
            self._mail = await self._loop.create_server(
                self._post.open_door, self._options.host, self._smtp_port, backlog=_BACKLOG
            )
            self._smtp_port = _port(self._mail)

    def _close_idle(self) -> None:
        """Closes connections that were idle for too long, and looks again after half of that time."""
        idle_s = self._options.idle_close_ms / _MS
        oldest = monotonic() - idle_s
        for connection in list(self._opened):
            if connection.idle_since < oldest:
                connection.close()
        self._loop.call_later(idle_s / 2, self._close_idle)

    def _post_office(self) -> SmtpServer | None:
        """Returns the mail server, if one is wanted. Raises OSError for an unreadable certificate."""
        if self._smtp_port < 0:
            return None
        from simulator.servers.smtp_server import SmtpServer  # loads aiosmtpd only if needed

        return SmtpServer(self._provider, self._options)

    def _deafen(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._mail is not None:
            self._mail.close()
            self._mail = None

    def _refuse(self, refuse: bool, done: Callable[[], None]) -> None:
        """Stops listening, or listens again on the same port; then calls `done`."""
        task = self._loop.create_task(self._change(refuse))
        task.add_done_callback(lambda _: done())

    async def _change(self, refuse: bool) -> None:
        async with self._changing:
            if not refuse and self._listener is None:
                await self._listen()
            elif refuse and self._listener is not None:
                self._deafen()
                await asyncio.sleep(0)  # the loop releases the socket in its next turn

    def _announce(self, admin: str) -> None:
        scheme = "https" if self._tls else "http"
        url = _address(self._options.host, self._port, scheme)
        mail = _address(self._options.host, self._smtp_port, "smtp") if self._mail else ""
        ledger = str(Path(self._options.ledger).resolve())
        if self._options.json:
            line = msgspec.json.encode(Started(url, admin, ledger, os.getpid(), mail)).decode()
        else:
            on = f"{url}, mail on {mail}" if mail else url
            line = f"Provider on {on}, control and report on {admin}, ledger in {ledger}"
        print(line, file=sys.stdout, flush=True)


def _remember(options: SimulatorOptions) -> Memory:
    """Returns the requests of an earlier run on the same ledger."""
    path = Path(options.ledger)
    if not path.exists():
        return Memory()
    mend(path)
    return Memory(read_ledger(path))


def _save(options: SimulatorOptions, memory: Memory) -> None:
    if options.report:
        Path(options.report).write_bytes(msgspec.json.encode(memory.report()))


def _port(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


def _address(host: str, port: int, scheme: str = "http") -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
