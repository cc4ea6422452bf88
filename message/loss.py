"""Causes of a loss: Spark jobs propose them, the ledger's database keeps them, recovery acts on them."""

from __future__ import annotations

from enum import StrEnum


class LossCause(StrEnum):
    """Ways in which a delivery may be lost; docs/spark.md has the proof of each."""

    PASSED = "passed"
    REMOVED = "removed"
    HOLE = "hole"
    UNREAD = "unread"
    OPEN = "open"
    SILENT = "silent"
    FORGOTTEN = "forgotten"
