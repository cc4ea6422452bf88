"""Searches for `hongyan trace` over every place that may know a delivery.

    live       the ledger's rows and the trace's events in its database
    archive    rows that left the ledger with their day
    rebuilt    the warehouse's table `deliveries` (tracing/rebuilt_traces.py)

The live database is asked first. A place that cannot be read costs a remark, never the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec
from sqlalchemy import text

from backends.settings import Settings
from backends.sql.database import Database
from backends.sql.errors import SqlError
from idempotency.archive.history import PastDeliveries
from idempotency.ledger import LedgerError
from idempotency.lookups import FoundRow
from message.keys import KEY_LENGTH
from tracing.stories import (
    Place,
    SearchTerms,
    live_parts,
    live_rows,
    messages_in,
    only,
    rows_of_messages,
    search_live,
    stories_of,
)
from tracing.timeline import LedgerRow, RebuiltDelivery, Story

if TYPE_CHECKING:
    from tracing.rebuilt_traces import RebuiltTraces

_OVERLAP_MS: Final = 600_000
"""The live trace is searched from this much before the end of the rebuilt one: its writers lag, and clocks
differ."""
_EVENT_ROWS: Final = 5_000
"""Rows of the live trace that a search opens."""
_DELIVERIES: Final = 1_000
"""Rebuilt deliveries that a search opens."""
_KEY: Final = re.compile(f"[0-9a-f]{{{KEY_LENGTH}}}")
_UNTIL: Final = text("""
SELECT watermark FROM spark_runs WHERE job = 'rebuild' AND state = 'DONE' ORDER BY id DESC LIMIT 1""")
T = TypeVar("T")


class SearchWindow(NamedTuple):
    """Bounds of a search."""

    since: int
    """Epoch milliseconds."""
    limit: int
    """Most messages."""


class Found(msgspec.Struct):
    """The stories, and remarks on places that gave nothing."""

    stories: list[Story]
    remarks: list[str] = []
    rebuilt_until: int | None = None
    damage: str = ""
    """Sentence about what of the archive could not be read; empty: nothing is missing."""


class TraceSearch:
    """One search; keeps its remarks. For one thread."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._remarks: list[str] = []
        self._damage = ""
        self._past_places: dict[str, str] = {}
        self._rebuilt = self._opened()
        self._until = self._rebuilt_until()

    def named(self, name: str, window: SearchWindow) -> Found:
        """Returns the stories of a message id, a delivery key, a biz_id, or a record's place."""
        since, limit = window
        rows = live_rows(self._database, name, since=since, limit=limit)
        if _may_be_more(rows, name, limit):
            rows = _unique(rows, self._past(name, window))
        rebuilt = self._of_name(name, rows, window)
        ids = _newest([*rows, *rebuilt], limit) or [name]
        return self._found(name, ids, rows, rebuilt)

    def holding(self, terms: SearchTerms, window: SearchWindow) -> Found:
        """Returns the newest deliveries that have every term."""
        places = self._places(terms, window)
        ids = list(dict.fromkeys(place.message_id for place in places))[: window.limit]
        if not ids:
            return Found([], self._remarks, self._until)
        rows = rows_of_messages(self._database, ids)
        live = set(messages_in(rows))
        for one in [one for one in ids if one not in live]:
            rows += self._past(one, SearchWindow(0, 1))
        found = self._found("", ids, rows, self._ask(lambda traces: traces.of_messages(ids)))
        found.stories = only(found.stories, {place.delivery_key for place in places})
        return found

    def _found(
        self,
        name: str,
        ids: Sequence[str],
        rows: list[LedgerRow],
        rebuilt: list[RebuiltDelivery],
    ) -> Found:
        parts = live_parts(self._database, name, rows, ids)
        parts.rebuilt, parts.rebuilt_until, parts.past = rebuilt, self._until, self._past_places
        return Found(stories_of(ids, parts), self._remarks, self._until, self._damage)

    def _past(self, name: str, window: SearchWindow) -> list[LedgerRow]:
        """Returns the archive's rows of that name, and notes their places."""
        folder, base = self._settings.recovery.archive_dir, self._settings.base
        archive = PastDeliveries(self._database, folder, base)
        try:
            found = archive.find(name, *window)
        except LedgerError as exc:
            self._remarks.append(f"the archive was not searched: {exc}")
            return []
        self._damage = self._damage or archive.damage
        self._past_places |= {past.row.delivery_key: past.where for past in found}
        return [_as_row(past.row) for past in found]

    def _of_name(
        self, name: str, rows: Sequence[LedgerRow], window: SearchWindow
    ) -> list[RebuiltDelivery]:
        """Returns the rebuilt deliveries of the rows' messages. Without rows: of the name itself."""
        ids = messages_in(rows)
        found = self._ask(lambda traces: traces.of_messages(ids or [name]))
        if _may_be_more(rows, name, window.limit) and not (found and not ids):
            found += self._ask(
                lambda traces: traces.of_biz(name, since=window.since, limit=window.limit)
            )
        if not (found or ids or not _KEY.fullmatch(name)):
            found = self._ask(lambda traces: traces.of_key(name))
        return list({row.delivery_key: row for row in found}.values())

    def _places(self, terms: SearchTerms, window: SearchWindow) -> list[Place]:
        """Returns what both traces know, newest first."""
        places = self._ask(
            lambda traces: traces.search(terms, since=window.since, limit=_DELIVERIES)
        )
        live_since = max(window.since, (self._until or 0) - _OVERLAP_MS)
        try:
            places += search_live(self._database, terms, since=live_since, limit=_EVENT_ROWS)
        except SqlError as exc:
            self._remarks.append(f"the live trace was not searched: {exc}; give a shorter --since")
        return sorted(places, key=lambda place: -place.at)

    def _opened(self) -> RebuiltTraces | None:
        from tracing.rebuilt_traces import RebuiltTraces, TracesUnreadable, place_of, why_not

        if why := why_not(self._settings):
            self._remarks.append(why)
            return None
        try:
            return RebuiltTraces(place_of(self._settings))
        except TracesUnreadable as exc:
            self._remarks.append(str(exc))
            return None

    def _rebuilt_until(self) -> int | None:
        """Returns the broker's time up to which the rebuilt traces have everything; the time of their last
        commit where no run is on record; None without any."""
        if self._rebuilt is None:
            return None
        try:
            with self._database.errors(), self._database.engine.connect() as connection:
                until = connection.execute(_UNTIL).scalar_one_or_none()
        except SqlError:
            until = None
        return int(until) if until is not None else self._rebuilt.written_at()

    def _ask(self, ask: Callable[[RebuiltTraces], list[T]]) -> list[T]:
        """Returns the answer; nothing where there are no rebuilt traces, or they cannot be read."""
        from tracing.rebuilt_traces import TracesUnreadable

        if self._rebuilt is None:
            return []
        try:
            return ask(self._rebuilt)
        except TracesUnreadable as exc:
            self._remarks.append(str(exc))
            self._rebuilt = None
            return []


def _may_be_more(rows: Sequence[LedgerRow], name: str, limit: int) -> bool:
    """Whether other places may have more: there are no rows, or too few of a biz_id."""
    of_biz = all(row.biz_id == name and row.message_id != name for row in rows)
    return of_biz and len(messages_in(rows)) < limit


def _unique(rows: Sequence[LedgerRow], past: Sequence[LedgerRow]) -> list[LedgerRow]:
    known = {row.delivery_key for row in rows}
    return [*rows, *(row for row in past if row.delivery_key not in known)]


def _newest(rows: Iterable[LedgerRow | RebuiltDelivery], limit: int) -> list[str]:
    """Returns the newest messages, newest first."""
    made: dict[str, int] = {}
    for row in rows:
        made[row.message_id] = max(made.get(row.message_id, 0), row.created_at)
    return sorted(made, key=lambda message: -made[message])[:limit]


def _as_row(found: FoundRow) -> LedgerRow:
    return msgspec.convert(msgspec.to_builtins(found), LedgerRow)
