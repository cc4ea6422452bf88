"""Programs by process id: started detached, recognised again later, never ended by name.

A process id alone proves nothing, since the kernel hands it out again. What names a process for
good is the id, the moment it started and the boot it started in; all three are in the pid file.
"""

import json
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True)
class Identity:
    pid: int
    started: int  # clock ticks after boot
    boot: str


_spawned: dict[Identity, subprocess.Popen[bytes]] = {}  # kept so that those that end are reaped


def spawn(command: Sequence[str], log: Path, *, cwd: Path, user: str | None = None) -> Identity:
    """Start a program that outlives us, its output appended to `log`."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in our terminal is not for it
            env=plain_environment(user),
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )
    known = identify(child.pid) or Identity(child.pid, 0, _boot())
    _spawned[known] = child
    return known


def plain_environment(user: str | None) -> dict[str, str]:
    """The caller's environment less what would make a server behave as the caller's own tools."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "KAFKA_", "_JAVA"))}
    env["LC_ALL"] = "C.UTF-8"
    if user is not None:
        env["HOME"] = pwd.getpwnam(user).pw_dir
    return env


def identify(pid: int) -> Identity | None:
    """The identity of a live process; a zombie is not alive."""
    fields = _stat(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return Identity(pid, int(fields[19]), _boot())


def alive(known: Identity) -> bool:
    if identify(known.pid) == known:
        return True
    child = _spawned.pop(known, None)
    if child is not None:
        child.wait()  # already a zombie: this only collects it
    return False


def paused(pid: int) -> bool:
    fields = _stat(pid)
    return fields is not None and fields[0] in "Tt"


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third, the state, on; see proc(5)."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()  # the name before it may hold anything


def _boot() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def family(pid: int) -> list[int]:
    """A process and all below it, parents first."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for parent in found:
        found.extend(children.get(parent, ()))
    return found


def memory(pid: int) -> int:
    """Bytes held by a process and all below it, shared pages counted once where the kernel says."""
    return sum(_memory_of_one(each) for each in family(pid))


def _memory_of_one(pid: int) -> int:
    for name, key in (("smaps_rollup", "Pss:"), ("status", "VmRSS:")):
        try:
            lines = (_PROC / str(pid) / name).read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            if line.startswith(key):
                return int(line.split()[1]) * 1024
    return 0


def send(known: Identity, number: signal.Signals) -> bool:
    """Signal a process if it is still the one we know."""
    if not alive(known):
        return False
    try:
        os.kill(known.pid, number)
    except ProcessLookupError:
        return False
    return True


def send_family(known: Identity, number: signal.Signals) -> None:
    """Signal a process and all below it: PostgreSQL's are each in a session of their own."""
    for pid in family(known.pid) if alive(known) else []:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def wait_gone(known: Identity, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while alive(known):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


class PidFile:
    """Remembers one process across runs of ours."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Identity | None:
        """The process, if it lives and is still ours; a stale file is removed."""
        try:
            known = Identity(**json.loads(self.path.read_text()))
        except (OSError, ValueError, TypeError):
            return None
        if alive(known):
            return known
        self.clear()
        return None

    def write(self, known: Identity) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".new")
        draft.write_text(json.dumps(asdict(known)) + "\n")
        draft.replace(self.path)

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)
