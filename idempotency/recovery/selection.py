"""Selections of rows for a person: by name, or by state, lane and other criteria. Both go page by page.

A name's rows come in the order of their claims. A selection by criteria goes state by state and lane by
lane, the oldest change first, along the index `deliveries_ended`; rows that wait or are in doubt have
indexes of their own. Each page is one short statement. A row that changed after the selection began is not
met again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, product
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, text

from backends.sql.database import Database
from idempotency.error_mapping import errors
from idempotency.key_days import day_of_key
from idempotency.recovery.contract import OwnerDeath, RowFacts, owner_death_of, row_facts
from idempotency.recovery.statements import RECALLED_ROW, objects, records
from idempotency.transactions import Clock, LedgerPart
from message.states import State, state_of

PAGE: Final = 1_000
"""Rows that one page has at most."""
ENDED: Final = (State.PARKED, State.REJECTED, State.EXPIRED, State.UNDELIVERED, State.DROPPED)
"""States that the index `deliveries_ended` holds, spelt as there."""
OPEN: Final = (State.RETRY, State.UNKNOWN, State.IN_FLIGHT)
"""States with partial indexes by lane or owner."""

_EVER: Final = 2**63 - 1
_COLUMNS: Final = f"""
d.delivery_key AS key, d.day, d.version, d.state, d.reason, d.lane, d.message_id, d.biz_id,
d.expires_at, d.created_at, d.updated_at, d.next_at, d.attempt, d.account, d.policy_version,
d.called_at, d.last_called_at, d.owner, d.template, d.receiver_hash, d.kafka_topic, d.kafka_partition,
d.kafka_offset, {RECALLED_ROW} AS recalled"""
# The time is spelt so that no index of times fits: the name's has few rows (decision 288).
_BY_NAME: Final = """
SELECT {columns} FROM deliveries AS d
 WHERE d.{column} = :name AND (d.created_at - 0, d.delivery_key) > (:at, :after)
   AND (d.created_at - 0) <= :until
 ORDER BY d.created_at, d.delivery_key LIMIT :limit"""
# The clock may have been set back since, so that `now` would leave rows out.
_NEWEST: Final = text("SELECT max(d.created_at - 0) FROM deliveries AS d WHERE d.biz_id = :name")
_AT: Final = """
SELECT {columns} FROM {given} JOIN deliveries AS d ON d.delivery_key = {key} AND d.day = i.day"""
_KNOWN: Final = "SELECT message_id, delivery_key FROM deliveries WHERE message_id IN ({})"
# Spelt so that both databases recognise the index's own condition.
_ENDED: Final = "d.state IN ({}) AND".format(", ".join(f"'{state}'" for state in ENDED))
_PAGE: Final = """
SELECT {columns} FROM deliveries AS d
 WHERE {ended} d.state = :state AND d.lane = :lane
   AND (d.updated_at, d.delivery_key) > (:at, :after) AND d.updated_at <= :until {more}
 ORDER BY d.updated_at, d.delivery_key LIMIT :limit"""
# Of an open state, the rows that its index has first; the state is spelt as in the index's condition.
_OPEN_PAGE: Final = """
SELECT {columns}
  FROM (SELECT * FROM deliveries AS o WHERE o.state = '{state}' AND {bound} LIMIT :most) AS d
 WHERE d.lane = :lane AND d.updated_at > :at {more}
 ORDER BY d.updated_at, d.delivery_key LIMIT :limit"""
_BOUNDS: Final = {
    State.RETRY: "o.lane = :lane ORDER BY {least}(o.next_at, o.expires_at)",
    State.UNKNOWN: "o.lane = :lane ORDER BY coalesce(o.next_at, o.updated_at)",
    # Its index has no lanes. Rows under way are as few as the workers' places for them.
    State.IN_FLIGHT: "o.owner > '' AND o.lane = :lane",
}
# Counts one row more than the bound at most.
_BEYOND: Final = """
SELECT count(*) > :most
  FROM (SELECT 1 FROM deliveries AS o WHERE o.state = '{state}' AND {bound} LIMIT :most + 1) AS d"""
_MORE: Final = {
    "account": "AND d.account = :account",
    "reason": "AND (d.reason = :reason OR substr(d.reason, 1, length(:reason) + 1) = :reason || ':')",
}
_DOUBTED: Final[dict[bool | None, str]] = {
    None: "",
    True: "AND d.called_at IS NOT NULL",
    False: "AND (d.called_at IS NULL OR d.state = 'UNDELIVERED')",
}


class Pick(NamedTuple):
    """One row, as it was when it was picked. Times are epoch milliseconds."""

    key: str
    day: int
    version: int
    state: State
    reason: str | None
    lane: str
    message_id: str
    biz_id: str | None
    expires_at: int
    created_at: int
    updated_at: int
    """Start of its state."""
    next_at: int | None
    attempt: int
    account: str | None
    """The account of its last call."""
    policy_version: str
    recalled: bool
    """A recall covers it: it would end again at once."""
    doubted: bool
    """An earlier call of it may have sent it."""
    death: OwnerDeath | None = None
    """Of the process that made its last call, if the row is in doubt about it."""
    facts: RowFacts = RowFacts()


class OpenRows(NamedTuple):
    """Rows of one open state and lane."""

    state: State
    lane: str
    picks: list[Pick]
    cut: bool
    """Whether the state has more rows in the lane than were read: others of them may fit."""


class Wanted(msgspec.Struct, frozen=True):
    """Criteria of a selection; an empty account or reason excludes no row."""

    states: Sequence[State]
    lanes: Sequence[str]
    since: int = 0
    """Earliest start of the row's state."""
    account: str = ""
    """The account of its last call."""
    reason: str = ""
    """The row's, up to its first colon."""
    doubted: bool | None = None
    """Whether an earlier call may have sent it; None: both. UNDELIVERED was sent and is no doubt."""

    def by_index(self) -> Wanted:
        """Returns the criteria that an index finds: those without account and reason."""
        return msgspec.structs.replace(self, account="", reason="")

    def fits(self, pick: Pick) -> bool:
        """Returns whether a row has the account and the reason."""
        of_row = f"{pick.reason or ''}:"
        fits = not self.reason or of_row.startswith(f"{self.reason}:")
        return fits and self.account in ("", pick.account)


class Picks(LedgerPart):
    """Nothing here writes. Every method raises LedgerError alone."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock)
        self._at = at_statement(postgres=database.is_postgres)

    def named(self, name: str) -> list[Pick]:
        """Returns all rows of a delivery key, else of a message id."""
        return list(chain.from_iterable(self.pages_named(name)))

    def pages_named(self, name: str, size: int = PAGE) -> Iterator[list[Pick]]:
        """Yields the rows of a delivery key, else of a message id, at most `size` at a time."""
        for column in ("delivery_key", "message_id"):
            some = False
            for page in self._pages_by(column, name, size):
                some = True
                yield page
            if some:
                return

    def keyed(self, key: str, day: int | None = None) -> Pick | None:
        """Returns the row of a delivery key, by its day; None without one. Whoever knows the day spares its
        lookup."""
        if not self._database.is_postgres:
            return next(chain.from_iterable(self._pages_by("delivery_key", key, 1)), None)
        with self._reading() as connection:
            day = day if day is not None else day_of_key(connection, key)
            if day is None:
                return None
            asked = {"rows": _places([(key, day)])}
            return next(
                iter(self._found(connection, self._at, asked, self.clock(connection))), None
            )

    def pages_of_biz(self, biz_id: str, size: int = PAGE) -> Iterator[list[Pick]]:
        """Yields the rows of a business id, at most `size` at a time. Rows that are claimed after the first
        page are not among them: copies have the same business id."""
        yield from self._pages_by("biz_id", biz_id, size, self._newest(biz_id))

    def at(self, places: Sequence[tuple[str, int]]) -> list[Pick]:
        """Returns the rows of these delivery keys and days, in no order."""
        if not places:
            return []
        return self._read(self._at, {"rows": _places(places)})

    def pages(self, wanted: Wanted, until: int, size: int = PAGE) -> Iterator[list[Pick]]:
        """Yields the rows whose state began up to `until`, at most `size` at a time."""
        for state, lane in product(wanted.states, wanted.lanes):
            yield from self._pages_of(wanted, state, lane, until, size)

    def open_rows(self, wanted: Wanted, most: int, limit: int) -> Iterator[OpenRows]:
        """Yields up to `limit` rows of each open state and lane, the oldest change first, among the `most`
        that are due first. No index has open rows by the time of their change."""
        for state, lane in product(wanted.states, wanted.lanes):
            if state in OPEN:
                yield self._open_rows(wanted, state, lane, most, limit)

    def known(self, message_ids: Sequence[str]) -> dict[str, str]:
        """Returns the ids of notifications that have a delivery in the ledger, each with the key of one."""
        named = {f"id{number}": one for number, one in enumerate(message_ids)}
        if not named:
            return {}
        places = ", ".join(f":{name}" for name in named)
        with errors(), self._database.begin() as connection:
            rows = connection.execute(text(_KNOWN.format(places)), named)
            return {row.message_id: row.delivery_key for row in rows}

    def _pages_of(
        self, wanted: Wanted, state: State, lane: str, until: int, size: int
    ) -> Iterator[list[Pick]]:
        statement = page_statement(wanted, state)
        asked = {"state": state.value, "lane": lane, "until": until, "limit": size}
        asked |= {"account": wanted.account, "reason": wanted.reason}
        at, after = wanted.since, ""
        while page := self._read(statement, asked | {"at": at, "after": after}):
            yield page
            if len(page) < size:
                return
            at, after = page[-1].updated_at, page[-1].key

    def _open_rows(
        self, wanted: Wanted, state: State, lane: str, most: int, limit: int
    ) -> OpenRows:
        postgres = self._database.is_postgres
        asked = {"lane": lane, "most": most, "limit": limit, "at": wanted.since}
        asked |= {"account": wanted.account, "reason": wanted.reason}
        picks = self._read(open_statement(wanted, state, postgres=postgres), asked)
        beyond = text(beyond_statement(state, postgres=postgres))
        with self._reading() as connection:
            cut = bool(connection.execute(beyond, {"lane": lane, "most": most}).scalar())
        return OpenRows(state, lane, picks, cut)

    def _newest(self, biz_id: str) -> int:
        """Returns the time of the last claim of a business id; 0 without one."""
        with self._reading() as connection:
            return int(connection.execute(_NEWEST, {"name": biz_id}).scalar() or 0)

    def _pages_by(
        self, column: str, name: str, size: int, until: int = _EVER
    ) -> Iterator[list[Pick]]:
        statement = name_statement(column)
        asked = {"name": name, "until": until, "limit": size}
        at, after = 0, ""
        while page := self._read(statement, asked | {"at": at, "after": after}):
            yield page
            if len(page) < size:
                return
            at, after = page[-1].created_at, page[-1].key

    def _read(self, statement: str, values: dict[str, Any]) -> list[Pick]:
        with self._begin() as (connection, now):
            return self._found(connection, statement, values, now)

    def _found(
        self, connection: Connection, statement: str, values: dict[str, Any], now: int
    ) -> list[Pick]:
        asked = {name: value for name, value in values.items() if f":{name}" in statement}
        return [_pick(row) for row in connection.execute(text(statement), asked | {"now": now})]


def _places(places: Sequence[tuple[str, int]]) -> str:
    return msgspec.json.encode([{"key": key, "day": day} for key, day in places]).decode()


def name_statement(column: str) -> str:
    """Returns the query for a page of a name's rows, with `:name`, `:at`, `:after`, `:until` and
    `:limit`."""
    return _BY_NAME.format(columns=_COLUMNS, column=column)


def page_statement(wanted: Wanted, state: State) -> str:
    """Returns the query for a page of one state's rows, with `:state`, `:lane`, `:at`, `:after`, `:until`
    and `:limit`."""
    return _PAGE.format(
        columns=_COLUMNS,
        ended=_ENDED if state in ENDED else "",
        more=" ".join([_DOUBTED[wanted.doubted], *_more(wanted)]),
    )


def at_statement(*, postgres: bool) -> str:
    """Returns the query for rows by key and day, given as JSON in `:rows`."""
    given = (records if postgres else objects)(key="text", day="int")
    key = "ANY (ARRAY[i.key])" if postgres else "i.key"
    return _AT.format(columns=_COLUMNS, given=given, key=key)


def open_statement(wanted: Wanted, state: State, *, postgres: bool) -> str:
    """Returns the query for open rows, with `:lane`, `:most`, `:at` and `:limit`."""
    return _OPEN_PAGE.format(
        columns=_COLUMNS,
        state=state.value,
        bound=_bound(state, postgres=postgres),
        more=" ".join([_DOUBTED[wanted.doubted], *_more(wanted)]),
    )


def beyond_statement(state: State, *, postgres: bool) -> str:
    """Returns the query for whether an open state has more than `:most` rows in `:lane`."""
    return _BEYOND.format(state=state.value, bound=_bound(state, postgres=postgres))


def _bound(state: State, *, postgres: bool) -> str:
    return _BOUNDS[state].format(least="least" if postgres else "min")


def _more(wanted: Wanted) -> list[str]:
    return [condition for name, condition in _MORE.items() if getattr(wanted, name)]


def _pick(row: Any) -> Pick:
    fields = {name: value for name, value in row._asdict().items() if name in Pick._fields}
    return Pick(
        **fields | {"state": state_of(row.state, row.key), "recalled": bool(row.recalled)},
        doubted=row.called_at is not None,
        death=owner_death_of(row, row.state),
        facts=row_facts(row),
    )
