"""The stored results of doctor, in the ledger's database."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from sqlalchemy import Connection, text

from backends.sql.database import Database
from idempotency.transactions import Clock
from producer.doctor.diagnosis import Diagnosis

KEPT: Final = 20
"""Results that are kept."""
_LAST: Final = text("SELECT at, host, person, result FROM doctor_runs ORDER BY number DESC LIMIT 1")
_NUMBER: Final = text("SELECT COALESCE(MAX(number), 0) + 1 FROM doctor_runs")
_ADD: Final = text(
    "INSERT INTO doctor_runs (number, at, host, person, result)"
    " VALUES (:number, :at, :host, :person, :result)"
)
_FORGET: Final = text("DELETE FROM doctor_runs WHERE number <= :number")
_ALONE: Final = text("LOCK TABLE doctor_runs IN SHARE ROW EXCLUSIVE MODE")


class DoctorRun(NamedTuple):
    """One stored result."""

    at_ms: int
    """By the database's clock."""
    host: str
    person: str
    diagnosis: Diagnosis


class DoctorRuns:
    """Reads and writes them. Thread-safe."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def last(self) -> DoctorRun | None:
        """Returns the newest result; None if there is none. Raises SqlError."""
        with self._database.errors(), self._database.engine.connect() as connection:
            row = connection.execute(_LAST).one_or_none()
        if row is None:
            return None
        diagnosis = msgspec.json.decode(row.result, type=Diagnosis)
        return DoctorRun(row.at, row.host, row.person, diagnosis)

    def partitions(self) -> dict[str, int]:
        """Returns the partitions of each topic at the run before. Raises SqlError."""
        last = self.last()
        return last.diagnosis.partitions if last else {}

    def add(self, connection: Connection, diagnosis: Diagnosis, *, host: str, person: str) -> None:
        """Adds a result in the caller's transaction, and forgets all but the newest KEPT. A run without
        the cluster keeps the partitions of the run before."""
        if self._database.is_postgres:
            connection.execute(_ALONE)
        before = connection.execute(_LAST).one_or_none()
        if before is not None and not diagnosis.partitions:
            known = msgspec.json.decode(before.result, type=Diagnosis).partitions
            diagnosis = msgspec.structs.replace(diagnosis, partitions=known)
        number = int(connection.execute(_NUMBER).scalar_one())
        row = {
            "number": number,
            "at": self._clock(connection),
            "host": host,
            "person": person,
            "result": msgspec.json.encode(diagnosis).decode(),
        }
        connection.execute(_ADD, row)
        connection.execute(_FORGET, {"number": number - KEPT})

    def store(self, diagnosis: Diagnosis, *, host: str, person: str) -> None:
        """Adds a result in a transaction of its own. Raises SqlError."""
        with self._database.begin() as connection:
            self.add(connection, diagnosis, host=host, person=person)
