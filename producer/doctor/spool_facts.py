"""Looks at spools' folders on this host: file system, free space. It makes and changes nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from hongyan_client.spool.folder import DEFAULT_MAX_BYTES
from producer.doctor.facts import SpoolFacts

_MOUNTS: Final = Path("/proc/self/mountinfo")
_FILES: Final = ("spool.db", "spool.db-wal")
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


def read_spools(folders: Iterable[str]) -> list[SpoolFacts]:
    """Returns the facts of each folder, in order."""
    return [_read(Path(folder)) for folder in dict.fromkeys(folders)]


def _read(folder: Path) -> SpoolFacts:
    try:
        free = os.statvfs(folder)
        used = sum(file.stat().st_size for file in _there(folder))
        mounts = os.fsdecode(_MOUNTS.read_bytes())  # names of any bytes, as in `folder`
        filesystem = filesystem_of(folder.resolve(), mounts)
    except OSError as exc:
        return SpoolFacts(
            path=str(folder),
            filesystem="",
            free_bytes=0,
            used_bytes=0,
            max_bytes=DEFAULT_MAX_BYTES,
            refusal=f"this process cannot look at it: {exc.strerror or exc}",
        )
    return SpoolFacts(
        path=str(folder.resolve()),
        filesystem=filesystem,
        free_bytes=free.f_bavail * free.f_frsize,
        used_bytes=used,
        max_bytes=DEFAULT_MAX_BYTES,
    )


def _there(folder: Path) -> Iterator[Path]:
    return (folder / name for name in _FILES if (folder / name).exists())


def filesystem_of(folder: Path, mounts: str) -> str:
    """Returns the type of the file system that holds the folder, from the text of /proc/self/mountinfo;
    empty if no line does. Of two mounts at one place the later one counts."""
    best, found = -1, ""
    for line in mounts.splitlines():
        place, _, rest = line.partition(" - ")
        fields = place.split(" ")
        if len(fields) < 5 or not rest:
            continue
        point = _OCTAL.sub(lambda one: chr(int(one[1], 8)), fields[4])
        if folder.is_relative_to(point) and len(point) >= best:
            best, found = len(point), rest.split(" ")[0]
    return found
