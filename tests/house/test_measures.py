"""The report of `make house` counts what is there."""

from pathlib import Path

import pytest

from deploy.local.layout import REPOSITORY
from tests.house import measures


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A small tree with one fault of each kind."""
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "a.py").write_text(
        '"""Who reads this."""\n'
        "class Again:\n"
        '    """What it is."""\n'
        "    def __init__(self, a, b, /, *, c): ...\n"
        "class _Again: ...\n"
    )
    (folder / "b.py").write_text(
        '"""Reads."""\nclass Again:\n    """It is told\n\n    and said."""\n'
    )
    return tmp_path


def paths(root: Path) -> list[Path]:
    return list(measures.modules(root, ["one"]))


def test_a_public_name_of_two_classes_is_counted(package: Path) -> None:
    reused = measures.reused_class_names(paths(package))
    assert {name: len(where) for name, where in reused.items()} == {"Again": 2}


def test_a_folder_is_counted_without_its_init(package: Path) -> None:
    assert list(measures.folder_sizes(paths(package)).values()) == [2]


def test_a_constructors_arguments_are_counted_without_self(package: Path) -> None:
    assert [count for count, _ in measures.constructor_sizes(paths(package))] == [3]


def test_docstrings_that_begin_with_a_clause_are_found(package: Path) -> None:
    found = [Path(place).name for place in measures.clause_docstrings(paths(package))]
    assert found == ["a.py:1", "a.py:3"]


def test_words_are_counted_whole(package: Path) -> None:
    assert measures.word_counts(paths(package)) == {"told": 1, "said": 1}


def test_circles_are_found_and_lines_are_none() -> None:
    graph = {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("b"), "d": frozenset("a")}
    assert measures.circles(graph) == [["b", "c"]]


def test_crossings_are_found_in_both_directions() -> None:
    graph = {"a.x": frozenset({"b.y", "a.z"}), "b.y": frozenset({"a.z"}), "a.z": frozenset[str]()}
    assert measures.crossings(graph, "a", "b") == ["a.x -> b.y", "b.y -> a.z"]


def test_a_sentence_ends_at_its_stop_and_tables_are_no_prose(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    long = " ".join(["word"] * 31)
    shown = f"| {long} |\n\n    {long}\n\n```\n{long}\n```\n"
    page.write_text(f"# Title\n\nOne. {long}.\n\n- An item\n- {long}\n\n{shown}\n{long}\n")
    assert measures.long_sentences([page]) == (3, 5)


@pytest.mark.parametrize("module", ["message.ids", "idempotency.ledger"])
def test_an_import_of_a_light_module_loads_nothing_heavy(module: str) -> None:
    assert measures.loaded_with(module, REPOSITORY) == []
