"""`make house`: how easy the source tree is to live in, as figures beside their aims.

A report and no gate: it exits 0 whatever it prints. `ARGS=all` names every place instead of the first few.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from deploy.local.layout import REPOSITORY
from tests.house import measures

_SHOWN: Final = 6
_MODULES, _ARGUMENTS, _LINES, _NAMES, _PERCENT = 14, 9, 60, 8, 2
_REGISTRIES: Final = frozenset(
    map(Path, ("hongyan/commands", "simulator/protocols", "backends/sql/migrations/versions"))
)
"""Folders that are lists: a file a command, a protocol, a migration."""
_COUNTED: Final = {"told": 302, "said": 321, "stands": 107, "whoever": 43}
"""How often each word stood in the tree when the plan for it was made; the aim is a tenth."""

Row = tuple[str, str, str, Sequence[str]]


def rows(root: Path = REPOSITORY) -> Iterator[Row]:
    """Yields figure, value, aim and the places that it comes from."""
    paths = [path.relative_to(root) for path in measures.modules(root)]
    yield from _names(root, paths)
    yield from _imports(root)
    yield from _prose(root, paths)
    yield "product lines", f"{measures.lines(paths):,} in {len(paths)} modules", "fewer", ()


def _names(root: Path, paths: Sequence[Path]) -> Iterator[Row]:
    tools = [path.relative_to(root) for path in measures.modules(root, measures.TOOLS)]
    reused = measures.reused_class_names([*paths, *tools])
    places = [f"{name}: {', '.join(map(str, where))}" for name, where in reused.items()]
    yield "class names with several meanings", str(len(reused)), f"<= {_NAMES}", places
    counted = measures.folder_sizes(path for path in paths if path.parent not in _REGISTRIES)
    full = [one for one in counted.most_common() if one[1] > _MODULES]
    places = [f"{folder}: {count}" for folder, count in full]
    yield f"folders over {_MODULES} modules", str(len(full)), "0", places
    sizes = [one for one in measures.constructor_sizes(paths) if one[0] > _ARGUMENTS]
    places = [f"{place}: {count}" for count, place in sizes]
    yield f"constructors over {_ARGUMENTS} arguments", str(len(sizes)), "0", places
    long = measures.long_functions(paths, _LINES)
    places = [f"{place}: {count}" for count, place in long]
    yield f"functions over {_LINES} lines", str(len(long)), "0", places


def _imports(root: Path) -> Iterator[Row]:
    graph = measures.import_graph()
    circles = measures.circles(graph)
    yield "import circles", str(len(circles)), "0", [" ".join(one) for one in circles]
    crossed = measures.crossings(graph, "dispatcher", "recovery")
    yield "imports between dispatcher and recovery", str(len(crossed)), "0", crossed
    loaded = measures.loaded_with("idempotency.ledger", root)
    yield "loaded with idempotency.ledger", " ".join(loaded) or "none", "none", ()


def _prose(root: Path, paths: Sequence[Path]) -> Iterator[Row]:
    clauses = measures.clause_docstrings(paths)
    yield "docstrings that begin with a clause", str(len(clauses)), "0", clauses
    pages = [*sorted((root / "docs").rglob("*.md")), root / "README.md"]
    counts = measures.word_counts([*paths, *pages])
    for word, before in _COUNTED.items():
        yield f'"{word}"', str(counts[word]), f"<= {before // 10}", ()
    long, total = measures.long_sentences(pages)
    share = 100 * long / max(total, 1)
    yield "sentences over 30 words", f"{share:.1f} % of {total}", f"<= {_PERCENT} %", ()


def main(arguments: Sequence[str]) -> int:
    """Prints the report; returns 0."""
    console = Console(highlight=False)
    shown = None if "all" in arguments else _SHOWN
    for figure, value, aim, places in rows():
        console.print(f"{figure:<40} {value:<24} aim: {aim}", markup=False, soft_wrap=True)
        for place in places[:shown]:
            console.print(f"    {place}", style="dim", markup=False, soft_wrap=True)
        if shown is not None and len(places) > shown:
            console.print(f"    and {len(places) - shown} more: make house ARGS=all", style="dim")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
