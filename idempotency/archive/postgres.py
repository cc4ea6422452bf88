"""`idempotency.archive.contract` on PostgreSQL: the day's partitions move to the schema `archive`.

detach    `day_partitions`: the day's tables, in one short transaction
names     the day's rows of `delivery_keys`, in batches; a comment on the moved table marks the end
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import text

from backends.sql.database import Database
from idempotency.archive.contract import PARKED, SCHEMA, Archived, Day, open_states
from idempotency.archive.day_partitions import BATCH, DayPartitions, DayTables
from idempotency.error_mapping import errors
from idempotency.partitions import TABLES
from idempotency.transactions import Clock

_DONE: Final = "names removed"
_SURVEY = text("""
SELECT count(*) AS rows, count(*) FILTER (WHERE state = ANY (:open)) AS open,
       count(*) FILTER (WHERE state = :parked) AS parked
  FROM deliveries WHERE day = :day""")
# One index each: the partial ones that workers and recovery use.
_OPEN: Final = """
SELECT EXISTS (SELECT FROM {table} WHERE state = 'IN_FLIGHT' AND day = :day)
    OR EXISTS (SELECT FROM {table} WHERE state = 'RETRY' AND day = :day)
    OR EXISTS (SELECT FROM {table} WHERE state = 'UNKNOWN' AND day = :day)"""
_LEDGER: Final = DayTables(TABLES, _OPEN)
_UNFINISHED = text("""
SELECT c.relname FROM pg_class AS c
 WHERE c.relnamespace = to_regnamespace('archive') AND c.relkind = 'r'
   AND c.relname LIKE 'deliveries\\_%'
   AND obj_description(c.oid, 'pg_class') IS DISTINCT FROM :done
 ORDER BY c.relname""")
_NAMES: Final = """
SELECT count(*) AS rows, max(delivery_key) AS last
  FROM (SELECT delivery_key FROM archive.{table} WHERE delivery_key > :after
         ORDER BY delivery_key LIMIT :batch) AS next"""
# A name that came back since then belongs to a row of another day.
_REMOVE: Final = """
DELETE FROM delivery_keys AS k USING archive.{table} AS d
 WHERE d.delivery_key > :after AND d.delivery_key <= :last
   AND k.delivery_key = d.delivery_key AND k.day = d.day"""

_PARKED: Final = "SELECT count(*) FROM archive.{table} WHERE state = :parked"


class PostgresArchive(DayPartitions):
    """Implements `idempotency.archive.contract.Archive`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock, _LEDGER)

    def survey(self, day: int) -> Day:
        asked = {"day": day, "open": list(open_states()), "parked": PARKED}
        with errors(), self._database.begin() as connection:
            row = connection.execute(_SURVEY, asked).one()
        return Day(day, row.rows, row.open, row.parked)

    def archive(self, day: int) -> Archived:
        """See `Archive.archive`. Raises NotAllowed too."""
        name = self.move(day)
        rows = self._remove_names(name)
        return Archived(day, rows, f"{SCHEMA}.{name}", self._parked(name))

    def _parked(self, table: str) -> int:
        """Returns the moved table's parked rows, by the index that moved with it."""
        with errors(), self._database.begin() as connection:
            statement = text(_PARKED.format(table=table))
            return int(connection.execute(statement, {"parked": PARKED}).scalar_one())

    def finish(self) -> int:
        with errors(), self._database.begin() as connection:
            names = list(connection.execute(_UNFINISHED, {"done": _DONE}).scalars())
        return sum(self._remove_names(name) for name in names)

    def _remove_names(self, table: str) -> int:
        """Removes names in batches along the moved table's key. Returns how many rows it has."""
        rows, after = 0, ""
        while True:
            with errors(), self._database.begin() as connection:
                asked = {"after": after, "batch": BATCH}
                some = connection.execute(text(_NAMES.format(table=table)), asked).one()
                if not some.rows:
                    connection.exec_driver_sql(f"COMMENT ON TABLE {SCHEMA}.{table} IS '{_DONE}'")
                    return rows
                place = {"after": after, "last": some.last}
                connection.execute(text(_REMOVE.format(table=table)), place)
            rows, after = rows + some.rows, some.last
