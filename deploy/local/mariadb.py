"""MariaDB from the distribution's package, with its durability untouched; started only when asked for."""

import os
import subprocess

from deploy.local import probe
from deploy.local.errors import StackError
from deploy.local.layout import HOST, PASSWORD, USER, Layout
from deploy.local.process import plain_environment
from deploy.local.server import LocalServer
from deploy.local.system import Say


class MariaDb(LocalServer):
    # mariadb-install-db calls my_print_defaults, which is in the client's package.
    programs = ("mariadb-server-core", "mariadb-client-core")

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout, "mariadb", layout.mariadb_port)

    def prepare(self, say: Say) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (self.folder / "data" / "mysql").exists():
            say("mariadb: making a data directory")
            self._install()
        (self.folder / "init.sql").write_text(init_statements())

    def _install(self) -> None:
        done = subprocess.run(
            [
                "mariadb-install-db",
                "--no-defaults",
                f"--datadir={self.folder / 'data'}",
                "--skip-test-db",
                *_as_root(),
            ],
            env=plain_environment(None),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise StackError(f"mariadb-install-db failed: {lines[-1] if lines else 'no reason'}")

    def command(self) -> list[str]:
        options = (f"--{key}={value}" for key, value in self.settings().items())
        return ["mariadbd", "--no-defaults", *_as_root(), *options]

    def settings(self) -> dict[str, str]:
        return {
            "datadir": str(self.folder / "data"),
            "socket": str(self.folder / "mariadb.sock"),
            "pid-file": str(self.folder / "mariadb.pid"),
            "init-file": str(self.folder / "init.sql"),
            "bind-address": HOST,
            "port": str(self.port),
            "skip-name-resolve": "1",
            "max-connections": "200",
            "max-allowed-packet": "16M",
            "innodb-buffer-pool-size": "128M",
            "innodb-flush-log-at-trx-commit": "1",
            "default-time-zone": "+00:00",
        }

    def ready(self) -> bool:
        return probe.mariadb_answers(self.port)


def init_statements() -> str:
    """One statement a line, as `init-file` wants it; each start runs them."""
    account = f"'{USER}'@'{HOST}'"
    return (
        f"CREATE USER IF NOT EXISTS {account} IDENTIFIED BY '{PASSWORD}';\n"
        f"GRANT ALL ON *.* TO {account};\n"
    )


def _as_root() -> list[str]:
    return ["--user=root"] if os.geteuid() == 0 else []  # the server refuses root unless named
