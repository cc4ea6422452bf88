"""The table of mutations fits the source, and the runner tells the dead from the living."""

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.layout import REPOSITORY
from tests.chaos.mutation import Misplaced, Mutation, section_of
from tests.chaos.mutations import MUTATIONS, Fate, _fate, misfit

ONE = Mutation("a guard", "x.py", "old", "new", ("t.py::test_a", "t.py::test_b"))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.guard.replace(" ", "_"))
def test_the_text_to_replace_occurs_once_in_its_place(mutation: Mutation) -> None:
    assert misfit(mutation) == "", "the guard was rewritten: rewrite its line in mutations.py too"


def test_the_named_tests_exist() -> None:
    named = {killer for mutation in MUTATIONS for killer in mutation.killers}
    files = sorted({name.partition("::")[0] for name in named})
    collected = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--collect-only",
            "-q",
            "-n",
            "0",
            "--soak",
            "with",
            *files,
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    whole = {line.partition("[")[0] for line in collected}
    assert named - set(collected) - whole == set()


@pytest.mark.parametrize(
    ("code", "output", "fate"),
    [
        (1, "FAILED t.py::test_a\nFAILED t.py::test_b[case]", Fate.KILLED),
        (1, "FAILED t.py::test_a - boom", Fate.SURVIVED),
        (1, "FAILED t.py::test_a\nFAILED t.py::test_bb", Fate.SURVIVED),
        (0, "2 passed", Fate.SURVIVED),
        (2, "SyntaxError", Fate.UNFIT),
        (4, "not found", Fate.UNFIT),
        (-1, "not within 180 s", Fate.UNFIT),
    ],
)
def test_a_mutation_is_killed_only_when_every_named_test_is_red(
    code: int, output: str, fate: Fate
) -> None:
    assert _fate(ONE, code, output)[0] is fate


SOURCE = """LIMIT = 1


class Pool:
    @property
    def room(self):
        return LIMIT

    def take(self):
        return LIMIT
"""


@pytest.mark.parametrize(
    ("place", "first", "last"),
    [
        ("pack.pool", "LIMIT = 1", "return LIMIT"),
        ("pack.pool:LIMIT", "LIMIT = 1", "LIMIT = 1"),
        ("pack.pool:Pool", "class Pool:", "return LIMIT"),
        ("pack.pool:Pool.room", "@property", "return LIMIT"),
        ("pack.pool:Pool.take", "def take(self):", "return LIMIT"),
    ],
)
def test_a_place_is_the_function_class_or_constant_that_it_names(
    tmp_path: Path, place: str, first: str, last: str
) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "pool.py").write_text(SOURCE)
    lines = section_of(place, tmp_path).text().strip().splitlines()
    assert (lines[0].strip(), lines[-1].strip()) == (first, last)


def test_only_the_named_place_is_changed(tmp_path: Path) -> None:
    (tmp_path / "pool.py").write_text(SOURCE)
    changed = section_of("pool:Pool.take", tmp_path).replaced("return LIMIT", "return 0")
    assert changed == SOURCE.removesuffix("return LIMIT\n") + "return 0\n"


@pytest.mark.parametrize("place", ["nowhere", "pool:Tank", "pool:Pool.fill", "pool:Pool.take.more"])
def test_a_place_that_is_not_there_is_said(tmp_path: Path, place: str) -> None:
    (tmp_path / "pool.py").write_text(SOURCE)
    with pytest.raises(Misplaced):
        section_of(place, tmp_path)
