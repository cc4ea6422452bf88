"""PostgreSQL from the distribution's package, with its durability untouched unless the layout says so."""

import hashlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

from deploy.local.errors import StackError
from deploy.local.layout import DATABASE, HOST, PASSWORD, USER, Layout
from deploy.local.process import plain_environment
from deploy.local.server import LocalServer
from deploy.local.system import Say, postgres_programs

SYSTEM_USER = "postgres"
ELSEWHERE = Path("/var/tmp")  # noqa: S108 - the folder in it is made by us alone, mode 0700


class Postgres(LocalServer):
    programs = ("postgresql",)
    stop_signal = signal.SIGINT  # fast: ends sessions, then stops cleanly
    # Immediate: no checkpoint, recovery from the log at the next start. To the data SIGKILL would
    # be the same, but it leaves the backends behind as orphans.
    crash_signal = signal.SIGQUIT

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout, "postgres", layout.postgres_port)

    @property
    def user(self) -> str | None:
        return SYSTEM_USER if os.geteuid() == 0 else None  # the server refuses to run as root

    @property
    def data(self) -> Path:
        # One folder per major version: another's data would be refused.
        return self.folder.resolve() / _programs().parent.name

    def prepare(self, say: Say) -> None:
        if not self.folder.exists():
            self._place(say)
        if not (self.data / "PG_VERSION").exists():
            say("postgres: making a database cluster")
            self._initdb()

    def _place(self, say: Say) -> None:
        """Inside the stack's folder, or where the server's own user can reach it."""
        self.layout.root.mkdir(parents=True, exist_ok=True)
        folder = self.folder
        if self.user and not _reachable(self.layout.root, self.user):
            folder = elsewhere(self.layout.root)
            self.folder.unlink(missing_ok=True)  # a link whose target was cleaned away
            self.folder.symlink_to(folder)
            say(
                f"postgres: its data lies in {folder}, as user {self.user} cannot reach the stack's"
            )
        folder.mkdir(mode=0o700, exist_ok=True)
        if self.user:
            _give(folder, self.user)

    def _initdb(self) -> None:
        password = self.folder.resolve() / "password"
        password.write_text(PASSWORD)
        if self.user:
            _give(password, self.user)
        self._run(
            "initdb",
            f"--pgdata={self.data}",
            f"--username={USER}",
            f"--pwfile={password}",
            # Everybody knows this password. SCRAM would cost each of a test run's thousands of connections
            # 5 ms of processor time.
            "--auth=md5",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
        )
        password.unlink()

    def command(self) -> list[str]:
        options = (f"{k}={v}" for k, v in settings(self.port, fsync=self.layout.fsync).items())
        words = (word for option in options for word in ("-c", option))
        return [str(_programs() / "postgres"), "-D", str(self.data), *words]

    def ready(self) -> bool:
        program = str(_programs() / "pg_isready")
        done = subprocess.run(
            [program, "-q", "-t", "2", "-h", HOST, "-p", str(self.port), "-d", "postgres"],
            check=False,
        )
        return done.returncode == 0

    def finish(self) -> None:
        query = f"SELECT 1 FROM pg_database WHERE datname = '{DATABASE}'"  # noqa: S608 - a constant
        if not self._psql(query).strip():
            self._psql(f"CREATE DATABASE {DATABASE}")

    def _psql(self, statement: str) -> str:
        where = ["-h", HOST, "-p", str(self.port), "-U", USER, "-d", "postgres"]
        return self._run("psql", "-XAtq", *where, "-c", statement)

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(_programs() / program), *arguments],
            cwd=self.folder.resolve(),
            env={**plain_environment(self.user), "PGPASSWORD": PASSWORD},
            user=self.user,
            group=self.user,
            extra_groups=None if self.user is None else [],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise StackError(f"PostgreSQL's {program} failed: {done.stderr.strip()}")
        return done.stdout


def settings(port: int, *, fsync: bool = True) -> dict[str, str]:
    durability = {} if fsync else {"fsync": "off"}
    return {
        "listen_addresses": HOST,
        "port": str(port),
        "unix_socket_directories": "",  # the distribution's folder for them is not ours
        "max_connections": "200",
        "max_prepared_transactions": "8",  # tests prepare some, as two-phase commits do
        "shared_buffers": "256MB",
        "max_wal_size": "2GB",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "log_line_prefix": "%m [%p] %d ",
        **durability,
    }


def elsewhere(root: Path) -> Path:
    """The same for the same stack, so that its data is found again."""
    return ELSEWHERE / f"hongyan-{hashlib.sha256(str(root).encode()).hexdigest()[:12]}"


def _programs() -> Path:
    found = postgres_programs()
    if found is None:
        raise StackError("PostgreSQL's server programs are gone; install postgresql.")
    return found


def _give(path: Path, user: str) -> None:
    shutil.chown(path, user, user)


def _reachable(folder: Path, user: str) -> bool:
    done = subprocess.run(
        ["test", "-x", str(folder)], user=user, group=user, extra_groups=[], check=False
    )
    return done.returncode == 0
