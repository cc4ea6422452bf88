"""The distribution's packages: what is missing is installed, with root or sudo, and said so."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from deploy.local.errors import MissingPrograms

Say = Callable[[str], None]

_APT = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]
_INSTALL = ["install", "-y", "--no-install-recommends"]


def postgres_programs() -> Path | None:
    """The folder of the newest PostgreSQL server; Debian keeps it off the PATH."""
    debian = sorted(
        (p for p in Path("/usr/lib/postgresql").glob("*/bin") if (p / "initdb").exists()),
        key=lambda p: float(p.parent.name),
    )
    if debian:
        return debian[-1]
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


def headless_chromium() -> str | None:
    """The path of Chromium without windows, which takes half the processor time; else of the whole one."""
    return shutil.which("chromium-headless-shell") or shutil.which("chromium")


_FOUND: dict[str, Callable[[], object]] = {
    "java": lambda: shutil.which("java"),
    "maven": lambda: shutil.which("mvn"),
    "nodejs": lambda: shutil.which("node"),
    "npm": lambda: shutil.which("npm"),
    "redis-server": lambda: shutil.which("redis-server"),
    "postgresql": postgres_programs,
    # The core alone: the whole package would start a server of the system's.
    "mariadb-server-core": lambda: shutil.which("mariadbd"),
    "mariadb-client-core": lambda: shutil.which("my_print_defaults"),
    "chromium-headless-shell": headless_chromium,
    "fonts-noto-cjk": lambda: any(Path("/usr/share/fonts").rglob("NotoSansCJK*")),
    "systemd": lambda: shutil.which("systemd-analyze"),
}
_PACKAGES = {"java": "default-jre-headless"}  # where the package has another name


def need(names: list[str], say: Say) -> None:
    """Make sure that these are there, or say which packages a person has to install."""
    missing = [_PACKAGES.get(n, n) for n in names if not _FOUND[n]()]
    if not missing:
        return
    say(f"installing {', '.join(missing)}")
    _install(missing)


def unpacked(package: str, folder: Path, say: Say) -> Path:
    """The folder, with the distribution's package unpacked in it and not installed: nothing of it starts by
    itself. Raises MissingPrograms."""
    if (folder / ".unpacked").exists():
        return folder
    say(f"unpacking {package}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _run(_as_root([*_APT, "update"]), folder)
    trouble = _run([*_APT[2:], "download", package], folder)
    found = next(folder.glob(f"{package}_*.deb"), None)
    if found is None:
        raise MissingPrograms(
            f"{package} could not be downloaded ({trouble or 'no reason given'})."
        )
    trouble = _run(["dpkg", "-x", str(found), str(folder)], folder)
    if trouble:
        raise MissingPrograms(f"{package} could not be unpacked ({trouble}).")
    (folder / ".unpacked").touch()
    return folder


def _run(command: list[str], folder: Path) -> str:
    """The last line of its errors where it failed; else nothing."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return f"no {command[0]} here"
    return _last_line(done.stderr) if done.returncode else ""


def _install(packages: list[str]) -> None:
    for step in (["update"], [*_INSTALL, *packages]):
        try:
            done = subprocess.run(
                _as_root([*_APT, *step]),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
        except FileNotFoundError:
            raise MissingPrograms(_advice(packages, "no apt-get or sudo here")) from None
        if done.returncode and step != ["update"]:
            raise MissingPrograms(_advice(packages, _last_line(done.stderr)))


def _as_root(command: list[str]) -> list[str]:
    return command if os.geteuid() == 0 else ["sudo", "-n", *command]


def _advice(packages: list[str], why: str) -> str:
    return f"install {' '.join(packages)} and run this again: it could not be done for you ({why})."


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].rstrip(".") if lines else "no reason given"
