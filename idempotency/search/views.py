"""Searches that people keep under a name."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import text

from idempotency.transactions import LedgerPart

MOST: Final = 200
"""Views of one person, and shared ones that are shown."""
NAME_AT_MOST: Final = 80

_LIST: Final = text("""
SELECT id, owner, name, query, shared, updated_at FROM console_views
 WHERE owner = :owner OR shared = 1
 ORDER BY CASE WHEN owner = :owner THEN 0 ELSE 1 END, name, id LIMIT :limit""")
_SAVE: Final = text("""
INSERT INTO console_views (owner, name, query, shared, made_at, updated_at)
VALUES (:owner, :name, :query, :shared, :now, :now)
ON CONFLICT (owner, name) DO UPDATE SET
    query = excluded.query, shared = excluded.shared, updated_at = excluded.updated_at""")
_COUNT: Final = text("SELECT count(*) FROM console_views WHERE owner = :owner AND name <> :name")
_DROP: Final = text("DELETE FROM console_views WHERE id = :id AND owner = :owner")


class SavedView(NamedTuple):
    """One view; `query` is a line of the query language."""

    id: int
    owner: str
    name: str
    query: str
    shared: bool
    """Whether everybody sees it."""
    updated_at: int
    """Epoch milliseconds."""


class SavedViews(LedgerPart):
    """Every method is one transaction and raises LedgerError alone."""

    def of(self, owner: str) -> list[SavedView]:
        """Returns this person's views, then those that others share."""
        with self._reading() as connection:
            found = connection.execute(_LIST, {"owner": owner, "limit": MOST}).all()
        return [SavedView(*row)._replace(shared=bool(row.shared)) for row in found]

    def save(self, owner: str, name: str, query: str, *, shared: bool = False) -> bool:
        """Keeps a view, in the place of the one of that name. Returns False if the person has too many, or
        the name is empty or too long."""
        name = name.strip()
        if not 0 < len(name) <= NAME_AT_MOST:
            return False
        with self._begin() as (connection, now):
            asked = {"owner": owner, "name": name}
            if connection.execute(_COUNT, asked).scalar_one() >= MOST:
                return False
            values = {**asked, "query": query, "shared": int(shared), "now": now}
            connection.execute(_SAVE, values)
        return True

    def drop(self, owner: str, view: int) -> bool:
        """Deletes one's own view. Returns False if there is none of that id."""
        with self._transaction() as connection:
            return bool(connection.execute(_DROP, {"id": view, "owner": owner}).rowcount)
