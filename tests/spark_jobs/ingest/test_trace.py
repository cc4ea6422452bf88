"""Records of the trace and dead letters by native expressions."""

from __future__ import annotations

from datetime import date

import msgspec
from pyspark.sql import SparkSession

from spark_jobs.ingest.dead_letters import dead_letters_of, parsed_dead
from spark_jobs.ingest.trace import events_of, foreign_of, parsed_trace, trace_records_of
from spark_jobs.rebuild.fold import fold, one_pass
from spark_jobs.rebuild.gaps import gaps
from spark_jobs.rebuild.parts import event_parts
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


def test_a_strangers_record_ends_no_later_run(spark: SparkSession) -> None:
    """A sum over the greatest numbers, or a NUL on its way into PostgreSQL, would fail in each run anew."""
    greatest = 2**63 - 1
    one = msgspec.to_builtins(FULL)
    odd = {
        **one,
        "created_at": -greatest - 1,
        "answered_at": greatest,
        "template": "a\0\0b\\u0000",
        "lane": "x" * 9_000,
        "account": "鸿" * 9_000,
    }
    values = [
        msgspec.json.encode([one, one]),
        msgspec.json.encode([odd, {**one, "at": greatest}, {**one, "at": -1}]),
    ]
    headers = [
        {"hongyan-trace-life": b"a\0b", "hongyan-trace-first": str(greatest).encode()},
        {
            "hongyan-trace-life": b"\xff\0b" + b"x" * 9_000,
            "hongyan-trace-first": str(2**53).encode(),
            "hongyan-trace-dropped": str(greatest).encode(),
        },
    ]
    frame = kafka_frame(spark, values, topic="hongyan.trace", headers=headers)
    parsed = parsed_trace(frame).cache()
    events = events_of(parsed).cache()
    found = events.orderBy("id").collect()
    assert [row.id for row in found[:2]] == ["hongyan.trace/3/0/0", "hongyan.trace/3/0/1"]
    assert len(found) == 3, "times outside of the calendar are those of no event"
    assert (found[2].template, found[2].created_at, found[2].answered_at) == (
        "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}b\\u0000",
        None,
        None,
    )
    assert (len(found[2].lane), len(found[2].account)) == (64, 256)
    assert [row.problem for row in foreign_of(parsed).orderBy("offset").collect()] == [
        "half_headers",
        "strange_events",
    ]
    (life,) = gaps(trace_records_of(parsed), None)
    assert "\0" not in life.life
    assert len(life.life) == 256
    assert (life.missing, life.dropped) == (2**53, 2**53)
    with one_pass(spark):
        rows = fold(event_parts(events)).collect()
    assert [row.delivery_key for row in rows] == ["k" * 32]
    parsed.unpersist()
    events.unpersist()


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
