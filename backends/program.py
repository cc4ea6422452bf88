"""The program's own version."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache  # the package's metadata is a file that is parsed each time
def program_version() -> str:
    """Returns the installed package's version; empty if it is not installed."""
    try:
        return metadata.version("hongyan")
    except metadata.PackageNotFoundError:
        return ""
