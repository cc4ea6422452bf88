"""Causes of a loss on literal rows."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.positions import PartitionPosition, Positions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC, OLD_ID, ID = "h.dispatch.sms.notice", "old", "new"
NOW = 1_790_000_000_000
HOUR = 3_600_000
DAY = date(2026, 9, 21)
KEYS = [f"{number:032x}" for number in range(100)]
POSITIONS = Positions(
    NOW,
    [
        # 0..9 gone, 10..19 committed, 20..22 open, 23..24 done above, 25.. open
        PartitionPosition(TOPIC, ID, "sms.notice", 0, 20, 10, 40, [(23, 25)]),
        PartitionPosition(TOPIC, ID, "sms.notice", 1, None, 0, 40),
    ],
)


def record(offset: int, **changes: Any) -> dict[str, Any]:
    return {
        "day": DAY,
        "topic": TOPIC,
        "topic_id": ID,
        "partition": 0,
        "offset": offset,
        "timestamp": NOW - HOUR,
        "message_id": f"m{offset}",
        "biz_id": f"order-{offset}",
        "lane": "sms.notice",
        "created_at": NOW - HOUR,
        "ttl_ms": None,
        "template": None,
        "account": None,
        "ordering_key": None,
        "resend_of": None,
        "traceparent": None,
        "deliveries": [(KEYS[offset], "+86138***0001", None)],
        "problem": None,
        "body": bytearray(b"sealed"),
        **changes,
    }


def event(offset: int, stage: str = "settled", **changes: Any) -> dict[str, Any]:
    return {
        "day": DAY,
        "timestamp": NOW - HOUR,
        "at": NOW - HOUR,
        "stage": stage,
        "message_id": f"m{offset}",
        "biz_id": f"order-{offset}",
        "delivery_key": KEYS[offset],
        "lane": "sms.notice",
        "state": "SENT",
        "account": "main",
        "origin": f"{TOPIC}/0/{offset}",
        "policy_version": "v1:a",
        "claimed_at": NOW - HOUR,
        "created_at": NOW - HOUR,
        **changes,
    }


def frame(spark: SparkSession, table: str, rows: list[dict[str, Any]]) -> DataFrame:
    from spark_jobs.warehouse import schema_of

    schema = schema_of(table)
    return spark.createDataFrame(
        [tuple(row.get(name) for name in schema.names) for row in rows], schema
    )


def lanes(spark: SparkSession, **changes: Any) -> DataFrame:
    from spark_jobs.lost.terms import LaneTerms, lanes_frame

    values = {
        "policy_version": "v1:a",
        "lane": "sms.notice",
        "guarantee": "at_least_once",
        "trace": "all",
        "ttl_ms": 24 * HOUR,
        "max_ttl_ms": 48 * HOUR,
        "horizon_ms": 7 * 24 * HOUR,
        "receipt_lag_ms": HOUR,
        "lost": "resend",
        "current": True,
    }
    return lanes_frame(spark, [LaneTerms(**{**values, **changes})], NOW)


def proposed_causes(
    spark: SparkSession, records: list[dict[str, Any]], **lane: Any
) -> dict[Any, str]:
    """LossCause by (partition, offset)."""
    from spark_jobs.lost import places
    from spark_jobs.lost.causes import proposed

    positions = places.positions_frame(spark, POSITIONS)
    placed = places.placed(frame(spark, "records", records), positions, NOW)
    found = proposed(places.deliveries_of(placed), lanes(spark, **lane), NOW)
    return {(row["partition"], row["offset"]): row["cause"] for row in found.collect()}


def test_a_record_is_judged_by_its_offset(spark: SparkSession) -> None:
    offsets = [9, 10, 19, 20, 22, 23, 24, 25]
    assert proposed_causes(spark, [record(offset) for offset in offsets]) == {
        (0, 9): "removed",
        (0, 10): "passed",
        (0, 19): "passed",
        (0, 23): "passed",
        (0, 24): "passed",
    }


def test_a_partition_without_a_commit_has_passed_nothing(spark: SparkSession) -> None:
    assert proposed_causes(spark, [record(3, partition=1)]) == {}


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"topic_id": OLD_ID}, "removed"),
        ({"topic": "h.dispatch.sms.gone"}, "removed"),
        # Made after the positions were taken: nothing is known about it.
        ({"topic_id": OLD_ID, "timestamp": NOW + 1}, None),
    ],
    ids=["made anew", "deleted", "younger than the positions"],
)
def test_a_topic_that_is_gone_has_removed_its_records(
    spark: SparkSession, changes: dict[str, Any], cause: str | None
) -> None:
    found = proposed_causes(spark, [record(30, **changes)])
    assert list(found.values()) == ([cause] if cause else [])


@pytest.mark.parametrize(
    ("ttl_ms", "age_ms", "late"),
    [
        (None, 24 * HOUR, False),
        (None, 24 * HOUR + 1, True),
        (1_000, 1_001, True),
        # The lane's bound caps a message's own.
        (96 * HOUR, 48 * HOUR + 1, True),
        (96 * HOUR, 48 * HOUR, False),
    ],
)
def test_an_unread_record_counts_past_its_time_to_live(
    spark: SparkSession, ttl_ms: int | None, age_ms: int, late: bool
) -> None:
    found = proposed_causes(spark, [record(30, ttl_ms=ttl_ms, created_at=NOW - age_ms)])
    assert found == ({(0, 30): "unread"} if late else {})


def test_a_lane_without_a_ledger_proves_nothing(spark: SparkSession) -> None:
    assert proposed_causes(spark, [record(9), record(12)], guarantee="best_effort") == {}


def test_a_lane_proves_nothing_about_the_time_when_it_had_no_ledger(spark: SparkSession) -> None:
    from spark_jobs.lost import places
    from spark_jobs.lost.causes import proposed
    from spark_jobs.lost.terms import LaneTerms, lanes_frame

    def terms(version: str, guarantee: str, since: int, current: bool) -> LaneTerms:
        return LaneTerms(
            version, "sms.notice", guarantee, "all", HOUR, HOUR, HOUR, HOUR, "ask", since, current
        )

    changed_at = NOW - 30 * 60_000
    known = lanes_frame(
        spark,
        [
            terms("v2:b", "at_least_once", changed_at, True),
            terms("v1:a", "best_effort", NOW - 5 * HOUR, False),
        ],
        NOW,
    )
    records = [record(12), record(13, timestamp=changed_at + 1)]
    positions = places.positions_frame(spark, POSITIONS)
    placed = places.placed(frame(spark, "records", records), positions, NOW)
    found = proposed(places.deliveries_of(placed), known, NOW)
    assert [row["offset"] for row in found.collect()] == [13]


def best_effort_until(*versions: tuple[str, str, int, int]) -> dict[str, int]:
    """The last moment without a ledger by lane, of (version, guarantee, since, alone since); the last
    version is in force."""
    from spark_jobs.lost import terms

    every = [
        terms.LaneTerms(
            policy_version=version,
            lane="sms.notice",
            guarantee=guarantee,
            trace="trouble",
            ttl_ms=HOUR,
            max_ttl_ms=HOUR,
            horizon_ms=HOUR,
            receipt_lag_ms=HOUR,
            lost="resend",
            since=since,
            current=number == len(versions),
            alone_since=alone_since,
        )
        for number, (version, guarantee, since, alone_since) in enumerate(versions, 1)
    ]
    return terms.best_effort_until(every, NOW)


def test_a_lane_proves_nothing_while_its_last_change_of_guarantee_has_no_known_time() -> None:
    ledger, none = "at_least_once", "best_effort"
    # A, B, A of files, where only the first start under A has a time.
    assert best_effort_until(("b", none, 20, 0), ("a", ledger, 10, 0)) == {"sms.notice": NOW}
    assert best_effort_until(("b", none, 20, 0), ("a", ledger, 0, 0)) == {"sms.notice": NOW}
    assert best_effort_until(("b", none, 20, 0), ("a", ledger, 30, 0)) == {"sms.notice": 30}
    assert best_effort_until(("a", ledger, 10, 0), ("b", none, 20, 0)) == {"sms.notice": NOW}
    assert best_effort_until(("a", ledger, 10, 0), ("c", ledger, 20, 0)) == {}


def test_a_lane_has_a_ledger_once_the_last_worker_without_one_has_ended() -> None:
    ledger, none = "at_least_once", "best_effort"
    changed = ("a", none, 10, 10), ("b", ledger, 20, 50), ("c", ledger, 70, 70)
    assert best_effort_until(*changed) == {"sms.notice": 50}


def left(
    spark: SparkSession,
    records: list[dict[str, Any]],
    events: list[dict[str, Any]] | None = None,
    letters: list[dict[str, Any]] | None = None,
    recalls: list[tuple[str, str, int]] | None = None,
) -> list[int]:
    """Offsets of what nothing explains."""
    from spark_jobs.lost import places
    from spark_jobs.lost.causes import explained, proposed
    from spark_jobs.lost.claimed import claimed

    positions = places.positions_frame(spark, POSITIONS)
    placed = places.placed(frame(spark, "records", records), positions, NOW)
    found = proposed(places.deliveries_of(placed), lanes(spark), NOW)
    trace = frame(spark, "events", events or [])
    named = spark.createDataFrame(recalls or [], "kind STRING, name STRING, made_at BIGINT")
    rest = explained(
        found, claimed(trace), frame(spark, "dead_letters", letters or []), trace, named
    )
    return sorted(row["offset"] for row in rest.collect())


def letter(origin: str, timestamp: int = NOW - HOUR) -> dict[str, Any]:
    return {"day": DAY, "timestamp": timestamp, "origin": origin, "reason": "wrong_type"}


def test_a_dead_letter_explains_its_record_and_no_other(spark: SparkSession) -> None:
    records = [record(10), record(11), record(12)]
    letters = [
        letter(f"{TOPIC}/0/10"),
        letter(f"{TOPIC}/1/11"),
        # Of an earlier log of that name.
        letter(f"{TOPIC}/0/12", NOW - 48 * HOUR),
    ]
    assert left(spark, records, letters=letters) == [11, 12]


def test_a_producers_clock_ahead_makes_no_loss_of_a_dead_letter(spark: SparkSession) -> None:
    ahead = record(10, timestamp=NOW - HOUR // 2)
    assert left(spark, [ahead], letters=[letter(f"{TOPIC}/0/10", NOW - 2 * HOUR)]) == []


@pytest.mark.parametrize(
    "stage",
    ["settled", "held", "dropped", "expired", "parked", "behind", "duplicate", "conflict", "taken"],
)
def test_an_event_after_the_claim_shows_the_row(spark: SparkSession, stage: str) -> None:
    assert left(spark, [record(10), record(11)], [event(10, stage)]) == [11]


@pytest.mark.parametrize("stage", ["accepted", "dead_letter", "removed", "handed_over"])
def test_an_event_before_the_claim_shows_no_row(spark: SparkSession, stage: str) -> None:
    assert left(spark, [record(10)], [event(10, stage)]) == [10]


def test_a_recall_explains_what_it_took_back(spark: SparkSession) -> None:
    records = [record(offset) for offset in (10, 11, 12, 13, 14)]
    before, after = NOW - 2 * HOUR, NOW - HOUR // 2
    recalls = [("message", "m10", after), ("biz", "order-11", after), ("biz", "order-12", before)]
    asked = [event(13, "recall_asked", delivery_key="", at=after)]
    assert left(spark, records, asked, recalls=recalls) == [12, 14]


def test_a_recall_in_a_lane_explains_what_it_took_back_there_alone(spark: SparkSession) -> None:
    records = [record(offset) for offset in (10, 11, 12, 13)]
    after = NOW - HOUR // 2
    recalls = [("lane", "sms.notice:m10", after), ("lane", "sms.marketing:m11", after)]
    terms = {"delivery_key": "", "reason": "lane_recall", "at": after}
    asked = [
        event(12, "recall_asked", **terms),
        event(13, "recall_asked", lane="sms.marketing", **terms),
    ]
    assert left(spark, records, asked, recalls=recalls) == [11, 13]


def test_a_run_looks_at_what_the_last_one_did_not_decide(spark: SparkSession) -> None:
    from spark_jobs.lost import places

    frontier = places.frontier_frame(spark, POSITIONS.partitions)
    ranges = frame(
        spark,
        "ranges",
        [
            {"run": 4, "topic": TOPIC, "topic_id": ID, "partition": 0, "first": 0, "next": 18},
            # Read after the last lost run, number 5, had looked.
            {"run": 6, "topic": TOPIC, "topic_id": ID, "partition": 0, "first": 18, "next": 40},
        ],
    )
    records = [record(offset) for offset in (9, 17, 18, 20, 23)]
    records += [record(1, topic_id=OLD_ID), record(30, problem="not_json")]
    ingested = places.read_by_then(ranges, 5)
    found = places.undecided(frame(spark, "records", records), frontier, ingested)
    assert sorted(row["offset"] for row in found.collect()) == [1, 18, 20, 23]


def test_candidates_carry_the_body_where_kafka_has_the_record_no_more(spark: SparkSession) -> None:
    from spark_jobs.lost import places
    from spark_jobs.lost.causes import proposed, record_candidates

    positions = places.positions_frame(spark, POSITIONS)
    records = [record(9), record(12), record(30, ttl_ms=1)]
    placed = places.placed(frame(spark, "records", records), positions, NOW)
    found = proposed(places.deliveries_of(placed), lanes(spark), NOW)
    rows = record_candidates(found, placed, 0).sort("origin").collect()
    assert [(r["subject"], r["cause"], r["certain"], r["body"], r["expires_at"]) for r in rows] == [
        (KEYS[12], "passed", 1, None, NOW + 23 * HOUR),
        (KEYS[30], "unread", 0, None, NOW - HOUR + 1),
        (KEYS[9], "removed", 1, bytearray(b"sealed"), NOW + 23 * HOUR),
    ]
    assert rows[0]["detail"] == (
        "the group has passed offset 12 (committed 20), and the ledger has no row"
    )


def test_nothing_is_certain_while_dead_letters_may_be_missing(spark: SparkSession) -> None:
    from spark_jobs.lost import places
    from spark_jobs.lost.causes import proposed, record_candidates

    positions = places.positions_frame(spark, POSITIONS)
    records = [record(12), record(13, timestamp=NOW - HOUR + 1)]
    placed = places.placed(frame(spark, "records", records), positions, NOW)
    found = proposed(places.deliveries_of(placed), lanes(spark), NOW)
    rows = record_candidates(found, placed, NOW - HOUR).sort("origin").collect()
    assert [row["certain"] for row in rows] == [0, 1]


def test_what_was_accepted_by_a_topic_that_is_gone_is_in_a_hole(spark: SparkSession) -> None:
    """Nobody knows where its log ended. A topic of the same name has other records at these places."""
    from spark_jobs.lost import holes

    hole = {"day": DAY, "run": 7, "topic": TOPIC, "topic_id": OLD_ID, "lane": "sms.notice"}
    hole |= {"partition": 0, "first": 5, "next": None, "at": NOW, "before": NOW}
    new = holes.of_lanes(frame(spark, "holes", [hole]), lanes(spark), 6)
    accepted = [
        event(4, "accepted"),  # the ingest has read it
        event(5, "accepted"),
        event(6, "accepted"),  # of the topic that was made anew
        event(7, "accepted", at=NOW + 1),
        event(8, "accepted"),
        event(9, "accepted", origin=f"{TOPIC}/1/9"),
    ]
    letters = frame(spark, "dead_letters", [{"day": DAY, "origin": f"{TOPIC}/0/8"}])
    events, records = frame(spark, "events", accepted), frame(spark, "records", [record(6)])
    found = holes.accepted_by_gone(events, letters, new, records).collect()
    assert [(row["delivery_key"], row["offset"]) for row in found] == [(KEYS[5], 5)]
    bounded = holes.accepted(events, letters, new)
    assert bounded.collect() == []
    rows = spark.createDataFrame([], "topic STRING, partition INT, offset BIGINT")
    read = holes.read_places(events, letters, rows, new)
    assert holes.hole_candidates(new, read, bounded).collect() == []


def test_an_overdue_receipt_counts_for_accounts_that_report(spark: SparkSession) -> None:
    from spark_jobs.lost.causes import overdue
    from spark_jobs.lost.claimed import reporting, sent

    def at(offset: int, ago: int, **changes: Any) -> dict[str, Any]:
        return event(offset, at=NOW - ago, **changes)

    events = frame(
        spark,
        "events",
        [
            at(1, 2 * HOUR),
            at(2, HOUR // 2),
            at(3, 2 * HOUR),
            event(3, "receipt", state="DELIVERED"),
            at(4, 2 * HOUR, account="mute"),
            at(5, 9 * HOUR),
            at(6, 2 * HOUR, state="RETRY"),
            at(7, 2 * HOUR),
            event(7, "recalled"),
        ],
    )
    found = overdue(sent(events), lanes(spark), reporting(events), NOW, NOW - 3 * HOUR)
    assert [row["delivery_key"] for row in found.collect()] == [KEYS[1]]


def test_only_hours_that_differ_are_asked_about(spark: SparkSession) -> None:
    from spark_jobs.lost.causes import differing
    from spark_jobs.lost.claimed import claims_by_hour
    from spark_jobs.lost.terms import TERMS

    early, late = NOW - 5 * HOUR, NOW - HOUR
    events = frame(
        spark,
        "events",
        [
            event(1, claimed_at=early),
            event(2, claimed_at=early),
            event(2, "receipt", claimed_at=0),
            event(3, claimed_at=late),
            # Held at its claim, which it does not name.
            event(4, "held", claimed_at=0, at=late, state="RETRY"),
            event(5, claimed_at=late, policy_version="v0:x"),
        ],
    )
    versions = spark.createDataFrame([("v0:x", "sms.notice", "best_effort", 1)], TERMS)
    claims = claims_by_hour(events, versions)
    hours = "lane STRING, hour BIGINT, rows BIGINT"

    def asked(*rows: int) -> list[str]:
        counts = [("sms.notice", at // HOUR, n) for at, n in zip((early, late), rows, strict=True)]
        found = differing(claims, spark.createDataFrame(counts, hours))
        return sorted(row["delivery_key"] for row in found.collect())

    assert asked(2, 2) == []
    assert asked(1, 2) == [KEYS[1], KEYS[2]]
    assert asked(2, 3) == [KEYS[3], KEYS[4]]


@pytest.mark.parametrize("key", ["x' OR '1' = '1", "", "A" * 32, "a" * 33])
def test_a_key_of_another_form_is_no_delivery(spark: SparkSession, key: str) -> None:
    from spark_jobs.lost.claimed import claimed

    assert claimed(frame(spark, "events", [event(1, delivery_key=key)])).collect() == []
