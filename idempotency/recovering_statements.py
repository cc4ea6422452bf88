"""Recovery's SQL, for both databases: they differ in a function's name and in how rows are locked."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import TextClause, text

ROW: Final = """
SELECT d.delivery_key, d.day, d.version, d.token, d.attempt, d.state, d.reason, d.lane, d.message_id,
       d.receiver, d.expires_at, d.created_at, d.updated_at, d.policy_version, d.account,
       d.ordering_key, d.kafka_topic, d.kafka_partition, d.kafka_offset, d.call_key, d.call_digest,
       d.called_at, coalesce(d.payload, p.payload) AS payload
  FROM deliveries AS d
  LEFT JOIN payloads AS p
    ON p.message_id = d.message_id AND p.body_digest = d.body_digest AND p.day = d.day"""

# Looked at when due or when its time is over, whichever comes first. What was given back is its Kafka
# record's next reader's until then.
_DUE: Final = """
WITH due AS {materialized} (
    SELECT d.delivery_key, d.day, d.version, d.attempt, d.reason, d.expires_at, d.called_at,
           d.lane, d.message_id, d.biz_id, d.ordering_key, d.created_at, d.kafka_offset
      FROM deliveries AS d
     WHERE d.state = 'RETRY' AND d.lane = :lane AND {least}(d.next_at, d.expires_at) <= :now
       AND (d.reason IS NULL OR d.reason <> 'given_back' OR d.expires_at <= :now)
     ORDER BY {least}(d.next_at, d.expires_at)
     LIMIT :limit {lock}
)
SELECT due.*, CASE WHEN :ordered AND due.ordering_key IS NOT NULL THEN EXISTS (
           SELECT 1 FROM deliveries AS a
            WHERE a.ordering_key = due.ordering_key AND a.lane = due.lane
              AND a.ordering_key IS NOT NULL AND a.state IN ('IN_FLIGHT', 'RETRY', 'UNKNOWN')
              AND a.message_id <> due.message_id
              AND (a.created_at, coalesce(a.kafka_offset, -1), a.message_id)
                  < (due.created_at, coalesce(due.kafka_offset, -1), due.message_id))
           ELSE 1 = 0 END AS ahead,
       {recalled} AS recalled
  FROM due"""

_RECALLED: Final = """
       EXISTS (SELECT 1 FROM recalls AS r
                WHERE r.kind = 'message' AND r.name = {row}.message_id AND r.until > :now)
       OR EXISTS (SELECT 1 FROM recalls AS r
                   WHERE r.kind = 'biz' AND r.name = {row}.biz_id AND r.until > :now
                     AND r.made_at >= {row}.created_at)"""

RECALLED_ROW: Final = f"({_RECALLED.format(row='d')})"
"""Whether a recall covers the row `d` at `:now`."""

_HELD: Final = f"""{ROW}
 WHERE d.owner = :owner AND d.owner_epoch = :epoch AND d.token = :token AND d.state = 'IN_FLIGHT'
 ORDER BY d.created_at, d.kafka_offset"""

TAKE: Final = text("""
UPDATE deliveries
   SET state = 'IN_FLIGHT', token = :token, owner = :owner, owner_epoch = :epoch, next_at = NULL,
       attempt = attempt + 1, updated_at = :now, version = version + 1,
       call_key = CASE WHEN called_at IS NULL THEN :call_key ELSE call_key END,
       call_digest = CASE WHEN called_at IS NULL THEN NULL ELSE call_digest END,
       called_at = coalesce(called_at, :now)
 WHERE delivery_key = :key AND day = :day AND version = :version AND state = 'RETRY'""")

END: Final = text("""
UPDATE deliveries
   SET state = :state, reason = :reason, next_at = NULL, updated_at = :now, version = version + 1,
       called_at = CASE WHEN :doubted THEN called_at END
 WHERE delivery_key = :key AND day = :day AND version = :version AND state = :source""")

POSTPONE: Final = text("""
UPDATE deliveries SET next_at = :next_at, version = version + 1
 WHERE delivery_key = :key AND day = :day AND version = :version AND state = :source""")

KEEP: Final = text("""
UPDATE deliveries SET account = :account, call_key = :call_key, call_digest = :call_digest,
       policy_version = coalesce(:policy_version, policy_version)
 WHERE delivery_key = :key AND day = :day AND token = :token AND state = 'IN_FLIGHT'""")

GIVE_BACK: Final = text("""
UPDATE deliveries
   SET state = 'RETRY', reason = :reason, next_at = :next_at, attempt = attempt - 1,
       called_at = :called_at, updated_at = :now, version = version + 1
 WHERE delivery_key = :key AND day = :day AND token = :token AND state = 'IN_FLIGHT'""")

_DOUBTED: Final = """
WITH doubted AS {materialized} (
    SELECT d.delivery_key, d.day, d.version FROM deliveries AS d
     WHERE d.state = 'UNKNOWN' AND d.lane = :lane AND coalesce(d.next_at, d.updated_at) <= :now
     ORDER BY coalesce(d.next_at, d.updated_at)
     LIMIT :limit {lock}
)
SELECT * FROM doubted"""

# Found by the index on the keys of calls whose rows have no provider's id.
_JOINED: Final = """
SELECT d.delivery_key, d.day, d.version FROM deliveries AS d
 WHERE d.call_key = :call_key AND d.provider_id IS NULL AND d.state = 'UNKNOWN'
   AND d.lane = :lane AND d.account = :account AND d.call_digest = :call_digest
   AND NOT ({recalled})
 ORDER BY d.delivery_key {lock}"""

_LEASED: Final = f"""{ROW}
 WHERE d.delivery_key = :key AND d.day = :day AND d.version = :version"""

MOVE: Final = text("""
UPDATE deliveries
   SET state = :state, reason = :reason, provider_id = coalesce(:provider_id, provider_id),
       next_at = :next_at, expires_at = coalesce(:expires_at, expires_at),
       updated_at = :now, version = version + 1,
       called_at = CASE WHEN :certain THEN NULL ELSE called_at END,
       call_digest = CASE WHEN :certain THEN NULL ELSE call_digest END
 WHERE delivery_key = :key AND day = :day AND version = :version AND state = :source""")

STANDS: Final = text("""
SELECT version, state, reason FROM deliveries WHERE delivery_key = :key AND day = :day""")

VERSION: Final = text("SELECT day, version, state FROM deliveries WHERE delivery_key = :key")

_RELEASE: Final = """
UPDATE deliveries SET next_at = :now, version = version + 1
 WHERE (delivery_key, day) = (
           SELECT d.delivery_key, d.day FROM deliveries AS d
            WHERE d.ordering_key = :ordering_key AND d.lane = :lane
              AND d.ordering_key IS NOT NULL AND d.state IN ('IN_FLIGHT', 'RETRY', 'UNKNOWN')
            ORDER BY d.created_at, coalesce(d.kafka_offset, -1), d.message_id
            LIMIT 1)
   AND state = 'RETRY' AND reason = 'behind' AND next_at > :now"""

_DUE_LANES: Final = """
SELECT column1 FROM (VALUES {{lanes}}) AS v
 WHERE EXISTS (SELECT 1 FROM deliveries AS d
                WHERE d.state = 'RETRY' AND d.lane = column1
                  AND {least}(d.next_at, d.expires_at) <= :now)"""

_DOUBTED_LANES: Final = """
SELECT column1 FROM (VALUES {lanes}) AS v
 WHERE EXISTS (SELECT 1 FROM deliveries AS d
                WHERE d.state = 'UNKNOWN' AND d.lane = column1
                  AND coalesce(d.next_at, d.updated_at) <= :now)"""

_BACKLOG: Final = """
SELECT count(*) AS rows, min(since) AS oldest FROM (
    SELECT {least}(d.next_at, d.expires_at) AS since FROM deliveries AS d
     WHERE d.state = 'RETRY' AND d.lane = :lane AND {least}(d.next_at, d.expires_at) <= :now
       AND (d.reason IS NULL OR d.reason <> 'given_back')
     ORDER BY {least}(d.next_at, d.expires_at) LIMIT :bound) AS due"""

BACKLOG_OF_DOUBT: Final = text("""
SELECT count(*) AS rows, min(since) AS oldest FROM (
    SELECT d.updated_at AS since FROM deliveries AS d
     WHERE d.state = 'UNKNOWN' AND d.lane = :lane
     ORDER BY coalesce(d.next_at, d.updated_at) LIMIT :bound) AS doubted""")


class Statements(NamedTuple):
    """Those that differ."""

    due: TextClause
    held: TextClause
    doubted: TextClause
    joined: TextClause
    leased: TextClause
    release: TextClause
    due_lanes: str
    """Wants its lanes formatted in."""
    doubted_lanes: str
    backlog: TextClause


def for_postgres() -> Statements:
    """With rows locked, and others' locks passed by."""
    return _statements(
        {"least": "least", "materialized": "MATERIALIZED", "lock": "FOR UPDATE OF d SKIP LOCKED"}
    )


def for_sqlite() -> Statements:
    """The transaction is its only writer."""
    return _statements({"least": "min", "materialized": "", "lock": ""})


def _statements(words: dict[str, Any]) -> Statements:
    return Statements(
        due=text(_DUE.format(**words, recalled=_RECALLED.format(row="due"))),
        held=text(_HELD),
        doubted=text(_DOUBTED.format(**words)),
        joined=text(_JOINED.format(**words, recalled=_RECALLED.format(row="d"))),
        leased=text(_LEASED),
        release=text(_RELEASE),
        due_lanes=_DUE_LANES.format(**words),
        doubted_lanes=_DOUBTED_LANES,
        backlog=text(_BACKLOG.format(**words)),
    )
