"""Campaigns in the ledger's database: made, read, and moved from state to state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, text

from idempotency.sql_ledger import SqlLedger
from idempotency.transactions import LedgerPart
from idempotency.versioned_rows import RowKind, fields_of
from producer.campaigns.contract import (
    Campaign,
    CampaignLimits,
    CampaignOvertaken,
    CampaignSchedule,
    CampaignState,
    CrowdColumns,
    CrowdSource,
    can_move,
)

COLUMNS: Final = ", ".join(Campaign.__struct_fields__)
_JSON: Final = {
    "crowd": CrowdSource,
    "columns": CrowdColumns,
    "schedule": CampaignSchedule,
    "limits": CampaignLimits,
}
CAMPAIGNS: Final = RowKind("campaigns", "campaign", can_move, CampaignOvertaken)
_BY_ID: Final = text(f"SELECT {COLUMNS} FROM campaigns WHERE id = :id")  # noqa: S608 - ours
_OPEN: Final = "state IN ('SCHEDULED', 'RUNNING')"  # as the index campaigns_open has it
_COUNTS: Final = text(f"SELECT state, count(*) FROM campaigns WHERE {_OPEN} GROUP BY state")  # noqa: S608
_RUNNING: Final = text(f"""
SELECT {COLUMNS} FROM campaigns WHERE {_OPEN} AND state = 'RUNNING' ORDER BY created_at, id""")  # noqa: S608
_DUE: Final = text(f"""
SELECT {COLUMNS} FROM campaigns WHERE {_OPEN} AND state = 'SCHEDULED' AND next_at <= :now
 ORDER BY next_at, id LIMIT :limit""")  # noqa: S608 - ours
_PAUSED_BY: Final = text("""
SELECT id FROM campaigns WHERE state = 'PAUSED' AND noted_by = :by ORDER BY since, id LIMIT :limit""")
_NEWEST: Final = text(f"""
SELECT {COLUMNS} FROM campaigns WHERE (created_at, id) < (:before, :before_id)
 ORDER BY created_at DESC, id DESC LIMIT :limit""")  # noqa: S608 - ours
_LATEST: Final = 2**62
MOST_DUE: Final = 1_000
"""Due campaigns of one look; the others are due longer at the next one."""
_MOST_PAUSED: Final = 1_000
CampaignNoted = Callable[[Connection, Campaign], None]
"""Writes more in the transaction of a campaign's change; takes the campaign after the change."""


def nothing_noted(_connection: Connection, _campaign: Campaign) -> None:
    """Writes nothing."""


class CampaignStore(LedgerPart):
    """Every method is one transaction and raises LedgerError; a write CampaignOvertaken, too."""

    def make(self, new: Campaign, also: CampaignNoted = nothing_noted) -> Campaign:
        """Writes a NEW campaign, and calls `also`. Returns the one that is there, if its id is known: the
        caller compares it."""
        with self._begin() as (connection, now):
            found = connection.execute(_BY_ID, {"id": new.id}).one_or_none()
            if found is not None:
                return campaign_of(found)
            new = msgspec.structs.replace(new, created_at=now, since=now)
            CAMPAIGNS.insert(connection, new)
            also(connection, new)
        return new

    def get(self, campaign_id: str) -> Campaign | None:
        """Returns a campaign; None for an unknown id."""
        with self._transaction() as connection:
            found = connection.execute(_BY_ID, {"id": campaign_id}).one_or_none()
        return campaign_of(found) if found is not None else None

    def open_counts(self) -> dict[CampaignState, int]:
        """Returns the numbers of SCHEDULED and of RUNNING campaigns."""
        with self._transaction() as connection:
            return {CampaignState(state): count for state, count in connection.execute(_COUNTS)}

    def running(self) -> list[Campaign]:
        """Returns all RUNNING campaigns, the oldest first: any of them may need a process."""
        with self._transaction() as connection:
            return [campaign_of(row) for row in connection.execute(_RUNNING)]

    def due(self, now_ms: int) -> list[Campaign]:
        """Returns SCHEDULED campaigns whose time has come, those that wait longest first."""
        with self._transaction() as connection:
            found = connection.execute(_DUE, {"now": now_ms, "limit": MOST_DUE})
            return [campaign_of(row) for row in found]

    def paused_by(self, name: str) -> list[str]:
        """Returns the ids of paused campaigns whose note is of that name, the oldest first."""
        asked = {"by": name, "limit": _MOST_PAUSED}
        with self._transaction() as connection:
            return list(connection.execute(_PAUSED_BY, asked).scalars())

    def newest(self, limit: int, before: tuple[int, str] = (_LATEST, "")) -> list[Campaign]:
        """Returns campaigns, the newest first; `before` is (created_at, id) of the last one of a page."""
        asked = {"limit": limit, "before": before[0], "before_id": before[1]}
        with self._transaction() as connection:
            return [campaign_of(row) for row in connection.execute(_NEWEST, asked)]

    def advance(
        self, campaign: Campaign, also: CampaignNoted = nothing_noted, **changes: Any
    ) -> Campaign:
        """Writes changes under the campaign's version. Returns the campaign after them. Raises ValueError
        for a move that `CAMPAIGN_MOVES` does not have."""
        with self._begin() as (connection, now):
            moved = CAMPAIGNS.advance(connection, campaign, now, **changes)
            also(connection, moved)
            return moved


def campaigns_of(ledger: SqlLedger) -> CampaignStore:
    """Returns the campaigns of a ledger."""
    return CampaignStore(ledger.database, ledger.duties().clock)


def campaign_of(row: Any) -> Campaign:
    """Returns the campaign of a row with COLUMNS."""
    fields = fields_of(row, _JSON)
    fields["state"] = CampaignState(fields["state"])
    paused = fields["paused_from"]
    fields["paused_from"] = CampaignState(paused) if paused else None
    return Campaign(**fields)
