"""Reads the rebuilt traces (the warehouse's table `deliveries`) by the `deltalake` package, without Spark.

Delta's statistics leave out days and files, Parquet's leave out pages. Each file is ordered by message id
(docs/decisions/149-traces-are-read-without-spark.md), so that one message costs a page of each file that
may hold it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from backends.settings import Settings
from tracing.events import Stage, TraceEvent
from tracing.stories import Place, SearchTerms
from tracing.timeline import RebuiltDelivery

if TYPE_CHECKING:
    from deltalake import DeltaTable

TABLE: Final = "deliveries"
_PACKAGE: Final = "deltalake"
_COLUMNS: Final = (
    "delivery_key, message_id, biz_id, lane, template, receiver, receiver_hash, origin, resend_of,"
    " created_at, appended_at, state, missing, timeline"
)
_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's names for a store, and delta-rs's."""
_STAGES: Final = frozenset(stage.value for stage in Stage)
_NEWEST: Final = "coalesce(appended_at, first_at, 0)"


class TracesUnreadable(Exception):
    """The warehouse cannot be read; one sentence says why."""


def why_not(settings: Settings) -> str:
    """Returns one sentence if there are no rebuilt traces to read; empty if there are some."""
    if find_spec(_PACKAGE) is None:
        return "rebuilt traces are not read: install hongyan[spark]"
    place = place_of(settings)
    if "://" not in place and not Path(place, "_delta_log").is_dir():
        return f"there are no rebuilt traces in {place}: `hongyan spark run` makes them"
    return ""


def place_of(settings: Settings) -> str:
    """Returns the table's folder or URL, as delta-rs spells it."""
    root = settings.spark.warehouse.rstrip("/")
    if "://" not in root:
        return str(Path(settings.base, root, TABLE))
    scheme, _, rest = root.partition("://")
    return f"{_SCHEMES.get(scheme, scheme)}://{rest}/{TABLE}"


class RebuiltTraces:
    """One version of the table. Every method raises TracesUnreadable."""

    def __init__(self, place: str) -> None:
        """Opens the newest version at `place` (see `place_of`)."""
        from deltalake import DeltaTable

        self._place = place
        try:
            self._table: DeltaTable = DeltaTable(place)
        except Exception as exc:  # delta-rs raises its own, OSError, ValueError and plain ones
            raise self._unreadable(exc) from exc

    def written_at(self) -> int:
        """Returns the time of the last commit, epoch milliseconds."""
        try:
            (last,) = self._table.history(1)
        except Exception as exc:
            raise self._unreadable(exc) from exc
        return int(last.get("timestamp", 0))

    def of_messages(self, messages: Sequence[str]) -> list[RebuiltDelivery]:
        """Returns the deliveries of these messages."""
        return self._deliveries(f"message_id IN ({_listed(messages)})") if messages else []

    def of_key(self, delivery_key: str) -> list[RebuiltDelivery]:
        """Returns the deliveries of the message that has this delivery. Reads the column of keys of every
        file whose filter may hold the key."""
        rows = self._rows("message_id", f"delivery_key = {_quoted(delivery_key)}", "LIMIT 1")
        return self.of_messages([row["message_id"] for row in rows])

    def of_biz(self, biz_id: str, *, since: int, limit: int) -> list[RebuiltDelivery]:
        """Returns the deliveries of the newest `limit` messages with this biz_id since then."""
        where = f"biz_id = {_quoted(biz_id)} AND {_since(since)}"
        order = f"GROUP BY message_id ORDER BY max({_NEWEST}) DESC LIMIT {limit:d}"
        rows = self._rows("message_id", where, order)
        return self.of_messages([row["message_id"] for row in rows])

    def search(self, terms: SearchTerms, *, since: int, limit: int) -> list[Place]:
        """Returns the newest `limit` deliveries that have every term and were first seen since then."""
        where = [_since(since)]
        if terms.hashes:
            where.append(f"receiver_hash IN ({_listed(sorted(terms.hashes))})")
        if terms.template:
            where.append(f"template = {_quoted(terms.template)}")
        order = f"ORDER BY {_NEWEST} DESC LIMIT {limit:d}"
        columns = f"message_id, delivery_key, {_NEWEST} AS at"
        rows = self._rows(columns, " AND ".join(where), order)
        return [Place(row["message_id"], row["delivery_key"], row["at"]) for row in rows]

    def _deliveries(self, where: str) -> list[RebuiltDelivery]:
        return [_delivery(row) for row in self._rows(_COLUMNS, where)]

    def _rows(self, columns: str, where: str, rest: str = "") -> list[dict[str, Any]]:
        from deltalake import QueryBuilder

        query = f"SELECT {columns} FROM {TABLE} WHERE {where} {rest}"  # noqa: S608 - quoted by us
        try:
            reader = QueryBuilder().register(TABLE, self._table).execute(query)
            return [row for batch in reader for row in _rows_of(batch)]
        except Exception as exc:
            raise self._unreadable(exc) from exc

    def _unreadable(self, exc: Exception) -> TracesUnreadable:
        cause = " ".join(str(exc).split())[:200]
        return TracesUnreadable(f"the rebuilt traces in {self._place} cannot be read: {cause}")


def _rows_of(batch: Any) -> Iterator[dict[str, Any]]:
    names = batch.schema.names
    columns = [[value.as_py() for value in batch.column(name)] for name in names]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _delivery(row: dict[str, Any]) -> RebuiltDelivery:
    known = {name: value for name, value in row.items() if value is not None}
    events = [_known(event) for event in known.pop("timeline", ()) if event is not None]
    # A later version's table may have stages that this program does not know.
    known["timeline"] = [event for event in events if event.get("stage") in _STAGES]
    return msgspec.convert(known, RebuiltDelivery)


def _known(event: dict[str, Any]) -> dict[str, Any]:
    """Returns the event's fields that are not null; the table's own id is none of the event's."""
    return {"message_id": ""} | {k: v for k, v in event.items() if v is not None and k in _FIELDS}


_FIELDS: Final = frozenset(TraceEvent.__struct_fields__)


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(map(_quoted, texts))


def _quoted(text: str) -> str:
    """Returns the text as an SQL literal; a backslash is no escape there."""
    return "'" + text.replace("'", "''") + "'"


def _since(since: int) -> str:
    """A delivery's day is the first one on which any part of it was seen."""
    day = datetime.fromtimestamp(since / 1_000, UTC).date().isoformat()
    return f"day >= DATE '{day}' AND {_NEWEST} >= {since:d}"
