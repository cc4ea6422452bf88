"""What became of one message: the ledger's rows and the trace's events, merged into one story."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import bindparam, text

from backends.sql import Database
from tracing.events import Stage, TraceEvent
from tracing.rows import events_in

MAX_MESSAGES: Final = 50
"""A biz_id may stand on many messages; the newest so many are told."""

_COLUMNS: Final = (
    "delivery_key, message_id, biz_id, lane, state, reason, attempt, owner, provider_id,"
    " created_at, updated_at, next_at, expires_at, policy_version, resend_of"
)
_BY: Final = ("message_id", "delivery_key", "biz_id")
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


class DeliveryStory(msgspec.Struct, kw_only=True):
    """One receiver's part. `row` None: the lane keeps no ledger, or the row was archived."""

    delivery_key: str
    receiver: str
    row: LedgerRow | None
    moments: list[Moment]


class Story(msgspec.Struct, kw_only=True):
    """One message's whole way."""

    message_id: str
    biz_id: str | None
    lane: str
    deliveries: list[DeliveryStory]


def find(database: Database, name: str) -> list[Story]:
    """The stories of a message id, a delivery key, a biz_id, or a record's place in Kafka.

    Raises SqlError. Empty where neither the ledger nor the trace knows the name.
    """
    rows = _rows(database, name)
    messages = list(dict.fromkeys(row.message_id for row in rows)) or [name]
    if rows and rows[0].delivery_key == name:
        rows = _by(database, "message_id", rows[0].message_id)
    events = _events(database, messages)
    stories = [_story(message, rows, events) for message in messages]
    return [story for story in stories if story.deliveries]


def _rows(database: Database, name: str) -> list[LedgerRow]:
    """The ledger's rows, by whichever of the three names this is."""
    for column in _BY:
        if rows := _by(database, column, name):
            return rows
    return []


def _by(database: Database, column: str, name: str) -> list[LedgerRow]:
    query = (
        f"SELECT {_COLUMNS} FROM hongyan_deliveries WHERE {column} = :name"  # noqa: S608 - ours
        " ORDER BY created_at DESC, delivery_key LIMIT :limit"
    )
    found = _all(database, query, {"name": name, "limit": MAX_MESSAGES * 1_000})
    rows = [msgspec.convert(dict(row), LedgerRow) for row in found]
    newest = list(dict.fromkeys(row.message_id for row in rows))[:MAX_MESSAGES]
    return [row for row in rows if row.message_id in newest]


def _events(database: Database, messages: Sequence[str]) -> list[TraceEvent]:
    query = "SELECT events FROM trace_events WHERE message_id IN :messages ORDER BY at"
    found = _all(database, query, {"messages": list(messages)}, expanding="messages")
    return events_in(row["events"] for row in found)


def _all(
    database: Database, query: str, values: dict[str, Any], expanding: str | None = None
) -> Sequence[Any]:
    statement = text(query)
    if expanding:
        statement = statement.bindparams(bindparam(expanding, expanding=True))
    with database.errors(), database.engine.connect() as connection:
        return connection.execute(statement, values).mappings().all()


def _story(message: str, rows: Sequence[LedgerRow], events: Sequence[TraceEvent]) -> Story:
    mine = [r for r in rows if r.message_id == message]
    told = [e for e in events if (e.message_id or e.origin) == message]
    keys = dict.fromkeys([*(r.delivery_key for r in mine), *(e.delivery_key for e in told)])
    by_key = {row.delivery_key: row for row in mine}
    parts: list[LedgerRow | TraceEvent] = [*mine, *told]
    return Story(
        message_id=message,
        biz_id=next((part.biz_id for part in parts if part.biz_id), None),
        lane=next((part.lane for part in parts if part.lane), ""),
        deliveries=[
            _delivery(key, by_key.get(key), [e for e in told if e.delivery_key == key])
            for key in keys
        ],
    )


def _delivery(key: str, row: LedgerRow | None, events: Sequence[TraceEvent]) -> DeliveryStory:
    return DeliveryStory(
        delivery_key=key,
        receiver=next((e.receiver for e in events if e.receiver), ""),
        row=row,
        moments=_with_claim(moments(events), row),
    )


def _with_claim(told: list[Moment], row: LedgerRow | None) -> list[Moment]:
    """The row itself tells of a claim whose worker died before it could tell more."""
    if (
        row is None
        or not row.attempt
        or any(moment.what in ("claimed", "expired", "behind") for moment in told)
    ):
        return told
    claim = Moment(at=row.created_at, what="claimed", worker=row.owner, state="IN_FLIGHT")
    return sorted([*told, claim], key=lambda moment: moment.at)


def moments(events: Sequence[TraceEvent]) -> list[Moment]:
    """Everything that happened, in order: an event carries the marks of what came before it."""
    told: list[tuple[int, int, Moment]] = []
    created = min((e.created_at for e in events if e.created_at), default=0)
    if created:
        told.append((created, -3, Moment(at=created, what="created")))
    for event in events:
        told += [
            mark for mark in _marks(event) if mark not in told
        ]  # several events carry the same
        told.append((event.at, _ORDER[event.stage], _moment(event)))
    told.sort(key=lambda entry: entry[:2])
    return [moment for _, _, moment in told]


def _marks(event: TraceEvent) -> list[tuple[int, int, Moment]]:
    """What an event says of earlier moments: reading it, and the provider call's two ends."""
    worker, attempt = event.worker, event.attempt
    marks = []
    if event.received_at:
        at = event.received_at
        marks.append((at, -2, Moment(at=at, what="received", worker=worker, origin=event.origin)))
    if event.claimed_at:
        at = event.claimed_at
        marks.append((at, 0, Moment(at=at, what="claimed", worker=worker, state="IN_FLIGHT")))
    if event.started_at:
        at, account = event.started_at, event.account
        called = Moment(at=at, what="called", worker=worker, attempt=attempt, account=account)
        marks.append((at, 1, called))
    if event.answered_at:
        at = event.answered_at
        marks.append((at, 1, Moment(at=at, what="answered", worker=worker, attempt=attempt)))
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
    )
