"""The table of `hongyan spark audit`: lanes and hours with their counts, and what is unexplained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hongyan.tables import RowListing, listing, local_time
from idempotency.lost.audits import Audit, StoredDouble

_HOUR: Final = slice(5, 13)
"""Of `2026-11-22 14:00:00`: month, day and hour."""
_TITLES: Final = (
    "hour", "lane", "kafka", "ledger", "dead", "wait", "trace", "sent", "receipts", "open",
)  # fmt: skip
_RIGHT: Final = frozenset(_TITLES) - {"hour", "lane"}


def audit_table(audits: Sequence[Audit]) -> RowListing:
    """Returns the counts, a row per lane and hour; `open` is what nothing explains."""
    from rich.text import Text

    table = listing(_TITLES, right=_RIGHT, whole={"hour", "lane"})
    for one in audits:
        known = one.counts
        names = ("kafka", "ledger", "dead", "waiting", "traced", "sent", "receipts")
        table.add_row(
            f"{local_time(one.hour)[_HOUR]}h",
            one.lane,
            *(_count(known.get(name)) for name in names),
            Text(f"{one.unexplained:,}", "bold red") if one.unexplained else "0",
        )
    return table


def explanations(audits: Sequence[Audit]) -> list[str]:
    """Returns a line per lane and hour with differences: the explained ones, then the open ones."""
    lines = []
    for one in audits:
        parts = [
            f"{side}: {', '.join(f'{count:,} {cause}' for cause, count in causes.items())}"
            for side, causes in one.counts.get("explained", {}).items()
        ]
        opened = [f"{n:,} {side}" for side, n in one.counts.get("open", {}).items()]
        parts += [f"unexplained: {', '.join(opened)}"] if opened else []
        if holes := one.counts.get("holes"):
            parts.append(f"gone before they were read: {holes:,} offsets")
        if parts:
            lines.append(f"{local_time(one.hour)[_HOUR]}h {one.lane}  {'; '.join(parts)}")
    return lines


def double_lines(doubles: Sequence[StoredDouble]) -> list[str]:
    """Returns a line per double send, and one for each of its attempts."""
    lines = []
    for one in doubles:
        lines.append(f"sent twice  {one.lane}  {one.delivery_key}")
        lines += [f"    {_attempt(attempt)}" for attempt in one.attempts]
    return lines


def _attempt(attempt: dict[str, Any]) -> str:
    at = attempt.get("answered_at") or attempt.get("at") or 0
    texts = (
        local_time(at),
        f"attempt {attempt.get('attempt', 0)}",
        f"by {attempt['worker']}" if attempt.get("worker") else "",
        f"account {attempt['account']}" if attempt.get("account") else "",
        f"provider id {attempt['provider_id']}" if attempt.get("provider_id") else "",
    )
    return "  ".join(filter(None, texts))


def _count(count: int | None) -> str:
    return "–" if count is None else f"{count:,}"
