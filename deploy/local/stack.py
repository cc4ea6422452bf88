"""All servers of one stack together. Tests that break things take a private one:

with private_stack(tmp_path) as stack:
    stack.kill("postgres")      # at once, without a goodbye
    stack.restart("kafka-1")    # stop, start, wait until it answers
    stack.pause("redis"); stack.resume("redis")
"""

import fcntl
import shutil
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.local import layout as layouts
from deploy.local import probe, process, system
from deploy.local.errors import NotReady, PortTaken, StackError
from deploy.local.kafka import Broker
from deploy.local.layout import Layout
from deploy.local.mariadb import MariaDb
from deploy.local.postgres import Postgres
from deploy.local.process import Identity, PidFile
from deploy.local.redis_server import Redis
from deploy.local.server import LocalServer
from deploy.local.simulator_server import SimulatorServer
from deploy.local.system import Say

_LOCK_S = 900.0
_POLL_S = 0.1
_PORT_S = 3.0


@dataclass(frozen=True)
class Status:
    service: str
    address: str
    state: str  # running | starting | paused | stopped
    pid: int | None
    memory: int  # bytes


class Stack:
    """Starts, stops and breaks the servers of one layout; what runs is known from the pid files."""

    def __init__(
        self,
        layout: Layout,
        say: Say = lambda _line: None,
        *,
        with_simulator: bool = False,
        brief: bool = False,
    ) -> None:
        """A `brief` stack lives for a test or two."""
        self.layout = layout
        self._say = say
        brokers = [Broker(layout, n, brief=brief) for n in layout.broker_ids]
        played = [SimulatorServer(layout)] if with_simulator else []
        self._servers: dict[str, LocalServer] = {
            server.name: server for server in (*brokers, Postgres(layout), Redis(layout), *played)
        }
        asked_for = [MariaDb(layout)]
        self._asked_for: dict[str, LocalServer] = {server.name: server for server in asked_for}
        """Started by `start` or `up(only)` alone, and stopped with the others."""

    @property
    def names(self) -> list[str]:
        return list(self._servers)

    @property
    def every_name(self) -> list[str]:
        """The names, with those of servers that start only when asked for."""
        return [*self._servers, *self._asked_for]

    @property
    def brokers(self) -> list[str]:
        return [name for name in self._servers if name.startswith("kafka-")]

    @property
    def bootstrap(self) -> str:
        return self.layout.bootstrap

    @property
    def database_url(self) -> str:
        return self.layout.database_url

    @property
    def redis_url(self) -> str:
        return self.layout.redis_url

    # -- all of them --

    def up(self, only: Collection[str] = ()) -> dict[str, str]:
        """Start what does not run, all or `only` these; give back what failed, and why, by name.

        One that cannot start does not keep the others from it.
        """
        names = [name for name in self.every_name if name in (only or self.names)]
        with self._locked():
            layouts.check_record(self.layout.root)
            self._refuse_other_layout()
            layouts.write_record(self.layout)
            failed: dict[str, str] = {}
            for step in (self._launch, self._await):  # first all launched, then all awaited
                for name in [n for n in names if n not in failed]:
                    self._attempt(step, name, failed)
            return failed

    def _attempt(self, step: Callable[[str], None], name: str, failed: dict[str, str]) -> None:
        try:
            step(name)
        except StackError as error:
            failed[name] = str(error)

    def down(self, *, wipe: bool = False) -> list[str]:
        """Stop all that runs; give back the names of those stopped."""
        with self._locked():
            # All are told before any is waited for: a broker left alone has no quorum to leave.
            stopped = [name for name in self.every_name if self._tell(name)]
            for name in stopped:
                self._end(name)
        if wipe:
            self._wipe()
        return stopped

    def status(self) -> list[Status]:
        shown = [*self.names, *(name for name in self._asked_for if self.running(name))]
        return [self._status(self._server(name)) for name in shown]

    def running(self, name: str) -> bool:
        return self._pid_file(name).read() is not None

    # -- one of them --

    def start(self, name: str) -> None:
        """Start one and wait until it answers; nothing happens when it runs."""
        with self._locked():
            self._launch(name)
            self._await(name)

    def stop(self, name: str) -> None:
        """End one as an operator would, and wait until it is gone."""
        with self._locked():
            if self._tell(name):
                self._end(name)

    def restart(self, name: str) -> None:
        self.stop(name)
        self.start(name)

    def kill(self, name: str) -> None:
        """End one at once, by SIGKILL or PostgreSQL's immediate shutdown; wait until it is gone."""
        known = self._known(name)
        process.send_family(known, signal.SIGCONT)
        process.send(known, self._server(name).crash_signal)
        if not process.wait_gone(known, self._server(name).stop_s):
            raise StackError(f"{name} (pid {known.pid}) outlived its kill.")
        self._pid_file(name).clear()

    def pause(self, name: str) -> None:
        """Freeze one and all its children: it keeps its connections and answers nothing."""
        process.send_family(self._known(name), signal.SIGSTOP)

    def resume(self, name: str) -> None:
        process.send_family(self._known(name), signal.SIGCONT)

    def pid(self, name: str) -> int:
        return self._known(name).pid

    # -- how --

    def _launch(self, name: str) -> None:
        server = self._server(name)
        if self.running(name):
            return
        system.need(list(server.programs), self._say)
        self.layout.logs.mkdir(parents=True, exist_ok=True)
        server.prepare(self._say)
        self._refuse_taken_port(server)
        cwd = server.folder.resolve()
        known = process.spawn(server.command(), server.log, cwd=cwd, user=server.user)
        self._pid_file(name).write(known)

    def _await(self, name: str) -> None:
        server = self._server(name)
        deadline = time.monotonic() + server.ready_s
        while not server.ready():
            if not self.running(name):
                raise NotReady(
                    f"{name} ended while it started; {server.log} says why. If its data is of another "
                    "version, `python3 -m deploy.local down --wipe` removes it."
                )
            if time.monotonic() > deadline:
                raise NotReady(
                    f"{name} did not answer on {server.address} within {server.ready_s:.0f} s; "
                    f"see {server.log}."
                )
            time.sleep(_POLL_S)
        server.finish()
        self._say(f"{name:<9} {server.address}")

    def _tell(self, name: str) -> bool:
        """Ask one to stop; whether there was one to ask."""
        server, known = self._server(name), self._pid_file(name).read()
        if known is None:
            return False
        process.send_family(known, signal.SIGCONT)  # a paused one would never hear it
        return process.send(known, server.stop_signal)

    def _end(self, name: str) -> None:
        """Wait until one that was told to stop is gone, and kill it when it stays."""
        server, known = self._server(name), self._pid_file(name).read()
        if known is not None and not process.wait_gone(known, server.stop_s):
            self._say(f"{name} did not stop within {server.stop_s:.0f} s and is killed")
            self.kill(name)
        self._pid_file(name).clear()

    def _status(self, server: LocalServer) -> Status:
        known = self._pid_file(server.name).read()
        if known is None:
            return Status(server.name, server.address, "stopped", None, 0)
        memory = process.memory(known.pid)
        return Status(server.name, server.address, _state(server, known), known.pid, memory)

    def _refuse_taken_port(self, server: LocalServer) -> None:
        # A killed JVM counts as gone a moment before the last of its threads lets go of the port.
        deadline = time.monotonic() + _PORT_S
        for port in server.ports:
            while not probe.port_free(port) and time.monotonic() < deadline:
                time.sleep(_POLL_S)
            if not probe.port_free(port):
                raise PortTaken(
                    f"port {port}, which {server.name} needs, is taken by another program; end it, "
                    "or choose other ports with HONGYAN_STACK_PORT_BASE "
                    f"(now {self.layout.port_base})."
                )

    def _refuse_other_layout(self) -> None:
        recorded = layouts.read_record(self.layout.root)
        if not recorded or recorded == layouts.record(self.layout):
            return
        former = Stack(Layout(self.layout.root, recorded["port_base"], recorded["brokers"]))
        if any(former.running(name) for name in former.every_name):
            raise StackError(
                f"the stack in {self.layout.root} is up with {former.layout.brokers} broker(s) "
                f"from port base {former.layout.port_base}; stop it first with `make down`."
            )

    def _server(self, name: str) -> LocalServer:
        found = self._servers.get(name) or self._asked_for.get(name)
        if found is None:
            named = ", ".join(self.every_name)
            raise StackError(f"there is no {name} in this stack, only {named}.")
        return found

    def _known(self, name: str) -> Identity:
        self._server(name)
        known = self._pid_file(name).read()
        if known is None:
            raise StackError(f"{name} does not run.")
        return known

    def _pid_file(self, name: str) -> PidFile:
        return PidFile(self.layout.run / f"{name}.json")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One at a time changes the stack, whatever process asks; not to be nested."""
        self.layout.root.mkdir(parents=True, exist_ok=True)
        with (self.layout.root / "lock").open("w") as lock:
            deadline = time.monotonic() + _LOCK_S
            while not _taken(lock.fileno()):
                if time.monotonic() > deadline:
                    raise StackError(f"another command has held {lock.name} for too long.")
                time.sleep(_POLL_S)
            yield

    def _wipe(self) -> None:
        postgres = self.layout.root / "postgres"
        shutil.rmtree(postgres.resolve(), ignore_errors=True)  # it may be a link to elsewhere
        shutil.rmtree(self.layout.root, ignore_errors=True)


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _state(server: LocalServer, known: Identity) -> str:
    if process.paused(known.pid):
        return "paused"
    return "running" if server.ready() else "starting"


def shared_stack(say: Say = lambda _line: None) -> Stack:
    """The one of this checkout, or the one that the environment names."""
    return Stack(layouts.from_environment(), say)


_PRIVATE_BASES = range(20_000, 31_000, 1_000)


@contextmanager
def private_stack(folder: Path, brokers: int = 1, only: Collection[str] = ()) -> Iterator[Stack]:
    """A stack of one's own on free ports, to break at will; nothing of it is left at the end."""
    with reserved_base(brokers) as base:
        stack = Stack(Layout(folder / "stack", base, brokers), brief=True)
        try:
            failed = stack.up(only)
            if failed:
                raise StackError(" ".join(failed.values()))
            yield stack
        finally:
            stack.down(wipe=True)


@contextmanager
def reserved_base(brokers: int) -> Iterator[int]:
    """A port base whose ports are free, and nobody else's who asks here, until the end.

    No server has the base itself as its port, so it stands for all of them: the process that binds it has
    them, also while a server is down.
    """
    for base in _PRIVATE_BASES:
        with probe.held(base) as mine:
            if mine and all(
                probe.port_free(port) for port in Layout(Path("/"), base, brokers).ports
            ):
                yield base
                return
    raise StackError("no free port range for a private stack; end one of those that run.")
