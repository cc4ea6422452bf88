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
from tests.chaos.judge import Judgement
from tests.chaos.kinds import KILLS
from tests.chaos.pauses import resumes
from tests.chaos.plan import Plan

_PROBLEMS_SHOWN = 50
_QUANTILES = {"p50": 0.5, "p99": 0.99, "slowest": 1.0}


def report(
    plan: Plan, books: Books, found: Judgement, *, seconds: float, repeats: int
) -> dict[str, Any]:
    """Everything in plain values."""
    start = min((life.started_ms for life in books.lives), default=0)
    kills = [point for hit in books.hits for point in _killed(hit)]
    silence, slowest = found.longest_silence, found.troubles[-1:]
    return {
        "verdict": "kept" if not found.problems else "broken",
        "seed": plan.seed,
        "messages": plan.extent.messages,
        "acknowledged": found.acknowledged,
        "repeats": repeats,
        "seconds": round(seconds, 1),
        "deliveries_per_s": round(found.acknowledged / seconds, 1) if seconds else None,
        "kills": len(kills),
        "points": len(set(kills)),
        "kills_by_point": dict(Counter(kills)),
        "fault_kinds": len({hit.fault.kind for hit in books.hits}),
        "faults": dict(Counter(hit.fault.kind.value for hit in books.hits)),
        "lost": len(found.lost),
        "lost_share_below": found.lost_bound,
        "doubled": len(found.doubles),
        "doubled_by_cause": dict(Counter(d.cause or "unexplained" for d in found.doubles)),
        "in_doubt": found.doubted,
        "in_doubt_at_the_end": found.states["UNKNOWN"],
        "in_doubt_by_fault": [doubt._asdict() for doubt in found.doubts],
        "in_doubt_most_by_one_fault": max((doubt.left for doubt in found.doubts), default=0),
        "in_doubt_bound": books.limits.in_doubt,
        "parked": found.states["PARKED"],
        "outcome_events": found.outcomes.events,
        "outcome_repeats": found.outcomes.repeats,
        "states": dict(found.states),
        "not_sent": dict(found.reasons),
        "order": found.order._asdict(),
        "recovered": len(found.troubles),
        "slowest_recovery_s": round(slowest[0].seconds, 1) if slowest else None,
        "recovery_s": {
            name: _quantile([t.seconds for t in found.troubles], q)
            for name, q in _QUANTILES.items()
        },
        "recovery_bound_s": books.limits.recovery_s,
        "longest_silence": silence._asdict() if silence else None,
        "took_s": {name: _quantile(found.took_s, q) for name, q in _QUANTILES.items()},
        "resumes_ms": resumes(books),
        "silences": [one._asdict() for one in found.silences],
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
            (
                "s",
                "settled",
                "fault",
                "whom",
                "it was",
                "back after s",
                "next settled after s",
                "seen",
            ),
            _timeline(told),
        ),
        f"## In doubt, by fault (at most {told['in_doubt_bound']} each)\n",
        _grid(
            ("fault", "what", "whom", "in doubt"),
            ((d["fault"], d["cause"], d["worker"], d["left"]) for d in told["in_doubt_by_fault"]),
        ),
        "## Doubled, by cause\n",
        _grid(("cause", "deliveries"), sorted(told["doubled_by_cause"].items())),
        "## Not sent, by reason\n",
        _grid(("state: reason", "deliveries"), sorted(told["not_sent"].items())),
        "## States\n",
        _grid(("state", "deliveries"), sorted(told["states"].items())),
        "## Kills, by point\n",
        _grid(("point", "kills"), sorted(told["kills_by_point"].items())),
        "## Processes\n",
        _grid(
            (
                "life",
                "what",
                "id",
                "from s",
                "to s",
                "ended by",
                "code",
                "most memory MB",
                "lapses",
            ),
            ([w[k] for k in _LIFE] for w in told["workers"]),
        ),
    ]
    return "\n".join(sections)


def headline(told: dict[str, Any]) -> list[tuple[str, str]]:
    """The figures that matter, as text."""
    silence, order = told["longest_silence"], told["order"]
    doubled = ", ".join(f"{n} × {c}" for c, n in told["doubled_by_cause"].items())
    return [
        ("seed", str(told["seed"])),
        ("acknowledged by Kafka", f"{told['acknowledged']:,} deliveries"),
        ("time", f"{told['seconds']} s, {told['deliveries_per_s']} deliveries/s"),
        ("faults", f"{len(told['timeline'])} of {told['fault_kinds']} kinds"),
        ("kills", f"{told['kills']} at {told['points']} points"),
        ("lost", _lost(told)),
        ("doubled", doubled or "0"),
        ("in doubt", f"{told['in_doubt']} for a while, {told['in_doubt_at_the_end']} at the end"),
        (
            "most in doubt by one fault",
            f"{told['in_doubt_most_by_one_fault']} of {told['in_doubt_bound']} allowed",
        ),
        ("parked", str(told["parked"])),
        ("not sent", ", ".join(f"{n} × {why}" for why, n in sorted(told["not_sent"].items()))),
        ("keys out of order", _keys(order)),
        (
            "slowest recovery of one delivery",
            _slowest(told),
        ),
        (
            "longest silence",
            f"{silence['seconds']:.1f} s after fault {silence['fault']}, {silence['kind']}"
            if silence
            else "none",
        ),
        ("made to settled", ", ".join(f"{q} {s} s" for q, s in told["took_s"].items())),
        ("most memory of a process", f"{told['memory_mb']:.0f} MB"),
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
    doubted = f"{excused} of {order['excused']} with a delivery that was in doubt"
    return f"{broken} of {order['judged']}; {doubted}"


def _slowest(told: dict[str, Any]) -> str:
    bound, recovered = told["recovery_bound_s"], told["recovered"]
    return f"{told['slowest_recovery_s']} s of {bound:.0f} s allowed ({recovered} recovered)"


_LIFE = ("life", "what", "id", "from_s", "to_s", "ended_by", "code", "peak_mb", "lapses")


def _life(life: Any, start: int) -> dict[str, Any]:
    values = (
        life.number,
        life.role,
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
        "effect": hit.effect,
    }


def _killed(hit: Hit) -> list[str]:
    """What each process that it killed was doing."""
    if hit.fault.kind not in KILLS:
        return []
    return hit.point.split(", ")[: len(hit.lives)] if hit.lives else [hit.point]


def _timeline(told: dict[str, Any]) -> Iterable[Sequence[Any]]:
    after = {one["fault"]: one["seconds"] for one in told["silences"]}
    for hit in told["timeline"]:
        yield (
            hit["at_s"],
            f"{100 * hit['planned_at']:.1f} %",
            f"{hit['number']}. {hit['kind']}",
            hit["worker"],
            hit["point"],
            hit["back_after_s"],
            after.get(hit["number"]),
            hit["effect"],
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
