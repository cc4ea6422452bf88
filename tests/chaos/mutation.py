"""One guard, how it is switched off, and the tests that must notice."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple


@dataclass(frozen=True)
class Mutation:
    """`old`, which occurs once in `place`, becomes `new`; then each of `killers` must fail.

    `place` is `module:function`, `module:Class.method` or `module:CONSTANT`; a module alone is all of it.
    """

    guard: str
    place: str
    old: str
    new: str
    killers: tuple[str, ...]


class Misplaced(ValueError):
    """The tree has no such place."""


class Section(NamedTuple):
    """A part of a source file: characters from `start` to `end`."""

    path: Path
    start: int
    end: int

    def text(self) -> str:
        """Returns the part as it is now."""
        return self.path.read_text()[self.start : self.end]

    def replaced(self, old: str, new: str) -> str:
        """Returns the whole file with `old` replaced in this part."""
        whole = self.path.read_text()
        part = whole[self.start : self.end].replace(old, new)
        return whole[: self.start] + part + whole[self.end :]


def section_of(place: str, root: Path) -> Section:
    """Returns the part of the tree that a place names; raises Misplaced."""
    module, _, names = place.partition(":")
    path = _file_of(module, root)
    source = path.read_text()
    node: ast.AST = _parsed(source)
    for name in names.split(".") if names else ():
        found = next((n for n in getattr(node, "body", ()) if name in _names(n)), None)
        if found is None:
            raise Misplaced(f"{module} has no {names}")
        node = found
    if isinstance(node, ast.Module):
        return Section(path, 0, len(source))
    lines = source.splitlines(keepends=True)
    first, last = _span(node)
    return Section(path, len("".join(lines[: first - 1])), len("".join(lines[:last])))


def _file_of(module: str, root: Path) -> Path:
    base = root.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    raise Misplaced(f"there is no module {module}")


@cache
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _span(node: ast.AST) -> tuple[int, int]:
    """Returns the first and the last line, decorators included."""
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(one.lineno for one in decorators)])  # type: ignore[attr-defined]
    return first, node.end_lineno  # type: ignore[attr-defined]
