"""The transactions in SQL: PostgreSQL or SQLite, in the ledger's database.

Every write compares the row's version and sets it, after locking it: a decision is written once. An alert
is written in the transaction of the change that it is about. Sealed bodies are bound to their tx_id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection, Row
from sqlalchemy.exc import DataError

from backends.lookback_settings import BizTypeSettings
from backends.sql.database import Database
from idempotency.alerts.windows import note_in
from idempotency.ledger import LedgerUnavailable
from idempotency.payload_cipher import PayloadCipher
from idempotency.transactions import Clock, LedgerPart
from lookback import sql
from lookback.check import CheckReply
from lookback.decisions import (
    OtherTransaction,
    TransactionStep,
    take_damaged,
    take_due,
    take_forwarded,
    take_not_forwarded,
    take_record,
    take_reply,
)
from lookback.states import TxState
from lookback.transaction import TxRow, TxTerms, made_terms
from message.ids import new_token
from message.lookback import LookbackRecord, day_of

OTHER_TRANSACTION: Final = "other_transaction"
NOT_STORABLE: Final = "not_storable"
CLAIM_BYTES: Final = 16 << 20
"""Bytes of stored bodies after which a claim takes no more messages."""
_NO_TOPIC: Final = ""
_CLAIMS: Final = 50
"""Most claims in a row that lease nothing, since all of their transactions are spent."""
_TRIES: Final = 5
_NO_TERMS: Final = made_terms(BizTypeSettings())
"""Terms of a kind that the configuration no longer has: it is never asked, and ends as unresolved."""


class Forwarded(NamedTuple):
    """A message that the broker acknowledged."""

    row: TxRow
    place: str
    """topic/partition/offset."""


class CommittedWaiting(NamedTuple):
    """Committed messages that are not forwarded."""

    rows: int
    oldest_ms: int
    """Age of the oldest; 0: none waits."""


class RecordRefusal(NamedTuple):
    """Why a record cannot be applied."""

    reason: str
    """A code."""
    detail: str
    """One sentence."""


class TakenRecords(NamedTuple):
    """Result of one batch of records."""

    did: Counter[str]
    """Steps by their name (`lookback.decisions.TransactionStep`)."""
    poison: dict[int, RecordRefusal]
    """By the index of a record that cannot be applied; nothing was written for it."""


class Raced(LedgerUnavailable):
    """Another process wrote a row of the batch in between: the batch is applied anew."""


class LookbackStore(LedgerPart):
    """Every method is one transaction and raises LedgerError alone. Safe from any thread."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        cipher: PayloadCipher,
        terms: Mapping[str, TxTerms],
        tokens: Callable[[], int] = new_token,
    ) -> None:
        super().__init__(database, clock)
        self.database = database
        self._cipher = cipher
        self._terms = terms
        self._tokens = tokens
        lock = " FOR UPDATE" if database.is_postgres else ""
        skip = " FOR UPDATE SKIP LOCKED" if database.is_postgres else ""
        self._named = sql.named(lock)
        self._to_check = sql.to_check(skip)
        self._to_forward = sql.to_forward(skip)
        self._early = sql.early(skip)

    def take(self, records: Sequence[LookbackRecord]) -> TakenRecords:
        """Applies records of the topic in their order. Safe to repeat. After a value that the database
        cannot keep each record has a transaction of its own, and the one with the value is poison."""
        try:
            return self._taken(records)
        except DataError as exc:
            if len(records) > 1:
                return _joined([self.take([one]) for one in records])
            detail = f"the database cannot keep it ({type(exc.orig).__name__})"
            return TakenRecords(Counter(), {0: RecordRefusal(NOT_STORABLE, detail)})

    def _taken(self, records: Sequence[LookbackRecord]) -> TakenRecords:
        for _ in range(_TRIES):
            try:
                with self._begin() as (connection, now):
                    return self._take(connection, records, now)
            except Raced:
                continue
        raise LedgerUnavailable("other processes write the same transactions; it is tried again")

    def _take(
        self, connection: Connection, records: Sequence[LookbackRecord], now: int
    ) -> TakenRecords:
        before = self._locked(connection, [record.tx_id for record in records])
        after: dict[str, TxRow] = dict(before)
        alerts, did, poison = [], Counter[str](), {}
        for index, record in enumerate(records):
            terms = self.terms_of(record.biz_type)
            try:
                step = take_record(after.get(record.tx_id), record, terms, now)
            except OtherTransaction as exc:
                poison[index] = RecordRefusal(OTHER_TRANSACTION, str(exc))
                continue
            after[record.tx_id] = step.row
            did[step.did] += 1
            alerts += [step.alert] if step.alert is not None else []
        changes = [(before.get(name), row) for name, row in sorted(after.items())]
        self._write(connection, changes, now)
        note_in(connection, alerts, now)
        return TakenRecords(did, poison)

    def claim_checks(self, biz_type: str, limit: int, lease_ms: int) -> list[TxRow]:
        """Leases due transactions of a kind for a check; `updated_at` is then the time of the lease. Those
        whose checks or time are spent become unresolved, and hold up no other."""
        asked = {"biz_type": biz_type, "limit": limit}
        for _ in range(_CLAIMS):
            steps = self._due(self._to_check, asked, lease_ms)
            # A row that was only put off has no lease of this caller.
            leased = [step.row for step in steps if step.did == TxState.CHECKING]
            if leased or len(steps) < limit:
                return leased
        return []

    def sweep(self, limit: int = 500) -> int:
        """Ends early decisions whose grace is over, and the waiting of kinds that are never asked. Returns
        the number of rows moved."""
        steps = self._due(self._early, {"limit": limit}, 0)
        for kind in self._kinds():
            if not self.terms_of(kind).has_check:
                steps += self._due(self._to_check, {"biz_type": kind, "limit": limit}, 0)
        return sum(bool(step.did) for step in steps)

    def _kinds(self) -> list[str]:
        with self._transaction() as connection:
            return list(connection.execute(sql.KINDS).scalars())

    def _due(self, statement: Any, asked: dict[str, Any], lease_ms: int) -> list[TransactionStep]:
        with self._begin() as (connection, now):
            found = [_row(one) for one in connection.execute(statement, {**asked, "now": now})]
            steps = [
                take_due(row, self.terms_of(row.biz_type), self._tokens(), lease_ms, now)
                for row in found
            ]
            self._finish(connection, found, steps, now)
        return steps

    def reply(self, row: TxRow, reply: CheckReply) -> str:
        """Applies the answer to a check; `row` is as `claim_checks` leased it. Returns the step's name."""
        terms = self.terms_of(row.biz_type)
        return self._held(row, lambda now, it: take_reply(it, row, reply, terms, now))

    def claim_forwards(
        self,
        limit: int,
        lease_ms: int,
        most_bytes: int = CLAIM_BYTES,
        without: Collection[str] = (),
    ) -> list[TxRow]:
        """Leases committed messages that are due, but none to the topics of `without`. Once they have
        `most_bytes` no more are taken; the first one always goes. The bodies are sealed; `opened` opens
        one."""
        with self._begin() as (connection, now):
            asked = {"limit": limit, "now": now, "without": list(without) or [_NO_TOPIC]}
            found = _within(connection.execute(self._to_forward, asked), most_bytes)
            bodies = _bodies(connection, found)
            leased = [
                replace(row, lease_token=self._tokens(), next_at=now + lease_ms) for row in found
            ]
            self._write(connection, list(zip(found, leased, strict=True)), now)
        return [replace(row, body=bodies[row.tx_id], version=row.version + 1) for row in leased]

    def opened(self, row: TxRow) -> TxRow:
        """Returns the row with its body opened. Raises PayloadUnreadable. Stored bytes with the hash of the
        prepared ones are plain, even if they begin as sealed ones do."""
        if row.body_is_whole:
            return row
        return replace(row, body=self._cipher.open(row.body or b"", row.tx_id))

    def mark_forwarded(self, done: Sequence[Forwarded]) -> int:
        """Marks messages that the broker acknowledged. Returns the number that this holder could mark."""
        if not done:
            return 0
        by_name = {one.row.tx_id: one for one in done}
        with self._begin() as (connection, now):
            found = list(self._locked(connection, by_name).values())
            steps = [_mark(row, by_name[row.tx_id], now) for row in found]
            self._finish(connection, found, steps, now)
        return sum(step.row.state is TxState.FORWARDED and step.did != "late" for step in steps)

    def damaged(self, row: TxRow) -> str:
        """Parks a leased message whose body is not the prepared one. Returns the step's name."""
        return self._held(row, lambda now, it: take_damaged(it, row.lease_token, now))

    def not_forwarded(self, row: TxRow, error: str, pause_ms: int) -> str:
        """Puts a leased message back, due again after a pause. Returns the step's name."""
        return self._held(
            row, lambda now, it: take_not_forwarded(it, row.lease_token, error, now + pause_ms)
        )

    def oldest_committed(self) -> int:
        """Returns the age in milliseconds of the oldest committed message that is not forwarded; 0: there
        is none."""
        return self.to_forward().oldest_ms

    def to_forward(self, limit: int = 1_000) -> CommittedWaiting:
        """Returns the committed messages that are not forwarded, of the first `limit` that are due."""
        with self._begin() as (connection, now):
            found = connection.execute(sql.OLDEST_COMMITTED, {"limit": limit}).scalars().all()
        oldest_ms = max((now - at for at in found if at is not None), default=0)
        return CommittedWaiting(len(found), oldest_ms)

    def terms_of(self, biz_type: str) -> TxTerms:
        """Returns the terms of a kind."""
        return self._terms.get(biz_type, _NO_TERMS)

    def change(
        self, connection: Connection, tx_id: str, decide: Callable[[int, TxRow], TransactionStep]
    ) -> TransactionStep | None:
        """Applies a decision to one transaction in the caller's database transaction. Returns None if there
        is no such transaction."""
        now = self.clock(connection)
        found = list(self._locked(connection, [tx_id]).values())
        if not found:
            return None
        step = decide(now, found[0])
        self._finish(connection, found, [step], now)
        return step

    def _held(self, row: TxRow, decide: Callable[[int, TxRow], TransactionStep]) -> str:
        with self._transaction() as connection:
            step = self.change(connection, row.tx_id, decide)
        return step.did if step is not None else "late"

    def _locked(self, connection: Connection, names: Any) -> dict[str, TxRow]:
        wanted = sorted(set(names))
        days = sorted({day_of(name) for name in wanted})
        if not wanted:
            return {}
        found = connection.execute(self._named, {"names": wanted, "days": days})
        return {row.tx_id: row for row in map(_row, found)}

    def _finish(
        self,
        connection: Connection,
        found: Sequence[TxRow],
        steps: Sequence[TransactionStep],
        now: int,
    ) -> None:
        pairs = zip(found, (step.row for step in steps), strict=True)
        self._write(connection, list(pairs), now)
        note_in(connection, [step.alert for step in steps if step.alert is not None], now)

    def _write(
        self, connection: Connection, changes: Sequence[tuple[TxRow | None, TxRow]], now: int
    ) -> None:
        """Writes the changed rows. Raises Raced if a row is not as it was read."""
        made = [self._values(new, now) for old, new in changes if old is None]
        moved = [new for old, new in changes if old is not None and old is not new]
        light = [self._values(new, now) for new in moved if new.body is None]
        heavy = [self._values(new, now) for new in moved if new.body is not None]
        for statement, rows in ((sql.INSERT, made), (sql.UPDATE, light), (sql.UPDATE_BODY, heavy)):
            if rows and connection.execute(statement, rows).rowcount != len(rows):
                raise Raced

    def _values(self, row: TxRow, now: int) -> dict[str, Any]:
        sealed = None if row.body is None else self._cipher.seal(row.body, row.tx_id)
        return msgspec.structs.asdict(row) | {
            "state": row.state.value,
            "body": sealed,
            "updated_at": now,
        }


def _joined(parts: Sequence[TakenRecords]) -> TakenRecords:
    """Returns the result of records that were taken one by one."""
    did = Counter[str]()
    for one in parts:
        did += one.did
    return TakenRecords(did, {n: one.poison[0] for n, one in enumerate(parts) if one.poison})


def _within(found: Iterable[Row[Any]], most_bytes: int) -> list[TxRow]:
    """Returns the first rows, up to the one with which their bodies have so many bytes."""
    rows: list[TxRow] = []
    total = 0
    for one in found:
        rows.append(_row(one))
        total += one.size or 0
        if total >= most_bytes:
            break
    return rows


def _bodies(connection: Connection, rows: Sequence[TxRow]) -> dict[str, bytes | None]:
    """Returns the stored bodies by tx_id."""
    if not rows:
        return {}
    asked = {"names": [row.tx_id for row in rows], "days": sorted({row.day for row in rows})}
    found = connection.execute(sql.BODIES, asked)
    return {one.tx_id: None if one.body is None else bytes(one.body) for one in found}


def _mark(row: TxRow, done: Forwarded, now: int) -> TransactionStep:
    """`done.row` is the message as it was sent, so its hash is that of the bytes that Kafka has."""
    return take_forwarded(row, done.row.lease_token, done.row.body_hash or b"", done.place, now)


def _row(found: Row[Any]) -> TxRow:
    fields = dict(found._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
    for name in ("body", "body_hash"):
        if fields.get(name) is not None:
            fields[name] = bytes(fields[name])
    fields["state"] = TxState(fields["state"])
    fields.pop("size", None)
    return TxRow(**fields)
