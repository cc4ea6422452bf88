"""The table of rules in docs/doctor.md, which a test compares."""

from __future__ import annotations

from collections.abc import Iterator

from producer.doctor.rule_list import RULES

HEAD = ("| rule | weight | what holds where all is well | otherwise |", "|---|---|---|---|")


def rules_table() -> str:
    """Returns the table as Markdown."""
    return "\n".join([*HEAD, *_rows()])


def _rows() -> Iterator[str]:
    for rule in RULES:
        title, loss = (one.replace("|", "\\|") for one in (rule.title, rule.loss))
        yield f"| `{rule.id}` | {rule.severity.value} | {title} | {loss} |"
