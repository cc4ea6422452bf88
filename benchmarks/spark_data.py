"""Generated tables of the warehouse for `hongyan bench spark`: native expressions over a range of numbers.

A delivery has a record, a settled event and a receipt, with fields as long as real ones. Ids, keys and
hashes are digests, so that they compress as badly as real ones. Days follow each other in equal shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS_PER_DELIVERY: Final = 2
LIVES: Final = 8
"""Lives of processes that wrote the trace, each with numbers of its own."""
RECORD_EVENTS: Final = 250
PARTITIONS: Final = 12
DAY_MS: Final = 86_400_000
TOPIC: Final = "hongyan.dispatch.sms.notice"
TRACE: Final = "hongyan.trace"
TOPIC_ID: Final = "kq3Z1yHqS2a7cC9l0vVw2g"
RUN: Final = 1


class Appendable(Protocol):
    """The part of `spark_jobs.warehouse.Warehouse` that takes generated rows."""

    def append(self, table: str, frame: DataFrame, app: str, version: int) -> None: ...


@dataclass(frozen=True)
class Span:
    """Deliveries `first` to `first + deliveries`, evenly over the days from `day` on."""

    first: int
    deliveries: int
    day: int
    """Days since 1970."""
    days: int
    run: int = RUN
    """Number of the ingest run that is to have read them."""

    @property
    def events(self) -> int:
        """Trace events of the span."""
        return self.deliveries * EVENTS_PER_DELIVERY


def fill(spark: SparkSession, warehouse: Appendable, span: Span) -> None:
    """Appends the span's records, events, trace records and ranges."""
    for table, frame in (
        ("records", records(spark, span)),
        ("events", events(spark, span)),
        ("trace_records", trace_records(spark, span)),
        ("ranges", ranges(spark, span)),
    ):
        warehouse.append(table, frame, f"bench-{table}", span.run)


def deliveries(spark: SparkSession, span: Span) -> DataFrame:
    """Returns one row per delivery: its number `n`, its names, and the time at which its record came."""
    return (
        spark.range(span.first, span.first + span.deliveries)
        .selectExpr(
            "id AS n",
            f"{span.day * DAY_MS}L + (id - {span.first}) * {span.days * DAY_MS}L DIV {span.deliveries}"
            " AS at_ms",
            "substr(sha2(concat('message-', id), 256), 1, 32) AS message_id",
            "concat('+86138', lpad(id % 100000000, 8, '0')) AS phone",
        )
        .selectExpr(
            "*",
            "date_from_unix_date(CAST(at_ms DIV 86400000 AS INT)) AS day",
            "substr(sha2(concat_ws('\\u001f', message_id, 'sms', phone), 256), 1, 32) AS delivery_key",
            "concat('order-', n) AS biz_id",
            "concat(substr(phone, 1, 6), '***', substr(phone, -4)) AS receiver",
            "sha2(concat('hashed-', phone), 256) AS receiver_hash",
            "concat('SMS_1549509', n % 50) AS template",
            "concat('main-sms-', n % 4) AS account",
            "concat('00-', substr(sha2(concat('trace-', n), 256), 1, 32), '-',"
            " substr(sha2(concat('span-', n), 256), 1, 16), '-01') AS traceparent",
            f"CAST(n % {PARTITIONS} AS INT) AS partition",
            f"n DIV {PARTITIONS} AS offset",
        )
    )


def records(spark: SparkSession, span: Span) -> DataFrame:
    """Returns rows of `records`. Bodies have left, since the ledger has the deliveries."""
    return deliveries(spark, span).selectExpr(
        "day",
        f"'{TOPIC}' AS topic",
        f"'{TOPIC_ID}' AS topic_id",
        "partition",
        "offset",
        "at_ms AS timestamp",
        "message_id",
        "biz_id",
        "'sms.notice' AS lane",
        "at_ms - 12 AS created_at",
        "CAST(NULL AS BIGINT) AS ttl_ms",
        "template",
        "CAST(NULL AS STRING) AS account",
        "CAST(NULL AS STRING) AS ordering_key",
        "CAST(NULL AS STRING) AS resend_of",
        "traceparent",
        "array(named_struct('delivery_key', delivery_key, 'receiver', receiver,"
        " 'receiver_hash', receiver_hash)) AS deliveries",
        "CAST(NULL AS STRING) AS problem",
        "CAST(NULL AS BINARY) AS body",
    )


def events(spark: SparkSession, span: Span) -> DataFrame:
    """Returns rows of `events`: SETTLED with all marks, then RECEIPT three seconds later."""
    settled = "stage = 'settled'"
    return (
        deliveries(spark, span)
        .selectExpr("*", "explode(array('settled', 'receipt')) AS stage")
        .selectExpr(
            "*",
            f"n * {EVENTS_PER_DELIVERY} + IF({settled}, 0, 1) AS number",
            f"at_ms + IF({settled}, 90, 3090) AS at",
        )
        .selectExpr(
            "day",
            "at + 40 AS timestamp",
            f"concat({_life('number')}, ':', number DIV {LIVES}) AS id",
            "at",
            "stage",
            "message_id",
            "delivery_key",
            "biz_id",
            "'sms.notice' AS lane",
            "receiver",
            "receiver_hash",
            "template",
            f"concat(IF({settled}, 'worker-', 'receipts-'), number % {LIVES}) AS worker",
            "1 AS attempt",
            f"IF({settled}, 'SENT', 'DELIVERED') AS state",
            "CAST(NULL AS STRING) AS reason",
            f"IF({settled}, 'OK', 'DELIVERED') AS code",
            "CAST(NULL AS STRING) AS detail",
            "account",
            "concat(900619746936000000 + n, '^0') AS provider_id",
            f"IF({settled}, concat_ws('/', '{TOPIC}', partition, offset), NULL) AS origin",
            f"IF({settled}, 'file:3f9a1c52', NULL) AS policy_version",
            f"IF({settled}, traceparent, NULL) AS traceparent",
            "at_ms - 12 AS created_at",
            f"IF({settled}, at_ms + 5, NULL) AS received_at",
            f"IF({settled}, at_ms + 15, NULL) AS claimed_at",
            f"IF({settled}, at_ms + 20, NULL) AS started_at",
            f"IF({settled}, at_ms + 80 + n % 50, NULL) AS answered_at",
            "CAST(NULL AS STRING) AS call_end",
        )
    )


def trace_records(spark: SparkSession, span: Span) -> DataFrame:
    """Returns rows of `trace_records` that hold exactly the span's events."""
    per_life = -(-span.events // LIVES)
    per_record = -(-per_life // RECORD_EVENTS)
    start = span.first * EVENTS_PER_DELIVERY // LIVES
    in_record = f"LEAST({RECORD_EVENTS}, {per_life} - id DIV {LIVES} * {RECORD_EVENTS})"
    return spark.range(per_record * LIVES).selectExpr(
        f"date_from_unix_date(CAST({span.day} + id * {span.days} DIV {per_record * LIVES} AS INT))"
        " AS day",
        f"'{TOPIC_ID}' AS topic_id",
        "0 AS partition",
        f"id + {span.run * 1_000_000_000} AS offset",
        f"{span.day * DAY_MS}L + id * {span.days * DAY_MS}L DIV {per_record * LIVES} AS timestamp",
        f"{_life('id')} AS life",
        f"{start} + id DIV {LIVES} * {RECORD_EVENTS} AS first",
        f"CAST({in_record} AS INT) AS events",
        "0L AS dropped",
        "false AS ended",
    )


def ranges(spark: SparkSession, span: Span) -> DataFrame:
    """Returns one row per partition of the dispatch topic, and one for the trace topic."""
    start, end = span.first // PARTITIONS, (span.first + span.deliveries) // PARTITIONS
    dispatch = spark.range(PARTITIONS).selectExpr(
        *_range_of(span, TOPIC, "CAST(id AS INT)", start, end)
    )
    first = span.run * 1_000_000_000
    trace = spark.range(1).selectExpr(*_range_of(span, TRACE, "0", first, first + span.events))
    return dispatch.unionByName(trace)


def _range_of(span: Span, topic: str, partition: str, first: int, end: int) -> list[str]:
    return [
        f"date_from_unix_date({span.day + span.days - 1}) AS day",
        f"{span.run}L AS run",
        f"'{topic}' AS topic",
        f"'{TOPIC_ID}' AS topic_id",
        f"{partition} AS partition",
        f"{first}L AS first",
        f"{end}L AS next",
        f"{(span.day + span.days) * DAY_MS}L AS at",
    ]


def _life(number: str) -> str:
    """Returns the expression of the life that wrote the event of this number."""
    return (
        f"concat('worker-', {number} % {LIVES}, '/',"
        f" substr(sha2(concat('life-', {number} % {LIVES}), 256), 1, 16))"
    )
