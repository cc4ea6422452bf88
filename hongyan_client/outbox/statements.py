"""SQL of claims and marks, for the three databases.

A row is due at `next_at`: a pending one at its time, one in flight at the end of its lease. Of each
ordering key only the head may go:

- A pending row waits while a row of its key is in flight, and while an earlier one is pending or parked.
  An earlier delayed row counts from its `send_at` on.
- A row whose lease ended waits for earlier rows in flight alone, so two such rows never wait for each
  other.

A due row that must wait is held: it comes up again after 0.5 s, and after twice as long each time, up to
256 s. The end of the row before it wakes it at once. So rows of a blocked key cost later claims nothing.

A claim ends at `limit` rows, or at `MOST_BYTES` of payload. Rows beyond stay as they are.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

from sqlalchemy import ARRAY, BigInteger, String, TextClause, bindparam, text

from hongyan_client.outbox.clock import NOW_MS, POSTGRESQL, SQLITE, spelling

MAX_HELD: Final = 9
HOLD_MS: Final = 500
MOST_BYTES: Final = 32 << 20
"""Payload after which a claim takes no more rows. A row has at most a mebibyte."""

_COLUMNS: Final = (
    "id, message_id, topic, msg_key, headers, attempt, max_attempts, retry_base_ms, retry_cap_ms"
)
_WAITS: Final = """(
    {s}.key_hash IS NOT NULL AND (
        EXISTS (SELECT 1 FROM {t} p WHERE p.key_hash = {s}.key_hash AND p.state = 'SENDING'
                   AND p.id <> {s}.id AND ({s}.state = 'PENDING' OR p.id < {s}.id))
        OR {s}.state = 'PENDING' AND (
            EXISTS (SELECT 1 FROM {t} p WHERE p.key_hash = {s}.key_hash AND p.state = 'PENDING'
                       AND p.id < {s}.id AND (p.send_at IS NULL OR p.send_at <= {now}))
            OR EXISTS (SELECT 1 FROM {t} p WHERE p.key_hash = {s}.key_hash AND p.state = 'PARKED'
                          AND p.id < {s}.id))))"""
_DUE: Final = "next_at <= {now}"
_NEW: Final = "state = 'PENDING' AND attempt = 0 AND send_at IS NULL"
_THESE: Final = f"id {{in_ids}} AND {_NEW}"
"""No delayed row is handed over. An id that a savepoint's rollback freed may be one's, on SQLite."""
_CLAIM_POSTGRES: Final = """
WITH due AS MATERIALIZED (
    SELECT id, created_day, key_hash, state, held, {size} AS size FROM {t}
     WHERE {wanted} ORDER BY next_at, id LIMIT :limit FOR UPDATE SKIP LOCKED),
judged AS MATERIALIZED (
    SELECT due.*, {waits} AS waits, sum(size) OVER (ROWS UNBOUNDED PRECEDING) AS total FROM due)
UPDATE {t} AS r
   SET state = CASE WHEN j.waits THEN r.state ELSE 'SENDING' END,
       attempt = CASE WHEN j.waits THEN r.attempt ELSE r.attempt + 1 END,
       maybe_sent = CASE WHEN j.state = 'SENDING' THEN 1 ELSE r.maybe_sent END,
       held = CASE WHEN NOT j.waits THEN 0 WHEN j.held < {max} THEN j.held + 1 ELSE {max} END,
       next_at = {now} + CASE WHEN j.waits THEN {hold} << j.held ELSE :lease_ms END,
       lease_owner = CASE WHEN j.waits THEN r.lease_owner ELSE :owner END,
       lease_token = CASE WHEN j.waits THEN r.lease_token ELSE CAST(:token AS bigint) END
  FROM judged AS j
 WHERE r.id = j.id AND r.created_day = j.created_day AND (j.waits OR j.total - j.size < {most_bytes})
RETURNING r.id, r.message_id, r.topic, r.msg_key, r.headers, r.attempt, r.max_attempts,
          r.retry_base_ms, r.retry_cap_ms, CASE WHEN j.waits THEN NULL ELSE r.payload END AS payload,
          r.key_hash, r.created_day, j.waits"""
_LOCK: Final = """
SELECT {columns}, CASE WHEN {size} <= :small THEN payload END AS payload, key_hash,
       NULL AS created_day, {size} AS size FROM {t} {hint}
 WHERE {wanted} ORDER BY next_at, id LIMIT :limit {lock}"""
_WAITING: Final = "SELECT s.id FROM {t} s WHERE s.id {in_ids} AND {waits}"
_TAKE: Final = """
UPDATE {t} {hint}
   SET maybe_sent = CASE WHEN state = 'SENDING' THEN 1 ELSE maybe_sent END, state = 'SENDING',
       attempt = attempt + 1, held = 0, next_at = {now} + :lease_ms, lease_owner = :owner,
       lease_token = :token
 WHERE id {in_ids} AND {wanted}"""
_HOLD: Final = """
UPDATE {t} {hint}
   SET next_at = {now} + ({hold} << held),
       held = CASE WHEN held < {max} THEN held + 1 ELSE {max} END
 WHERE id {in_ids} AND {wanted}"""
_TAKEN: Final = """
SELECT id, payload FROM {t} WHERE id {in_ids} AND lease_token = :token AND state = 'SENDING'"""
_IN_DAYS: Final = " AND created_day BETWEEN :first_day AND :last_day"
_MARK_SENT: Final = """
UPDATE {t} SET state = 'SENT', next_at = NULL, lease_owner = NULL, lease_token = NULL, last_error = NULL,
       done_at = {now}
 WHERE id {in_ids} AND lease_token = :token AND state = 'SENDING'{in_days}"""
_DROP_SENT: Final = """
DELETE FROM {t} WHERE id {in_ids} AND lease_token = :token AND state = 'SENDING'{in_days}"""
_MARK_RETRY: Final = """
UPDATE {t} SET state = 'PENDING', next_at = {now} + :delay_ms, lease_owner = NULL, lease_token = NULL,
       last_error = :error, maybe_sent = CASE WHEN :in_doubt = 1 THEN 1 ELSE maybe_sent END
 WHERE id = :id AND lease_token = :token AND state = 'SENDING'"""
_MARK_PARKED: Final = """
UPDATE {t} SET state = 'PARKED', next_at = NULL, lease_owner = NULL, lease_token = NULL,
       last_error = :error, maybe_sent = CASE WHEN :in_doubt = 1 THEN 1 ELSE maybe_sent END
 WHERE id = :id AND lease_token = :token AND state = 'SENDING'"""
_GIVE_BACK: Final = """
UPDATE {t} SET state = 'PENDING', next_at = {now}, attempt = attempt - 1, lease_owner = NULL,
       lease_token = NULL
 WHERE id {in_ids} AND lease_token = :token AND state = 'SENDING'"""
_ALERT: Final = """
INSERT INTO {t}_alerts (row_id, message_id, topic, text, raised_at)
VALUES (:id, :message_id, :topic, :text, {now})"""
_KEYS: Final = "SELECT key_hash FROM {t} WHERE id {in_ids} AND key_hash IS NOT NULL"
_FOLLOWERS: Final = """
SELECT min(f.id) FROM {t} f
 WHERE f.state = 'PENDING' AND f.held > 0 AND f.key_hash {in_keys}
 GROUP BY f.key_hash"""
_WAKE: Final = """
UPDATE {t} SET next_at = {now}, held = 0 WHERE id {in_ids} AND state = 'PENDING' AND held > 0"""


class TakeStatements(NamedTuple):
    """The steps after a lock. Both look again whether the claim wants the row: in autocommit the lock ends
    with its statement, and a recall or another claim may have come between."""

    take: TextClause
    hold: TextClause


class OutboxStatements(NamedTuple):
    """Statements of one table on one database."""

    claim_due: TextClause
    """PostgreSQL: the whole claim. Others: the lock on due rows."""
    claim_these: TextClause
    """As `claim_due`, of given ids."""
    waiting: TextClause
    due: TakeStatements
    these: TakeStatements
    taken: TextClause
    """Returns the rows that `take` gave the token, with their payload."""
    mark_sent: TextClause
    """On PostgreSQL it names the rows' first and last day, so that it looks into their partitions alone."""
    drop_sent: TextClause
    """In place of `mark_sent`, where ended rows are not kept."""
    mark_retry: TextClause
    mark_parked: TextClause
    give_back: TextClause
    alert: TextClause
    keys: TextClause
    followers: TextClause
    wake: TextClause


@lru_cache(maxsize=64)
def statements_for(table: str, dialect: str) -> OutboxStatements:
    """Returns the statements for a checked table name (`outbox_tables`)."""
    kind = spelling(dialect)
    parts = _parts(table, kind)
    claim = _CLAIM_POSTGRES if kind == POSTGRESQL else _LOCK

    def made(template: str, wanted: str = "", index: str = "") -> TextClause:
        hint = f"FORCE INDEX ({index})" if kind == "mysql" else ""
        return _bound(template.format(**parts, wanted=wanted.format(**parts), hint=hint), kind)

    def taking(wanted: str) -> TakeStatements:
        return TakeStatements(made(_TAKE, wanted, "PRIMARY"), made(_HOLD, wanted, "PRIMARY"))

    return OutboxStatements(
        made(claim, _DUE, f"{table}_due"),
        made(claim, _THESE, "PRIMARY"),
        made(_WAITING),
        taking(_DUE),
        taking(_NEW),
        made(_TAKEN),
        made(_MARK_SENT),
        made(_DROP_SENT),
        made(_MARK_RETRY),
        made(_MARK_PARKED),
        made(_GIVE_BACK),
        made(_ALERT),
        made(_KEYS),
        made(_FOLLOWERS),
        made(_WAKE),
    )


def _parts(table: str, kind: str) -> dict[str, object]:
    now = NOW_MS[kind]
    scanned = "due" if kind == POSTGRESQL else "s"
    return {
        "t": table,
        "now": now,
        "columns": _COLUMNS,
        "waits": _WAITS.format(s=scanned, t=table, now=now),
        "in_ids": "= ANY(:ids)" if kind == POSTGRESQL else "IN :ids",
        "in_keys": "= ANY(:keys)" if kind == POSTGRESQL else "IN :keys",
        "in_days": _IN_DAYS if kind == POSTGRESQL else "",
        "lock": "" if kind == SQLITE else "FOR UPDATE SKIP LOCKED",
        "size": "length(CAST(payload AS BLOB))" if kind == SQLITE else "octet_length(payload)",
        "most_bytes": MOST_BYTES,
        "hold": HOLD_MS,
        "max": MAX_HELD,
    }


def _bound(sql: str, kind: str) -> TextClause:
    """Returns the statement; on PostgreSQL its ids are one array, so that it is the same text for all."""
    types: dict[str, Any] = {"ids": BigInteger, "keys": String}
    clause = text(sql)
    for name in (one for one in types if f":{one}" in sql):
        if kind == POSTGRESQL:
            clause = clause.bindparams(bindparam(name, type_=ARRAY(types[name])))
        else:
            clause = clause.bindparams(bindparam(name, expanding=True))
    return clause
