"""The fold: one row per delivery, whatever the order, the grouping and the repetition of its parts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from spark_jobs.rebuild import letters, parts
from spark_jobs.rebuild.fold import fold, one_pass
from spark_jobs.rebuild.missing import TraceLevels
from spark_jobs.tables import DELIVERIES
from tests.spark_jobs.rebuild.literals import (
    DAY,
    DAY_MS,
    NOON,
    Lives,
    event,
    frame,
    origin_of,
    record,
    table_of,
)

SETTLED: dict[str, Any] = {
    "received_at": NOON + 10,
    "claimed_at": NOON + 15,
    "started_at": NOON + 20,
    "answered_at": NOON + 90,
    "state": "SENT",
    "account": "main",
    "provider_id": "p1",
    "policy_version": "v1:a",
    "worker": "w1",
    "created_at": NOON - 5,
}


@pytest.fixture(autouse=True)
def sorted_parts(spark: SparkSession) -> Iterator[None]:
    with one_pass(spark):
        yield


def folded(
    spark: SparkSession,
    events: list[dict[str, Any]],
    records: list[dict[str, Any]] = [],  # noqa: B006 - never changed
    levels: TraceLevels = TraceLevels(),  # noqa: B008 - immutable
) -> list[dict[str, Any]]:
    both = [
        parts.event_parts(frame(spark, "events", events)),
        parts.record_parts(frame(spark, "records", records)),
    ]
    return [row.asDict(recursive=True) for row in table_of(fold(parts.union(both), levels))]


def states(spark: SparkSession, lives: dict[str, list[dict[str, Any]]]) -> dict[str, str | None]:
    """The state of each of several deliveries, folded at once."""
    events = [{**one, "delivery_key": key} for key, found in lives.items() for one in found]
    return {row["delivery_key"]: row["state"] for row in folded(spark, events)}


def test_a_good_send_is_one_row_with_all_its_times(spark: SparkSession) -> None:
    taken = record(7, NOON, biz_id="order-1", template="T1", resend_of="m0", traceparent="00-aa")
    settled = event("settled", NOON + 100, origin=origin_of(taken), **SETTLED)
    receipt = event("receipt", NOON + 5000, state="DELIVERED", code="0")
    (row,) = folded(spark, [receipt, settled], [taken])
    assert [one["stage"] for one in row.pop("timeline")] == ["settled", "receipt"]
    place = "hongyan.dispatch.sms.notice/0/7"
    assert row == {
        "day": DAY, "delivery_key": "k1", "message_id": "m1", "biz_id": "order-1", "lane": "sms.notice",
        "template": "T1", "receiver": "+86***0", "receiver_hash": None, "account": "main",
        "origin": place, "origins": [place], "resend_of": "m0", "traceparent": "00-aa",
        "policy_version": "v1:a", "created_at": NOON - 5, "accepted_at": None, "appended_at": NOON,
        "received_at": NOON + 10, "claimed_at": NOON + 15, "started_at": NOON + 20,
        "answered_at": NOON + 90, "ended_at": NOON + 100, "receipt_at": NOON + 5000, "first_at": NOON,
        "last_at": NOON + 5000, "wait_ms": 10, "claim_ms": 5, "queue_ms": 5, "call_ms": 70,
        "settle_ms": 10, "total_ms": 105, "receipt_ms": 4900, "attempts": 1, "calls": 1, "acceptances": 1,
        "duplicates": 0, "receipts": 1, "state": "DELIVERED", "reason": None, "code": "0",
        "provider_id": "p1", "settled": True, "dead_letter": None, "missing": [],
    }  # fmt: skip


def test_each_receiver_of_a_record_has_its_row_and_one_without_a_key_none(
    spark: SparkSession,
) -> None:
    rows = folded(spark, [], [record(1, NOON, ["k1", "k2", None])])
    assert [(row["delivery_key"], row["state"], row["settled"]) for row in rows] == [
        ("k1", None, False),
        ("k2", None, False),
    ]


def test_a_record_without_an_envelope_and_an_event_without_a_key_have_no_row(
    spark: SparkSession,
) -> None:
    poison = event("dead_letter", NOON, key="")
    assert (
        folded(spark, [poison, {**poison, "delivery_key": None}], [record(1, NOON, problem="json")])
        == []
    )


def test_the_state_is_that_of_the_last_attempt_and_nothing_unusual_changes_it(
    spark: SparkSession,
) -> None:
    sent = event("settled", NOON + 10, state="SENT", attempt=2)
    retry = event("settled", NOON, state="RETRY", attempt=1)
    doubt = event("settled", NOON, state="UNKNOWN")
    assert states(
        spark,
        {
            "late event of an earlier attempt": [sent, {**retry, "at": NOON + 99}],
            "late receipt of an earlier attempt": [
                event("settled", NOON, state="RETRY", attempt=2),
                event("receipt", NOON + 9, state="UNDELIVERED", attempt=1),
            ],
            "fence": [sent, event("fenced", NOON + 99, attempt=2, state="")],
            "duplicate": [sent, event("duplicate", NOON + 99, attempt=3, state="IN_FLIGHT")],
            "conflict": [sent, event("conflict", NOON + 99, attempt=3, state="IN_FLIGHT")],
            "contradicted": [sent, event("receipt_contradicted", NOON + 99, attempt=3, state="X")],
            "attempted": [event("attempted", NOON + 99, attempt=2, state=""), retry],
            "receipt before its settlement": [
                event("receipt", NOON - 9, state="DELIVERED"),
                event("settled", NOON, state="SENT"),
            ],
            "doubt resolved at the same time": [doubt, event("resolved", NOON, state="SENT")],
            "death after the claim": [
                event("taken", NOON, state="IN_FLIGHT"),
                event("owner_dead", NOON, state="UNKNOWN"),
            ],
            "revived by a person": [
                event("expired", NOON, state="EXPIRED"),
                event("resolved", NOON + 1, state="RETRY"),
            ],
            "expired again": [
                event("resolved", NOON + 1, state="RETRY"),
                event("expired", NOON + 2, state="EXPIRED"),
            ],
            "held, then taken": [
                event("taken", NOON + 5, state="IN_FLIGHT"),
                event("held", NOON, state="RETRY", attempt=0),
            ],
            "accepted alone": [event("accepted", NOON, attempt=None)],
        },
    ) == {
        "late event of an earlier attempt": "SENT",
        "late receipt of an earlier attempt": "RETRY",
        "fence": "SENT",
        "duplicate": "SENT",
        "conflict": "SENT",
        "contradicted": "SENT",
        "attempted": "RETRY",
        "receipt before its settlement": "DELIVERED",
        "doubt resolved at the same time": "SENT",
        "death after the claim": "UNKNOWN",
        "revived by a person": "RETRY",
        "expired again": "EXPIRED",
        "held, then taken": "IN_FLIGHT",
        "accepted alone": None,
    }


def test_events_read_twice_count_once(spark: SparkSession) -> None:
    events = [
        event("attempted", NOON, started_at=NOON - 5, answered_at=NOON),
        event("settled", NOON + 50, attempt=2, started_at=NOON + 1, state="SENT"),
        event("duplicate", NOON + 60),
        event("duplicate", NOON + 61),
        event("receipt", NOON + 70, state="DELIVERED", attempt=2),
    ]
    (row,) = folded(spark, events * 3, [record(1, NOON)] * 2)
    assert (row["attempts"], row["calls"], row["duplicates"], row["receipts"]) == (2, 2, 2, 1)
    assert row["acceptances"] == 1
    assert [one["at"] - NOON for one in row["timeline"]] == [0, 50, 60, 61, 70]
    assert row["origins"] == ["hongyan.dispatch.sms.notice/0/1"]


def test_events_of_one_time_are_in_the_order_of_stages_then_of_ids(spark: SparkSession) -> None:
    stages = ["resolved", "settled", "claimed", "accepted", "receipt", "duplicate", "new_one"]
    events = [event(stage, NOON, id=f"w/{9 - place}:1") for place, stage in enumerate(stages)]
    events.append(event("settled", NOON, id="w/1:1"))
    (row,) = folded(spark, events)
    assert [(one["stage"], one["id"]) for one in row["timeline"]] == [
        ("new_one", "w/3:1"),
        ("accepted", "w/6:1"),
        ("claimed", "w/7:1"),
        ("settled", "w/1:1"),
        ("settled", "w/8:1"),
        ("resolved", "w/9:1"),
        ("receipt", "w/5:1"),
        ("duplicate", "w/4:1"),
    ]


def test_of_two_records_of_one_delivery_the_first_appended_one_counts(spark: SparkSession) -> None:
    first, second = record(9, NOON, biz_id="one"), record(3, NOON + 1, biz_id="two")
    tie = record(2, NOON, biz_id="three")
    (row,) = folded(spark, [], [second, first])
    assert (row["biz_id"], row["appended_at"], len(row["origins"])) == ("one", NOON, 2)
    (row,) = folded(spark, [], [second, first, tie])
    assert (row["biz_id"], row["origin"]) == ("three", origin_of(tie))


def test_the_day_is_the_first_on_which_a_part_was_seen_by_the_broker(spark: SparkSession) -> None:
    skewed = event("settled", NOON + 40 * DAY_MS, day=DAY)
    late = event("receipt", NOON + DAY_MS, state="DELIVERED")
    (row,) = folded(spark, [late, skewed], [])
    assert row["day"] == DAY


def test_missing_stages_are_named_with_their_cause(spark: SparkSession) -> None:
    levels = TraceLevels(trouble=["email.notice"], none=["push.notice"])
    claim: dict[str, Any] = {"claimed_at": NOON}
    lives = {
        "no record": [event("settled", NOON, state="SENT", origin="t/0/1", **claim)],
        "no end": [event("receipt", NOON, state="DELIVERED", **claim)],
        "no first end": [
            event("settled", NOON, state="SENT", attempt=3, **claim),
            event("attempted", NOON),
        ],
        "no claim": [event("settled", NOON, state="SENT")],
        "held": [
            event("held", NOON, state="RETRY", attempt=0),
            event("settled", NOON, state="SENT"),
        ],
        "open": [event("taken", NOON, state="IN_FLIGHT", **claim)],
        "smooth": [event("receipt", NOON, state="DELIVERED", lane="email.notice")],
        "trouble": [event("taken", NOON, state="IN_FLIGHT", attempt=2, lane="email.notice")],
        "untraced": [event("receipt", NOON, state="DELIVERED", lane="push.notice")],
    }
    events = [{**one, "delivery_key": key} for key, found in lives.items() for one in found]
    records = [
        record(1, NOON, ["unseen"]),
        record(2, NOON, ["quiet"], lane="email.notice"),
        record(3, NOON, ["silent"], lane="push.notice"),
        record(4, NOON, ["dead"]),
    ]
    dead = letters.keyed(
        frame(
            spark,
            "dead_letters",
            [
                {"day": DAY, "origin": origin_of(records[3]), "reason": "no_lane"},
                {"day": DAY, "origin": f"t/0/{2**63}", "reason": "a stranger's"},
            ],
        ),
        frame(spark, "records", records),
    )
    all_ = [
        parts.event_parts(frame(spark, "events", events)),
        parts.record_parts(frame(spark, "records", records)),
        parts.letter_parts(dead),
    ]
    rows = table_of(fold(parts.union(all_), levels))
    assert {row["delivery_key"]: row["missing"] for row in rows} == {
        "no record": ["appended:hole"],
        "no end": ["settled:trace"],
        "no first end": ["settled:trace"],
        "no claim": ["claimed:trace"],
        "held": [],
        "open": [],
        "smooth": ["claimed:policy", "settled:policy"],
        "trouble": ["claimed:trace", "settled:trace"],
        "untraced": ["claimed:policy", "settled:policy"],
        "unseen": ["claimed:unseen"],
        "quiet": ["claimed:policy"],
        "silent": ["claimed:policy"],
        "dead": [],
    }
    assert {row["dead_letter"] for row in rows if row["delivery_key"] == "dead"} == {"no_lane"}


def all_parts(spark: SparkSession, lives: Lives) -> DataFrame:
    records = frame(spark, "records", lives.records)
    dead = letters.keyed(frame(spark, "dead_letters", lives.dead_letters), records)
    return parts.union(
        [
            parts.event_parts(frame(spark, "events", lives.events)),
            parts.record_parts(records),
            parts.letter_parts(dead),
        ]
    )


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.soak(cases="2")
def test_parts_folded_in_pieces_in_any_order_and_again_give_the_same_rows(
    spark: SparkSession, seed: int
) -> None:
    every = all_parts(spark, Lives(seed, 200)).localCheckpoint()
    whole = table_of(fold(every))
    assert len(whole) > 190
    mixed = F.xxhash64("day", "event.id", "record.origin", "delivery_key", F.lit(seed))
    piece = F.pmod(mixed, F.lit(3))
    # The first two pieces overlap, and come in another order.
    pieces = [
        every.where(piece != 0),
        every.where(piece != 1).orderBy(mixed),
        every.where(piece == 0),
    ]
    rows = [row for one in pieces for row in fold(one).collect()]
    again = parts.row_parts(spark.createDataFrame(rows, DELIVERIES))
    assert table_of(fold(again)) == whole


def test_one_shuffle_by_key_one_pass_and_no_python(spark: SparkSession) -> None:
    plan = plan_of(spark, fold(all_parts_plain(spark)))
    assert len(re.findall(r"Exchange ", plan)) == 1
    assert re.search(
        r"Exchange hashpartitioning\(delivery_key#\d+, \d+\), REPARTITION_BY_COL", plan
    )
    assert re.findall(r"(\w*Aggregate)\(", plan) == ["SortAggregate"]
    assert not re.search(r"Python|MapInPandas|ArrowEval|Window|Join", plan)


def all_parts_plain(spark: SparkSession) -> DataFrame:
    lives = Lives(1, 5)
    return parts.union(
        [
            parts.event_parts(frame(spark, "events", lives.events)),
            parts.record_parts(frame(spark, "records", lives.records)),
            parts.row_parts(frame(spark, "deliveries", [])),
        ]
    )


def plan_of(spark: SparkSession, rows: DataFrame) -> str:
    """The plan before it runs, with no field left out."""
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    spark.conf.set("spark.sql.debug.maxToStringFields", "1000")
    try:
        return str(rows._jdf.queryExecution().executedPlan().toString())
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
        spark.conf.unset("spark.sql.debug.maxToStringFields")
