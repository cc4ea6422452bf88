"""Files of archived rows on SQLite: compressed JSON lines, one member a batch, for their owner alone."""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from idempotency.ledger import LedgerUnavailable

_PRIVATE: Final = 0o700


def append_rows(path: Path, kind: str, rows: Sequence[Any]) -> None:
    """Appends the rows, on disk when this returns; the column `place` is left out. Bytes are Base64. Raises
    LedgerUnavailable."""
    if not rows:
        return
    lines = (msgspec.json.encode({"kind": kind, **_columns(row)}) + b"\n" for row in rows)
    member = gzip.compress(b"".join(lines), mtime=0)
    try:
        path.parent.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        with open(path, "ab", opener=_private) as file:
            file.write(member)
            file.flush()
            os.fsync(file.fileno())
    except OSError as exc:
        raise LedgerUnavailable(f"the archive {path} cannot be written: {exc}") from exc


def _columns(row: Any) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "place"}


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
