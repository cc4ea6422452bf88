"""PgBouncer on a loopback port of its own: the distribution's package, unpacked and never installed, so
that no machine gets a pooler from running tests."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from shutil import rmtree
from types import TracebackType
from typing import Final, Self

from sqlalchemy.engine import URL, make_url

from tests.foreign.judges_folder import unpacked_judge
from tests.foreign.loopback import all_answer, free_port
from tests.services import give_up

_PACKAGES: Final = ("pgbouncer", "libc-ares2", "libevent-2.1-7")
"""The program, and libraries that a machine may lack."""
_OTHER: Final = "nobody"


class PgBouncer:
    """One running pooler. Leaving it ends its process by its id."""

    def __init__(self, database_url: str, *, mode: str = "transaction", pool_size: int = 3) -> None:
        """`pool_size`: connections to the server, which all clients share."""
        self._server = make_url(database_url)
        self._mode = mode
        self._pool_size = pool_size
        self._roots = [unpacked_judge(name) for name in _PACKAGES]
        self._folder = Path(tempfile.mkdtemp(prefix="pgbouncer-"))
        self._port = free_port()
        self._configure()

    @property
    def url(self) -> URL:
        """The database, through the pooler."""
        return self._server.set(host="127.0.0.1", port=self._port)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            print(self._said())
        self.kill()
        rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Starts the process, also after `kill`."""
        program = self._roots[0] / "usr/sbin/pgbouncer"
        libraries = [str(one) for root in self._roots for one in root.glob("usr/lib/*")]
        with (self._folder / "out").open("ab") as output:
            self._process = subprocess.Popen(
                [program, self._folder / "pgbouncer.ini"],
                env={"LD_LIBRARY_PATH": ":".join(libraries)},
                stdout=output,
                stderr=output,
            )
        if not all_answer(self._process, [self._port]):
            self.kill()
            give_up(f"PgBouncer did not start: {self._said()}")

    def kill(self) -> None:
        """Ends the process, and with it every connection of a client and to the server."""
        self._process.kill()
        self._process.wait()

    def _said(self) -> str:
        return (self._folder / "out").read_text("utf-8", "replace")[-3_000:]

    def _configure(self) -> None:
        login = f'"{self._server.username}" "{self._server.password}"\n'
        (self._folder / "users").write_text(login)
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": self._port,
            "unix_socket_dir": "",
            "auth_type": "plain",
            "auth_file": self._folder / "users",
            "pool_mode": self._mode,
            "default_pool_size": self._pool_size,
            "max_client_conn": 200,
            "query_wait_timeout": 30,
        }
        if os.geteuid() == 0:  # it refuses to stay root
            settings["user"] = _OTHER
        lines = "".join(f"{name} = {value}\n" for name, value in settings.items())
        server = f"* = host={self._server.host} port={self._server.port}"
        (self._folder / "pgbouncer.ini").write_text(f"[databases]\n{server}\n[pgbouncer]\n{lines}")
        self._folder.chmod(0o755)  # its own user reads the files
