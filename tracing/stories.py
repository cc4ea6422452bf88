"""Stories of messages: rows of the ledger, events of the trace, rows that left, and rebuilt ones, merged.

`find` reads the ledger's database alone. The program adds the parts of other places (hongyan/traces/).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec
from sqlalchemy import bindparam, text

from backends.sql.database import Database
from message.envelope import MAX_RECEIVERS
from message.keys import is_key
from tracing.events import TraceEvent
from tracing.rows import DAY_MS, events_in
from tracing.timeline import (
    DeliveryStory,
    LedgerRow,
    Moment,
    RebuiltDelivery,
    Story,
    moments,
    with_row,
)

MAX_MESSAGES: Final = 50
"""A biz_id may have many messages; the newest so many are shown unless more are asked for."""
LEDGER: Final = "ledger"
TRACE: Final = "trace"
REBUILT: Final = "rebuilt"

_COLUMNS: Final = (
    "delivery_key, message_id, biz_id, lane, state, reason, attempt, owner, provider_id,"
    " created_at, updated_at, next_at, expires_at, policy_version, resend_of, account"
)
COPIES: Final = """
SELECT resend_of, message_id FROM hongyan_deliveries
 WHERE resend_of IN :messages
 GROUP BY resend_of, message_id
 ORDER BY min(created_at), message_id"""
_BIZ: Final = "biz_id"
_KEY: Final = "delivery_key"
_BY: Final = ("message_id", _KEY, _BIZ)
_BY_KEY_FIRST: Final = (_KEY, "message_id", _BIZ)
_DAY_OF_KEY: Final = "SELECT day FROM delivery_keys WHERE delivery_key = :key"
_OF_KEY: Final = "SELECT message_id FROM hongyan_deliveries WHERE delivery_key = :key"
_OF_KEY_AND_DAY: Final = (
    "SELECT message_id FROM deliveries WHERE delivery_key = :key AND day = {day}"
)
"""The day is a literal: the planner then looks at its partition alone, of two months' days."""
_MESSAGES: Final = """
SELECT count(DISTINCT message_id) AS messages FROM hongyan_deliveries
 WHERE biz_id = :name AND created_at >= :since"""
# No index holds receivers or templates: days first, then the text. Whole events are compared afterwards.
_HOLDING: Final = """
SELECT events FROM trace_events
 WHERE day >= :day AND at >= :since AND events LIKE :holds ESCAPE '!' ORDER BY at DESC LIMIT :limit"""


class SearchTerms(msgspec.Struct, frozen=True):
    """Terms of a search without a name; an empty term matches all."""

    hashes: frozenset[str] = frozenset()
    template: str = ""

    def match(self, part: TraceEvent | RebuiltDelivery) -> bool:
        """Returns True if the part has every term."""
        of_receiver = not self.hashes or part.receiver_hash in self.hashes
        return of_receiver and self.template in ("", part.template)

    @property
    def texts(self) -> list[str]:
        """Returns texts of which an event's JSON holds one."""
        if self.hashes:
            return sorted(self.hashes)
        return [f'"template":{msgspec.json.encode(self.template).decode()}']


class Place(msgspec.Struct, frozen=True):
    """A delivery that a search found."""

    message_id: str
    delivery_key: str
    at: int
    """Epoch milliseconds; orders the findings."""


class Parts(msgspec.Struct, kw_only=True):
    """The parts of some messages' stories, of every place."""

    rows: list[LedgerRow] = []
    events: list[TraceEvent] = []
    rebuilt: list[RebuiltDelivery] = []
    rebuilt_until: int | None = None
    past: dict[str, str] = {}
    """Delivery key to the archive's table or file that has its row."""
    copies: dict[str, list[str]] = {}


def find(
    database: Database, name: str, *, since: int = 0, limit: int = MAX_MESSAGES
) -> list[Story]:
    """Returns the stories of a message id, a delivery key, a biz_id, or a record's place in Kafka.

    Of a biz_id: the newest `limit` messages made since then (epoch milliseconds). Empty where neither the
    ledger nor the trace knows the name. Raises SqlError.
    """
    rows = live_rows(database, name, since=since, limit=limit)
    return stories_of(messages_in(rows) or [name], live_parts(database, name, rows))


def of_message(
    database: Database, message_id: str, lanes: Collection[str] | None, *, limit: int = MAX_MESSAGES
) -> list[Story]:
    """Returns the story of a message as far as it is in these lanes (None: in any). Several lanes may have
    deliveries under one message id. Raises SqlError."""
    rows = _by(database, "message_id", message_id, 0, limit, lanes)
    return _within(database, [message_id], rows, lanes)


def of_biz(
    database: Database, biz_id: str, lanes: Collection[str] | None, *, limit: int = MAX_MESSAGES
) -> list[Story]:
    """Returns the stories of the newest `limit` messages that have deliveries with this biz_id in these
    lanes (None: in any), as far as they are in them. Raises SqlError."""
    rows = _by(database, _BIZ, biz_id, 0, limit, lanes)
    return _within(database, messages_in(rows), rows, lanes)


def messages_in(rows: Iterable[LedgerRow | RebuiltDelivery]) -> list[str]:
    """Returns the rows' message ids, each once."""
    return list(dict.fromkeys(row.message_id for row in rows))


def live_rows(
    database: Database, name: str, *, since: int = 0, limit: int = MAX_MESSAGES
) -> list[LedgerRow]:
    """Returns the ledger's rows of a message id, of a delivery key's message, or of a biz_id."""
    for column in _BY_KEY_FIRST if is_key(name) else _BY:
        if column == _KEY:
            message = _message_of(database, name)
            rows = _by(database, "message_id", message, 0, 1) if message else []
        else:
            rows = _by(database, column, name, since if column == _BIZ else 0, limit)
        if rows:
            return rows
    return []


def rows_of_messages(database: Database, messages: Sequence[str]) -> list[LedgerRow]:
    """Returns the ledger's rows of these messages, in one statement. Raises SqlError."""
    query = (
        f"SELECT {_COLUMNS} FROM hongyan_deliveries WHERE message_id IN :messages"  # noqa: S608 - ours
        " ORDER BY created_at DESC, delivery_key"
    )
    found = _all(database, query, {"messages": list(messages)}, expanding="messages")
    return [msgspec.convert(dict(row), LedgerRow) for row in found]


def live_parts(
    database: Database, name: str, rows: list[LedgerRow], messages: Sequence[str] = ()
) -> Parts:
    """Returns these rows with the events and copies of their messages, or of `messages`, or of `name`."""
    ids = list(messages) or messages_in(rows) or [name]
    return Parts(rows=rows, events=_events(database, ids), copies=_copies(database, ids))


def search_live(database: Database, terms: SearchTerms, *, since: int, limit: int) -> list[Place]:
    """Returns deliveries with an event since then that has every term, newest first. Reads all events since
    then: bound it. Raises SqlError."""
    found: dict[str, Place] = {}
    for holds in terms.texts:
        asked = {"day": since // DAY_MS, "since": since, "holds": _like(holds), "limit": limit}
        for event in events_in(row["events"] for row in _all(database, _HOLDING, asked)):
            if event.delivery_key not in found and terms.match(event):
                place = Place(event.message_id, event.delivery_key, event.at)
                found[event.delivery_key] = place
    return sorted(found.values(), key=lambda place: -place.at)


def messages_of(database: Database, biz_id: str, since: int = 0) -> int:
    """Returns how many messages with this biz_id the ledger has since then. Raises SqlError."""
    (row,) = _all(database, _MESSAGES, {"name": biz_id, "since": since})
    return int(row["messages"])


def stories_of(messages: Sequence[str], parts: Parts) -> list[Story]:
    """Returns the messages' stories; leaves out messages of which nothing is known."""
    stories = [_story(message, parts) for message in messages]
    return [story for story in stories if story.deliveries]


def only(stories: Sequence[Story], keys: Collection[str]) -> list[Story]:
    """Returns the stories with these deliveries alone."""
    kept = [
        msgspec.structs.replace(
            story, deliveries=[one for one in story.deliveries if one.delivery_key in keys]
        )
        for story in stories
    ]
    return [story for story in kept if story.deliveries]


def _by(
    database: Database,
    column: str,
    name: str,
    since: int,
    limit: int,
    lanes: Collection[str] | None = None,
) -> list[LedgerRow]:
    within = "" if lanes is None else " AND lane IN :lanes"
    query = (
        f"SELECT {_COLUMNS} FROM hongyan_deliveries WHERE {column} = :name"  # noqa: S608 - ours
        f" AND created_at >= :since{within} ORDER BY created_at DESC, delivery_key LIMIT :limit"
    )
    values: dict[str, Any] = {"name": name, "since": since, "limit": limit * MAX_RECEIVERS}
    if lanes is not None:
        values["lanes"] = sorted(lanes)
    expanding = None if lanes is None else "lanes"
    found = _all(database, query, values, expanding=expanding)
    rows = [msgspec.convert(dict(row), LedgerRow) for row in found]
    newest = set(islice(dict.fromkeys(row.message_id for row in rows), limit))
    return [row for row in rows if row.message_id in newest]


def _within(
    database: Database,
    messages: Sequence[str],
    rows: list[LedgerRow],
    lanes: Collection[str] | None,
) -> list[Story]:
    """Returns the messages' stories from these rows and from the events of these lanes. An event without a
    lane belongs to its delivery's row."""
    if not messages:
        return []
    events = _events(database, messages)
    if lanes is not None:
        keys = {row.delivery_key for row in rows}
        events = [e for e in events if (e.lane in lanes if e.lane else e.delivery_key in keys)]
    return stories_of(messages, Parts(rows=rows, events=events))


def _message_of(database: Database, key: str) -> str:
    """Returns the message of a delivery in the ledger; empty if it has none of this key."""
    query = _OF_KEY
    if database.is_postgres:
        days = _all(database, _DAY_OF_KEY, {"key": key})
        if not days:
            return ""
        query = _OF_KEY_AND_DAY.format(day=int(days[0]["day"]))
    found = _all(database, query, {"key": key})
    return str(found[0]["message_id"]) if found else ""


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


def _like(holds: str) -> str:
    escaped = holds.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return f"%{escaped}%"


def _all(
    database: Database, query: str, values: dict[str, Any], expanding: str | None = None
) -> Sequence[Any]:
    statement = text(query)
    if expanding:
        statement = statement.bindparams(bindparam(expanding, expanding=True))
    with database.reading() as connection:
        return connection.execute(statement, values).mappings().all()


def _story(message: str, parts: Parts) -> Story:
    rows = [row for row in parts.rows if row.message_id == message]
    events = [e for e in parts.events if (e.message_id or e.origin) == message]
    rebuilt = [row for row in parts.rebuilt if row.message_id == message]
    some: list[LedgerRow | TraceEvent | RebuiltDelivery] = [*rows, *events, *rebuilt]
    stored: list[LedgerRow | RebuiltDelivery] = [*rows, *rebuilt]
    keys = dict.fromkeys(part.delivery_key for part in some)
    of_key: dict[str, list[TraceEvent]] = {key: [] for key in keys}
    for event in events:
        of_key[event.delivery_key].append(event)
    by_key = {row.delivery_key: row for row in rows}
    folded = {row.delivery_key: row for row in rebuilt}
    return Story(
        message_id=message,
        biz_id=next((part.biz_id for part in some if part.biz_id), None),
        lane=next((part.lane for part in some if part.lane), ""),
        deliveries=[
            _delivery(
                key,
                by_key.get(key),
                of_key[key],
                folded.get(key),
                parts,
            )
            for key in keys
        ],
        copy_of=next((row.resend_of for row in stored if row.resend_of), None),
        copies=list(parts.copies.get(message, [])),
    )


def _delivery(
    key: str,
    row: LedgerRow | None,
    live: Sequence[TraceEvent],
    rebuilt: RebuiltDelivery | None,
    parts: Parts,
) -> DeliveryStory:
    events = [*live, *(_unknown(rebuilt.timeline, live) if rebuilt else ())]
    known: list[TraceEvent | RebuiltDelivery] = [*events, *([rebuilt] if rebuilt else [])]
    return DeliveryStory(
        delivery_key=key,
        receiver=next((part.receiver for part in known if part.receiver), ""),
        row=row,
        moments=_with_append(with_row(moments(events), row), rebuilt),
        sources=_sources(key, row, live, rebuilt, parts.past),
        template=next((part.template for part in known if part.template), ""),
        state=rebuilt.state if rebuilt and row is None else "",
        missing=rebuilt.missing if rebuilt else [],
        rebuilt_until=parts.rebuilt_until if rebuilt else None,
    )


def _unknown(rebuilt: Sequence[TraceEvent], live: Sequence[TraceEvent]) -> list[TraceEvent]:
    """Returns the rebuilt events that the live ones lack."""
    known = {_identity(event) for event in live}
    return [event for event in rebuilt if _identity(event) not in known]


def _identity(event: TraceEvent) -> tuple[object, ...]:
    """Two events with these values alike are one: a table's older schema may lack the other fields."""
    return event.stage, event.at, event.worker, event.attempt, event.state, event.provider_id


def _with_append(found: list[Moment], rebuilt: RebuiltDelivery | None) -> list[Moment]:
    """Adds the broker's time of the record, which only the rebuilt row has."""
    if rebuilt is None or not rebuilt.appended_at:
        return found
    appended = Moment(at=rebuilt.appended_at, what="appended", origin=rebuilt.origin)
    return sorted([*found, appended], key=lambda moment: moment.at)


def _sources(
    key: str,
    row: LedgerRow | None,
    live: Sequence[TraceEvent],
    rebuilt: RebuiltDelivery | None,
    past: Mapping[str, str],
) -> list[str]:
    of_row = [past.get(key, LEDGER)] if row is not None else []
    return [*of_row, *([TRACE] if live else []), *([REBUILT] if rebuilt else [])]
