"""docs/scenarios.md names tests that there are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scenarios.md").read_text("utf-8")
_FILE = re.compile(r"\btest_[a-z0-9_]+")
_NAME = re.compile(r"\b[a-z0-9]+(?:_[a-z0-9]+)+(_?…)?")
_PATH = re.compile(r"\btests/[a-z0-9_/]+")


def cells() -> list[str]:
    """The last column of every table."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    return [row.strip(" |").rpartition("|")[2].strip() for row in rows]


def named() -> list[tuple[str, str]]:
    """(file, beginning of a test's name) for `test_file: a_name, another_…; test_other: …`."""
    found = []
    for part in (part for cell in cells() for part in cell.split(";")):
        file, colon, names = part.strip().partition(": ")
        if colon and (match := _FILE.search(file)):
            found += [(match[0], name[0].strip("…_")) for name in _NAME.finditer(names)]
    return found


def functions_of(file: str) -> set[str]:
    """The tests in every file of that name."""
    paths = list((ROOT / "tests").rglob(f"{file}.py"))
    trees = [ast.parse(path.read_text("utf-8")) for path in paths]
    return {
        node.name.removeprefix("test_")
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }


def test_the_page_names_many_tests() -> None:
    assert len(named()) > 50


@pytest.mark.parametrize("file", sorted({file for file, _ in named()}))
def test_each_test_that_the_page_names_is_there(file: str) -> None:
    known = functions_of(file)
    asked = {name for of, name in named() if of == file}
    assert {name for name in asked if not any(one.startswith(name) for one in known)} == set()


@pytest.mark.parametrize("path", sorted(set(_PATH.findall(PAGE))))
def test_each_path_that_the_page_names_is_there(path: str) -> None:
    whole = ROOT / path
    assert whole.exists() or whole.with_suffix(".py").exists()
