"""Recovery's SQL, for both databases: they differ in a function's name and in how rows are locked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from sqlalchemy import TextClause, text

from idempotency.bounds import next_version
from idempotency.lines import ASLEEP_AT, ROUSE, STUCK, head

_COLUMNS: Final = """
SELECT d.delivery_key, d.day, d.version, d.token, d.attempt, d.state, d.reason, d.lane, d.message_id,
       d.refusals, d.repeats, d.receiver, d.expires_at, d.created_at, d.updated_at, d.policy_version,
       d.account, d.ordering_key, d.kafka_topic, d.kafka_partition, d.kafka_offset, d.call_key,
       d.call_digest, d.called_at, d.last_called_at, d.earlier_accounts, d.owner, d.biz_id, d.provider_id,
       d.template, d.receiver_hash,
       coalesce(d.payload, p.payload) AS payload"""
_PAYLOAD: Final = """
  LEFT JOIN payloads AS p
    ON p.message_id = d.message_id AND p.body_digest = d.body_digest AND p.day = d.day"""

# Rows are read when due or when expired, whichever comes first.
_DUE: Final = f"""
WITH due AS {{materialized}} (
    SELECT d.delivery_key, d.day, d.version, d.attempt, d.refusals, d.state, d.reason, d.expires_at,
           d.called_at, d.lane, d.message_id, d.biz_id, d.ordering_key, d.created_at, d.kafka_topic,
           d.kafka_partition, d.kafka_offset, d.account, d.policy_version, d.template, d.receiver_hash
      FROM deliveries AS d
     WHERE d.state = 'RETRY' AND d.lane = :lane AND (d.attempt > 0) = :again
       AND {{least}}(d.expires_at, d.next_at) <= :now
     ORDER BY {{least}}(d.expires_at, d.next_at)
     LIMIT :limit {{lock}}
)
SELECT due.*, CASE WHEN :ordered AND due.ordering_key IS NOT NULL THEN due.message_id <> (
           {head("h.message_id", "due.lane", "due.ordering_key")})
           ELSE 1 = 0 END AS ahead,
       {{recalled}} AS recalled
  FROM due"""  # noqa: S608 - ours

_RECALLED: Final = """
       EXISTS (SELECT 1 FROM recalls AS r
                WHERE r.kind = 'message' AND r.name = {row}.message_id AND r.until > :now)
       OR EXISTS (SELECT 1 FROM recalls AS r
                   WHERE r.kind = 'biz' AND r.name = {row}.biz_id AND r.until > :now
                     AND r.made_at >= {row}.created_at)
       OR EXISTS (SELECT 1 FROM recalls AS r
                   WHERE r.kind = 'lane' AND r.name = {row}.lane || ':' || {row}.message_id
                     AND r.until > :now)"""

RECALLED_ROW: Final = f"({_RECALLED.format(row='d')})"
"""Whether a recall covers the row `d` at `:now`."""

_HELD: Final = f"""{_COLUMNS}
  FROM deliveries AS d {_PAYLOAD}
 WHERE d.owner = :owner AND d.owner_epoch = :epoch AND d.token = :token AND d.state = 'IN_FLIGHT'
 ORDER BY d.created_at, d.kafka_offset"""

# An earlier call began before this one, also where the database's clock was set back since: `_taken` and
# `_KEEP` tell by these times that there was one.
_TAKE: Final = """
UPDATE deliveries AS d
   SET state = 'IN_FLIGHT', token = :token, owner = :owner, owner_epoch = :epoch, next_at = NULL,
       attempt = d.attempt + 1, updated_at = :now, version = d.version + 1,
       call_key = CASE WHEN d.called_at IS NULL THEN i.call_key ELSE d.call_key END,
       call_digest = CASE WHEN d.called_at IS NULL THEN NULL ELSE d.call_digest END,
       called_at = CASE WHEN d.called_at IS NULL THEN :now ELSE {least}(d.called_at, :now - 1) END,
       last_called_at = :now,
       earlier_accounts = CASE WHEN d.called_at IS NOT NULL THEN d.earlier_accounts END
  FROM {given}
 WHERE {its_row} AND d.version = i.version AND d.state || '' = 'RETRY'
RETURNING delivery_key"""

_END: Final = """
UPDATE deliveries AS d
   SET state = i.state, reason = i.reason, next_at = NULL, updated_at = :now,
       version = {next_version}, called_at = CASE WHEN i.doubted THEN d.called_at END
  FROM {given}
 WHERE {its_row} AND d.version = i.version AND d.state || '' = i.source
RETURNING delivery_key"""

# A row may be due before its turn: an older version wrote it, or a person opened it anew.
_SLEEP: Final = f"""
UPDATE deliveries AS d SET next_at = {ASLEEP_AT}, version = {{next_version}}
  FROM {{given}}
 WHERE {{its_row}} AND d.version = i.version AND d.state || '' = 'RETRY'
   AND d.message_id <> ({head("h.message_id", "d.lane", "d.ordering_key")})
RETURNING delivery_key"""  # noqa: S608 - ours

_POSTPONE: Final = """
UPDATE deliveries AS d SET next_at = :next_at, version = {next_version}
  FROM {given}
 WHERE {its_row} AND d.version = i.version AND d.state || '' = :source
RETURNING delivery_key"""

# An earlier call in doubt went through the account that was on record until now.
_KEEP: Final = """
UPDATE deliveries AS d
   SET earlier_accounts = CASE WHEN d.called_at < d.last_called_at AND d.account <> i.account
                               THEN coalesce(d.earlier_accounts || '{line}', '') || d.account
                               ELSE d.earlier_accounts END,
       account = i.account, call_key = i.call_key, call_digest = i.call_digest,
       policy_version = coalesce(i.policy_version, d.policy_version)
  FROM {given}
 WHERE {its_row} AND d.token = i.its_token AND d.state || '' = 'IN_FLIGHT'
RETURNING delivery_key, token"""

_GIVE_BACK: Final = """
UPDATE deliveries AS d
   SET state = 'RETRY', reason = i.reason, next_at = :next_at, attempt = d.attempt - 1,
       called_at = i.called_at, updated_at = :now, version = d.version + 1
  FROM {given}
 WHERE {its_row} AND d.token = i.its_token AND d.state || '' = 'IN_FLIGHT'
RETURNING delivery_key, token"""

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

# A receipt that came while the call was under way names its row and waits (idempotency/receipts/rules.py).
# Its other columns are spelt so that no index but that of the deliveries fits.
_LEASED: Final = f"""{_COLUMNS},
       (SELECT max(r.provider_id || '') FROM receipts AS r
         WHERE r.delivery_key = d.delivery_key AND r.delivery_key IS NOT NULL AND r.applied IS NULL
           AND r.call_key || '' = coalesce(d.call_key, d.delivery_key)
           AND r.account || '' = d.account) AS receipt
  FROM {{given}} JOIN deliveries AS d ON {{its_row}} AND d.version = i.version
  {_PAYLOAD}"""  # noqa: S608 - ours

_MOVE: Final = """
UPDATE deliveries AS d
   SET state = i.state, reason = i.reason,
       provider_id = nullif(coalesce(i.provider_id, d.provider_id), ''),
       next_at = :now + i.delay_ms, expires_at = coalesce(i.expires_at, d.expires_at),
       updated_at = :now, version = {next_version},
       called_at = CASE WHEN i.certain THEN NULL ELSE d.called_at END,
       call_digest = CASE WHEN i.certain THEN NULL ELSE d.call_digest END
  FROM {given}
 WHERE {its_row} AND d.version = i.version AND d.state || '' = i.source
RETURNING delivery_key"""

_CURRENT: Final = """
SELECT d.delivery_key, d.version, d.state, d.reason FROM {given} JOIN deliveries AS d ON {its_row}"""

# A row's lane and ordering key never change.
_LINES: Final = """
SELECT DISTINCT d.lane, d.ordering_key FROM {given} JOIN deliveries AS d ON {its_row}
 WHERE d.ordering_key IS NOT NULL"""

VERSION: Final = text("SELECT day, version, state FROM deliveries WHERE delivery_key = :key")

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
     ORDER BY {least}(d.next_at, d.expires_at) LIMIT :bound) AS due"""

BACKLOG_OF_DOUBT: Final = text("""
SELECT count(*) AS rows, min(since) AS oldest FROM (
    SELECT d.updated_at AS since FROM deliveries AS d
     WHERE d.state = 'UNKNOWN' AND d.lane = :lane
     ORDER BY coalesce(d.next_at, d.updated_at) LIMIT :bound) AS doubted""")


LINE: Final = "\n"
"""Between the names in `earlier_accounts`."""
_PLACE: Final = {"key": "text", "day": "int"}
_READ: Final = {**_PLACE, "version": "int"}
_OWNED: Final = {**_PLACE, "its_token": "bigint"}


class Statements(NamedTuple):
    """The statements of one database. Rows are given as JSON in `:rows`, one object each."""

    due: TextClause
    held: TextClause
    doubted: TextClause
    joined: TextClause
    leased: TextClause
    take: TextClause
    end: TextClause
    sleep: TextClause
    postpone: TextClause
    keep: TextClause
    give_back: TextClause
    move: TextClause
    current: TextClause
    lines: TextClause
    due_lanes: str
    """Its lanes are formatted in, as are those of the next one."""
    doubted_lanes: str
    backlog: TextClause
    stuck: TextClause
    rouse: TextClause


def for_postgres() -> Statements:
    """Returns PostgreSQL's statements: they lock rows and skip rows that others lock."""
    words = {
        "least": "least",
        "materialized": "MATERIALIZED",
        "lock": "FOR UPDATE OF d SKIP LOCKED",
        # Can use an index and nothing else (docs/decisions/012).
        "its_row": "d.delivery_key = ANY (ARRAY[i.key]) AND d.day = i.day",
    }
    return _statements(words, records)


def for_sqlite() -> Statements:
    """Returns SQLite's statements: the transaction is its only writer."""
    words = {
        "least": "min",
        "materialized": "",
        "lock": "",
        "its_row": "d.delivery_key = i.key AND d.day = i.day",
    }
    return _statements(words, objects)


def records(**columns: str) -> str:
    """Returns PostgreSQL's table `i` of the JSON in `:rows`, by names and types of its columns."""
    spelt = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    return f"jsonb_to_recordset(CAST(:rows AS jsonb)) AS i ({spelt})"


def objects(**columns: str) -> str:
    """Returns SQLite's table `i` of the JSON in `:rows`."""
    picked = ", ".join(f"json_extract(value, '$.{name}') AS {name}" for name in columns)
    return f"(SELECT {picked} FROM json_each(:rows)) AS i"  # noqa: S608 - ours


def _statements(words: dict[str, str], given: Callable[..., str]) -> Statements:
    counted = next_version("d")

    def of(statement: str, **columns: str) -> TextClause:
        given_rows = given(**columns)
        return text(statement.format(**words, given=given_rows, next_version=counted, line=LINE))

    call = {"account": "text", "call_key": "text", "call_digest": "text", "policy_version": "text"}
    moved = {
        "source": "text",
        "state": "text",
        "reason": "text",
        "provider_id": "text",
        "delay_ms": "bigint",
        "expires_at": "bigint",
        "certain": "boolean",
    }
    line = {"lane": ":lane", "start": ":start", "now": ":now", "limit": ":limit"}
    return Statements(
        due=text(_DUE.format(**words, recalled=_RECALLED.format(row="due"))),
        held=text(_HELD),
        doubted=text(_DOUBTED.format(**words)),
        joined=text(_JOINED.format(**words, recalled=_RECALLED.format(row="d"))),
        leased=of(_LEASED, **_READ),
        take=of(_TAKE, **_READ, call_key="text"),
        end=of(_END, **_READ, source="text", state="text", reason="text", doubted="boolean"),
        sleep=of(_SLEEP, **_READ),
        postpone=of(_POSTPONE, **_READ),
        keep=of(_KEEP, **_OWNED, **call),
        give_back=of(_GIVE_BACK, **_OWNED, reason="text", called_at="bigint"),
        move=of(_MOVE, **_READ, **moved),
        current=of(_CURRENT, **_PLACE),
        lines=of(_LINES, **_PLACE),
        due_lanes=_DUE_LANES.format(**words),
        doubted_lanes=_DOUBTED_LANES,
        backlog=text(_BACKLOG.format(**words)),
        stuck=text(STUCK.format(**line)),
        rouse=text(ROUSE.format(**line, least=words["least"])),
    )
