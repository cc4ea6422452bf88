"""Freezing: a job's selection becomes its items, a page in each transaction.

The place of the next page is written with the page, so a crash repeats and skips none. Ended states go
along the index `deliveries_ended`. Of open states, which are never eligible, the rows that are due first
are listed. Names are resolved in their order. A row that changes meanwhile may be missing; none is twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, bindparam, text

from idempotency.recovery.selection import ENDED
from idempotency.recovery.statements import RECALLED_ROW
from idempotency.resend_jobs.contract import (
    UNKNOWN_NAME,
    FreezePlace,
    ItemFate,
    JobState,
    ResendJob,
    ResendMode,
)
from idempotency.resend_jobs.rows import JOBS, add_counts, digest_after, digest_sum
from idempotency.transactions import LedgerPart
from message.states import State

PAGE: Final = 10_000
"""Rows of one page of a state and lane, before the other conditions."""
NAMES: Final = 500
"""Names of one page."""
OPEN_MOST: Final = 10_000
"""Open rows of a state and lane that are listed."""
_MS: Final = 1_000
_LAST_KEY: Final = "~"
"""Above each delivery key."""
_ENDED: Final = "d.state IN ({}) AND".format(", ".join(f"'{state}'" for state in ENDED))
# The first condition that holds is the reason; the words are those of the contract. Without a recall in
# force, which is asked once a statement, no row is looked for among the recalls.
_WHY: Final = f"""
CASE WHEN (:copy = 1 OR d.state NOT IN ('SENT', 'DELIVERED'))
          AND EXISTS (SELECT 1 FROM recalls AS any_recall WHERE any_recall.until > :now)
          AND {RECALLED_ROW} THEN 'recalled'
     WHEN d.state IN ('SENT', 'DELIVERED', 'UNDELIVERED') AND :copy = 0 THEN 'sent'
     WHEN d.state = 'IN_FLIGHT' THEN 'in_flight'
     WHEN d.state = 'RETRY' THEN 'pending'
     WHEN d.state = 'UNKNOWN' THEN 'in_doubt'
     WHEN d.state = 'DROPPED' AND :dropped = 0 THEN 'dropped'
     WHEN d.state IN ('PARKED', 'REJECTED', 'EXPIRED') AND d.called_at IS NOT NULL
          AND :in_doubt = 0 THEN 'in_doubt'
     WHEN d.state IN ('PARKED', 'REJECTED', 'EXPIRED') AND :expired = 0
          AND (d.state = 'EXPIRED' OR d.expires_at <= :now) THEN 'expired'
     ELSE '' END"""  # noqa: S608 - ours
# Keys are digests: in their order, neighbours in the page are neighbours in the items' indexes.
_INSERT: Final = """
INSERT INTO resend_job_items
       (job_id, delivery_key, day, row_version, attempt, state, lane, account, fate, why)
SELECT :job, p.delivery_key, p.day, p.version, p.attempt, p.state, p.lane, p.account,
       CASE WHEN p.why = '' THEN 'PENDING' ELSE 'INELIGIBLE' END, p.why
  FROM (SELECT d.delivery_key, d.day, d.version, d.attempt, d.state, d.lane,
               coalesce(d.account, '') AS account, {why} AS why
          FROM {rows} ORDER BY d.delivery_key) AS p
 WHERE p.day IS NOT NULL
ON CONFLICT (job_id, delivery_key) DO NOTHING
RETURNING delivery_key, row_version, lane, account, fate, why"""
# The sums of `digest_sum`, whose numbers of 128 bits are added in halves. A `bigint` has a sign: a low half
# below zero is 2 ** 64 too low.
_SUMS_POSTGRES: Final = """
WITH added AS ({insert}),
     digests AS (SELECT lane, account, fate, why, CASE WHEN fate = 'PENDING' THEN
            encode(sha256(convert_to(delivery_key || chr(31) || row_version, 'UTF8')), 'hex') END AS own
       FROM added),
     halves AS MATERIALIZED (SELECT lane, account, fate, why,
            CAST(CAST('x' || substr(own, 1, 16) AS bit(64)) AS bigint) AS high,
            CAST(CAST('x' || substr(own, 17, 16) AS bit(64)) AS bigint) AS low
       FROM digests)
SELECT lane, account, fate, why, count(*) AS items, coalesce(sum(high), 0) AS high,
       coalesce(sum(low), 0) AS low, count(*) FILTER (WHERE low < 0) AS negative
  FROM halves GROUP BY lane, account, fate, why"""
_WINDOW: Final = """{ended} d.state = :state AND d.lane = :lane
   AND (d.updated_at, d.delivery_key) > (:at, :after)"""
_BOUNDARY: Final = """
SELECT d.updated_at, d.delivery_key FROM deliveries AS d
 WHERE {window} AND d.updated_at <= :until
 ORDER BY d.updated_at, d.delivery_key LIMIT 1 OFFSET :page"""
_PAGE_ROWS: Final = """deliveries AS d
 WHERE {window} AND (d.updated_at, d.delivery_key) <= (:to_at, :to_key) {more}"""
_OPEN_ROWS: Final = """(SELECT * FROM deliveries AS o
  WHERE o.state = '{state}' AND {bound} LIMIT :most) AS d
 WHERE d.lane = :lane AND d.updated_at >= :at AND d.updated_at <= :until {more}"""
_BOUNDS: Final = {
    State.RETRY: "o.lane = :lane ORDER BY {least}(o.next_at, o.expires_at)",
    State.UNKNOWN: "o.lane = :lane ORDER BY coalesce(o.next_at, o.updated_at)",
    State.IN_FLIGHT: "o.owner > ''",
}
_MORE: Final = {
    "account": "AND d.account = :account",
    "reason": "AND (d.reason = :reason OR substr(d.reason, 1, length(:reason) + 1) = :reason || ':')",
    "template": "AND d.template = :template",
}
# A page's rows lie on nearly as many pages of the table. A scan in the order of an index reads one after
# another; a bitmap asks the disk for many at once (decision 300). 0 is a server that cannot, or shall not.
_READ_AHEAD: Final = text("""
SELECT set_config('enable_bitmapscan', 'on', true), set_config('enable_indexscan', 'off', true),
       CASE WHEN CAST(current_setting('effective_io_concurrency') AS integer) BETWEEN 1 AND 31
            THEN set_config('effective_io_concurrency', '32', true) END""")
_READ_IN_ORDER: Final = text("""
SELECT set_config('enable_bitmapscan', 'off', true), set_config('enable_indexscan', 'on', true)""")
_NAMES: Final = text("""
SELECT number, name FROM resend_job_names
 WHERE job_id = :job AND number > :number ORDER BY number LIMIT :limit""")
# PostgreSQL finds a key's day in `delivery_keys`, and so reads one partition.
_KEYED_POSTGRES: Final = """delivery_keys AS k
  JOIN deliveries AS d ON d.delivery_key = ANY (ARRAY[k.delivery_key]) AND d.day = k.day
 WHERE k.delivery_key IN :names"""
_KEYED_SQLITE: Final = "deliveries AS d WHERE d.delivery_key IN :names"
_MESSAGES: Final = "deliveries AS d WHERE d.message_id IN :names"
_WITHIN: Final = " AND d.lane IN :of_lanes"
_ADD_UNKNOWN: Final = text("""
INSERT INTO resend_job_items
       (job_id, delivery_key, day, row_version, attempt, state, lane, account, fate, why)
VALUES (:job, :name, 0, 0, 0, '', '', '', 'INELIGIBLE', :why)
ON CONFLICT (job_id, delivery_key) DO NOTHING""")
_DROP_NAMES: Final = text("DELETE FROM resend_job_names WHERE job_id = :job")
_ALL_STATES: Final = (*ENDED, State.UNKNOWN, State.IN_FLIGHT, State.RETRY)
SELECTABLE: Final = tuple(state.value for state in _ALL_STATES)
"""States that a filter may name. SENT and DELIVERED have no index by lane and time: name the rows."""


class JobFreezing(LedgerPart):
    """Raises LedgerError, and JobOvertaken where another process was first."""

    def page(self, job: ResendJob) -> ResendJob:
        """Freezes the next page of a FREEZING job. Returns the job, in PREVIEW after the last one."""
        with self._begin() as (connection, now):
            if job.wanted.states:
                return self._selected(connection, job, now)
            return self._named(connection, job, now)

    # ---- by state ----------------------------------------------------------------------------

    def _selected(self, connection: Connection, job: ResendJob, now: int) -> ResendJob:
        pairs = list(product(job.wanted.states, job.wanted.lanes))
        place = job.place
        if place.pair >= len(pairs):
            return self._ended(connection, job, now)
        state, lane = State(pairs[place.pair][0]), pairs[place.pair][1]
        if state in _BOUNDS:
            job = JOBS.advance(connection, job, now, place=FreezePlace(pair=place.pair + 1))
            return self._add(connection, job, now, self._open_rows(state, job), _open(job, lane))
        window = _WINDOW.format(ended=_ENDED if state in ENDED else "")
        asked = {"state": state.value, "lane": lane, "until": _until(job), "after": place.after}
        asked["at"] = place.at or job.wanted.since - 1
        query = text(_BOUNDARY.format(window=window))
        end = connection.execute(query, asked | {"page": PAGE - 1}).one_or_none()
        after = FreezePlace(pair=place.pair + 1)
        to_at, to_key = asked["until"], _LAST_KEY
        if end is not None:
            to_at, to_key = end.updated_at, end.delivery_key
            after = FreezePlace(pair=place.pair, at=to_at, after=to_key)
        job = JOBS.advance(connection, job, now, place=after)
        del asked["until"]
        rows = _PAGE_ROWS.format(window=window, more=_more(job))
        asked |= {"to_at": to_at, "to_key": to_key}
        return self._add(connection, job, now, rows, asked, reads_ahead=self._database.is_postgres)

    def _open_rows(self, state: State, job: ResendJob) -> str:
        least = "least" if self._database.is_postgres else "min"
        bound = _BOUNDS[state].format(least=least)
        return _OPEN_ROWS.format(state=state.value, bound=bound, more=_more(job))

    # ---- by name -----------------------------------------------------------------------------

    def _named(self, connection: Connection, job: ResendJob, now: int) -> ResendJob:
        asked = {"job": job.id, "number": job.place.number, "limit": NAMES}
        found = connection.execute(_NAMES, asked).all()
        if not found:
            connection.execute(_DROP_NAMES, {"job": job.id})
            return self._ended(connection, job, now)
        job = JOBS.advance(connection, job, now, place=FreezePlace(number=found[-1].number))
        left = [row.name for row in found]
        lanes = {"of_lanes": [*job.wanted.lanes]} if job.wanted.lanes else {}
        within = _WITHIN if lanes else ""
        keyed = _KEYED_POSTGRES if self._database.is_postgres else _KEYED_SQLITE
        for rows, column in ((keyed, "delivery_key"), (_MESSAGES, "message_id")):
            if left:
                rows += within
                query = text(f"SELECT DISTINCT d.{column} FROM {rows}")  # noqa: S608 - ours
                names = {"names": left} | lanes
                known = set(connection.execute(_expanded(query), names).scalars())
                job = self._add(connection, job, now, rows, names) if known else job
                left = [name for name in left if name not in known]
        return self._unknown(connection, job, now, left)

    def _unknown(
        self, connection: Connection, job: ResendJob, now: int, names: Sequence[str]
    ) -> ResendJob:
        added = 0
        for name in names:
            values = {"job": job.id, "name": name, "why": UNKNOWN_NAME}
            added += connection.execute(_ADD_UNKNOWN, values).rowcount
        counts: Counter[Any] = Counter({("", "", ItemFate.INELIGIBLE, UNKNOWN_NAME): added})
        add_counts(connection, job.id, counts)
        return JOBS.advance(connection, job, now, items=job.items + added) if added else job

    # ---- both --------------------------------------------------------------------------------

    def _add(
        self,
        connection: Connection,
        job: ResendJob,
        now: int,
        rows: str,
        values: dict[str, Any],
        *,
        reads_ahead: bool = False,
    ) -> ResendJob:
        """Adds the rows as items. Returns the job with their sums."""
        spelt = _INSERT.format(why=_WHY, rows=rows)
        if self._database.is_postgres:
            spelt = _SUMS_POSTGRES.format(insert=spelt)
        statement = _expanded(text(spelt)) if "names" in values else text(spelt)
        asked = _terms(job) | values | {"job": job.id, "now": now}
        asked = {name: value for name, value in asked.items() if f":{name}" in spelt}
        if reads_ahead:
            connection.execute(_READ_AHEAD)
        found = connection.execute(statement, asked).all()
        if reads_ahead:
            connection.execute(_READ_IN_ORDER)
        added = _counted(found) if self._database.is_postgres else _summed(found)
        add_counts(connection, job.id, added.counts)
        eligible = sum(n for kind, n in added.counts.items() if kind[2] == ItemFate.PENDING)
        return JOBS.advance(
            connection,
            job,
            now,
            items=job.items + added.counts.total(),
            eligible=job.eligible + eligible,
            digest=digest_after(job.digest, added.digest),
        )

    def _ended(self, connection: Connection, job: ResendJob, now: int) -> ResendJob:
        until = now + int(job.limits.preview_s * _MS)
        return JOBS.advance(
            connection,
            job,
            now,
            state=JobState.PREVIEW,
            place=FreezePlace(),
            frozen_at=now,
            preview_until=until,
            digest=digest_after(job.digest, 0),
        )


class _Added(NamedTuple):
    """Items that one statement added."""

    counts: Counter[Any]
    """By (lane, account, fate, why)."""
    digest: int
    """Sum over the eligible ones."""


def _counted(found: Sequence[Any]) -> _Added:
    """Returns the sums of rows that PostgreSQL has counted."""
    counts = Counter({(r.lane, r.account, r.fate, r.why): r.items for r in found})
    high = sum(int(row.high) + row.negative for row in found)
    return _Added(counts, (high << 64) + sum(int(row.low) for row in found))


def _summed(found: Sequence[Any]) -> _Added:
    """Returns the sums of single rows: SQLite returns them from no inner statement, and has no SHA-256."""
    able = ((r.delivery_key, r.row_version) for r in found if r.fate == ItemFate.PENDING)
    counts = Counter((r.lane, r.account, r.fate, r.why) for r in found)
    return _Added(counts, digest_sum(able))


def _expanded(statement: Any) -> Any:
    lists = [name for name in ("names", "of_lanes") if f":{name}" in str(statement)]
    return statement.bindparams(*(bindparam(name, expanding=True) for name in lists))


def _until(job: ResendJob) -> int:
    return job.wanted.until or job.created_at


def _open(job: ResendJob, lane: str) -> dict[str, Any]:
    wanted = job.wanted
    return {"lane": lane, "at": wanted.since, "until": _until(job), "most": OPEN_MOST}


def _more(job: ResendJob) -> str:
    return " ".join(spelt for name, spelt in _MORE.items() if getattr(job.wanted, name))


def _terms(job: ResendJob) -> dict[str, Any]:
    """Returns the values of the reasons and of the other conditions."""
    wanted = job.wanted
    copy = job.mode is ResendMode.COPY
    return {
        "copy": int(copy),
        "dropped": int(copy and bool(wanted.reason) and State.DROPPED in wanted.states),
        "in_doubt": int(wanted.in_doubt),
        "expired": int(wanted.expired),
        "account": wanted.account,
        "reason": wanted.reason,
        "template": wanted.template,
    }
