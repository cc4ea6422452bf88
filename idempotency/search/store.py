"""Pages of deliveries that a search finds, newest first; nothing here writes.

A page is read from the newest day back: the ledger's days a few at a time, and the days that left. Without
an index for its terms, a search reads slices of time, each longer than the one before. It stops at the
page's size, and after `BUDGET_S`: the page then says how far it came, and the next one goes on there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from functools import lru_cache
from itertools import product
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, TextClause, text

from backends.sql.database import Database
from backends.sql.errors import SqlTimeout
from idempotency.error_mapping import errors
from idempotency.key_days import day_of_key
from idempotency.search.language import DAY_MS, DeliveryTerms, QueryError, place_of
from idempotency.search.statements import (
    COLUMNS,
    Cursor,
    ReceiverHashes,
    SearchSpan,
    Timed,
    ended_page,
    ended_scans,
    equal,
    filters,
    in_time,
    is_in_order,
    is_opened,
    leaves_out_under_way,
    of_place,
    opened,
    page,
    under_way,
    ways,
)
from message.delivery import Origin
from message.keys import is_key, normalise_receiver
from message.receiver_hash import HashReceiver, text_hash
from message.vocabulary import CHANNELS

_Asked = tuple[Sequence[str], dict[str, Any]]
"""Conditions of a statement, and their values."""
PAGE: Final = 50
MOST: Final = 1_000
"""Rows of a page at most."""
TIMEOUT_MS: Final = 2_000
"""Longest time of a statement."""
BUDGET_S: Final = 1.5
"""Time after which a page begins no further statement."""
_CHUNKS: Final = (2, 14, 48)
"""Days that the first statements read; later ones read as many as the last of these."""
_FIRST_SLICE_MS: Final = 60_000
_GROWTH: Final = 4
_SPARE: Final = 1.25
_KEPT: Final = 256
"""Statements that are kept as SQLAlchemy read them."""
_OWN: Final = COLUMNS.index("kafka_topic")
"""Columns that a SearchRow has as they are."""
_LATE_DAYS: Final = 8
"""Days by which the archive may be late."""
_TABLE: Final = re.compile(r"deliveries_(\d{8})")
_EPOCH: Final = date(1970, 1, 1)
# A row's index gives its order: sorting a day's rows for one page costs more with each row (decision 267).
# A plan over sixty days' partitions costs ten times its execution, so that it is made once a connection.
# Values change no plan: each statement has one index that fits (decision 207).
SEARCH_SESSION: Final = """
SELECT set_config('statement_timeout', :timeout, true), set_config('enable_bitmapscan', 'on', true),
       set_config('enable_seqscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('enable_sort', 'off', true), set_config('jit', 'off', true),
       hongyan_now() / 86400000 AS today,
       ARRAY(SELECT relname::text FROM pg_class
              WHERE relnamespace = to_regnamespace('archive') AND relkind = 'r'
              ORDER BY relname DESC) AS archived"""
"""Settings of a transaction; returns the day by the database's clock, and the archive's tables, the newest
first."""


class SearchRow(msgspec.Struct, frozen=True):
    """One delivery; times are epoch milliseconds by the database's clock. It has no receiver: see
    `Queries.receivers`."""

    delivery_key: str
    message_id: str
    biz_id: str | None
    lane: str
    state: str
    reason: str | None
    attempt: int
    account: str | None
    provider_id: str | None
    template: str | None
    created_at: int
    updated_at: int
    next_at: int | None
    expires_at: int
    policy_version: str
    resend_of: str | None
    owner: str
    origin: Origin | None = None
    where: str = ""
    """The archive's table, for a row that left the ledger."""
    day: int | None = None
    """Of its partition, as `delivery_keys` has it; None for a row of a file."""


class SearchPage(msgspec.Struct, frozen=True):
    """One page, newest first."""

    rows: list[SearchRow]
    next: Cursor | None = None
    """Where the next page begins; None: there is no more."""
    reached: int = 0
    """Time down to which everything was read, epoch milliseconds."""
    by_end: bool = False
    """Whether time is that of the rows' end, not of their claim."""


class Search:
    """Searches in one database, which may be a replica. Thread-safe.

    Every method raises LedgerError, and QueryError for a search that takes too long or lacks the key of
    receivers' hashes.
    """

    def __init__(
        self,
        database: Database,
        hash_receiver: HashReceiver,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._hash_receiver = hash_receiver
        self._monotonic = monotonic

    def page(
        self, terms: DeliveryTerms, after: Cursor | None = None, size: int = PAGE
    ) -> SearchPage:
        """Returns the page of `size` rows behind the cursor."""
        size = max(1, min(size, MOST))
        with self._reading() as (connection, today, archived):
            look = _Look(connection, terms, size, self._monotonic() + BUDGET_S, self._monotonic)
            look.today, look.archived = today, archived
            return self._found(look, after)

    def by_keys(self, keys: Sequence[str]) -> list[SearchRow]:
        """Returns the deliveries of these keys that are in the ledger, in the order given."""
        with errors(), self._database.reading() as connection:
            return [row for key in keys for row in _of_key(connection, key, partitioned=self._days)]

    @property
    def _days(self) -> bool:
        return self._database.is_postgres

    def _found(self, look: _Look, after: Cursor | None) -> SearchPage:
        terms = look.terms
        if terms.by_end:
            return look.ended(after, partitioned=self._days)
        indexed = list(self._indexed(terms))
        if terms.name:
            look.others = indexed
            return self._of_name(look, after)
        if not indexed:
            if terms.place is not None:
                return look.placed(after, partitioned=self._days)
            read = look.opened if is_opened(terms) else look.sliced
            return read(after, partitioned=self._days)
        (column, value), *others = indexed
        look.others = others
        return look.named(column, value, after, partitioned=self._days)

    def _indexed(self, terms: DeliveryTerms) -> Iterator[tuple[str, Any]]:
        """Yields the terms that have an index, the most selective first."""
        for column in ("delivery_key", "message_id", "biz_id", "provider_id"):
            if value := getattr(terms, column):
                yield column, value
        if terms.copy_of:
            yield "resend_of", terms.copy_of
        if terms.receiver:
            yield "receiver", self.hashes(terms)
        if terms.template:
            yield "template", terms.template

    def hashes(self, terms: DeliveryTerms) -> ReceiverHashes:
        """Returns what the receiver may have been hashed to on the channels that the search covers. Raises
        QueryError without the key."""
        channels = {lane.partition(".")[0] for lane in terms.lanes} or set(CHANNELS)
        receivers = {one: normalise_receiver(one, terms.receiver) for one in sorted(channels)}
        found = [self._hash_receiver(channel, text) for channel, text in receivers.items()]
        if not all(found):
            raise QueryError("search.no_hash_key", 0, 0)
        texts = (text_hash(self._hash_receiver, text) for text in dict.fromkeys(receivers.values()))
        return ReceiverHashes([bytes.fromhex(one) for one in found], [one for one in texts if one])

    def _of_name(self, look: _Look, after: Cursor | None) -> SearchPage:
        """Looks for a bare name as each thing that it may be; the first that finds rows answers."""
        name = look.terms.name
        if place := place_of(name):
            if look.terms.place not in (None, place):
                return SearchPage([], None, look.terms.since)
            look.terms = msgspec.structs.replace(look.terms, name="", place=place)
            return look.placed(after, partitioned=self._days)
        columns = ["message_id", "biz_id", "resend_of", "provider_id"]
        if is_key(name):
            columns.insert(0, "delivery_key")
        found = SearchPage([], None, look.terms.since)
        for column in columns:
            found = look.named(column, name, after, partitioned=self._days)
            if found.rows:
                return found
        if not self._hash_receiver(CHANNELS[0], name):
            return found
        terms = msgspec.structs.replace(look.terms, receiver=name)
        return look.named("receiver", self.hashes(terms), after, partitioned=self._days)

    @contextmanager
    def _reading(self) -> Iterator[tuple[Connection, int, list[tuple[int, str]]]]:
        """Yields the connection of one transaction, with today and the archive's days and tables. SQLite
        has none: there archived days are files (idempotency/archive/history.py finds names in them)."""
        try:
            with errors(), self._database.begin() as connection:
                today, names = 0, list[str]()
                if self._database.is_postgres:
                    limit = {"timeout": str(TIMEOUT_MS)}
                    session = connection.execute(text(SEARCH_SESSION), limit).one()
                    today, names = session.today, session.archived
                found = ((_TABLE.fullmatch(name), name) for name in names)
                yield (
                    connection,
                    today,
                    [(_day(one[1]), f"archive.{name}") for one, name in found if one],
                )
        except Exception as exc:
            if self._database.is_postgres and isinstance(exc.__cause__, SqlTimeout):
                seconds = f"{TIMEOUT_MS / 1_000:g}"
                raise QueryError("search.timeout", 0, 0, seconds=seconds) from exc
            raise


class _Look:
    """One page in the making, for one thread."""

    def __init__(
        self,
        connection: Connection,
        terms: DeliveryTerms,
        size: int,
        until: float,
        monotonic: Callable[[], float],
    ) -> None:
        self.terms = terms
        self.archived: list[tuple[int, str]] = []
        """Days and tables of the archive."""
        self.today = 0
        """Day by the database's clock, where there is an archive."""
        self.others: list[tuple[str, Any]] = []
        """Further terms that have an index, which is not read; every read has them as conditions."""
        self._connection = connection
        self._size = size
        self._until = until
        self._monotonic = monotonic

    def named(
        self, column: str, value: Any, after: Cursor | None, *, partitioned: bool
    ) -> SearchPage:
        """Reads by an index over whole days, some at a time."""
        if column == "delivery_key":
            return self._of_key(str(value), partitioned=partitioned)
        rest, values = equal(self.others)
        apart = list[SearchRow]()
        if leaves_out_under_way(column):
            apart = self._under_way(equal([(column, value), *self.others]), after, partitioned)
        first, *older = [([*own, *rest], more | values) for own, more in ways(column, value)]
        terms, of_terms = filters(self.terms)
        for own, more in older:
            apart += self._of_all_days(([*own, *terms], more | of_terms), after, partitioned)
        return self._whole_days(first, apart, after, partitioned, older=older)

    def placed(self, after: Cursor | None, *, partitioned: bool) -> SearchPage:
        """Reads the rows of one record, by the index on places."""
        rest, values = equal(self.others)
        flying = self._under_way((rest, values), after, partitioned)
        return self._whole_days(([*of_place(), *rest], values), flying, after, partitioned)

    def _whole_days(
        self,
        first: _Asked,
        apart: Sequence[SearchRow],
        after: Cursor | None,
        partitioned: bool,
        *,
        older: Sequence[_Asked] = (),
    ) -> SearchPage:
        """Reads whole days, some at a time, by the index that `first` names; in the archive also by those
        of `older`. `apart`: rows of all days that were read before."""
        terms, rows = self.terms, list[SearchRow]()
        rest, more = filters(terms)
        reached = _end(terms, after)
        for span in _chunks(terms.since, reached, partitioned=partitioned):
            asked = [("deliveries", first), *product(self._tables(span), (first, *older))]
            some: list[SearchRow] = []
            for table, (own, values) in asked:
                some += self._read(table, [*own, *rest], values | more, span, after)
            rows += _merged(some, apart, span)
            reached = span.since
            if self._spent(rows):
                break
        return self._page(rows, reached)

    def _of_all_days(
        self,
        asked: _Asked,
        after: Cursor | None,
        partitioned: bool,
        timed: Timed = Timed.PLAINLY,
    ) -> list[SearchRow]:
        """Returns the newest rows of the ledger by an index that has few, or none: one statement over all
        days costs less than one for some days at a time."""
        since, until = self.terms.since, _end(self.terms, after)
        if since >= until:
            return []
        span = SearchSpan(since, until, _days_of(since, until) if partitioned else None)
        return self._read("deliveries", *asked, span, after, timed)

    def sliced(self, after: Cursor | None, *, partitioned: bool) -> SearchPage:
        """Reads by the time of the claim, in slices that grow. Of accounts, by their index."""
        terms, rows = self.terms, list[SearchRow]()
        rest, values = filters(terms)
        own, timed = in_time(terms, postgres=partitioned)
        flying = self._under_way(([], {}), after, partitioned)
        reached = _end(terms, after)
        length = DAY_MS if is_in_order(terms) else _FIRST_SLICE_MS
        while reached > terms.since:
            since = max(terms.since, reached - length, _day_start(reached - 1))
            span = SearchSpan(since, reached, _days_of(since, reached) if partitioned else None)
            some: list[SearchRow] = []
            for table in ("deliveries", *self._tables(span)):
                some += self._read(table, [*own, *rest], values, span, after, timed)
            rows += _merged(some, flying, span)
            reached, length = since, _longer(length, len(some), self._size + 1 - len(rows))
            if self._spent(rows):
                break
        return self._page(rows, reached)

    def _under_way(
        self, more: tuple[list[str], dict[str, Any]], after: Cursor | None, partitioned: bool
    ) -> list[SearchRow]:
        """Returns the newest rows under way, which some indexes leave out. They are few: one statement
        reads those of all days. It is the first one, so that a row that ends meanwhile is not missed."""
        wanted = under_way(self.terms)
        if wanted is None:
            return []
        asked = [*wanted[0], *more[0]], wanted[1] | more[1]
        return self._of_all_days(asked, after, partitioned, Timed.BY_NONE)

    def opened(self, after: Cursor | None, *, partitioned: bool) -> SearchPage:
        """Reads rows in open states over whole days, by their indexes; no open row leaves the ledger."""
        terms, rows = self.terms, list[SearchRow]()
        rest, values = filters(msgspec.structs.replace(terms, states=()))
        reached = _end(terms, after)
        for span in _chunks(terms.since, reached, partitioned=partitioned):
            some: list[SearchRow] = []
            for state in terms.states:
                own = [*opened(state), *rest]
                some += self._read("deliveries", own, values, span, after, Timed.BY_NONE)
            rows += sorted(some, key=_created, reverse=True)
            reached = span.since
            if self._spent(rows):
                break
        return self._page(rows, reached)

    def ended(self, after: Cursor | None, *, partitioned: bool) -> SearchPage:
        """Reads rows that ended unsent, by the time of their end, in slices that grow. A row may end long
        after its claim, by a person's order: all days of the ledger are read."""
        terms, rows = self.terms, list[SearchRow]()
        reached, length = _end(terms, after), DAY_MS
        while reached > terms.since:
            since = max(terms.since, reached - length)
            some = self._ended_in(SearchSpan(since, reached), after, partitioned)
            rows += sorted(some, key=_ended, reverse=True)
            reached, length = since, _longer(length, len(some), self._size + 1 - len(rows))
            if self._spent(rows):
                break
        return self._page(rows, reached)

    def _ended_in(
        self, span: SearchSpan, after: Cursor | None, partitioned: bool
    ) -> list[SearchRow]:
        terms = self.terms
        if not partitioned:
            return self._rows(*ended_page("deliveries", terms, span, after, postgres=False), "")
        found: list[SearchRow] = []
        for scan in ended_scans("deliveries", terms, span, after):
            found += self._rows(*scan, "")
        for table in self._tables_of_ends(span):
            found += self._rows(*ended_page(table, terms, span, after, postgres=True), table)
        return found

    def _tables_of_ends(self, span: SearchSpan) -> list[str]:
        """Returns the archive's tables of days that were in the ledger at a time of the span. It is as old
        as the archive lets it become."""
        first, last = _days_of(span.since, span.until)
        age = self.today - max((day for day, _table in self.archived), default=self.today)
        oldest = first - max(age, 0) - _LATE_DAYS
        return [table for day, table in self.archived if oldest <= day <= last]

    def _of_key(self, key: str, *, partitioned: bool) -> SearchPage:
        """Finds the row of a key, then compares it with the search's other terms."""
        rows = _of_key(self._connection, key, partitioned=partitioned)
        for _day, table in () if rows else self.archived:
            rows = self._read(table, [_BY_KEY], {"value": key}, _ALL, None)
            if rows:
                break
        found = self._if_it_fits(rows[0], partitioned=partitioned) if rows else []
        return SearchPage(found, None, self.terms.since)

    def _if_it_fits(self, row: SearchRow, *, partitioned: bool) -> list[SearchRow]:
        """Returns the row, read again with every term; nothing if one of them does not hold."""
        terms = self.terms
        days = (row.day, row.day) if partitioned and row.day is not None else None
        span = SearchSpan(0 if terms.default_since else terms.since, terms.until, days)
        (own, values), (also, more) = filters(terms), equal(self.others)
        asked = {"value": row.delivery_key, **values, **more}
        return self._read(row.where or "deliveries", [_BY_KEY, *own, *also], asked, span, None)

    def _tables(self, span: SearchSpan) -> list[str]:
        first, last = _days_of(span.since, span.until)
        return [table for day, table in self.archived if first <= day <= last]

    def _spent(self, rows: Sequence[SearchRow]) -> bool:
        return len(rows) > self._size or self._monotonic() >= self._until

    def _read(
        self,
        table: str,
        conditions: Sequence[str],
        values: dict[str, Any],
        span: SearchSpan,
        after: Cursor | None,
        timed: Timed = Timed.PLAINLY,
    ) -> list[SearchRow]:
        archived = table != "deliveries"
        one = SearchSpan(span.since, span.until) if archived else span
        statement, more = page(table, conditions, one, after, timed=timed)
        return self._rows(statement, values | more, table if archived else "")

    def _rows(self, statement: str, values: dict[str, Any], where: str) -> list[SearchRow]:
        asked = values | {"limit": self._size + 1}
        return [_row(row, where) for row in self._connection.execute(_text(statement), asked)]

    def _page(self, rows: list[SearchRow], reached: int) -> SearchPage:
        by_end = self.terms.by_end
        shown, more = rows[: self._size], None
        if len(rows) > self._size:
            last = shown[-1]
            more = Cursor(last.updated_at if by_end else last.created_at, last.delivery_key)
            reached = more.at
        elif reached > self.terms.since:  # its time was up
            more = Cursor(reached, "")
        return SearchPage(shown, more, reached, by_end)


_ALL: Final = SearchSpan(0, 2**62)
_BY_KEY: Final = "d.delivery_key = :value"


def _of_key(connection: Connection, key: str, *, partitioned: bool) -> list[SearchRow]:
    """Returns the row of a key in the ledger, by its day."""
    span = _ALL
    if partitioned:
        day = day_of_key(connection, key)
        if day is None:
            return []
        span = SearchSpan(_ALL.since, _ALL.until, (day, day))
    statement, values = page("deliveries", [_BY_KEY], span, None)
    found = connection.execute(_text(statement), values | {"value": key, "limit": 1})
    return [_row(row, "") for row in found]


def _row(found: Sequence[Any], where: str) -> SearchRow:
    """Returns the row of a statement over COLUMNS: the row's own first, then those of its place."""
    topic, partition, offset = found[_OWN : _OWN + 3]
    origin = Origin(topic, partition, offset) if topic else None
    return SearchRow(*(*found[:_OWN], origin, where, found[_OWN + 3]))


@lru_cache(_KEPT)
def _text(statement: str) -> TextClause:
    """Returns the same object for the same statement: SQLAlchemy then knows it without reading it."""
    return text(statement)


def _chunks(since: int, until: int, *, partitioned: bool) -> Iterator[SearchSpan]:
    """Yields spans of whole days from the newest back, each of more days than the one before."""
    if not partitioned:
        if since < until:
            yield SearchSpan(since, until)
        return
    number = 0
    while since < until:
        days = _CHUNKS[min(number, len(_CHUNKS) - 1)]
        start = max(since, _day_start(until - 1) - (days - 1) * DAY_MS)
        yield SearchSpan(start, until, _days_of(start, until))
        until, number = start, number + 1


def _longer(length: int, found: int, wanted: int) -> int:
    """Returns the length of the next slice: as long as the last one lets expect for the wanted rows, with
    some more, and at most `_GROWTH` times as long."""
    if not found or wanted <= 0:
        return length * _GROWTH
    expected = int(length * wanted / found * _SPARE)
    return min(max(expected, length // _GROWTH), length * _GROWTH)


def _end(terms: DeliveryTerms, after: Cursor | None) -> int:
    return terms.until if after is None else min(terms.until, after.at + 1)


def _days_of(since: int, until: int) -> tuple[int, int]:
    return max(since, 0) // DAY_MS, max(until - 1, 0) // DAY_MS


def _day_start(at: int) -> int:
    return at // DAY_MS * DAY_MS


def _day(compact: str) -> int:
    return (date.fromisoformat(compact) - _EPOCH).days


def _merged(
    found: Sequence[SearchRow], apart: Sequence[SearchRow], span: SearchSpan
) -> list[SearchRow]:
    """Returns the rows of a span, newest first. A row under way may have ended since it was read."""
    known = {row.delivery_key for row in found}
    more = [row for row in apart if span.since <= row.created_at < span.until]
    rows = [*found, *(row for row in more if row.delivery_key not in known)]
    return sorted(rows, key=_created, reverse=True)


def _ended(row: SearchRow) -> tuple[int, str]:
    return row.updated_at, row.delivery_key


def _created(row: SearchRow) -> tuple[int, str]:
    return row.created_at, row.delivery_key
