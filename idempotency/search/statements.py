"""SQL of a search. The same text serves PostgreSQL, SQLite, and the archive's tables; the class of an error
alone is spelt in two ways.

Each statement reads one index: that of the most selective term, or for rows that ended unsent
`deliveries_reason`, `deliveries_ended` or `deliveries_state`, else the time of the claim. Conditions repeat
the partial indexes' own, spelt as there.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import product
from typing import Any, Final, NamedTuple

from idempotency.search.fields import ENDED, LANE_NAMES
from idempotency.search.language import DeliveryTerms

COLUMNS: Final = (
    "delivery_key",
    "message_id",
    "biz_id",
    "lane",
    "state",
    "reason",
    "attempt",
    "account",
    "provider_id",
    "template",
    "created_at",
    "updated_at",
    "next_at",
    "expires_at",
    "policy_version",
    "resend_of",
    "owner",
    "kafka_topic",
    "kafka_partition",
    "kafka_offset",
    "day",
)
_SHOWN: Final = ", ".join(f"d.{name}" for name in COLUMNS)
_ENDED: Final = "d.state IN ({})".format(", ".join(f"'{state}'" for state in ENDED))
_NOT_UNDER_WAY: Final = "d.state <> 'IN_FLIGHT'"
_UNDER_WAY: Final = "d.state = 'IN_FLIGHT' AND d.owner > ''"
"""As in idempotency/fleet/status.py: the index on rows under way."""
_OPENED: Final = {
    "UNKNOWN": ["d.state = 'UNKNOWN'"],
    "RETRY": ["d.state = 'RETRY'"],
    "IN_FLIGHT": ["d.state = 'IN_FLIGHT'", "d.owner > ''"],
}
"""Conditions of open states, spelt as in their partial indexes."""
_CLASS: Final = {
    True: "split_part(d.reason, ':', 1)",
    False: "substr(d.reason, 1, instr(d.reason || ':', ':') - 1)",
}
"""The class of a reason on PostgreSQL and on SQLite, spelt as in `deliveries_reason`."""
_MOST_SCANS: Final = 6


class Cursor(NamedTuple):
    """The last row of a page, by which the next one begins."""

    at: int
    key: str


class SearchSpan(NamedTuple):
    """A part of the time that is searched, in epoch milliseconds; `until` is not part of it."""

    since: int
    until: int
    days: tuple[int, int] | None = None
    """First and last day whose partitions are read; None: the table has no partitions."""


class ReceiverHashes(NamedTuple):
    """Hashes that a row of a receiver may have."""

    by_channel: list[bytes]
    by_text: list[bytes]
    """Without the channel; rows from before migration 0038 lack it."""


def ways(column: str, value: Any) -> list[tuple[list[str], dict[str, Any]]]:
    """Returns the conditions and values of each statement that together find a term with an index of its
    own, rows under way excepted where `leaves_out_under_way`."""
    if column != "receiver":
        return [named(column, value)]
    texts, text_values = _one_of("receiver_text_hash", value.by_text)
    hashes, hash_values = _one_of("receiver_hash", value.by_channel)
    # A text that is a receiver of one channel may be another's on the next. Spelt so that no index fits.
    exactly = hashes.replace("d.receiver_hash", "nullif(d.receiver_hash, '')")
    return [
        (
            [texts, "d.receiver_text_hash IS NOT NULL", _NOT_UNDER_WAY, exactly],
            text_values | hash_values,
        ),
        (
            [
                hashes,
                "d.receiver_hash IS NOT NULL",
                "d.receiver_text_hash IS NULL",
                _NOT_UNDER_WAY,
            ],
            hash_values,
        ),
    ]


def named(column: str, value: Any) -> tuple[list[str], dict[str, Any]]:
    """Returns the conditions of a term that one statement finds."""
    conditions = {
        "message_id": ["d.message_id = :value"],
        "delivery_key": ["d.delivery_key = :value"],
        "biz_id": ["d.biz_id = :value", "d.biz_id IS NOT NULL"],
        "resend_of": ["d.resend_of = :value", "d.resend_of IS NOT NULL"],
        "provider_id": [
            "d.provider_id = :value",
            "d.provider_id IS NOT NULL",
            "substr(d.lane, 1, 8) <> 'webhook.'",
        ],
        "template": ["d.template = :value", "d.template IS NOT NULL"],
    }[column]
    if leaves_out_under_way(column):
        conditions = [*conditions, _NOT_UNDER_WAY]
    return conditions, {"value": value}


def leaves_out_under_way(column: str) -> bool:
    """Returns whether the column's index has no rows under way."""
    return column in ("receiver", "template")


def in_time(terms: DeliveryTerms, *, postgres: bool) -> tuple[list[str], Timed]:
    """Returns the conditions and the time that let `deliveries_account` be read, without an account
    `deliveries_time`, beside those of `filters`."""
    if terms.accounts:
        return ["d.account IS NOT NULL", _NOT_UNDER_WAY], Timed.PLAINLY
    return [_NOT_UNDER_WAY], Timed.BY_INDEX if postgres else Timed.PLAINLY


def is_in_order(terms: DeliveryTerms) -> bool:
    """Returns whether the index of `in_time` has the page's rows and no others."""
    return len(terms.accounts) <= 1 and not (terms.lanes or terms.states or terms.error)


def of_place() -> list[str]:
    """Returns the conditions that let `deliveries_place` be read, beside those of `filters`."""
    return ["d.kafka_offset IS NOT NULL", _NOT_UNDER_WAY]


def under_way(terms: DeliveryTerms) -> tuple[list[str], dict[str, Any]] | None:
    """Returns the conditions of rows under way; None if the terms exclude them."""
    if terms.states and "IN_FLIGHT" not in terms.states:
        return None
    rest, values = filters(terms)
    return [_UNDER_WAY, *rest], values


def equal(terms: Sequence[tuple[str, Any]]) -> tuple[list[str], dict[str, Any]]:
    """Returns the conditions of terms whose own index is not read. Two of them may be of one column."""
    conditions: list[str] = []
    values: dict[str, Any] = {}
    for number, (column, value) in enumerate(terms):
        also = f"also{number}_"
        if column == "receiver":
            condition, more = _one_of("receiver_hash", value.by_channel, also)
        else:
            condition, more = _one_of(column, [value], also)
        conditions.append(condition)
        values |= more
    return conditions, values


def _one_of(column: str, several: Sequence[Any], also: str = "") -> tuple[str, dict[str, Any]]:
    """Returns the condition with its values, whose names begin with `also`."""
    names = {f"{also}{column}{number}": one for number, one in enumerate(several)}
    return f"d.{column} IN ({', '.join(f':{name}' for name in names)})", names


def filters(terms: DeliveryTerms) -> tuple[list[str], dict[str, Any]]:
    """Returns the conditions of the terms that have no index of their own."""
    conditions: list[str] = []
    values: dict[str, Any] = {}
    for column, several in (
        ("lane", terms.lanes),
        ("account", terms.accounts),
        ("state", terms.states),
    ):
        if several:
            condition, more = _one_of(column, several)
            conditions.append(condition)
            values |= more
    if terms.error:
        conditions.append(
            "(d.reason = :error OR substr(d.reason, 1, length(:error) + 1) = :error || ':')"
        )
        values["error"] = terms.error
    if terms.place is not None:
        conditions.append(
            "d.kafka_topic = :topic AND d.kafka_partition = :partition AND d.kafka_offset = :offset"
        )
        place = terms.place
        values |= {"topic": place.topic, "partition": place.partition, "offset": place.offset}
    return conditions, values


class Timed(StrEnum):
    """How a statement spells the time of its rows: what index the planner may read it by."""

    PLAINLY = "d.created_at"
    BY_END = "d.updated_at"
    BY_INDEX = "(d.created_at + 0)"
    """As in `deliveries_time`, which has the rows of a window in their order. PostgreSQL alone."""
    BY_NONE = "(d.created_at - 0)"
    """For a few rows by an index without times: beside it the planner would read an index of times of the
    whole day, once that is large (decision 288)."""


def page(
    table: str,
    conditions: Sequence[str],
    span: SearchSpan,
    cursor: Cursor | None,
    *,
    timed: Timed = Timed.PLAINLY,
    limit: str = ":limit",
) -> tuple[str, dict[str, Any]]:
    """Returns one SELECT of the newest rows, and its values but `limit`."""
    bounds = [f"{timed} >= :since AND {timed} < :until"]
    values: dict[str, Any] = {"since": span.since, "until": span.until}
    if span.days is not None:  # literals: the planner leaves partitions out
        first, last = span.days
        bounds.append(f"d.day = {first}" if first == last else f"d.day BETWEEN {first} AND {last}")
    order = Timed.PLAINLY if timed is Timed.BY_NONE else timed
    if cursor is not None:
        bounds.append(f"({order}, d.delivery_key) < (:at, :after)")
        values |= {"at": cursor.at, "after": cursor.key}
    where = " AND ".join([*conditions, *bounds])
    statement = (
        f"SELECT {_SHOWN} FROM {table} AS d WHERE {where}"  # noqa: S608 - names of ours
        f" ORDER BY {order} DESC, d.delivery_key DESC LIMIT {limit}"
    )
    return statement, values


def is_opened(terms: DeliveryTerms) -> bool:
    """Returns whether the search is for open states alone, whose rows are few and have indexes."""
    return bool(terms.states) and set(terms.states) <= _OPENED.keys() and terms.place is None


def opened(state: str) -> list[str]:
    """Returns the conditions of an open state."""
    return _OPENED[state]


def ended_page(
    table: str, terms: DeliveryTerms, span: SearchSpan, cursor: Cursor | None, *, postgres: bool
) -> tuple[str, dict[str, Any]]:
    """Returns one statement over what ended unsent: the newest rows of all scans of `ended_scans`."""
    if terms.error:
        return _class_page(table, terms, span, cursor, postgres=postgres)
    return _newest(table, *_ended_by(terms), span, cursor)


def ended_scans(
    table: str, terms: DeliveryTerms, span: SearchSpan, cursor: Cursor | None
) -> list[tuple[str, dict[str, Any]]]:
    """Returns PostgreSQL's statements over what ended unsent. The index of each gives the order of the
    page: for an error class `deliveries_reason`, for few states and lanes `deliveries_ended`, else
    `deliveries_state`. Each state has a scan, and each lane where they are few; it stops at the page's
    size. All scans have one text, so that a plan over all days is made once a connection."""
    if terms.error:
        return [_class_page(table, terms, span, cursor, postgres=True)]
    scans, rest, values = _ended_by(terms)
    return [_newest(table, [one], rest, values, span, cursor) for one in scans]


def _ended_by(
    terms: DeliveryTerms,
) -> tuple[list[dict[str, str]], list[str], dict[str, Any]]:
    """Returns each scan's columns with their values, then the conditions and values of all scans."""
    rest, values = filters(terms)
    rest = [one for one in rest if not one.startswith("d.state IN")]
    if len(terms.states) * len(terms.lanes or LANE_NAMES) > _MOST_SCANS:
        bounds, more = _lane_bounds(terms)
        return [{"state": state} for state in terms.states], [*bounds, *rest], values | more
    rest = [one for one in rest if not one.startswith("d.lane IN")]
    pairs = product(terms.states, terms.lanes or LANE_NAMES)
    return [{"state": state, "lane": lane} for state, lane in pairs], rest, values


def _class_page(
    table: str, terms: DeliveryTerms, span: SearchSpan, cursor: Cursor | None, *, postgres: bool
) -> tuple[str, dict[str, Any]]:
    """Returns the statement for an error class. An error with a colon is narrower than its class. The state
    is spelt so that no index on states fits: it would read rows of other classes."""
    rest, values = filters(terms)
    rest = [one.replace("d.state IN", "d.state || '' IN") for one in rest]
    bounds, more = _lane_bounds(terms)
    values |= more | {"error_class": terms.error.partition(":")[0]}
    own = [_ENDED, "d.reason IS NOT NULL", f"{_CLASS[postgres]} = :error_class", *bounds, *rest]
    statement, more = page(table, own, span, cursor, timed=Timed.BY_END)
    return statement, values | more


def _lane_bounds(terms: DeliveryTerms) -> tuple[list[str], dict[str, Any]]:
    """Returns conditions that leave out other lanes within an index, without a look at their rows: the
    lanes of a channel are neighbours."""
    if not terms.lanes:
        return [], {}
    bounds = {"first_lane": min(terms.lanes), "last_lane": max(terms.lanes)}
    return ["d.lane >= :first_lane AND d.lane <= :last_lane"], bounds


def _newest(
    table: str,
    scans: Sequence[dict[str, str]],
    rest: Sequence[str],
    values: dict[str, Any],
    span: SearchSpan,
    cursor: Cursor | None,
) -> tuple[str, dict[str, Any]]:
    """Returns one statement for the newest rows of these scans together, each with the values of its
    columns."""
    parts, values = list[str](), dict(values)
    for number, columns in enumerate(scans):
        own = [f"d.{column} = :{column}_of_{number}" for column in columns]
        values |= {f"{column}_of_{number}": value for column, value in columns.items()}
        part, more = page(table, [_ENDED, *own, *rest], span, cursor, timed=Timed.BY_END)
        parts.append(f"SELECT * FROM ({part}) AS p{number}")  # noqa: S608 - ours
        values |= more
    if len(parts) == 1:
        return parts[0], values
    union = " UNION ALL ".join(parts)
    return (
        f"SELECT * FROM ({union}) AS found ORDER BY updated_at DESC, delivery_key DESC LIMIT :limit",  # noqa: S608 - ours
        values,
    )
