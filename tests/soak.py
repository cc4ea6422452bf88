"""The choice between `make test` and `make soak` (decision 284).

The mark stands at the test, and names a small one that every `make test` runs:

    @pytest.mark.soak(small="::test_y")                     of this file; or "tests/spool/test_x.py::test_y"
    @pytest.mark.soak(cases="sqlite")                       the cases with this in their id; the others run
    @pytest.mark.soak(cases="sqlite", small="::test_y")
"""

from __future__ import annotations

from typing import Final, Literal, cast

import pytest

Soak = Literal["without", "only", "with"]
CHOICES: Final[tuple[Soak, ...]] = ("without", "only", "with")


def add_option(parser: pytest.Parser) -> None:
    """Adds `--soak`."""
    parser.addoption(
        "--soak",
        choices=CHOICES,
        default="without",
        help="tests marked as soak: `without` them (but those named on the command line), `only`, `with`",
    )


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects what `--soak` does not ask for. A test that is named on the command line stays."""
    choice = cast(Soak, config.getoption("soak"))
    named = [name for name in config.args if "::" in name]
    if choice == "with":
        return
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        wanted = is_soak(item) == (choice == "only") or any(_names(one, item) for one in named)
        (kept if wanted else left).append(item)
    if left:
        items[:] = kept
        config.hook.pytest_deselected(items=left)


def is_soak(item: pytest.Item) -> bool:
    """Whether the mark holds for this case of the test."""
    marks = list(item.iter_markers("soak"))
    case = item.nodeid.partition("[")[2]
    return any(_cases(mark) in case for mark in marks)


def _cases(mark: pytest.Mark) -> str:
    return str(mark.kwargs.get("cases", ""))


def _names(argument: str, item: pytest.Item) -> bool:
    """Whether a path with a test's name, as written on a command line, means this one."""
    path, _, test = argument.partition("::")
    own_path, _, own = item.nodeid.partition("::")
    same_test = own == test or own.startswith(f"{test}[")
    return same_test and (path.endswith(own_path) or own_path.endswith(path.removeprefix("./")))
