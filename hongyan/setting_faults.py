"""Faults of settings as texts, from the functions that read them at a process's start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from backends.settings import Settings

Check = Callable[[Settings], Iterator[str]]
"""Yields the problems of a part of the configuration."""


def faults_of(read: Callable[[], object], key: str = "") -> Iterator[str]:
    """Yields the texts of the error that `read` raises, if it does; `key` comes before each."""
    try:
        read()
    except (ValueError, OSError) as exc:
        found = getattr(exc, "texts", ()) or getattr(exc, "problems", ()) or [exc]
        yield from (f"{key}: {text}" if key else str(text) for text in found)


def missing_file(key: str, path: str) -> Iterator[str]:
    """Yields the problem of a PEM file that is named and not there."""
    if path and not Path(path).is_file():
        yield f"{key}: {path}: no such file; give a PEM file, or leave it out"
