"""Recalls in the ledger: notifications not to be sent any more, and deliveries taken back by a provider.

The lock of an announcement waits for every claim under way, and every later claim waits for the lock. So
each delivery either has a row when the announcement is made, or its claim enters it as DROPPED. Recovery
asks the same table before it sends a row again.

A recall of some lanes is a row of the kind `lane` for each of them. It covers no delivery of another lane
(docs/decisions/308-a-recall-may-cover-lanes-alone.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, bindparam, text

from backends.sql.database import Database
from idempotency.claims.rows import IN_LANE, RECALLED, name_in_lane
from idempotency.error_mapping import errors
from idempotency.payload_cipher import PayloadCipher, PayloadUnreadable
from idempotency.recovery.contract import RowFacts, Transition, recalled, row_facts
from idempotency.transactions import Clock, LedgerPart
from message.states import Event, State, state_of

PAGE: Final = 5_000
"""Rows of a name that are read at once."""
OF_CALL: Final = 10_000
"""Rows of a call that are read; no provider takes so many receivers in one."""

# ACCESS EXCLUSIVE, because claims only read the table; it is held for the insert and no longer.
_LOCK = text("LOCK TABLE recalls IN ACCESS EXCLUSIVE MODE")
_ANNOUNCE = text("""
INSERT INTO recalls (kind, name, made_at, until) VALUES (:kind, :name, :now, :until)
ON CONFLICT (kind, name) DO UPDATE SET made_at = excluded.made_at, until = excluded.until""")
_FORGET = text("DELETE FROM recalls WHERE until <= :now")
_ROWS: Final = """
SELECT d.delivery_key AS key, d.day, d.version, d.message_id, d.biz_id, d.lane, d.state, d.reason,
       d.attempt, d.account, d.provider_id, d.call_key, d.called_at, d.last_called_at, d.created_at,
       d.updated_at, d.policy_version, d.receiver, d.template, d.receiver_hash, d.kafka_topic,
       d.kafka_partition, d.kafka_offset, t.at AS taken_back_at
  FROM deliveries AS d LEFT JOIN recalled AS t ON t.delivery_key = d.delivery_key
 WHERE {condition} AND (d.created_at, d.delivery_key) > (:after_at, :after_key)
 ORDER BY d.created_at, d.delivery_key LIMIT :limit"""
_BY_MESSAGE = text(_ROWS.format(condition="d.message_id = :name"))
_BY_MESSAGE_IN_LANES = text(
    _ROWS.format(condition="d.message_id = :name AND d.lane IN :lanes")
).bindparams(bindparam("lanes", expanding=True))
_BY_BIZ = text(_ROWS.format(condition="d.biz_id = :name AND d.created_at <= :made_at"))
# The condition of the index deliveries_provider_id: webhooks have no recall and no entry there.
_BY_CALL = text(
    _ROWS.format(
        condition="d.provider_id = :provider_id AND d.provider_id IS NOT NULL"
        " AND substr(d.lane, 1, 8) <> 'webhook.' AND d.account = :account"
    )
)
_KEEP = text("""
INSERT INTO recalled (delivery_key, at) VALUES (:key, :now) ON CONFLICT DO NOTHING""")


class Kind(StrEnum):
    """Kinds of names that a recall takes."""

    MESSAGE = "message"
    """One notification, whenever it is read."""
    BIZ = "biz"
    """Every notification of a business id that was made until now."""


class Covered(NamedTuple):
    """One row that a recall is about. Times are epoch milliseconds by the database's clock."""

    key: str
    day: int
    version: int
    message_id: str
    biz_id: str | None
    lane: str
    state: State
    reason: str | None
    attempt: int
    account: str
    provider_id: str
    call_key: str
    doubted: bool
    """Whether a call of it is open, or may have sent it."""
    sent_at: int
    """Start of its last call, which sent it, or came after the one that did; meaningless for an unsent
    row."""
    policy_version: str
    receiver: str
    """Normalised; empty where it cannot be opened."""
    taken_back: bool
    """Whether its provider took it back."""
    created_at: int = 0
    """Start of the row."""
    facts: RowFacts = RowFacts()


class Recalls(LedgerPart):
    """Every method is one transaction or two, may be repeated, and raises LedgerError alone."""

    def __init__(self, database: Database, sealer: PayloadCipher, clock: Clock) -> None:
        super().__init__(database, clock)
        self._sealer = sealer

    def announce(self, kind: Kind, name: str, life_ms: int) -> int:
        """Forbids claims and sends of that name for `life_ms`. Returns the time from which it counts."""
        return self._announced(kind.value, [name], life_ms)

    def announce_in_lanes(self, message_id: str, lanes: Collection[str], life_ms: int) -> int:
        """Forbids claims and sends of the message in these lanes alone, as `announce`."""
        names = [name_in_lane(lane, message_id) for lane in sorted(lanes)]
        return self._announced(IN_LANE, names, life_ms)

    def rows(
        self, kind: Kind, name: str, made_at: int, after: Covered | None = None
    ) -> list[Covered]:
        """Returns the rows of that name behind `after`, oldest first; PAGE at most."""
        asked = {"name": name, "made_at": made_at, **_behind(after)}
        if kind is Kind.MESSAGE:
            del asked["made_at"]
        return self._covered(_BY_MESSAGE if kind is Kind.MESSAGE else _BY_BIZ, asked)

    def rows_in_lanes(
        self, message_id: str, lanes: Collection[str], after: Covered | None = None
    ) -> list[Covered]:
        """Returns the message's rows in these lanes behind `after`, oldest first; PAGE at most."""
        asked = {"name": message_id, "lanes": sorted(lanes), **_behind(after)}
        return self._covered(_BY_MESSAGE_IN_LANES, asked)

    def of_call(self, account: str, provider_id: str) -> list[Covered]:
        """Returns the rows of the call that the provider knows by that id."""
        asked = {"account": account, "provider_id": provider_id, **_behind(None), "limit": OF_CALL}
        return self._covered(_BY_CALL, asked)

    def keep(self, keys: Sequence[str]) -> None:
        """Records that the provider has taken these back."""
        with self._begin() as (connection, now):
            for key in keys:
                connection.execute(_KEEP, {"key": key, "now": now})

    def _announced(self, kind: str, names: Sequence[str], life_ms: int) -> int:
        self._enter(kind, names, life_ms)
        # The first transaction's clock was read before it waited for the lock: claims may be later.
        return self._enter(kind, names, life_ms)

    def _enter(self, kind: str, names: Sequence[str], life_ms: int) -> int:
        with self._begin(locked=True) as (connection, now):
            connection.execute(_FORGET, {"now": now})
            values = {"kind": kind, "now": now, "until": now + life_ms}
            connection.execute(_ANNOUNCE, [values | {"name": name} for name in names])
        return now

    def _covered(self, statement: Any, asked: dict[str, Any]) -> list[Covered]:
        with self._transaction() as connection:
            return [self._row(row) for row in connection.execute(statement, asked)]

    def _row(self, row: Any) -> Covered:
        return Covered(
            key=row.key,
            day=row.day,
            version=row.version,
            message_id=row.message_id,
            biz_id=row.biz_id,
            lane=row.lane,
            state=state_of(row.state, row.key),
            reason=row.reason,
            attempt=row.attempt,
            account=row.account or "",
            provider_id=row.provider_id or "",
            call_key=row.call_key or "",
            doubted=row.called_at is not None,
            sent_at=max(row.called_at or row.created_at, row.last_called_at or 0),
            policy_version=row.policy_version,
            receiver=self._receiver(row),
            taken_back=row.taken_back_at is not None,
            created_at=row.created_at,
            facts=row_facts(row),
        )

    def _receiver(self, row: Any) -> str:
        try:
            return self._sealer.open(bytes(row.receiver), row.message_id).decode()
        except (PayloadUnreadable, UnicodeDecodeError):
            return ""

    @contextmanager
    def _begin(self, *, locked: bool = False) -> Iterator[tuple[Connection, int]]:
        with errors(), self._database.begin() as connection:
            if locked and self._database.is_postgres:
                connection.execute(_LOCK)
            yield connection, self.clock(connection)


def _behind(row: Covered | None) -> dict[str, Any]:
    """Returns the values of the page behind that row, or of the first one."""
    at, key = (row.created_at, row.key) if row is not None else (-1, "")
    return {"after_at": at, "after_key": key, "limit": PAGE}


def cancelling(row: Covered) -> Transition:
    """Returns the move that ends a waiting row; see `idempotency.recovery.contract.recalled`."""
    verdict = recalled(doubted=row.doubted)
    event = Event.RECALL if verdict.reason == RECALLED else Event.BUDGET_SPENT
    return Transition(row.key, row.day, row.version, State.RETRY, event, verdict.reason)
