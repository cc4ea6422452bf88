"""Finds the modules of the tree that `hongyan_client` imports, and rewrites imports for its wheel. Pure.

    message.envelope  ─▶  hongyan_client._vendor.message.envelope

No package of the business process is shadowed so, and the modules exist once in the tree.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "hongyan_client"
VENDOR = f"{PACKAGE}._vendor"
ALLOWED = ("message", "tracing")
"""Packages of the tree whose modules go along."""


class Stray(Exception):
    """The client imports a module of the tree that must not go along."""


def imported(source: str) -> Iterator[tuple[str, str]]:
    """Yields (module, name) of each import, those inside functions too; name is empty for `import x`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


def closure(root: Path) -> dict[str, Path]:
    """Returns the modules that go along, by name, with their files. Raises Stray."""
    ours = {path.parent.name for path in root.glob("*/__init__.py")}
    pending = list((root / PACKAGE).rglob("*.py"))
    found: dict[str, Path] = {}
    while pending:
        path = pending.pop()
        for module, name in imported(path.read_text(encoding="utf-8")):
            top = module.partition(".")[0]
            if top not in ours or top == PACKAGE:
                continue
            if top not in ALLOWED:
                raise Stray(
                    f"{path.relative_to(root)} imports {module}, which is no part of the client"
                )
            for one in (module, f"{module}.{name}" if name else module):
                file = _file(root, one)
                if file is not None and one not in found:
                    found[one] = file
                    pending.append(file)
    return dict(sorted(found.items()))


def _file(root: Path, module: str) -> Path | None:
    path = root.joinpath(*module.split("."))
    if path.with_suffix(".py").is_file():
        return path.with_suffix(".py")
    return path / "__init__.py" if (path / "__init__.py").is_file() else None


_TOPS = "|".join(ALLOWED)
_FROM = re.compile(rf"^(\s*)from ((?:{_TOPS})(?:\.[\w.]+)?) import", re.MULTILINE)
_IMPORT = re.compile(rf"^(\s*)import ((?:{_TOPS})(?:\.[\w.]+)?)(\s*)$", re.MULTILINE)
_TEXT = re.compile(rf"\"((?:{_TOPS})\.[a-z_]+)\"(?=:)")


def rewritten(source: str) -> str:
    """Returns the source with imports of `message` and `tracing` turned to the vendored ones. Raises Stray
    where an import would be left."""
    text = _FROM.sub(rf"\1from {VENDOR}.\2 import", source)
    text = _TEXT.sub(rf'"{VENDOR}.\1"', text)
    if _IMPORT.search(text):
        raise Stray("write `from message.x import y`: `import message.x` cannot be rewritten")
    left = [m for m, _ in imported(text) if m.partition(".")[0] in ALLOWED]
    if left:
        raise Stray(f"the import of {left[0]} was not rewritten")
    return text


def files(root: Path) -> Iterator[tuple[str, str | bytes]]:
    """Yields (path in the wheel, content) of all files of the wheel."""
    for path in sorted((root / PACKAGE).rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.suffix == ".py":
            yield name, rewritten(path.read_text(encoding="utf-8"))
        elif path.is_file() and "__pycache__" not in name:
            yield name, path.read_bytes()
    vendor = VENDOR.replace(".", "/")
    yield f"{vendor}/__init__.py", '"""Modules that the platform and this client share."""\n'
    known = closure(root)
    for package in ALLOWED:
        if package not in known:
            yield f"{vendor}/{package}/__init__.py", ""
    for module, path in known.items():
        relative = path.relative_to(root).as_posix()
        # A package's own imports are of no use here: `tracing` opens recorders.
        is_package = path.name == "__init__.py"
        yield (
            f"{vendor}/{relative}",
            "" if is_package else rewritten(path.read_text(encoding="utf-8")),
        )
        del module
