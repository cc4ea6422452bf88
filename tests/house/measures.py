"""Figures of the source tree: names, folders, constructors, imports, prose.

Each function reads the tree and returns a figure; none judges it. `tests/house/report.py` prints them
beside their aims.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import grimp

PACKAGES: Final = (
    *("hongyan", "dispatcher", "recovery", "receipts", "sending", "channels", "idempotency"),
    *("tracing", "policy", "backends", "message", "simulator", "spark_jobs", "admin"),
)
TOOLS: Final = ("benchmarks", "deploy")
"""Packages whose class names count, too."""
WORDS: Final = ("told", "said", "stands", "whoever")
HEAVY: Final = ("alembic", "sqlalchemy", "redis")
_OPENINGS: Final = re.compile(r"(What|Which|Who|Those|Whose|One that)\b")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?:;])\s+")
_CODE_BLOCK: Final = re.compile(r"^```.*?^```\s*$|^ {4,}[^\n]*$", re.MULTILINE | re.DOTALL)
_NO_PROSE: Final = ("|", "#", ">", "<", "![")
_LONG_SENTENCE: Final = 30


def modules(root: Path, packages: Iterable[str] = PACKAGES) -> Iterator[Path]:
    """Yields each module file of the product, in order of its path."""
    for package in packages:
        yield from sorted((root / package).rglob("*.py"))


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def lines(paths: Iterable[Path]) -> int:
    """Returns the number of lines of these files."""
    return sum(path.read_text().count("\n") for path in paths)


def reused_class_names(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """Returns the public names that several top-level classes have, each with its modules."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        for node in _tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path)
    return {name: where for name, where in sorted(found.items()) if len(where) > 1}


def folder_sizes(paths: Iterable[Path]) -> Counter[Path]:
    """Returns the number of modules in each folder; `__init__` is no module of its own."""
    return Counter(path.parent for path in paths if path.name != "__init__.py")


def constructor_sizes(paths: Iterable[Path]) -> list[tuple[int, str]]:
    """Returns each written constructor as its number of arguments and its place, the largest first."""
    found = []
    for path in paths:
        for owner in ast.walk(_tree(path)):
            if not isinstance(owner, ast.ClassDef):
                continue
            for node in owner.body:
                if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                    sizes = node.args
                    count = len(sizes.posonlyargs) + len(sizes.args) + len(sizes.kwonlyargs) - 1
                    found.append((count, f"{path}:{owner.name}"))
    return sorted(found, reverse=True)


def long_functions(paths: Iterable[Path], over: int) -> list[tuple[int, str]]:
    """Returns the functions of more lines than `over`, the longest first."""
    found = []
    for path in paths:
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count = (node.end_lineno or node.lineno) - node.lineno + 1
                if count > over:
                    found.append((count, f"{path}:{node.name}"))
    return sorted(found, reverse=True)


def import_graph(packages: Iterable[str] = PACKAGES) -> Mapping[str, frozenset[str]]:
    """Returns the modules that each module imports, the product's own alone."""
    graph = grimp.build_graph(*packages, cache_dir=None)
    return {
        module: frozenset(graph.find_modules_directly_imported_by(module))
        for module in graph.modules
    }


def circles(graph: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Returns the groups of nodes that reach each other, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            place = stack.index(node)
            group = sorted(stack[place:])
            del stack[place:]
            if len(group) > 1:
                found.append(group)

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def crossings(graph: Mapping[str, frozenset[str]], one: str, other: str) -> list[str]:
    """Returns the imports of one package by the other, in both directions, as `importer -> imported`."""
    pair = {one, other}
    return sorted(
        f"{module} -> {target}"
        for module, targets in graph.items()
        for target in targets
        if {module.partition(".")[0], target.partition(".")[0]} == pair
    )


def loaded_with(module: str, root: Path) -> list[str]:
    """Returns the heavy libraries that an import of this module loads."""
    script = f"import sys, {module}; print(*[n for n in {HEAVY!r} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def clause_docstrings(paths: Iterable[Path]) -> list[str]:
    """Returns the places of one-line docstrings that begin with a relative clause or a pronoun."""
    found = []
    for path in paths:
        for node in ast.walk(_tree(path)):
            text = _docstring(node)
            if text and "\n" not in text.strip() and _OPENINGS.match(text):
                found.append(f"{path}:{getattr(node, 'lineno', 1)}")
    return found


def _docstring(node: ast.AST) -> str:
    """Returns the text of a docstring: a function's, a class's, a module's, or the one below a field."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        value = node.value.value
        return value if isinstance(value, str) else ""
    return ""


def word_counts(paths: Iterable[Path]) -> Counter[str]:
    """Returns how often each of WORDS occurs in these files."""
    pattern = re.compile(rf"\b({'|'.join(WORDS)})\b", re.IGNORECASE)
    found: Counter[str] = Counter()
    for path in paths:
        found.update(word.lower() for word in pattern.findall(path.read_text()))
    return found


def sentences(text: str) -> Iterator[str]:
    """Yields the sentences of a Markdown text, without code, tables and headings."""
    for paragraph in _CODE_BLOCK.sub("\n", text).split("\n\n"):
        kept = [line for line in paragraph.splitlines() if not line.startswith(_NO_PROSE)]
        for item in re.split(r"^\s*(?:[-*]|\d+\.)\s+", "\n".join(kept), flags=re.MULTILINE):
            for sentence in _SENTENCE_END.split(" ".join(item.split())):
                if sentence:
                    yield sentence


def long_sentences(paths: Iterable[Path]) -> tuple[int, int]:
    """Returns how many sentences have more than 30 words, and how many sentences there are."""
    counts = [len(one.split()) for path in paths for one in sentences(path.read_text())]
    return sum(count > _LONG_SENTENCE for count in counts), len(counts)
