"""Records of the trace and dead letters by native expressions."""

from __future__ import annotations

from datetime import date

import msgspec
from pyspark.sql import SparkSession

from spark_jobs.ingest.dead_letters import dead_letters_of, parsed_dead
from spark_jobs.ingest.trace import events_of, foreign_of, parsed_trace, trace_records_of
from tests.spark_jobs.ingest.making import AT, kafka_frame, wire
from tracing.events import Stage, TraceEvent
from tracing.record_headers import record_headers

LIFE = "worker-1/00000000000000aa"
FULL = TraceEvent(
    at=AT,
    stage=Stage.SETTLED,
    message_id="m-1",
    delivery_key="k" * 32,
    biz_id="order-1",
    lane="sms.notice",
    receiver="+86138***0001",
    receiver_hash="ab",
    template="T1",
    worker="worker-1",
    attempt=2,
    state="SENT",
    reason="r",
    code="OK",
    detail="d",
    account="main",
    provider_id="p",
    origin="hongyan.dispatch.sms.notice/0/7",
    policy_version="v1:abc",
    traceparent="00-x",
    created_at=AT - 5,
    received_at=AT - 4,
    claimed_at=AT - 3,
    started_at=AT - 2,
    answered_at=AT - 1,
    call_end="timed_out",
)
SHORT = TraceEvent(at=AT, stage=Stage.REMOVED, message_id="")


def test_events_keep_every_field_and_get_their_numbers(spark: SparkSession) -> None:
    values = [
        msgspec.json.encode([FULL, SHORT]),
        msgspec.json.encode([SHORT]),
        b"[]",
        b"",
        b"not json",
        b'{"foreign": 1}',
        b'[{"at": 5, "stage": "later_stage", "message_id": "m"}, {"x": 1}]',
        msgspec.json.encode([SHORT]),
    ]
    headers = [
        dict(record_headers(LIFE, 40, 3)),
        {},
        dict(record_headers(LIFE, 42, 5, end=True)),
        dict(record_headers(LIFE, 43, 5, end=True)),
        {},
        {},
        {},
        {"hongyan-trace-life": b"a life", "hongyan-trace-first": b"soon"},
    ]
    frame = kafka_frame(spark, values, topic="hongyan.trace", headers=headers)
    parsed = parsed_trace(frame).cache()
    events = [row.asDict() for row in events_of(parsed).orderBy("id").collect()]
    assert [event["id"] for event in events] == [
        *("hongyan.trace/3/1/0", "hongyan.trace/3/6/0", "hongyan.trace/3/7/0"),
        *(f"{LIFE}:40", f"{LIFE}:41"),
    ]
    kept = [key for key in TraceEvent.__struct_fields__ if key != "answer"]
    full = msgspec.to_builtins(FULL)
    assert {key: events[3][key] for key in kept} == {key: full[key] for key in kept}
    assert events[3]["day"] == date(2026, 11, 23)
    assert {k for k, v in events[4].items() if v is not None} == {
        *("day", "timestamp", "id", "at", "stage", "message_id"),
    }
    records = trace_records_of(parsed).orderBy("offset").collect()
    assert [(r.offset, r.life, r.first, r.events, r.dropped, r.ended) for r in records] == [
        (0, LIFE, 40, 2, 3, False),
        (1, None, None, 1, 0, False),
        (2, LIFE, 42, 0, 5, True),
        (3, LIFE, 43, 0, 5, True),
        (5, None, None, 1, 0, False),
        (6, None, None, 2, 0, False),
        (7, None, None, 1, 0, False),
    ]
    foreign = foreign_of(parsed).orderBy("offset").collect()
    assert [(r.offset, r.problem, r.size) for r in foreign] == [
        (4, "not_events", 8),
        (5, "strange_events", 14),
        (6, "strange_events", len(values[6])),
        (7, "half_headers", len(values[7])),
    ]
    parsed.unpersist()


def test_a_dead_letter_has_the_workers_origin(spark: SparkSession) -> None:
    ours = {"hongyan-dead-reason": b"not_json", "hongyan-dead-origin": b"t.dispatch.sms.notice/3/9"}
    headers = [{"hongyan-id": b"m-9", **ours}, ours, {"hongyan-dead-reason": b"not_json"}, {}]
    values = [wire({}), None, b"x", None]
    frame = kafka_frame(spark, values, topic="hongyan.dead", headers=headers)
    parsed = parsed_dead(frame)
    letters = dead_letters_of(parsed).orderBy("offset").collect()
    assert [(row.offset, row.origin, row.reason, row.message_id) for row in letters] == [
        (0, "t.dispatch.sms.notice/3/9", "not_json", "m-9"),
        (1, "t.dispatch.sms.notice/3/9", "not_json", None),
    ]
    foreign = foreign_of(parsed).orderBy("offset").collect()
    assert [(row.offset, row.problem, row.size) for row in foreign] == [
        (2, "no_origin", 1),
        (3, "no_origin", None),
    ]
