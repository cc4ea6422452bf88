"""The table of mutations fits the source, and the runner tells the dead from the living."""

import pytest

from tests.chaos.mutation import Mutation
from tests.chaos.mutations import MUTATIONS, Fate, _fate, misfit

ONE = Mutation("a guard", "x.py", "old", "new", ("t.py::test_a", "t.py::test_b"))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.guard.replace(" ", "_"))
def test_the_text_to_replace_stands_once_in_the_source(mutation: Mutation) -> None:
    assert misfit(mutation) == "", "the guard was rewritten: rewrite its line in mutations.py too"


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
