"""Static files under addresses with their digests, so that browsers may keep them for a year."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[1] / "static"
_PATH: Final = "/static/"


@cache
def _digests() -> Mapping[str, str]:
    """Returns the query of each file's address by its path."""
    return {
        _PATH + one.relative_to(FOLDER).as_posix(): f"v={_digest(one)}"
        for one in FOLDER.rglob("*")
        if one.is_file()
    }


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def asset(name: str) -> str:
    """Returns the path of a static file with its digest."""
    path = _PATH + name
    return f"{path}?{_digests()[path]}"


def is_asset(path: str, query: str) -> bool:
    """Returns whether path and query are the address of a file with the digest that it has here."""
    return path.startswith(_PATH) and _digests().get(path) == query
