"""Each test that `make test` leaves to `make soak` names a small one that it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from deploy.local.layout import REPOSITORY
from tests import soak

TESTS = REPOSITORY / "tests"


class Left(NamedTuple):
    """One mark."""

    place: str
    test: str
    small: str
    cases: str


def marks() -> Iterator[Left]:
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text()
        if "mark.soak" not in text:
            continue
        place = str(path.relative_to(REPOSITORY))
        for function in _functions(path, text):
            for call in ast.walk(ast.Module(list(function.decorator_list), [])):  # type: ignore[arg-type]
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.soak":
                    words = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
                    yield Left(place, function.name, words.get("small", ""), words.get("cases", ""))


def _functions(path: Path, text: str) -> list[ast.FunctionDef]:
    tree = ast.parse(text, filename=str(path))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def test_each_long_test_names_a_small_one_that_every_run_has() -> None:
    found = list(marks())
    whole = {(one.place, one.test) for one in found if not one.cases}
    assert len(found) > 20
    for one in found:
        if not one.small:
            assert one.cases, f"{one}: neither a small test nor cases"
            continue
        place, _, name = one.small.partition("::")
        place = place or one.place
        assert (place, name) not in whole, f"{one}: the small test is left out, too"
        assert (REPOSITORY / place).is_file(), f"{one}: {place} is not there"
        assert name in _names_in(REPOSITORY / place), f"{one}: {place} has no such test"


def _names_in(path: Path) -> set[str]:
    return {one.name for one in _functions(path, path.read_text())}


SHORT = "tests/spool/test_x.py::test_short"
LONG = "tests/spool/test_x.py::test_long[sqlite]"
OF_A_CASE = "tests/spool/test_x.py::test_cases[sqlite]"
OTHER_CASE = "tests/spool/test_x.py::test_cases[postgresql]"
ALL = [SHORT, LONG, OF_A_CASE, OTHER_CASE]


def chosen(choice: str, *arguments: str) -> list[str]:
    """Returns the names that stay of ALL. What is left out must be told to pytest."""
    cases = pytest.mark.soak(cases="sqlite").mark
    marks = {LONG: [pytest.mark.soak.mark], OF_A_CASE: [cases], OTHER_CASE: [cases]}
    left: list[Any] = []
    config = SimpleNamespace(
        getoption=lambda _name: choice,
        args=list(arguments),
        hook=SimpleNamespace(pytest_deselected=lambda items: left.extend(items)),
    )
    items: list[Any] = [
        SimpleNamespace(nodeid=name, iter_markers=lambda _mark, name=name: marks.get(name, []))
        for name in ALL
    ]
    soak.choose(config, items)  # type: ignore[arg-type]
    kept = [item.nodeid for item in items]
    assert sorted(kept + [item.nodeid for item in left]) == sorted(ALL)
    return kept


def test_what_is_marked_is_left_out_or_alone_or_with_the_others() -> None:
    assert chosen("without") == [SHORT, OTHER_CASE]
    assert chosen("only") == [LONG, OF_A_CASE]
    assert chosen("with") == ALL


@pytest.mark.parametrize(
    "folder", ["tests/spool/", "spool/", "./tests/spool/", "/any/where/tests/spool/"]
)
def test_a_named_test_runs_whatever_its_mark(folder: str) -> None:
    assert LONG in chosen("without", f"{folder}test_x.py::test_long")
    assert LONG in chosen("without", f"{folder}test_x.py::test_long[sqlite]")
    assert OF_A_CASE not in chosen("without", f"{folder}test_x.py::test_long")


def test_a_file_alone_names_no_test() -> None:
    assert chosen("without", "tests/spool/test_x.py") == [SHORT, OTHER_CASE]
