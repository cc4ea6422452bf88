"""Ids of notifications that follow from campaign, run and row.

A row that is sent once more, after a kill, has the same id. The ledger then sends it once.
"""

from __future__ import annotations

from hashlib import sha256
from uuid import UUID

_VERSION = 8  # RFC 9562 §5.8: its bits are ours


def row_id(run_id: str, row: int) -> str:
    """Returns the id of a row's notification: 32 hex digits of a UUIDv8. `run_id` names the campaign, too.
    Rows count from 1."""
    digest = bytearray(sha256(f"{run_id}\x1f{row}".encode()).digest()[:16])
    digest[6] = digest[6] & 0x0F | _VERSION << 4
    digest[8] = digest[8] & 0x3F | 0x80
    return UUID(bytes=bytes(digest)).hex
