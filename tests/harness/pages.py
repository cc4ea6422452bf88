"""The pages' commands, run as a reader types them.

A ```console block holds commands behind `$ `. A ```toml or ```json block belongs to the file that the
paragraph before it names last. `hongyan dev` gets a terminal of its own, which is ended by Ctrl-C.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.local.layout import REPOSITORY
from tests.harness.waiting import await_

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
_NAMED = re.compile(r"`([\w./-]+\.(?:toml|jsonl))`:\s*$")
_READY_S, _END_S, _SCRIPT_S = 60.0, 40.0, 240.0
SERVES = "hongyan dev"


@dataclass(frozen=True)
class TypedFile:
    """A file that the page tells its reader to write."""

    path: str
    text: str


@dataclass(frozen=True)
class Commands:
    """The commands of one block, comments and all."""

    lines: tuple[str, ...]


Step = TypedFile | Commands


def steps_of(text: str) -> list[Step]:
    """The page's files and commands, in order."""
    found: list[Step] = []
    for fence in _FENCE.finditer(text):
        language, body = fence.groups()
        if language == "console":
            typed = [line[2:] for line in body.splitlines() if line.startswith("$ ")]
            found.append(Commands(tuple(typed)))
        elif language in ("toml", "json"):
            named = _NAMED.search(text[: fence.start()])
            assert named, f"no file is named before:\n{body}"
            found.append(TypedFile(named[1], body))
    return found


def commands_of(steps: Sequence[Step]) -> list[str]:
    """Every command, without its comment."""
    lines = [line for step in steps if isinstance(step, Commands) for line in step.lines]
    return [re.sub(r"\s+#\s.*$", "", line) for line in lines]


def copy_of_the_repository(folder: Path) -> Path:
    """Copies the files a clone would hold, with the environment that `make venv` would make. Skips the test
    without the console's scripts: `make` in the copy would fetch them, and install the copy into the
    environment that it shares with this repository."""
    scripts = Path("admin", "static", "vendor")
    if not (REPOSITORY / scripts).is_dir():
        pytest.skip(f"{scripts} is not here: `make venv` fetches it")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        source, target = REPOSITORY / name, folder / name
        if source.is_file() and not source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    venv = folder / ".venv"
    venv.mkdir()
    for entry in Path(sys.prefix).iterdir():
        if entry.name != ".synced":
            (venv / entry.name).symlink_to(entry)
    (folder / scripts).symlink_to(REPOSITORY / scripts)
    (venv / ".synced").touch()
    return folder


def shell_environment(repository: Path, **more: str) -> dict[str, str]:
    """A shell that knows nothing of Hongyan; its program imports from the copy."""
    own = str(Path(sys.executable).parent)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HONGYAN_")}
    path = os.pathsep.join(p for p in kept.get("PATH", "").split(os.pathsep) if p != own)
    return {**kept, "PATH": path, "PYTHONPATH": str(repository), **more}


def type_script(lines: Sequence[str], folder: Path, environ: Mapping[str, str]) -> str:
    """Runs the commands in one shell; each must exit 0. Returns everything that they printed."""
    script = "set -eo pipefail\ntrap 'echo \"failed: $BASH_COMMAND\" >&2' ERR\n" + "\n".join(lines)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SCRIPT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@contextmanager
def terminal(command: str, folder: Path, environ: Mapping[str, str]) -> Iterator[None]:
    """A command that stays, in a terminal of its own; Ctrl-C must end it with exit 0."""
    with (folder / "terminal.log").open("w+") as screen:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=folder,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=screen,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        shown = folder / "terminal.log"
        try:
            await_(
                lambda: "ready after" in shown.read_text() or process.poll() is not None,
                _READY_S,
                lambda: f"{command} is ready; it printed:\n{shown.read_text()}",
            )
            assert process.poll() is None, shown.read_text()
            yield
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            try:
                code = process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert code == 0, shown.read_text()


def type_page(text: str, folder: Path, environ: Mapping[str, str]) -> str:
    """Does everything that a page says, in order. Returns what its commands printed."""
    steps = steps_of(text)
    before: list[str] = []
    after: list[str] = []
    serving = ""
    for step in steps:
        if isinstance(step, TypedFile):
            (folder / step.path).parent.mkdir(parents=True, exist_ok=True)
            (folder / step.path).write_text(step.text)
            continue
        for line in step.lines:
            if SERVES in line:
                serving = line
            else:
                (after if serving else before).append(line)
    printed = type_script(before, folder, environ)
    with terminal(serving, folder, environ):
        return printed + type_script(after, folder, environ)
