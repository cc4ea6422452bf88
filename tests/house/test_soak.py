"""Each test that `make test` leaves to `make soak` names a small one that it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from deploy.local.layout import REPOSITORY

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
