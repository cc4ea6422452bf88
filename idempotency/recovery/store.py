"""`idempotency.recovery.contract` on PostgreSQL and SQLite.

On PostgreSQL a CTE locks rows in order and skips those that others lock; on SQLite the transaction is the
only writer. The verdicts in between are pure and the same for both. Each write repeats the version it was
decided on. A batch is one statement, however many rows (idempotency/lines.py: lines).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, TextClause, text

from backends.sql.database import Database
from idempotency.bounds import counted, is_usable
from idempotency.claims.rows import GIVEN_BACK, clean
from idempotency.fleet.duties import Duties
from idempotency.lines import PAGE, Line, Lines, PostgresLines, SqliteLines
from idempotency.outcomes.lanes import AnnouncedLanes
from idempotency.outcomes.statements import announcer
from idempotency.payload_cipher import PayloadCipher, PayloadUnreadable
from idempotency.recovery import statements as sql
from idempotency.recovery.contract import (
    LIMIT,
    QUEUED,
    ROW_UNUSABLE,
    UNREADABLE,
    AlsoWritten,
    DueBacklog,
    DueDelivery,
    DueQuery,
    DueVerdict,
    Ended,
    RecordedCall,
    TakeResult,
    Transition,
    UnknownDelivery,
    call_key_of,
    judge,
    owner_death_of,
    row_facts,
)
from idempotency.transactions import Clock
from message.delivery import Delivery, Origin
from message.envelope import EnvelopeError, decode
from message.states import OPEN, Event, State, after, state_of

_NEVER_SENT: Final = frozenset({State.REJECTED, State.EXPIRED})
"""States that prove that no earlier call sent anything."""
_PROVED_NOT_SENT: Final = frozenset(
    {Event.RESOLVED_NOT_SENT, Event.RESOLVED_REFUSED, Event.OPERATOR_NOT_SENT}
)
"""Moves that prove the same."""
_UNREADABLE: Final = DueVerdict(State.PARKED, UNREADABLE)
_UNUSABLE: Final = DueVerdict(State.PARKED, ROW_UNUSABLE)
BOUND: Final = 10_000
"""Rows of a lane's backlog that are counted at most."""
_LOOKS: Final = 100
"""Looks of one `take` or `doubts`, at most."""


class Ending(NamedTuple):
    """One row to end, as it was read."""

    row: Any
    source: State
    verdict: DueVerdict
    doubted: bool
    """See `Ended`."""


class SqlRecovering(Duties):
    """Implements `idempotency.recovery.contract.RecoveryStore`. Thread-safe.

    A row whose payload cannot be opened or read is parked, and is among those that ended.
    """

    def __init__(
        self,
        database: Database,
        sealer: PayloadCipher,
        epochs: dict[str, int],
        clock: Clock,
        announced: AnnouncedLanes,
    ) -> None:
        super().__init__(database, clock)
        self._announce = announcer(database, announced)
        self._sealer = sealer
        self._epochs = epochs
        self._sql = sql.for_postgres() if database.is_postgres else sql.for_sqlite()
        self._lines: Lines = PostgresLines() if database.is_postgres else SqliteLines()

    def lanes_with_work(self, lanes: Sequence[str]) -> tuple[list[str], list[str]]:
        if not lanes:
            return [], []
        named = {f"lane{number}": lane for number, lane in enumerate(lanes)}
        places = ", ".join(f"(:{name})" for name in named)
        with self._begin() as (connection, now):
            due, doubted = (
                list(
                    connection.execute(
                        text(s.format(lanes=places)), {**named, "now": now}
                    ).scalars()
                )
                for s in (self._sql.due_lanes, self._sql.doubted_lanes)
            )
        return due, doubted

    def take(self, ask: DueQuery, owner: str, token: int) -> TakeResult:
        """See `RecoveryStore.take`. Ends and sleeps are written in transactions of their own: they need
        locks of lines, for which no holder of row locks waits. Where no row of a look may go, a larger look
        follows at once."""
        mine = {"owner": owner, "epoch": self._epochs.get(owner, 0), "token": token}
        taken: list[DueDelivery] = []
        ended: list[Ended] = []
        postponed, limit = 0, ask.limit
        for _ in range(_LOOKS):
            taken, ends, early = self._taking(ask, mine, limit)
            done = self._end(ends, ordered=ask.ordered)
            asleep = self._sleep(early)
            ended += done
            postponed += asleep
            if taken or not (done or asleep):
                break
            limit = max(ask.limit, LIMIT)
        return TakeResult(taken, ended, postponed)

    def _taking(
        self, ask: DueQuery, mine: dict[str, Any], limit: int
    ) -> tuple[list[DueDelivery], list[Ending], list[Any]]:
        """Looks at `limit` rows. Returns rows taken, rows to end, and rows due before their turn."""
        ends: list[Ending] = []
        early: list[Any] = []
        with self._begin() as (connection, now):
            held = connection.execute(self._sql.held, mine).all()
            if not held and self._take_due(connection, ask, mine, now, limit, ends, early):
                held = connection.execute(self._sql.held, mine).all()
        taken = [self._taken(row, ends) for row in held]
        return [one for one in taken if one is not None], ends, early

    def _take_due(
        self,
        connection: Connection,
        ask: DueQuery,
        mine: dict[str, Any],
        now: int,
        limit: int,
        ends: list[Ending],
        early: list[Any],
    ) -> bool:
        """Gives each due row its verdict, and takes at most `ask.limit` of those that may go. Returns True
        if it took any."""
        asked = {"lane": ask.lane, "limit": limit, "ordered": ask.ordered, "now": now}
        asked["again"] = not ask.first
        due = connection.execute(self._sql.due, asked).all()
        going = [
            _read(row) | {"call_key": call_key_of(row.delivery_key, row.attempt + 1)}
            for row in _sorted(due, ask, now, ends, early)[: ask.limit]
        ]
        return bool(self._written(connection, self._sql.take, going, **mine, now=now))

    def _sleep(self, rows: Sequence[Any]) -> int:
        """Puts rows behind the heads of their lines to sleep, unless their turn came meanwhile.

        A head may sleep while a row behind it is due: it was claimed later, by an earlier clock. So this
        wakes the heads, too: nobody else would do it once the last row that is awake sleeps.
        """
        if not rows:
            return 0
        lines = {Line(row.lane, row.ordering_key) for row in rows}
        with self._begin() as (connection, now):
            self._lines.lock(connection.exec_driver_sql, lines)
            asleep = self._written(connection, self._sql.sleep, [_read(row) for row in rows])
            self._lines.wake(connection.exec_driver_sql, lines, now)
        return len(asleep)

    def _end(self, ends: Sequence[Ending], *, ordered: bool = True) -> list[Ended]:
        """Ends rows that are still as they were read, and wakes the rows that follow them."""
        if not ends:
            return []
        keyed = [end.row for end in ends if end.row.ordering_key is not None] if ordered else []
        lines = {Line(row.lane, row.ordering_key) for row in keyed}
        with self._begin() as (connection, now):
            self._lines.lock(connection.exec_driver_sql, lines)
            rows = [_end(end) for end in ends]
            written = self._written(connection, self._sql.end, rows, now=now)
            self._lines.wake(connection.exec_driver_sql, lines, now)
            self._announce(connection.exec_driver_sql, written, now)
        return [_ended(end) for end in ends if end.row.delivery_key in written]

    def keep(self, calls: Sequence[RecordedCall]) -> list[bool]:
        with self._transaction() as connection:
            kept = self._rows(connection, self._sql.keep, _calls(calls))
        return [(call.key, call.token) in kept for call in calls]

    def give_back(self, taken: Sequence[DueDelivery], delay_ms: int = 0) -> list[bool]:
        rows = [
            {
                "key": one.delivery.key,
                "day": one.delivery.day,
                "its_token": one.delivery.token,
                "reason": one.reason or None,
                "called_at": one.doubted_since,
            }
            for one in taken
        ]
        with self._begin() as (connection, now):
            values = {"now": now, "next_at": now + delay_ms}
            given = self._rows(connection, self._sql.give_back, rows, **values)
        return [(one.delivery.key, one.delivery.token) in given for one in taken]

    def doubts(
        self, lane: str, lease_ms: int, limit: int = LIMIT, *, ended: list[Ended] | None = None
    ) -> list[UnknownDelivery]:
        """See `RecoveryStore.doubts`. Parked rows hide no others."""
        for _ in range(_LOOKS):
            parked: list[Ended] = []
            with self._begin() as (connection, now):
                asked = {"lane": lane, "limit": limit, "now": now}
                found = connection.execute(self._sql.doubted, asked).all()
                rows = self._leased(connection, found, now, lease_ms)
            doubts = self._doubts(rows, now, parked)
            if ended is not None:
                ended += parked
            if doubts or not parked:
                return doubts
        return []

    def joined(self, doubt: UnknownDelivery, lease_ms: int) -> list[UnknownDelivery]:
        one = doubt.delivery
        call = {"call_key": one.call_key, "call_digest": doubt.call_digest}
        place = {"lane": one.lane, "account": one.account}
        with self._begin() as (connection, now):
            found = connection.execute(self._sql.joined, {**call, **place, "now": now}).all()
            rows = self._leased(connection, found, now, lease_ms)
        return self._doubts(rows, now)

    def ask_again(self, doubt: UnknownDelivery, delay_ms: int) -> bool:
        one = doubt.delivery
        row = {"key": one.key, "day": one.day, "version": doubt.version}
        with self._begin() as (connection, now):
            values = {"next_at": now + delay_ms, "source": State.UNKNOWN}
            return bool(self._written(connection, self._sql.postpone, [row], **values))

    def ask_first(self, key: str, day: int, version: int) -> bool:
        row = {"key": key, "day": day, "version": version}
        with self._transaction() as connection:
            values = {"next_at": 0, "source": State.UNKNOWN}
            return bool(self._written(connection, self._sql.postpone, [row], **values))

    def move(self, moves: Sequence[Transition], also: AlsoWritten | None = None) -> list[bool]:
        targets = [after(move.source, move.event) for move in moves]
        pairs = list(zip(moves, targets, strict=True))
        with self._begin() as (connection, now):
            lines = self._lines_left(connection, pairs)
            self._lines.lock(connection.exec_driver_sql, lines)
            rows = [_moved(move, target) for move, target in pairs]
            written = self._written(connection, self._sql.move, rows, now=now)
            self._lines.wake(connection.exec_driver_sql, lines, now)
            self._announce(connection.exec_driver_sql, written, now)
            if also is not None:
                also(connection, set(written), now)
            missed = [(m, target) for m, target in pairs if m.key not in written]
            # An earlier try whose reply was lost.
            written |= self._standing(connection, missed) if missed else set()
        return [move.key in written for move in moves]

    def _lines_left(
        self, connection: Connection, pairs: Sequence[tuple[Transition, State]]
    ) -> list[Line]:
        """Returns the lines in which one of the moves ends an open row."""
        leaving = [m for m, target in pairs if m.source in OPEN and target not in OPEN]
        if not leaving:
            return []
        rows = _json([{"key": move.key, "day": move.day} for move in leaving])
        return [Line(*row) for row in connection.execute(self._sql.lines, {"rows": rows})]

    def _standing(
        self, connection: Connection, pairs: Sequence[tuple[Transition, State]]
    ) -> set[str]:
        """Returns the keys of the rows that are as the moves leave them."""
        asked = _json([{"key": move.key, "day": move.day} for move, _ in pairs])
        rows = connection.execute(self._sql.current, {"rows": asked}).all()
        found = {key: tuple(rest) for key, *rest in rows}
        return {m.key for m, t in pairs if found.get(m.key) == (counted(m.version), t, _reason(m))}

    def wake(self, lane: str, *, ordered: bool) -> int:
        if not ordered:
            with self._begin() as (connection, now):
                asked = {"lane": lane, "now": now, "limit": BOUND}
                return connection.execute(self._sql.rouse, asked).rowcount
        woken = 0
        start: str | None = ""
        while start is not None:
            stuck, start = self._stuck(lane, start)
            woken += self._wake(stuck) if stuck else 0
        return woken

    def _stuck(self, lane: str, start: str) -> tuple[list[Line], str | None]:
        """Returns the lines from key `start` on whose head sleeps, and the next page's `start`; None at the
        end."""
        with self._begin() as (connection, now):
            asked = {"lane": lane, "start": start, "now": now}
            found = connection.execute(self._sql.stuck, asked).all()
        stuck = [Line(lane, row.ordering_key) for row in found if row.asleep]
        return stuck, found[-1].ordering_key if len(found) == PAGE else None

    def _wake(self, lines: Sequence[Line]) -> int:
        with self._begin() as (connection, now):
            self._lines.lock(connection.exec_driver_sql, lines)
            return self._lines.wake(connection.exec_driver_sql, lines, now)

    def version_of(self, key: str) -> tuple[int, int, State] | None:
        with self._transaction() as connection:
            row = connection.execute(sql.VERSION, {"key": key}).one_or_none()
        return (row.day, row.version, state_of(row.state, key)) if row else None

    def backlog(self, lanes: Sequence[str]) -> list[DueBacklog]:
        with self._begin() as (connection, now):
            return [_backlog(connection, self._sql.backlog, lane, now) for lane in lanes]

    def _written(
        self, connection: Connection, statement: TextClause, rows: Sequence[Any], **values: Any
    ) -> set[str]:
        """Runs a statement that takes rows. Returns the delivery keys that it wrote."""
        return {row[0] for row in self._rows(connection, statement, rows, **values)}

    def _rows(
        self, connection: Connection, statement: TextClause, rows: Sequence[Any], **values: Any
    ) -> set[tuple[Any, ...]]:
        if not rows:
            return set()
        found = connection.execute(statement, {**values, "rows": _json(rows)})
        return {tuple(row) for row in found}

    def _taken(self, row: Any, ends: list[Ending]) -> DueDelivery | None:
        delivery = self._delivery(row)
        # `_TAKE` sets called_at to updated_at, or leaves the earlier time of an earlier call.
        doubted = row.called_at if row.called_at < row.updated_at else None
        if delivery is None:
            ends.append(Ending(row, State.IN_FLIGHT, _UNREADABLE, doubted is not None))
            return None
        return DueDelivery(delivery, row.reason or "", doubted, row.call_digest or "")

    def _leased(
        self, connection: Connection, found: Sequence[Any], now: int, lease_ms: int
    ) -> list[Any]:
        """Leases the rows for `lease_ms`. Returns those that it got, whole, in their order."""
        if not found:
            return []
        values = {"next_at": now + lease_ms, "source": State.UNKNOWN}
        ours = self._written(connection, self._sql.postpone, [_read(r) for r in found], **values)
        read = [_read(r) | {"version": counted(r.version)} for r in found if r.delivery_key in ours]
        rows = connection.execute(self._sql.leased, {"rows": _json(read)}).all() if read else []
        whole = {row.delivery_key: row for row in rows}
        return [whole[r.delivery_key] for r in found if r.delivery_key in whole]

    def _doubts(
        self, rows: Sequence[Any], now: int, ended: list[Ended] | None = None
    ) -> list[UnknownDelivery]:
        """Returns the doubts that can be read and counted on; parks others and adds them to `ended`."""
        ends, doubts = [], []
        for row in rows:
            delivery = self._delivery(row) if is_usable(row) else None
            if delivery is not None:
                doubts.append(_doubt(row, delivery, now))
            else:
                why = _UNREADABLE if is_usable(row) else _UNUSABLE
                ends.append(Ending(row, State.UNKNOWN, why, doubted=True))
        done = self._end(ends)
        if ended is not None:
            ended += done
        return doubts

    def _delivery(self, row: Any) -> Delivery | None:
        try:
            payload = self._sealer.open(bytes(row.payload or b""), row.message_id)
            receiver = self._sealer.open(bytes(row.receiver), row.message_id).decode()
            notification = decode(payload)
        except (PayloadUnreadable, EnvelopeError, UnicodeDecodeError):
            return None
        origin = row.kafka_topic and Origin(row.kafka_topic, row.kafka_partition, row.kafka_offset)
        return Delivery(
            key=row.delivery_key,
            receiver=receiver,
            lane=row.lane,
            notification=notification,
            payload=payload,
            expires_at=row.expires_at,
            policy_version=row.policy_version,
            origin=origin or None,
            attempt=row.attempt,
            refusals=row.refusals,
            repeats=row.repeats,
            token=row.token,
            day=row.day,
            account=row.account or "",
            call_key=row.call_key or "",
        )


def _sorted(
    due: Sequence[Any], ask: DueQuery, now: int, ends: list[Ending], early: list[Any]
) -> list[Any]:
    """Gives each due row its verdict. Returns those to take."""
    going = []
    for row in due:
        verdict = judge(row, ask, now)
        if verdict.state is State.IN_FLIGHT:
            going.append(row)
        elif verdict.state is not State.RETRY:
            ends.append(Ending(row, State.RETRY, verdict, row.called_at is not None))
        elif row.ahead:
            early.append(row)
    return going


def _doubt(row: Any, delivery: Delivery, now: int) -> UnknownDelivery:
    return UnknownDelivery(
        delivery,
        # A row from before the column: no call of it began before the row was made.
        row.called_at if row.called_at is not None else row.created_at,
        row.call_digest or "",
        row.version,
        row.reason or "",
        row.updated_at,
        now,
        row.owner,
        (row.provider_id or "") if row.reason == QUEUED else "",
        *_earlier(row),
        row.receipt,
    )


def _earlier(row: Any) -> tuple[int, tuple[str, ...]]:
    """Returns the time of the last call in doubt and the other accounts called; (0, ()) where one call
    alone is in doubt, or where the columns are older than it."""
    if row.called_at is None or (row.last_called_at or 0) <= row.called_at:
        return 0, ()
    names = (row.earlier_accounts or "").split(sql.LINE)
    others = {name for name in names if name and name != row.account}
    return row.last_called_at, tuple(sorted(others))


def _read(row: Any) -> dict[str, Any]:
    return {"key": row.delivery_key, "day": row.day, "version": row.version}


def _calls(calls: Sequence[RecordedCall]) -> list[dict[str, Any]]:
    return [call._asdict() | {"its_token": call.token} for call in calls]


def _json(rows: Sequence[Any]) -> str:
    return msgspec.json.encode(rows).decode()


def _end(end: Ending) -> dict[str, Any]:
    state, reason = end.verdict
    return _read(end.row) | {
        "source": end.source,
        "state": state,
        "reason": reason,
        "doubted": end.doubted,
    }


def _ended(end: Ending) -> Ended:
    row, verdict = end.row, end.verdict
    place = (row.delivery_key, row.message_id, row.lane)
    last = (row.biz_id, row.attempt, row.account or "", row.policy_version)
    ended = Ended(*place, verdict.state, verdict.reason or "", end.doubted, *last)
    death, facts = owner_death_of(row, end.source), row_facts(row)
    return ended._replace(created_at=row.created_at, death=death, facts=facts)


def _moved(move: Transition, target: State) -> dict[str, Any]:
    return {
        "key": move.key,
        "day": move.day,
        "version": move.version,
        "source": move.source,
        "state": target,
        "reason": _reason(move),
        "provider_id": None if move.provider_id is None else clean(move.provider_id),
        "delay_ms": move.delay_ms if target is State.RETRY else None,
        "expires_at": move.expires_at,
        "certain": move.event in _PROVED_NOT_SENT or move.source in _NEVER_SENT,
    }


def _reason(move: Transition) -> str | None:
    assert move.reason != GIVEN_BACK, "what is given back belongs to Kafka's next reader"
    return clean(move.reason) if move.reason else None


def _backlog(connection: Connection, due: Any, lane: str, now: int) -> DueBacklog:
    asked = {"lane": lane, "now": now, "bound": BOUND}
    waiting = connection.execute(due, asked).one()
    doubted = connection.execute(sql.BACKLOG_OF_DOUBT, asked).one()
    ages = (now - (row.oldest if row.oldest is not None else now) for row in (waiting, doubted))
    return DueBacklog(lane, waiting.rows, doubted.rows, *ages)
