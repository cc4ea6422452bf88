"""Heartbeat rows: live workers, lapsed leases, and the rows that dead workers left IN_FLIGHT.

A life is a worker id and its epoch, and rows carry both. An earlier life may wake up late and claim once
more: the sweep takes these rows although a worker of that name lives.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, text

from backends.sql.database import Database
from idempotency.bounds import NEXT_VERSION
from idempotency.claims.rows import OWNER_DEAD
from idempotency.ledger import IDLE, Lease, WorkerInfo, WorkerNameTaken
from idempotency.transactions import Clock, LedgerPart

_SWEEP_LOCK: Final = 0x686F6E6779616F  # "hongyao": one sweep at a time is enough

_KNOWN = text("SELECT host, pid, state, heartbeat_at, lease_ms FROM workers WHERE id = :id")
_ENTER = text("""
INSERT INTO workers (id, epoch, host, pid, state, lanes, threads, lease_ms, started_at, heartbeat_at,
                     kind, program)
VALUES (:id, 1, :host, :pid, 'STARTING', :lanes, :threads, :lease_ms, :now, :now, :kind, :program)
ON CONFLICT (id) DO UPDATE
   SET epoch = workers.epoch + 1, host = excluded.host, pid = excluded.pid, state = excluded.state,
       lanes = excluded.lanes, threads = excluded.threads, lease_ms = excluded.lease_ms,
       started_at = excluded.started_at, heartbeat_at = excluded.heartbeat_at,
       kind = excluded.kind, program = excluded.program, snapshot = ''
RETURNING epoch""")
_RENEW = text("""
UPDATE workers SET heartbeat_at = :now, state = :state, snapshot = :snapshot
 WHERE id = :id AND epoch = :epoch AND state NOT IN ('DEAD', 'RETIRED')""")
"""However late: only a sweep or a successor ends a life, in one transaction with its rows. After an outage
of the database every heartbeat is old although the workers live."""
_RETIRE = text("UPDATE workers SET state = 'RETIRED' WHERE id = :id AND epoch = :epoch")
_LAPSE = text("""
UPDATE workers SET state = 'DEAD'
 WHERE state NOT IN ('DEAD', 'RETIRED') AND heartbeat_at + lease_ms < :now
RETURNING id""")
_LIVE = text("""
SELECT id, lanes, state FROM workers
 WHERE state NOT IN ('DEAD', 'RETIRED') AND heartbeat_at + lease_ms >= :now""")
_ORPHAN = text(f"""
UPDATE deliveries
   SET state = 'UNKNOWN', reason = :reason, updated_at = :now, version = {NEXT_VERSION}
 WHERE state = 'IN_FLIGHT'
   AND NOT EXISTS (SELECT 1 FROM workers AS w
                    WHERE w.id = deliveries.owner AND w.epoch = deliveries.owner_epoch
                      AND w.state NOT IN ('DEAD', 'RETIRED'))
RETURNING owner""")  # noqa: S608 - ours
_ORPHAN_OF_ONE = text(f"""
UPDATE deliveries
   SET state = 'UNKNOWN', reason = :reason, updated_at = :now, version = {NEXT_VERSION}
 WHERE state = 'IN_FLIGHT' AND owner = :id AND owner_epoch <= :epoch""")  # noqa: S608 - ours


class Workers(LedgerPart):
    """The workers of one ledger; every method is one short transaction."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock)
        self.epochs: dict[str, int] = {}
        """Worker id to epoch, of those registered here; written by `register`, read by claims."""

    def register(self, worker: WorkerInfo) -> Lease:
        with self._begin() as (connection, now):
            self._lock(connection, worker.id)
            known = connection.execute(_KNOWN, {"id": worker.id}).one_or_none()
            if known is not None and _lives(known, now) and not _left_by_us(known, worker):
                raise WorkerNameTaken(_taken(worker.id, known, now))
            epoch = connection.execute(_ENTER, _row(worker, now)).scalar_one()
            earlier = {"id": worker.id, "epoch": epoch - 1, "now": now, "reason": OWNER_DEAD}
            connection.execute(_ORPHAN_OF_ONE, earlier)
        self.epochs[worker.id] = epoch
        return Lease(worker.id, epoch, now)

    def heartbeat(self, lease: Lease, state: str = "RUNNING", snapshot: str = "") -> Lease | None:
        with self._begin() as (connection, now):
            mine = {"id": lease.worker_id, "epoch": lease.epoch, "now": now, "state": state}
            mine["snapshot"] = snapshot
            renewed = connection.execute(_RENEW, mine).rowcount
        return msgspec.structs.replace(lease, now_ms=now) if renewed else None

    def retire(self, lease: Lease) -> None:
        mine = {"id": lease.worker_id, "epoch": lease.epoch}
        with self._begin() as (connection, now):
            connection.execute(_RETIRE, mine)
            connection.execute(_ORPHAN_OF_ONE, {**mine, "now": now, "reason": OWNER_DEAD})

    def sweep(self) -> list[tuple[str, int]]:
        with self._begin() as (connection, now):
            if not self._sweeps_alone(connection):
                return []
            lapsed = connection.execute(_LAPSE, {"now": now}).scalars().all()
            rows = connection.execute(_ORPHAN, {"now": now, "reason": OWNER_DEAD}).scalars().all()
        return sorted((dict.fromkeys(lapsed, 0) | Counter(rows)).items())

    def live_lanes(self) -> list[frozenset[str]]:
        return [_lanes(row) for row in self._living()]

    def sending_lanes(self) -> list[frozenset[str]]:
        return [_lanes(row) for row in self._living() if row.state != IDLE or row.id in self.epochs]

    def _living(self) -> Sequence[Row[Any]]:
        with self._begin() as (connection, now):
            return connection.execute(_LIVE, {"now": now}).all()

    def _lock(self, connection: Connection, worker_id: str) -> None:
        """Makes a concurrent registration of the same name wait."""
        if self._database.is_postgres:
            lock = text("SELECT pg_advisory_xact_lock(hashtextextended('worker/' || :id, 0))")
            connection.execute(lock, {"id": worker_id})

    def _sweeps_alone(self, connection: Connection) -> bool:
        if not self._database.is_postgres:
            return True
        lock = text("SELECT pg_try_advisory_xact_lock(:lock)")
        return bool(connection.execute(lock, {"lock": _SWEEP_LOCK}).scalar_one())


def _row(worker: WorkerInfo, now: int) -> dict[str, Any]:
    return msgspec.structs.asdict(worker) | {"lanes": ",".join(worker.lanes), "now": now}


def _lanes(row: Row[Any]) -> frozenset[str]:
    return frozenset(filter(None, row.lanes.split(",")))


def _lives(known: Row[Any], now: int) -> bool:
    return known.state not in ("DEAD", "RETIRED") and known.heartbeat_at + known.lease_ms >= now


def _left_by_us(known: Row[Any], worker: WorkerInfo) -> bool:
    """Returns True if that life ended before its lease: it ran here, as this process or as one gone."""
    if known.host != worker.host:
        return False
    return known.pid == worker.pid or (known.host == socket.gethostname() and _gone(known.pid))


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _taken(worker_id: str, known: Row[Any], now: int) -> str:
    age = max(0, now - known.heartbeat_at) / 1000
    return (
        f"a worker named {worker_id!r} runs on {known.host} as pid {known.pid} (heartbeat {age:.1f} s "
        f"ago): give this one another worker.id, or wait {known.lease_ms / 1000:.0f} s after it ended"
    )
