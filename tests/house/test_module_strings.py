"""Every module that is named by a string exists: a move that forgets one fails here."""

import ast
import importlib
import importlib.util
import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from deploy.local.layout import REPOSITORY
from hongyan import errors

_PACKAGES = {path.name for path in REPOSITORY.iterdir() if any(path.glob("*.py"))} | {
    "tests",
    "deploy",
}
_NO_CODE = ("docs", ".ci")
_SWITCH = re.compile(r"-m\s+([a-z_]+(?:\.[a-z_0-9]+)+)")
_SUFFIXES = {".md", ".sh", ".toml", ".yaml", ".yml", ".service", ""}


def _ours(name: str) -> bool:
    return name.partition(".")[0] in _PACKAGES


def _switches_in_code() -> Iterator[tuple[str, str]]:
    """Yields each module that follows "-m" in a list of arguments, with its place."""
    for folder in sorted(_PACKAGES):
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            text = path.read_text()
            for node in ast.walk(ast.parse(text)) if '"-m"' in text else ():
                if not isinstance(node, ast.List | ast.Tuple):
                    continue
                texts = [e.value if isinstance(e, ast.Constant) else None for e in node.elts]
                for switch, name in pairwise(texts):
                    if switch == "-m" and isinstance(name, str) and _ours(name):
                        yield name, f"{path.relative_to(REPOSITORY)}:{node.lineno}"


def _switches_in_text() -> Iterator[tuple[str, str]]:
    """Yields each module that follows -m in the Makefile, a script, a manifest or a page."""
    pages = [REPOSITORY / "Makefile", *REPOSITORY.glob("*.md")]
    for folder in (*sorted(_PACKAGES), *_NO_CODE):
        pages += [p for p in (REPOSITORY / folder).rglob("*") if p.suffix in _SUFFIXES]
    for path in pages:
        if path.is_file() and "node_modules" not in path.parts:
            for name in _SWITCH.findall(path.read_text(errors="replace")):
                if _ours(name):
                    yield name, str(path.relative_to(REPOSITORY))


SWITCHES = sorted({*_switches_in_code(), *_switches_in_text()})


def test_the_search_finds_the_modules_that_processes_are_started_from() -> None:
    assert {"simulator", "benchmarks.loops"} <= {name for name, _ in SWITCHES}


@pytest.mark.parametrize(("name", "place"), SWITCHES)
def test_a_module_named_behind_m_exists(name: str, place: str) -> None:
    assert importlib.util.find_spec(name) is not None, place


@pytest.mark.parametrize(
    ("module", "name"),
    [(module, name) for module, name, _, _ in errors._EXPECTED],
)
def test_an_expected_error_is_a_class_of_its_module(module: str, name: str) -> None:
    found = getattr(importlib.import_module(module), name)
    assert isinstance(found, type)
    assert issubclass(found, BaseException)


def test_the_programs_entry_points_resolve() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    for target in project["scripts"].values():
        module, _, name = target.partition(":")
        assert callable(getattr(importlib.import_module(module), name))


def test_the_migrations_folder_holds_the_versions() -> None:
    from backends.sql import migrations

    folder = Path(str(migrations.__file__)).parent
    assert list((folder / "versions").glob("v*.py"))
