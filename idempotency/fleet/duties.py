"""Duties: tasks of one process of the fleet at a time, under a lease by the database's clock."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import bindparam, text

from idempotency.error_mapping import errors
from idempotency.transactions import LedgerPart

_HOLD = text("""
INSERT INTO duties (name, holder, until) VALUES (:name, :holder, :until)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
 WHERE duties.holder = excluded.holder OR duties.until < :now""")
_HELD = text("SELECT name FROM duties WHERE name IN :names AND until >= :now").bindparams(
    bindparam("names", expanding=True)
)
_DROP = text("DELETE FROM duties WHERE name = :name AND holder = :holder")


class Duties(LedgerPart):
    """Every method is one transaction and raises LedgerError alone."""

    def hold(self, duty: str, holder: str, lease_ms: int) -> bool:
        """Takes or renews a duty. Returns False if another process has it."""
        with self._begin() as (connection, now):
            wanted = {"name": duty, "holder": holder, "until": now + lease_ms, "now": now}
            return bool(connection.execute(_HOLD, wanted).rowcount)

    def held(self, duties: Collection[str]) -> frozenset[str]:
        """Returns those of the duties that a process has now."""
        if not duties:
            return frozenset()
        with self._begin() as (connection, now):
            found = connection.execute(_HELD, {"names": list(duties), "now": now})
            return frozenset(found.scalars())

    def drop(self, duty: str, holder: str) -> None:
        """Gives the duty up, if it is the holder's."""
        with errors(), self._database.begin() as connection:
            connection.execute(_DROP, {"name": duty, "holder": holder})
