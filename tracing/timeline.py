"""The story of one message: the ledger's rows and the trace's events, merged."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

import msgspec
from sqlalchemy import bindparam, text

from backends.sql.database import Database
from message.envelope import MAX_RECEIVERS
from tracing.events import Stage, TraceEvent
from tracing.rows import events_in

MAX_MESSAGES: Final = 50
"""A biz_id may have many messages; the newest so many are shown unless more are asked for."""

_COLUMNS: Final = (
    "delivery_key, message_id, biz_id, lane, state, reason, attempt, owner, provider_id,"
    " created_at, updated_at, next_at, expires_at, policy_version, resend_of, account"
)
COPIES: Final = """
SELECT resend_of, message_id FROM hongyan_deliveries
 WHERE resend_of IN :messages
 GROUP BY resend_of, message_id
 ORDER BY min(created_at), message_id"""
_OWNER_DEAD: Final = "owner_dead"
_OPEN: Final = frozenset({"IN_FLIGHT", "UNKNOWN"})
_BEGINNINGS: Final = frozenset({"claimed", "expired", "behind"})
_BIZ: Final = "biz_id"
_BY: Final = ("message_id", "delivery_key", _BIZ)
_MESSAGES: Final = """
SELECT count(DISTINCT message_id) AS messages FROM hongyan_deliveries
 WHERE biz_id = :name AND created_at >= :since"""
_ORDER: Final = {stage: place for place, stage in enumerate(Stage)}


class LedgerRow(msgspec.Struct, kw_only=True):
    """One row of `hongyan_deliveries`."""

    delivery_key: str
    message_id: str
    biz_id: str | None
    lane: str
    state: str
    reason: str | None
    attempt: int
    owner: str
    provider_id: str | None
    created_at: int
    updated_at: int
    next_at: int | None
    expires_at: int
    policy_version: str
    resend_of: str | None
    account: str | None = None


class Moment(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One thing that happened; `at` is epoch milliseconds."""

    at: int
    what: str
    worker: str = ""
    attempt: int = 0
    state: str = ""
    reason: str | None = None
    detail: str | None = None
    account: str = ""
    provider_id: str | None = None
    origin: str | None = None
    policy_version: str = ""
    took_ms: int = 0
    """Duration of a call, on the moment of its end."""


class DeliveryStory(msgspec.Struct, kw_only=True):
    """One receiver's part. `row` None: the lane keeps no ledger, or the row was archived."""

    delivery_key: str
    receiver: str
    row: LedgerRow | None
    moments: list[Moment]


class Story(msgspec.Struct, kw_only=True):
    """One message's whole history."""

    message_id: str
    biz_id: str | None
    lane: str
    deliveries: list[DeliveryStory]
    copy_of: str | None = None
    """The message of which a person had this copy sent."""
    copies: list[str] = []
    """Messages that are copies of this one, oldest first."""


def find(
    database: Database, name: str, *, since: int = 0, limit: int = MAX_MESSAGES
) -> list[Story]:
    """Returns the stories of a message id, a delivery key, a biz_id, or a record's place in Kafka.

    Of a biz_id: the newest `limit` messages made since then (epoch milliseconds). Empty where neither the
    ledger nor the trace knows the name. Raises SqlError.
    """
    rows = _rows(database, name, since, limit)
    messages = list(dict.fromkeys(row.message_id for row in rows)) or [name]
    if rows and rows[0].delivery_key == name:
        rows = _by(database, "message_id", rows[0].message_id, 0, 1)
    events = _events(database, messages)
    copies = _copies(database, messages)
    stories = [_story(message, rows, events, copies.get(message, [])) for message in messages]
    return [story for story in stories if story.deliveries]


def messages_of(database: Database, biz_id: str, since: int = 0) -> int:
    """Returns how many messages with this biz_id the ledger has since then. Raises SqlError."""
    (row,) = _all(database, _MESSAGES, {"name": biz_id, "since": since})
    return int(row["messages"])


def _rows(database: Database, name: str, since: int, limit: int) -> list[LedgerRow]:
    """Returns the ledger's rows of a message id, else of a delivery key, else of a biz_id."""
    for column in _BY:
        if rows := _by(database, column, name, since if column == _BIZ else 0, limit):
            return rows
    return []


def _by(database: Database, column: str, name: str, since: int, limit: int) -> list[LedgerRow]:
    query = (
        f"SELECT {_COLUMNS} FROM hongyan_deliveries WHERE {column} = :name"  # noqa: S608 - ours
        " AND created_at >= :since ORDER BY created_at DESC, delivery_key LIMIT :limit"
    )
    values = {"name": name, "since": since, "limit": limit * MAX_RECEIVERS}
    rows = [msgspec.convert(dict(row), LedgerRow) for row in _all(database, query, values)]
    newest = set(islice(dict.fromkeys(row.message_id for row in rows), limit))
    return [row for row in rows if row.message_id in newest]


def _events(database: Database, messages: Sequence[str]) -> list[TraceEvent]:
    query = "SELECT events FROM trace_events WHERE message_id IN :messages ORDER BY at"
    found = _all(database, query, {"messages": list(messages)}, expanding="messages")
    return events_in(row["events"] for row in found)


def _copies(database: Database, messages: Sequence[str]) -> dict[str, list[str]]:
    """Returns message to its copies, by the partial index on `resend_of`."""
    found = _all(database, COPIES, {"messages": list(messages)}, expanding="messages")
    copies: dict[str, list[str]] = {}
    for row in found:
        copies.setdefault(row["resend_of"], []).append(row["message_id"])
    return copies


def _all(
    database: Database, query: str, values: dict[str, Any], expanding: str | None = None
) -> Sequence[Any]:
    statement = text(query)
    if expanding:
        statement = statement.bindparams(bindparam(expanding, expanding=True))
    with database.errors(), database.engine.connect() as connection:
        return connection.execute(statement, values).mappings().all()


def _story(
    message: str,
    rows: Sequence[LedgerRow],
    events: Sequence[TraceEvent],
    copies: Sequence[str],
) -> Story:
    mine = [r for r in rows if r.message_id == message]
    traced = [e for e in events if (e.message_id or e.origin) == message]
    keys = dict.fromkeys([*(r.delivery_key for r in mine), *(e.delivery_key for e in traced)])
    by_key = {row.delivery_key: row for row in mine}
    parts: list[LedgerRow | TraceEvent] = [*mine, *traced]
    return Story(
        message_id=message,
        biz_id=next((part.biz_id for part in parts if part.biz_id), None),
        lane=next((part.lane for part in parts if part.lane), ""),
        deliveries=[
            _delivery(key, by_key.get(key), [e for e in traced if e.delivery_key == key])
            for key in keys
        ],
        copy_of=next((row.resend_of for row in mine if row.resend_of), None),
        copies=list(copies),
    )


def _delivery(key: str, row: LedgerRow | None, events: Sequence[TraceEvent]) -> DeliveryStory:
    return DeliveryStory(
        delivery_key=key,
        receiver=next((e.receiver for e in events if e.receiver), ""),
        row=row,
        moments=_with_row(moments(events), row),
    )


def _with_row(traced: list[Moment], row: LedgerRow | None) -> list[Moment]:
    """Adds moments that only the row has: a claim without a later event, and its worker's death."""
    if row is None or not row.attempt:
        return traced
    known = [*traced, *_claim(traced, row)]
    lost = row.state == "UNKNOWN" and row.reason == _OWNER_DEAD
    if lost and not _tells(traced, row, _OWNER_DEAD):
        known.append(
            Moment(
                at=row.updated_at,
                what=_OWNER_DEAD,
                worker=row.owner,
                attempt=row.attempt,
                state=row.state,
                detail="no outcome of its call was recorded",
                account=row.account or "",
            )
        )
    return sorted(known, key=lambda moment: moment.at)


def _claim(traced: Sequence[Moment], row: LedgerRow) -> list[Moment]:
    """Returns the claim that no event has."""
    if row.attempt > 1 and row.state in _OPEN and not _tells(traced, row):
        return [_claimed(row.updated_at, row.attempt, row.owner)]
    if any(moment.what in _BEGINNINGS for moment in traced):
        return []
    # The row does not have the owner of an attempt before its last.
    return [_claimed(row.created_at, 1, row.owner if row.attempt == 1 else "")]


def _claimed(at: int, attempt: int, worker: str) -> Moment:
    return Moment(at=at, what="claimed", worker=worker, attempt=attempt, state="IN_FLIGHT")


def _tells(traced: Sequence[Moment], row: LedgerRow, what: str = "") -> bool:
    """Returns True if a moment (of that kind) is of the row's last attempt."""
    return any(m.attempt == row.attempt and (not what or m.what == what) for m in traced)


def moments(events: Sequence[TraceEvent]) -> list[Moment]:
    """Returns every moment in order; an event carries the marks of earlier moments."""
    found: list[tuple[int, int, Moment]] = []
    created = min((e.created_at for e in events if e.created_at), default=0)
    if created:
        found.append((created, -3, Moment(at=created, what="created")))
    for event in events:
        # Several events may carry the same mark.
        found += [mark for mark in _marks(event) if mark not in found]
        found.append((event.at, _ORDER[event.stage], _moment(event)))
    found.sort(key=lambda entry: entry[:2])
    return [moment for _, _, moment in found]


def _marks(event: TraceEvent) -> list[tuple[int, int, Moment]]:
    """Returns the earlier moments on an event: read, claimed, and the provider call's two ends."""
    worker, attempt = event.worker, event.attempt
    marks = []
    if event.received_at:
        at = event.received_at
        marks.append((at, -2, Moment(at=at, what="received", worker=worker, origin=event.origin)))
    if event.claimed_at:
        at = event.claimed_at
        claimed = Moment(at=at, what="claimed", worker=worker, attempt=attempt, state="IN_FLIGHT")
        marks.append((at, 0, claimed))
    if event.started_at:
        at, account = event.started_at, event.account
        called = Moment(at=at, what="called", worker=worker, attempt=attempt, account=account)
        marks.append((at, 1, called))
    if event.answered_at:
        at, what = event.answered_at, event.call_end or "answered"
        took_ms = at - event.started_at if event.started_at else 0
        ended = Moment(at=at, what=what, worker=worker, attempt=attempt, took_ms=took_ms)
        marks.append((at, 1, ended))
    return marks


def _moment(event: TraceEvent) -> Moment:
    return Moment(
        at=event.at,
        what=event.stage.value,
        worker=event.worker,
        attempt=event.attempt,
        state=event.state,
        reason=event.reason,
        detail=event.detail,
        account=event.account,
        provider_id=event.provider_id,
        origin=event.origin,
        policy_version=event.policy_version,
    )
