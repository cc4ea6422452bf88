"""The delivery of a finding in the ledger and the archive, as they are now."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Final, NamedTuple

from idempotency.archive.lookup import ArchivedDeliveries
from idempotency.lookups import FoundRow
from idempotency.lost.findings import Finding
from recovery.lost.rules import names_delivery

_EPOCH: Final = date(1970, 1, 1)
_MS_PER_DAY: Final = 86_400_000
_SKEW_DAYS: Final = 2
"""Days by which a producer's clock may be ahead of the ledger's."""


class LedgerEvidence(NamedTuple):
    """One look. Without row and place nothing speaks against a loss."""

    nameable: bool
    """Whether the subject is a delivery key."""
    row: FoundRow | None
    archived: str
    """The table or file with its row; empty without one."""


def ledger_evidence(
    finding: Finding, row_of: Callable[[str], FoundRow | None], archived: ArchivedDeliveries
) -> LedgerEvidence:
    """Looks the delivery up. `row_of` is `Queries.by_key`. Raises LedgerError."""
    if not names_delivery(finding):
        return LedgerEvidence(False, None, "")
    row = row_of(finding.subject)
    return LedgerEvidence(True, row, "" if row else archive_place(archived, finding))


def archive_place(archived: ArchivedDeliveries, finding: Finding) -> str:
    """Returns the table or file with the delivery's row; empty without one. An archived day has no names
    left in `delivery_keys`, so a claim alone would not know. Raises LedgerError."""
    newest = archived.newest()
    if newest is None:
        return ""
    since = (finding.created_at or 0) // _MS_PER_DAY - _SKEW_DAYS
    if since > (newest - _EPOCH).days:
        return ""  # it could not have a row as old as that
    rows = archived.find(finding.subject)
    return rows[0].where if rows else ""
