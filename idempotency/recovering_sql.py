"""`idempotency.recovering` on PostgreSQL and SQLite.

On PostgreSQL rows are locked in a CTE, ordered, others' locks passed by (SKIP LOCKED); on SQLite the one
writer's transaction does. The verdicts in between are pure and the same for both, and each write repeats
the version it was decided on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Connection, text

from backends.sql import Database
from idempotency import recovering_statements as sql
from idempotency.duties import Duties
from idempotency.edge import errors
from idempotency.entries import GIVEN_BACK, clean
from idempotency.payloads import PayloadUnreadable, Sealer
from idempotency.recovering import (
    BEHIND_PAUSE_MS,
    LIMIT,
    UNREADABLE,
    Ask,
    Backlog,
    Called,
    Doubt,
    Ended,
    Move,
    Taken,
    Taking,
    Verdict,
    call_key_of,
    judge,
)
from idempotency.workers import Clock
from message.delivery import Delivery, Origin
from message.envelope import EnvelopeError, decode
from message.states import Event, State, after

_NEVER_SENT: Final = frozenset({State.REJECTED, State.EXPIRED})
"""States that say of every earlier call that it sent nothing."""
_PROVED_NOT_SENT: Final = frozenset({Event.RESOLVED_NOT_SENT, Event.OPERATOR_NOT_SENT})
"""Moves that say so, too."""
BOUND: Final = 10_000
"""Rows of a lane's backlog that are counted at most."""


class SqlRecovering:
    """Implements `idempotency.recovering.Recovering`. Thread-safe; every method is one transaction.

    A row whose payload cannot be opened or read is parked, and said so among those that ended.
    """

    def __init__(
        self, database: Database, sealer: Sealer, epochs: dict[str, int], clock: Clock
    ) -> None:
        self._database = database
        self._sealer = sealer
        self._epochs = epochs
        self._clock = clock
        self._duties = Duties(database, clock)
        self._sql = sql.for_postgres() if database.is_postgres else sql.for_sqlite()

    def lanes_with_work(self, lanes: Sequence[str]) -> tuple[list[str], list[str]]:
        """See `Recovering.lanes_with_work`."""
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

    def take(self, ask: Ask, owner: str, token: int) -> Taking:
        """See `Recovering.take`."""
        mine = {"owner": owner, "epoch": self._epochs.get(owner, 0), "token": token}
        ended: list[Ended] = []
        postponed = 0
        with self._begin() as (connection, now):
            held = connection.execute(self._sql.held, mine).all()
            if not held:
                ended, postponed = self._sort(connection, ask, mine, now)
                held = connection.execute(self._sql.held, mine).all()
            taken = [t for row in held if (t := self._taken(connection, row, ended, now))]
        return Taking(taken, ended, postponed)

    def keep(self, calls: Sequence[Called]) -> list[bool]:
        """See `Recovering.keep`."""
        with self._begin() as (connection, _now):
            return [bool(connection.execute(sql.KEEP, call._asdict()).rowcount) for call in calls]

    def give_back(self, taken: Sequence[Taken], delay_ms: int = 0) -> list[bool]:
        """See `Recovering.give_back`."""
        with self._begin() as (connection, now):
            return [_given_back(connection, one, now, now + delay_ms) for one in taken]

    def doubts(self, lane: str, lease_ms: int, limit: int = LIMIT) -> list[Doubt]:
        """See `Recovering.doubts`."""
        with self._begin() as (connection, now):
            asked = {"lane": lane, "limit": limit, "now": now}
            found = connection.execute(self._sql.doubted, asked).all()
            doubts = (self._leased(connection, row, now, lease_ms) for row in found)
            return [doubt for doubt in doubts if doubt is not None]

    def joined(self, doubt: Doubt, lease_ms: int) -> list[Doubt]:
        """See `Recovering.joined`."""
        one = doubt.delivery
        call = {"call_key": one.call_key, "call_digest": doubt.call_digest}
        place = {"lane": one.lane, "account": one.account}
        with self._begin() as (connection, now):
            found = connection.execute(self._sql.joined, {**call, **place, "now": now}).all()
            doubts = (self._leased(connection, row, now, lease_ms) for row in found)
            return [doubt for doubt in doubts if doubt is not None]

    def ask_again(self, doubt: Doubt, delay_ms: int) -> bool:
        """See `Recovering.ask_again`."""
        with self._begin() as (connection, now):
            return _postpone(
                connection,
                (doubt.delivery.key, doubt.delivery.day, doubt.version),
                State.UNKNOWN,
                now + delay_ms,
            )

    def move(self, moves: Sequence[Move]) -> list[bool]:
        """See `Recovering.move`."""
        targets = [after(move.source, move.event) for move in moves]
        with self._begin() as (connection, now):
            return [
                _moved(connection, move, target, now)
                for move, target in zip(moves, targets, strict=True)
            ]

    def release(self, lane: str, ordering_key: str) -> bool:
        """See `Recovering.release`."""
        with self._begin() as (connection, now):
            line = {"lane": lane, "ordering_key": ordering_key, "now": now}
            return bool(connection.execute(self._sql.release, line).rowcount)

    def version_of(self, key: str) -> tuple[int, int, State] | None:
        """See `Recovering.version_of`."""
        with self._begin() as (connection, _now):
            row = connection.execute(sql.VERSION, {"key": key}).one_or_none()
        return (row.day, row.version, State(row.state)) if row else None

    def backlog(self, lanes: Sequence[str]) -> list[Backlog]:
        """See `Recovering.backlog`."""
        with self._begin() as (connection, now):
            return [_backlog(connection, self._sql.backlog, lane, now) for lane in lanes]

    def hold(self, duty: str, holder: str, lease_ms: int) -> bool:
        """See `Recovering.hold`."""
        return self._duties.hold(duty, holder, lease_ms)

    def drop(self, duty: str, holder: str) -> None:
        """See `Recovering.drop`."""
        self._duties.drop(duty, holder)

    @contextmanager
    def _begin(self) -> Iterator[tuple[Connection, int]]:
        with errors(), self._database.begin() as connection:
            yield connection, self._clock(connection)

    def _sort(
        self, connection: Connection, ask: Ask, mine: dict[str, Any], now: int
    ) -> tuple[list[Ended], int]:
        """Give each due row its verdict: (those that ended, how many wait for their turn)."""
        asked = {"lane": ask.lane, "limit": ask.limit, "ordered": ask.ordered, "now": now}
        ended: list[Ended] = []
        postponed = 0
        for row in connection.execute(self._sql.due, asked).all():
            verdict = judge(row, ask, now)
            if verdict.state is State.IN_FLIGHT:
                call_key = call_key_of(row.delivery_key, row.attempt + 1)
                connection.execute(
                    sql.TAKE, {**mine, **_named(row), "call_key": call_key, "now": now}
                )
            elif verdict.state is State.RETRY:
                _postpone(connection, _place(row), State.RETRY, now + BEHIND_PAUSE_MS)
                postponed += 1
            else:
                doubted = row.called_at is not None
                ended.append(_end(connection, row, State.RETRY, verdict, now, doubted=doubted))
        return ended, postponed

    def _taken(
        self, connection: Connection, row: Any, ended: list[Ended], now: int
    ) -> Taken | None:
        delivery = self._delivery(row)
        # The take itself began the call, or left the time at which an earlier one began.
        doubted = row.called_at if row.called_at < row.updated_at else None
        if delivery is None:
            verdict, in_doubt = Verdict(State.PARKED, UNREADABLE), doubted is not None
            source = State.IN_FLIGHT
            ended.append(_end(connection, row, source, verdict, now, doubted=in_doubt))
            return None
        return Taken(delivery, row.reason or "", doubted, row.call_digest or "")

    def _leased(self, connection: Connection, row: Any, now: int, lease_ms: int) -> Doubt | None:
        if not _postpone(connection, _place(row), State.UNKNOWN, now + lease_ms):
            return None
        place = {**_named(row), "version": row.version + 1}
        whole = connection.execute(self._sql.leased, place).one()
        delivery = self._delivery(whole)
        if delivery is None:
            unreadable = Verdict(State.PARKED, UNREADABLE)
            _end(connection, whole, State.UNKNOWN, unreadable, now, doubted=True)
            return None
        return Doubt(
            delivery,
            # Rows from before the column: claimed at the latest when they entered their state.
            whole.called_at if whole.called_at is not None else whole.created_at,
            whole.call_digest or "",
            whole.version,
            whole.reason or "",
            whole.updated_at,
            now,
        )

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
            token=row.token,
            day=row.day,
            account=row.account or "",
            call_key=row.call_key or "",
        )


def _place(row: Any) -> tuple[str, int, int]:
    return row.delivery_key, row.day, row.version


def _named(row: Any) -> dict[str, Any]:
    return dict(zip(("key", "day", "version"), _place(row), strict=True))


def _postpone(
    connection: Connection, place: tuple[str, int, int], state: State, next_at: int
) -> bool:
    key, day, version = place
    values = {"key": key, "day": day, "version": version, "source": state, "next_at": next_at}
    return bool(connection.execute(sql.POSTPONE, values).rowcount)


def _end(
    connection: Connection,
    row: Any,
    source: State,
    verdict: Verdict,
    now: int,
    *,
    doubted: bool,
) -> Ended:
    """The row is locked, or ours: nobody else can have written it."""
    ending = {"state": verdict.state, "reason": verdict.reason, "source": source, "now": now}
    connection.execute(sql.END, {**_named(row), **ending, "doubted": doubted})
    place = (row.delivery_key, row.message_id, row.lane)
    return Ended(*place, verdict.state, verdict.reason or "", doubted)


def _given_back(connection: Connection, taken: Taken, now: int, next_at: int) -> bool:
    one = taken.delivery
    values = {"key": one.key, "day": one.day, "token": one.token, "now": now}
    before = {"next_at": next_at, "reason": taken.reason or None, "called_at": taken.doubted_since}
    return bool(connection.execute(sql.GIVE_BACK, values | before).rowcount)


def _moved(connection: Connection, move: Move, target: State, now: int) -> bool:
    values = move._asdict() | {
        "state": target,
        "reason": _reason(move),
        "provider_id": clean(move.provider_id) if move.provider_id else None,
        "next_at": now + move.delay_ms if target is State.RETRY else None,
        "certain": move.event in _PROVED_NOT_SENT or move.source in _NEVER_SENT,
        "now": now,
    }
    if connection.execute(sql.MOVE, values).rowcount:
        return True
    stands = connection.execute(sql.STANDS, {"key": move.key, "day": move.day}).one_or_none()
    # An earlier try whose reply was lost.
    return stands is not None and tuple(stands) == (move.version + 1, target, _reason(move))


def _reason(move: Move) -> str | None:
    assert move.reason != GIVEN_BACK, "what is given back belongs to Kafka's next reader"
    return clean(move.reason) if move.reason else None


def _backlog(connection: Connection, due: Any, lane: str, now: int) -> Backlog:
    asked = {"lane": lane, "now": now, "bound": BOUND}
    waiting = connection.execute(due, asked).one()
    doubted = connection.execute(sql.BACKLOG_OF_DOUBT, asked).one()
    ages = (now - (row.oldest if row.oldest is not None else now) for row in (waiting, doubted))
    return Backlog(lane, waiting.rows, doubted.rows, *ages)
