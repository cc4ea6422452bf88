"""What a person picks from the ledger to be sent again: by name, or page by page by what it is.

A page looks at a bounded number of rows, in the order of their keys, so that a day of many millions is
gone through without a statement that takes long; `Picks.pages` begins anew wherever it is told to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import text

from backends.sql import Database
from idempotency.edge import errors
from message.states import State

LOOKED_AT: Final = 5_000
"""Rows that one page looks at."""
NAMED: Final = 1_000
"""Rows that one name may have."""
_MS_PER_DAY: Final = 86_400_000

_COLUMNS: Final = """
d.delivery_key AS key, d.day, d.version, d.state, d.reason, d.lane, d.message_id, d.biz_id,
d.expires_at, d.created_at, d.attempt, d.policy_version, d.called_at"""
_BY_NAME: Final = """
SELECT {columns} FROM deliveries AS d WHERE d.{column} = :name
 ORDER BY d.created_at, d.delivery_key LIMIT :limit"""
_OF_DAY: Final = "d.day = :day AND"
_LOOKED: Final = """
SELECT {columns} FROM deliveries AS d
 WHERE {of_day} d.delivery_key > :after ORDER BY d.delivery_key LIMIT :limit"""


class Pick(NamedTuple):
    """One row, as it was when it was picked. Times are epoch milliseconds."""

    key: str
    day: int
    version: int
    state: State
    reason: str | None
    lane: str
    message_id: str
    biz_id: str | None
    expires_at: int
    created_at: int
    attempt: int
    policy_version: str
    doubted: bool
    """An earlier call of it may have sent it."""


class Wanted(msgspec.Struct, frozen=True):
    """Which rows; what is empty leaves the choice open."""

    states: Sequence[State] = ()
    lanes: Sequence[str] = ()
    since: int = 0
    """Made at this time or later."""

    def takes(self, pick: Pick) -> bool:
        """Whether it is one of them."""
        return (
            (not self.states or pick.state in self.states)
            and (not self.lanes or pick.lane in self.lanes)
            and pick.created_at >= self.since
        )


class Picks:
    """Nothing here writes. Every method raises LedgerError alone."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def named(self, name: str) -> list[Pick]:
        """By delivery key, else by message id."""
        for column in ("delivery_key", "message_id"):
            if found := self._by(column, name):
                return found
        return []

    def of_biz(self, biz_id: str) -> list[Pick]:
        """Every delivery of a business id."""
        return self._by("biz_id", biz_id)

    def pages(self, wanted: Wanted, until: int) -> Iterator[list[Pick]]:
        """The rows made before `until`, day by day; a page may be empty."""
        for day in self._days(wanted.since, until):
            yield from self._pages_of(wanted, day)

    def _pages_of(self, wanted: Wanted, day: int) -> Iterator[list[Pick]]:
        of_day = _OF_DAY if self._database.is_postgres else ""
        statement = _LOOKED.format(columns=_COLUMNS, of_day=of_day)
        after = ""
        while looked := self._read(statement, {"day": day, "after": after, "limit": LOOKED_AT}):
            yield [pick for pick in looked if wanted.takes(pick)]
            after = looked[-1].key

    def _days(self, since: int, until: int) -> Sequence[int]:
        """SQLite has its rows in one place: one pass over it is all days."""
        if not self._database.is_postgres:
            return (0,)
        return range(since // _MS_PER_DAY, until // _MS_PER_DAY + 1)

    def _by(self, column: str, name: str) -> list[Pick]:
        statement = _BY_NAME.format(columns=_COLUMNS, column=column)
        return self._read(statement, {"name": name, "limit": NAMED})

    def _read(self, statement: str, values: dict[str, Any]) -> list[Pick]:
        asked = {name: value for name, value in values.items() if f":{name}" in statement}
        with errors(), self._database.begin() as connection:
            return [_pick(row) for row in connection.execute(text(statement), asked)]


def _pick(row: Any) -> Pick:
    fields = row._asdict()
    doubted = fields.pop("called_at") is not None
    return Pick(**fields | {"state": State(row.state)}, doubted=doubted)
