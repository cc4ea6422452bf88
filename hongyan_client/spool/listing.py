"""A spool as a person sees it: figures, problems, and records with masked receivers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from hongyan_client.spool.folder import SpoolFolder
from hongyan_client.spool.rows import SpooledRow, masked_message
from hongyan_client.spool.store import SpoolCounts, SpoolStore


def status_of(folder: SpoolFolder, now_ms: int) -> dict[str, Any]:
    """Returns the figures, and the problems that need a person. Raises SpoolError."""
    store = folder.store()
    try:
        counts = store.counts()
    finally:
        store.close()
    oldest = counts.oldest_kept_at
    damaged = [str(path) for path in folder.damaged_files()]
    return {
        "waiting": counts.waiting,
        "parked": counts.parked,
        "oldest_age_s": 0.0 if oldest is None else max(0.0, (now_ms - oldest) / 1_000),
        "bytes": counts.bytes,
        **{name: counts.counters.get(name, 0) for name in ("kept", "drained", "expired")},
        **{name: counts.counters.get(name, 0) for name in ("salvaged", "missing")},
        "damaged_files": damaged,
        "problems": problems_of(counts, damaged),
    }


def problems_of(counts: SpoolCounts, damaged: list[str]) -> list[str]:
    """Returns a sentence for each."""
    found = []
    if counts.parked:
        found.append(f"{counts.parked} records are parked: see `list`, then `drain --parked`")
    if counts.counters.get("missing"):
        found.append(f"{counts.counters['missing']} records went missing with a cut file")
    if damaged:
        found.append(f"{len(damaged)} damaged files were replaced: look at them, then remove them")
    return found


def row_lines(store: SpoolStore, limit: int) -> list[dict[str, Any]]:
    """Returns the first records that wait or are parked."""
    return [row_line(row) for row in store.rows(limit)]


def row_line(row: SpooledRow) -> dict[str, Any]:
    """Returns one record without its content; the receivers are masked."""
    shown = masked_message(row.value if row.intact else b"")
    return {
        "id": row.id,
        "state": "parked" if row.parked else "waiting",
        "topic": row.topic,
        "message_id": shown.message_id,
        "receivers": shown.receivers,
        "kept_at": _time(row.kept_at),
        "expires_at": _time(row.expires_at),
        "attempts": row.attempts,
        "last_error": row.last_error,
    }


def ended_lines(rows: Iterable[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Returns records that left without reaching Kafka."""
    names = ("id", "topic", "message_id", "receivers", "reason", "attempts", "last_error")
    return [
        dict(zip(names, row[:7], strict=True))
        | {"kept_at": _time(row[7]), "ended_at": _time(row[8])}
        for row in rows
    ]


def _time(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, TypeError):  # of a damaged row, too
        return str(at_ms)
