"""The report of a fault run: JSON for programs, Markdown for people, a table for the terminal."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tests.chaos.faults_judge import Account
from tests.chaos.faults_plan import ERRORS, RESET, Extent

_PROBLEMS_SHOWN: Final = 50
_COLUMNS: Final = {
    "provider": "adapter",
    "proof": "proof",
    "deliveries": "deliveries",
    "accepted": "accepted",
    "doubted": "in doubt",
    "retried": "retried",
    "doubled": "doubled",
    "explained": "explained",
    "lost": "lost",
    "parked": "parked",
    "rejected": "rejected",
    "seconds": "s",
}


def report(
    found: Sequence[Account], troubles: Sequence[str], extent: Extent, seconds: float
) -> dict[str, Any]:
    """Everything in plain values."""
    problems = [*troubles, *(problem for one in found for problem in one.problems)]
    return {
        "verdict": "broken" if problems else "kept",
        "seed": extent.seed,
        "messages": extent.messages,
        "accepted_then_reset": RESET,
        "errors": ERRORS,
        "seconds": round(seconds, 1),
        "adapters": [{**vars(one), "reasons": dict(one.reasons)} for one in found],
        "problems": problems,
        "machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
    }


def write(told: dict[str, Any], folder: Path) -> Path:
    """report.json and report.md; where the page lies."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n")
    page = folder / "report.md"
    page.write_text(markdown(told))
    return page


def markdown(told: dict[str, Any]) -> str:
    """The page."""
    title = f"# Fault run {told['seed']}: promises {told['verdict']}\n"
    shares = (
        f"{told['accepted_then_reset']:.0%} accepted and then reset, {told['errors']:.0%} errors"
    )
    text = (
        f"{told['messages']:,} deliveries through each adapter in {told['seconds']} s; {shares}.\n"
    )
    lines = [tuple(_COLUMNS.values()), ("---",) * len(_COLUMNS), *map(_cells, told["adapters"])]
    grid = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    shown = [f"- {problem}" for problem in told["problems"][:_PROBLEMS_SHOWN]]
    more = len(told["problems"]) - len(shown)
    broken = ["\n## Broken promises\n", *shown, *([f"- … and {more} more"] if more else [])]
    return "\n".join([title, text, grid, *(broken if shown else [])]) + "\n"


def show(told: dict[str, Any], page: Path, console: Console) -> None:
    """The table on the terminal."""
    table = Table(title=f"Faults: promises {told['verdict']}")
    for name, title in _COLUMNS.items():
        table.add_column(title, justify="left" if name in ("provider", "proof") else "right")
    for one in told["adapters"]:
        table.add_row(*_cells(one))
    console.print(table)
    for problem in told["problems"][:10]:
        console.print(problem, style="red", markup=False, soft_wrap=True)
    console.print(f"{page}\nagain: make faults SEED={told['seed']} MESSAGES={told['messages']}")


def _cells(one: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(one[name]) if one[name] != "" else "none" for name in _COLUMNS)
