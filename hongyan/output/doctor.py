"""`hongyan doctor` as people and programs read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from hongyan.terminal import out

if TYPE_CHECKING:
    from rich.table import Table

    from producer.doctor.diagnosis import Diagnosis, DoctorFinding, Gap

_STYLES: Final = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_WORDS: Final = {"error": "ERROR", "warning": "WARNING", "info": "note"}
_COMMANDS: Final = ("kafka-", "redis-cli ", "hongyan ", "ALTER SYSTEM ")
_PROSE: Final = ("`", ", ")
"""Texts that no command has: what begins as a command goes on as a sentence."""
_KAFKA: Final = ("kafka-configs.sh", "kafka-topics.sh")


def show(diagnosis: Diagnosis) -> None:
    """Prints findings, gaps, and one line that sums up."""
    for one in diagnosis.findings:
        out().print(_note(one) if one.severity == "info" else _block(one))
    for gaps in _by_reason(diagnosis.unknown):
        out().print(_gap(gaps))
    out().print(_sum(diagnosis), markup=True)


def as_builtins(diagnosis: Diagnosis) -> dict[str, Any]:
    """Returns the result for programs."""
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(diagnosis)
    return {"healthy": diagnosis.healthy, **found}


def fix_lines(diagnosis: Diagnosis, bootstrap: str) -> Iterator[str]:
    """Yields the commands that mend errors and warnings; what no command mends is a comment."""
    for one in diagnosis.findings:
        if one.severity == "info":
            continue
        yield f"# {one.rule} ({one.severity.value}): {_subjects(one.subjects)}: {one.seen}"
        for fix in one.fixes:
            yield _runnable(fix, bootstrap)
        yield ""


def _runnable(fix: str, bootstrap: str) -> str:
    if not fix.startswith(_COMMANDS) or any(text in fix for text in _PROSE):
        return f"#   {fix}"
    tool, blank, rest = fix.partition(" ")
    if tool in _KAFKA:
        return f"{tool} --bootstrap-server {bootstrap} {rest}"
    if tool == "ALTER":
        return f"psql -c {_quoted(fix)}"
    return f"{tool}{blank}{rest}"


def _quoted(sql: str) -> str:
    statements = [one.strip() for one in sql.rstrip(";").split(";")]
    return " -c ".join(f'"{one}"' for one in statements)


def _block(one: DoctorFinding) -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    grid.add_column(width=9, no_wrap=True)
    grid.add_column(overflow="fold")
    title = Text.assemble((one.rule, "bold"), "  ", _subjects(one.subjects))
    grid.add_row(Text(_WORDS[one.severity], style=_STYLES[one.severity]), title)
    rows = [
        ("seen", Text.assemble(one.seen, (f"  ({one.source})", "dim"))),
        ("wanted", Text(one.wanted)),
        ("loss", Text(one.loss, style="italic")),
        *([("why", Text(one.why))] if one.why else []),
        ("fix", Text(one.fixes[0], style="green")),
    ]
    for name, text in rows:
        grid.add_row(Text(f"  {name}", style="dim"), text)
    if len(one.fixes) > 1:
        more = f"and {len(one.fixes) - 1} like it: hongyan doctor --fix"
        grid.add_row("", Text(more, style="dim"))
    grid.add_row("", "")
    return grid


def _note(one: DoctorFinding) -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    grid.add_column(width=9, no_wrap=True)
    grid.add_column(overflow="fold")
    line = Text.assemble((one.rule, "bold"), f"  {_subjects(one.subjects)}: {one.seen}")
    line.append(f"; wanted: {one.wanted}", "dim")
    if one.why:
        line.append(f"; {one.why}", "dim")
    grid.add_row(Text(_WORDS["info"], style=_STYLES["info"]), line)
    return grid


def _by_reason(unknown: Iterable[Gap]) -> list[list[Gap]]:
    """Returns the gaps together that have one reason: a server that is away leaves many."""
    found: dict[str, list[Gap]] = {}
    for gap in unknown:
        found.setdefault(gap.reason, []).append(gap)
    return list(found.values())


def _gap(gaps: list[Gap]) -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    grid.add_column(width=9, no_wrap=True)
    grid.add_column(overflow="fold")
    first, word = gaps[0], Text("not known", style="magenta")
    if len(gaps) == 1:
        reason = f"  {_subjects(first.subjects)}: {first.reason}"
        grid.add_row(word, Text.assemble((first.rule, "bold"), reason))
        return grid
    grid.add_row(word, Text.assemble((f"{len(gaps)} rules", "bold"), f"  {first.reason}"))
    grid.add_row("", Text(", ".join(gap.rule for gap in gaps), style="dim"))
    return grid


def _subjects(subjects: list[str]) -> str:
    """Returns the first subjects and the number of the others."""
    shown = ", ".join(subjects[:2])
    return f"{shown} and {len(subjects) - 2} more" if len(subjects) > 2 else shown


def _sum(diagnosis: Diagnosis) -> str:
    from producer.doctor.rule import Severity

    errors, warnings, notes = (diagnosis.count(one) for one in Severity)
    counts = [
        (errors, "error", "bold red"),
        (warnings, "warning", "yellow"),
        (notes, "note", "cyan"),
    ]
    parts = [
        f"[{style}]{number} {word}{'' if number == 1 else 's'}[/]"
        for number, word, style in counts
        if number
    ]
    if diagnosis.unknown:
        parts.append(f"[magenta]{len(diagnosis.unknown)} not known[/]")
    passed = f"[green]{len(diagnosis.passed)} rules hold[/]"
    return f"\n{', '.join([*parts, passed])} [dim]({diagnosis.took_ms / 1_000:.1f} s)[/]"
