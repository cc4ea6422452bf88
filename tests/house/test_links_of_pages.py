"""The pages lead where they say: each link has its file and its heading; a restore names what it must."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from backends.settings import Settings
from deploy.local.layout import REPOSITORY
from lookback.wiring import GROUP

_FENCE = re.compile(r"```.*?```", re.DOTALL)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_LINKED = re.compile(r"\[([^\]]*)\]\([^)]*\)")
PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])


def anchor(heading: str) -> str:
    """Returns the anchor of a heading, as GitHub makes it."""
    text = _LINKED.sub(r"\1", heading).strip().lower()
    return "".join(c for c in text if c.isalnum() or c in " -_").replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Returns the anchors of a page; the second of two alike ends in `-1`."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in _HEADING.findall(_FENCE.sub("", page.read_text("utf-8"))):
        name = anchor(heading)
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return frozenset(found)


def astray(page: Path) -> Iterator[str]:
    """Yields the links of a page that lead to no file, or to no heading of a page."""
    for link in _LINK.findall(_FENCE.sub("", page.read_text("utf-8"))):
        if "://" in link:
            continue
        name, _, wanted = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        headed = wanted and target.suffix == ".md"
        if not target.exists() or (headed and wanted not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_each_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert list(astray(page)) == []


def test_a_restore_sets_back_each_group_whose_places_pass_what_the_ledger_owns() -> None:
    text = (REPOSITORY / "docs" / "backup.md").read_text("utf-8")
    workers = Settings().kafka.group_id
    for group in (workers, GROUP.format(workers)):
        assert f"--group {group} " in text
