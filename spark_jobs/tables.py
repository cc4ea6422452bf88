"""The tables of the warehouse, as Spark DDL. All times are epoch milliseconds; a day is a UTC date.

`day` is the broker's: a producer's clock may be wrong. Every table is partitioned by it. No table holds a
receiver or content in the clear.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EVENT: Final = """
id STRING, at BIGINT, stage STRING, message_id STRING, delivery_key STRING, biz_id STRING, lane STRING,
receiver STRING, receiver_hash STRING, template STRING, worker STRING, attempt INT, state STRING,
reason STRING, code STRING, detail STRING, account STRING, provider_id STRING, origin STRING,
policy_version STRING, traceparent STRING, created_at BIGINT, received_at BIGINT, claimed_at BIGINT,
started_at BIGINT, answered_at BIGINT, call_end STRING"""
"""Fields of `tracing.events.TraceEvent`, absent ones null. `id` is `LIFE:NUMBER` by the record's headers,
or `TOPIC/PARTITION/OFFSET/INDEX` without them: the same event read twice has the same id."""

RECORDS: Final = """
day DATE, topic STRING, topic_id STRING, partition INT, offset BIGINT, timestamp BIGINT,
message_id STRING, biz_id STRING, lane STRING, created_at BIGINT, ttl_ms BIGINT, template STRING,
account STRING, ordering_key STRING, resend_of STRING, traceparent STRING,
deliveries ARRAY<STRUCT<delivery_key: STRING, receiver: STRING, receiver_hash: STRING>>,
problem STRING, body BINARY"""
"""One row per record of a dispatch topic, read committed. `timestamp` is the broker's. `deliveries` has an
entry per different receiver: the key is null where Spark cannot normalise the receiver, `receiver` is the
mask. `problem` is null for an envelope, else a code; the row then has its place alone. `body` is sealed as
`idempotency/payload_cipher.py` seals (plain without `database.payload_key`); null once the ledger has every
delivery of the record."""

EVENTS: Final = f"day DATE, timestamp BIGINT, {EVENT.strip()}"
"""One row per event in the trace topic."""

TRACE_RECORDS: Final = """
day DATE, topic_id STRING, partition INT, offset BIGINT, timestamp BIGINT, life STRING, first BIGINT,
events INT, dropped BIGINT, ended BOOLEAN"""
"""One row per record of the trace topic; `life` is null for one without headers."""

DEAD_LETTERS: Final = """
day DATE, topic_id STRING, partition INT, offset BIGINT, timestamp BIGINT, origin STRING, reason STRING,
message_id STRING"""
"""One row per dead letter; `origin` is `TOPIC/PARTITION/OFFSET` of the record."""

FOREIGN: Final = """
day DATE, topic STRING, topic_id STRING, partition INT, offset BIGINT, timestamp BIGINT, problem STRING,
size INT"""
"""One row per record of trace or dead-letter topic that is not ours or is malformed."""

RANGES: Final = """
day DATE, run BIGINT, topic STRING, topic_id STRING, partition INT, first BIGINT, next BIGINT, at BIGINT"""
"""Offsets that a run read: `first` inclusive, `next` exclusive. `run` is `spark_runs.id`."""

HOLES: Final = """
day DATE, run BIGINT, topic STRING, topic_id STRING, lane STRING, partition INT, first BIGINT,
next BIGINT, after BIGINT, before BIGINT, at BIGINT, reason STRING"""
"""Offsets that were gone before they were read. `after` and `before` bound the broker's times of the
missing records, null where unknown. `lane` is null for the trace and dead-letter topics.
Reasons: `removed` (below the log's start), `topic_gone`."""

DELIVERIES: Final = f"""
day DATE, delivery_key STRING, message_id STRING, biz_id STRING, lane STRING, template STRING,
receiver STRING, receiver_hash STRING, account STRING, origin STRING, origins ARRAY<STRING>,
resend_of STRING, traceparent STRING, policy_version STRING, created_at BIGINT, accepted_at BIGINT,
appended_at BIGINT, received_at BIGINT, claimed_at BIGINT, started_at BIGINT, answered_at BIGINT,
ended_at BIGINT, receipt_at BIGINT, first_at BIGINT, last_at BIGINT,
wait_ms BIGINT, claim_ms BIGINT, queue_ms BIGINT, call_ms BIGINT, settle_ms BIGINT, total_ms BIGINT,
receipt_ms BIGINT, attempts INT, calls INT, acceptances INT, duplicates INT, receipts INT,
state STRING, reason STRING,
code STRING, provider_id STRING, settled BOOLEAN, dead_letter STRING, missing ARRAY<STRING>,
timeline ARRAY<STRUCT<{EVENT.strip()}>>"""
"""Exactly one row per delivery. `day` is the first day on which any part of it was seen. `appended_at` is
the broker's time of the record; `origins` are all places it was read from. `timeline` has each event
once, ordered by time, then by the order of stages, then by id. `acceptances` counts the claims under which
a provider accepted it: more than one is a double send. `missing` names stages that must have been and are
not there, each as `STAGE:CAUSE`. `dead_letter` is the letter's reason, of several the least. `state` is
null where no part tells one."""

TABLES: Final[Mapping[str, str]] = {
    "records": RECORDS,
    "events": EVENTS,
    "trace_records": TRACE_RECORDS,
    "dead_letters": DEAD_LETTERS,
    "foreign": FOREIGN,
    "ranges": RANGES,
    "holes": HOLES,
    "deliveries": DELIVERIES,
}
