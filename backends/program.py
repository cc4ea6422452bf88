"""The program's own version."""

from __future__ import annotations

from importlib import metadata


def program_version() -> str:
    """As the installed package tells it; empty where it runs uninstalled."""
    try:
        return metadata.version("hongyan")
    except metadata.PackageNotFoundError:
        return ""
