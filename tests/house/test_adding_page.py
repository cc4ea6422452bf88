"""docs/adding.md names files that there are, and all files of a provider."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adding.md").read_text("utf-8")
PATHS = set(re.findall(r"`((?:[\w.-]+/)+[\w.-]+)`", PAGE))
FOLDERS = (
    *("channels", "receipts", "simulator"),
    *("tests/channels", "tests/conformance", "tests/foreign", "tests/receipts"),
)
SHARED = "channels/providers/_common/"
"""The home of code that several providers share."""
NAMES = sorted(
    one.parent.name
    for one in (ROOT / "channels" / "providers").glob("*/__init__.py")
    if not one.parent.name.startswith("_")
)


def of(name: str) -> Iterator[str]:
    """Yields the files with this name, with NAME in its place."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.stem in (name, f"test_{name}") and path.is_file():
                yield str(path.relative_to(ROOT)).replace(name, "NAME")


def test_every_place_that_the_page_names_is_there() -> None:
    assert len(PATHS) > 40
    for path in sorted(PATHS):
        place = Path(path).parent if Path(path).stem in ("NAME", "test_NAME") else Path(path)
        found = [one for one in NAMES if (ROOT / str(place).replace("NAME", one)).exists()]
        assert found, f"docs/adding.md names {path}, which is not there"


def test_the_page_names_every_file_of_a_provider() -> None:
    files = {path for name in NAMES for path in of(name) if not path.startswith(SHARED)}
    assert len(files) > 5
    assert files <= PATHS, f"docs/adding.md does not name {sorted(files - PATHS)}"
