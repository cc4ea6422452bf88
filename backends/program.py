"""The program's own version."""

from __future__ import annotations

from importlib import metadata


def program_version() -> str:
    """Returns the installed package's version; empty if it is not installed."""
    try:
        return metadata.version("hongyan")
    except metadata.PackageNotFoundError:
        return ""
