"""The report of a run: JSON for programs, Markdown for people, a short table for the terminal."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.chaos.books import Books, Hit
from tests.chaos.judge import Doubt, Judgement
from tests.chaos.plan import Kind, Plan

_PROBLEMS_SHOWN = 50
_QUANTILES = {"p50": 0.5, "p99": 0.99, "slowest": 1.0}


def report(
    plan: Plan, books: Books, found: Judgement, *, seconds: float, repeats: int
) -> dict[str, Any]:
    """Everything in plain values."""
    start = min((life.started_ms for life in books.lives), default=0)
    kills = [hit for hit in books.hits if hit.fault.kind is Kind.KILL]
    slowest = found.slowest
    return {
        "verdict": "kept" if not found.problems else "broken",
        "seed": plan.seed,
        "messages": plan.extent.messages,
        "acknowledged": found.acknowledged,
        "repeats": repeats,
        "seconds": round(seconds, 1),
        "deliveries_per_s": round(found.acknowledged / seconds, 1) if seconds else None,
        "kills": len(kills),
        "points": len({hit.point for hit in kills}),
        "kills_by_point": dict(Counter(hit.point for hit in kills)),
        "faults": dict(Counter(hit.fault.kind.value for hit in books.hits)),
        "lost": len(found.lost),
        "lost_share_below": found.lost_bound,
        "doubled": len(found.doubles),
        "doubled_by_cause": dict(Counter(d.cause or "unexplained" for d in found.doubles)),
        "in_doubt": found.states["UNKNOWN"],
        "in_doubt_by_fault": [doubt._asdict() for doubt in found.doubts],
        "in_doubt_most_by_one_kill": _most(found.doubts, Kind.KILL),
        "in_doubt_bound": books.limits.in_doubt,
        "parked": found.states["PARKED"],
        "states": dict(found.states),
        "durably_owned": dict(found.waiting),
        "order": found.order._asdict(),
        "slowest_recovery": slowest._asdict() if slowest else None,
        "took_s": {name: _quantile(found.took_s, q) for name, q in _QUANTILES.items()},
        "recoveries": [recovery._asdict() for recovery in found.recoveries],
        "workers": [_life(life, start) for life in books.lives],
        "memory_mb": max((life.peak_mb for life in books.lives), default=0.0),
        "timeline": [_hit(hit, start) for hit in books.hits],
        "problems": found.problems,
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
    sections = [
        f"# Chaos run {told['seed']}: promises {told['verdict']}\n",
        _grid(("figure", ""), headline(told)),
        *_problems(told["problems"]),
        "## What was done\n",
        _grid(
            ("s", "settled", "fault", "worker", "it was", "back after s", "next settled after s"),
            _timeline(told),
        ),
        f"## In doubt, by fault (at most {told['in_doubt_bound']} each)\n",
        _grid(
            ("fault", "what", "worker", "in doubt"),
            ((d["fault"], d["cause"], d["worker"], d["left"]) for d in told["in_doubt_by_fault"]),
        ),
        "## Durably owned, waiting for recovery\n",
        _grid(("state: reason", "deliveries"), sorted(told["durably_owned"].items())),
        "## States\n",
        _grid(("state", "deliveries"), sorted(told["states"].items())),
        "## Workers\n",
        _grid(
            ("life", "id", "from s", "to s", "ended by", "code", "most memory MB", "lapses"),
            ([w[k] for k in _LIFE] for w in told["workers"]),
        ),
    ]
    return "\n".join(sections)


def headline(told: dict[str, Any]) -> list[tuple[str, str]]:
    """The figures that matter, as text."""
    slowest, order = told["slowest_recovery"], told["order"]
    doubled = ", ".join(f"{n} × {c}" for c, n in told["doubled_by_cause"].items())
    return [
        ("seed", str(told["seed"])),
        ("acknowledged by Kafka", f"{told['acknowledged']:,} deliveries"),
        ("time", f"{told['seconds']} s, {told['deliveries_per_s']} deliveries/s"),
        ("faults", ", ".join(f"{n} × {kind}" for kind, n in told["faults"].items())),
        ("kills", f"{told['kills']} at {told['points']} points"),
        ("lost", _lost(told)),
        ("doubled", doubled or "0"),
        ("in doubt", f"{told['in_doubt']}"),
        (
            "most in doubt by one kill",
            f"{told['in_doubt_most_by_one_kill']} of {told['in_doubt_bound']} allowed",
        ),
        ("parked", str(told["parked"])),
        ("durably owned", ", ".join(f"{n} × {why}" for why, n in told["durably_owned"].items())),
        ("keys out of order", _keys(order)),
        (
            "slowest recovery",
            f"{slowest['seconds']:.1f} s after fault {slowest['fault']}, {slowest['kind']}"
            if slowest
            else "none",
        ),
        ("made to settled", ", ".join(f"{q} {s} s" for q, s in told["took_s"].items())),
        ("most memory of a worker", f"{told['memory_mb']:.0f} MB"),
        ("problems", str(len(told["problems"]))),
    ]


def show(told: dict[str, Any], page: Path, console: Console) -> None:
    """The table on the terminal."""
    table = Table(title=f"Chaos: promises {told['verdict']}", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in headline(told):
        table.add_row(name, value)
    console.print(table)
    for problem in told["problems"][:10]:
        console.print(problem, style="red", markup=False)
    console.print(f"{page}\nagain: make chaos SEED={told['seed']} MESSAGES={told['messages']}")


def _lost(told: dict[str, Any]) -> str:
    """The bound holds for none lost only."""
    bound = f" (95 %: below {told['lost_share_below']:.2g} of all)"
    return f"{told['lost']}{'' if told['lost'] else bound}"


def _keys(order: dict[str, Any]) -> str:
    broken, excused = len(order["broken"]), len(order["broken_though_excused"])
    doubted = f"{excused} of {order['excused']} with a delivery in doubt or waiting"
    return f"{broken} of {order['judged']}; {doubted}"


_LIFE = ("life", "id", "from_s", "to_s", "ended_by", "code", "peak_mb", "lapses")


def _life(life: Any, start: int) -> dict[str, Any]:
    values = (
        life.number,
        life.worker,
        _seconds(life.started_ms, start),
        _seconds(life.ended_ms, start),
        life.ended_by or "itself",
        life.code,
        round(life.peak_mb, 1),
        len(life.lapses_ms),
    )
    return dict(zip(_LIFE, values, strict=True))


def _hit(hit: Hit, start: int) -> dict[str, Any]:
    return {
        "number": hit.fault.number,
        "kind": hit.fault.kind.value,
        "planned_at": hit.fault.at,
        "at_s": _seconds(hit.at_ms, start),
        "back_after_s": round((hit.until_ms - hit.at_ms) / 1_000, 1) if hit.until_ms else None,
        "worker": hit.worker,
        "point": hit.point,
    }


def _timeline(told: dict[str, Any]) -> Iterable[Sequence[Any]]:
    after = {r["fault"]: r["seconds"] for r in told["recoveries"]}
    for hit in told["timeline"]:
        yield (
            hit["at_s"],
            f"{100 * hit['planned_at']:.1f} %",
            f"{hit['number']}. {hit['kind']}",
            hit["worker"],
            hit["point"],
            hit["back_after_s"],
            after.get(hit["number"]),
        )


def _problems(problems: Sequence[str]) -> list[str]:
    if not problems:
        return []
    shown = [f"- {problem}" for problem in problems[:_PROBLEMS_SHOWN]]
    more = len(problems) - len(shown)
    return ["## Broken promises\n", *shown, *([f"- … and {more} more"] if more else []), ""]


def _grid(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    cells = (" | ".join("" if v is None else str(v) for v in line) for line in lines)
    return "\n".join(f"| {row} |" for row in cells) + "\n"


def _quantile(values: Sequence[float], share: float) -> float | None:
    return round(values[min(int(share * len(values)), len(values) - 1)], 2) if values else None


def _seconds(moment: int, start: int) -> float | None:
    return round((moment - start) / 1_000, 1) if moment else None


def _most(doubts: Iterable[Doubt], kind: Kind) -> int:
    return max((d.left for d in doubts if d.cause == kind.value), default=0)
