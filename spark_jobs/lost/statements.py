"""The statements that the lost job asks the ledger, for PostgreSQL and SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Final

_MS_PER_DAY: Final = 86_400_000
_HOUR_MS: Final = 3_600_000
_EPOCH: Final = date(1970, 1, 1)

SESSION: Final = "SELECT set_config('default_transaction_read_only', 'on', false)"
KEYED_SESSION: Final = """
SELECT set_config('default_transaction_read_only', 'on', false),
       set_config('enable_seqscan', 'off', false), set_config('enable_hashjoin', 'off', false),
       set_config('enable_mergejoin', 'off', false)"""
"""For questions about keys: statistics may be old, and a plan must not read a whole day for a few keys."""

RUN: Final = "SELECT 1 AS found FROM spark_runs WHERE id = {run_id} AND positions <> ''"
NOW: Final = "SELECT hongyan_now() AS now"
ROWS_BY_NAME: Final = """
SELECT k.delivery_key, d.state FROM delivery_keys AS k
  JOIN deliveries AS d ON d.delivery_key = k.delivery_key AND d.day = k.day"""
ROWS: Final = "SELECT delivery_key, state FROM deliveries"
MESSAGES: Final = "SELECT message_id, delivery_key FROM deliveries"
RECALLS: Final = "SELECT kind, name, made_at FROM recalls"
ARCHIVED: Final = """
SELECT relname::text AS name,
       CASE WHEN obj_description(oid, 'pg_class') = 'names removed' THEN oid::text ELSE '' END
       AS identity
  FROM pg_class WHERE relnamespace = to_regnamespace('archive') AND relkind = 'r'"""
"""`identity` is empty until the day is whole in the archive (idempotency/archive/postgres.py)."""
GIVEN_BACK_ROWS: Final = """
delivery_key STRING, lane STRING, message_id STRING, biz_id STRING, origin STRING, topic STRING,
partition INT, offset BIGINT, expires_at BIGINT"""
_GIVEN_BACK: Final = """
SELECT delivery_key, lane, message_id, biz_id,
       kafka_topic || '/' || kafka_partition || '/' || kafka_offset AS origin, kafka_topic AS topic,
       kafka_partition AS partition, kafka_offset AS "offset", expires_at
  FROM deliveries
 WHERE state = 'RETRY' AND reason = 'given_back' AND kafka_topic IS NOT NULL
   AND next_at < {before}"""
OPEN_ROWS: Final = """
delivery_key STRING, lane STRING, message_id STRING, biz_id STRING, origin STRING, state STRING,
owner STRING, policy_version STRING, created_at BIGINT, expires_at BIGINT"""
SENT_ROWS: Final = """
delivery_key STRING, lane STRING, account STRING, message_id STRING, biz_id STRING, origin STRING,
sent_at BIGINT"""
FINDINGS: Final = """
subject STRING, cause STRING, lane STRING, message_id STRING, biz_id STRING, receiver STRING,
origin STRING, created_at BIGINT, expires_at BIGINT, certain SMALLINT, detail STRING"""

_OPEN_ROW: Final = """
SELECT d.delivery_key, d.lane, d.message_id, d.biz_id,
       d.kafka_topic || '/' || d.kafka_partition || '/' || d.kafka_offset AS origin, d.state, d.owner,
       d.policy_version, d.created_at, d.expires_at
  FROM deliveries AS d WHERE """
# Each condition is that of one of the ledger's partial indexes.
_OPEN: Final = (
    """d.state = 'IN_FLIGHT' AND d.updated_at < {before}
   AND NOT EXISTS (SELECT 1 FROM workers AS w
                    WHERE w.id = d.owner AND w.epoch = d.owner_epoch
                      AND w.state NOT IN ('DEAD', 'RETIRED')
                      AND w.heartbeat_at + w.lease_ms >= {before})""",
    "d.state = 'RETRY' AND {least}(d.next_at, d.expires_at) < {before}",
    "d.state = 'UNKNOWN' AND coalesce(d.next_at, d.updated_at) < {before}",
)


def open_rows(before: int, *, is_postgres: bool) -> str:
    """Returns the statement for open rows that nobody has worked on since then (epoch milliseconds)."""
    least = "least" if is_postgres else "min"
    return " UNION ALL ".join(
        _OPEN_ROW + one.format(before=int(before), least=least) for one in _OPEN
    )


def given_back(before: int) -> str:
    """Returns the statement for rows that workers gave back and that were due for recovery before that time
    (epoch milliseconds)."""
    return _GIVEN_BACK.format(before=int(before))


def of_days(since: date | None) -> str:
    """Returns the statement for all rows claimed on that day or later."""
    return f"{ROWS} WHERE day >= {_day(since)}"


def counts(since: int) -> str:
    """Returns the statement that counts rows by lane and hour; `since` is the start of an hour."""
    return (
        f"SELECT lane, created_at / {_HOUR_MS} AS hour, count(*) AS rows FROM deliveries"  # noqa: S608
        f" WHERE day >= {int(since) // _MS_PER_DAY} AND created_at >= {int(since)}"
        f" GROUP BY lane, created_at / {_HOUR_MS}"
    )


def sent(since: int, until: int) -> str:
    """Returns the statement for rows that became SENT in that time and are still."""
    return f"""
SELECT delivery_key, lane, account, message_id, biz_id,
       kafka_topic || '/' || kafka_partition || '/' || kafka_offset AS origin, updated_at AS sent_at
  FROM deliveries
 WHERE state = 'SENT' AND updated_at >= {int(since)} AND updated_at < {int(until)}"""  # noqa: S608


def last_offsets(places: Sequence[tuple[str, int, int, int]]) -> str:
    """Returns the statement for the greatest offset with a row within each of these places (topic,
    partition, first, next). No index leads from an offset to its row: it reads the ledger once for all of
    them. Topics are of our own names; Kafka's have no quote."""
    values = ", ".join(
        f"('{topic}', {int(partition)}, {int(first)}, {int(next_)})"
        for topic, partition, first, next_ in places
    )
    return f"""
SELECT h.topic, h.partition, max(d.kafka_offset) AS "offset"
  FROM (SELECT column1 AS topic, column2 AS partition, column3 AS first, column4 AS next
          FROM (VALUES {values}) AS v) AS h
  JOIN deliveries AS d
    ON d.kafka_topic = h.topic AND d.kafka_partition = h.partition
   AND d.kafka_offset >= h.first AND d.kafka_offset < h.next
 GROUP BY h.topic, h.partition, h.first"""  # noqa: S608


def in_archive(tables: Sequence[str]) -> str:
    """Returns the statement for rows in these tables of the schema `archive`."""
    selects = (
        f"SELECT delivery_key, 'ARCHIVED' AS state FROM archive.{name}"  # noqa: S608 - `_ARCHIVED`
        for name in tables
    )
    return " UNION ALL ".join(selects)


def count_in_archive(table: str) -> str:
    """Returns the statement for the number of rows in one of these tables."""
    return f"SELECT count(*) AS rows FROM archive.{table}"  # noqa: S608 - `_ARCHIVED`


def keys_in_archive(table: str) -> str:
    """Returns the statement for all keys in one of these tables."""
    return f"SELECT delivery_key FROM archive.{table}"  # noqa: S608 - `_ARCHIVED`


def findings(most: int) -> str:
    """Returns the statement for open findings of causes whose records a later run does not read again."""
    return f"""
SELECT subject, cause, lane, message_id, biz_id, receiver, origin, created_at, expires_at, certain, detail
  FROM lost_findings
 WHERE status IN ('NEW', 'ASKED') AND cause IN ('passed', 'removed', 'hole', 'silent', 'forgotten')
 ORDER BY id LIMIT {int(most)}"""  # noqa: S608 - a number


def _day(day: date | None) -> int:
    return 0 if day is None else (day - _EPOCH).days - 1
