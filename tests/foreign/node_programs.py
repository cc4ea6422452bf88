"""Programs of Node that tests ask, with the packages that their lock file pins."""

from __future__ import annotations

import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

from deploy.local.errors import StackError
from deploy.local.system import need
from tests.foreign.judges_folder import judges_folder
from tests.services import give_up

_QUIET = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


def ready(program: Path) -> Path:
    """A copy of the program's folder with its packages installed; made once for each lock file. Skips the
    test where Node or the packages cannot be had, and fails it where everything must be."""
    try:
        need(["nodejs", "npm"], print)
    except StackError as exc:
        give_up(str(exc))
    lock = (program / "package-lock.json").read_bytes()
    with judges_folder(program.name) as root:
        folder = root / f"{program.name}-{sha256(lock).hexdigest()[:12]}"
        if not (folder / ".installed").exists():
            _install(program, folder)
    for script in program.glob("*.mjs"):
        shutil.copy(script, folder)
    return folder


def _install(program: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(program, folder)
    done = subprocess.run(
        ["npm", "ci", *_QUIET], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        give_up(f"npm could not install {program.name}: {done.stderr.strip()[-500:]}")
    (folder / ".installed").touch()
