"""Gaps by life, double sends, funnels: small tables from literal rows."""

from __future__ import annotations

import random
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from spark_jobs.rebuild import doubles, funnels, gaps
from spark_jobs.tables import EVENT
from tests.spark_jobs.rebuild.literals import DAY, DAY_MS, NOON, event, frame

HOUR = 3_600_000
EVENT_FIELDS = [field.split()[0] for field in EVENT.replace("\n", " ").split(",")]


def trace_record(life: str | None, first: int, events: int, **fields: Any) -> dict[str, Any]:
    row = {"day": DAY, "topic_id": "t", "partition": 0, "offset": first, "timestamp": NOON + first}
    return {**row, "life": life, "first": first, "events": events, "dropped": 0, **fields}


def test_missing_events_are_exactly_the_numbers_in_no_record(spark: SparkSession) -> None:
    random_ = random.Random(5)
    rows, removed = [], {}
    for number in range(20):
        life, first, removed[f"w{number}/a"] = f"w{number}/a", 0, 0
        for _ in range(random_.randrange(1, 30)):
            events = random_.randrange(1, 250)
            if random_.random() < 0.3:
                removed[life] += events
            else:
                rows += [trace_record(life, first, events)] * random_.choice([1, 1, 2])
            first += events
        rows.append(trace_record(life, first, 0, ended=True))
    random_.shuffle(rows)
    found = gaps.gaps(frame(spark, "trace_records", rows), sorted(removed))
    assert {gap.life: gap.missing for gap in found} == removed
    assert sum(removed.values()) > 1000


def test_a_life_tells_its_drops_and_whether_it_ended(spark: SparkSession) -> None:
    rows = [
        trace_record("killed", 0, 10, dropped=3),
        trace_record("killed", 12, 5, dropped=7),
        trace_record("ended", 0, 4),
        trace_record("ended", 4, 0, ended=True),
        trace_record("another", 0, 4),
        trace_record(None, 0, 9),
    ]
    records = frame(spark, "trace_records", rows)
    assert gaps.lives_of(records) == ["another", "ended", "killed"]
    assert gaps.gaps(records, ["ended", "killed"]) == [
        gaps.LifeGap("ended", NOON, NOON + 4, 4, 0, 0, ended=True),
        gaps.LifeGap("killed", NOON, NOON + 12, 15, 2, 7, ended=False),
    ]


def delivery(key: str, *events: dict[str, Any], **fields: Any) -> dict[str, Any]:
    timeline = [tuple(one.get(name) for name in EVENT_FIELDS) for one in events]
    counts = dict.fromkeys(("attempts", "calls", "duplicates", "receipts"), 0)
    row = {"day": DAY, "delivery_key": key, "lane": "sms.notice", "settled": False, "missing": []}
    return {**row, **counts, "timeline": timeline, **fields}


def test_two_acceptances_under_two_claims_are_a_double_send(spark: SparkSession) -> None:
    first = event("settled", NOON, state="SENT", claimed_at=NOON - 9, worker="w1", provider_id="p1")
    second = event("settled", NOON + 5, state="SENT", attempt=2, claimed_at=NOON + 1, worker="w2")
    late = event("fenced", NOON + 5, state="", claimed_at=NOON - 9, worker="w1", provider_id="p2")
    doubt = event("settled", NOON, state="UNKNOWN", claimed_at=NOON - 9)
    found_sent = event("resolved", NOON + 3, state="SENT", provider_id="p1")
    retry = event("settled", NOON, state="RETRY", claimed_at=NOON - 9)
    unsent = event("fenced", NOON + 5, state="", claimed_at=NOON - 9)
    rows = [
        delivery("two attempts", first, second),
        delivery("late answer", {**second, "at": NOON - 3}, late),
        delivery("resolved, then sent again", doubt, found_sent, second),
        delivery("late answer of the resolved one", doubt, found_sent, {**late, "attempt": 1}),
        delivery("resolved", doubt, found_sent),
        delivery("retried", retry, second),
        delivery("fenced unsent", first, unsent),
        delivery("receipt", first, event("receipt", NOON + 9, state="DELIVERED")),
        delivery("one", first),
    ]
    table = frame(spark, "deliveries", rows)
    counted = table.withColumn("acceptances", doubles.claims_in(F.col("timeline")))
    found = doubles.read(doubles.doubles(counted))
    assert [(one.delivery_key, one.at - NOON) for one in found] == [
        ("late answer", 5),
        ("resolved, then sent again", 5),
        ("two attempts", 5),
    ]
    assert found[-1].attempts == [
        {"at": NOON, "stage": "settled", "attempt": 1, "worker": "w1", "provider_id": "p1",
         "claimed_at": NOON - 9},
        {"at": NOON + 5, "stage": "settled", "attempt": 2, "worker": "w2", "claimed_at": NOON + 1},
    ]  # fmt: skip


def test_an_hours_figures_by_lane_template_and_account(spark: SparkSession) -> None:
    sent = {"state": "SENT", "settled": True, "account": "main", "template": "T1", "calls": 1}
    rows = [
        delivery(f"k{ms}", **sent, appended_at=NOON + ms, ended_at=NOON + 1, call_ms=ms)
        for ms in range(1, 101)
    ]
    rows.append(delivery("parked", state="PARKED", reason="attempts_spent:E1", duplicates=2,
                         first_at=NOON + HOUR, missing=["claimed:trace"]))  # fmt: skip
    rows.append(delivery("dead", appended_at=NOON + HOUR, dead_letter="no_lane"))
    hours = funnels.funnels(frame(spark, "deliveries", rows)).hours
    assert [(one.hour - NOON, one.lane, one.template, one.account) for one in hours] == [
        (0, "sms.notice", "T1", "main"),
        (HOUR, "sms.notice", "", ""),
    ]
    assert hours[0].latencies == {"call": [100, 50, 90, 99, 100]}
    assert (
        hours[0].counts["deliveries"] == hours[0].counts["ended"] == hours[0].counts["calls"] == 100
    )
    assert hours[0].counts["states"] == {"SENT": 100}
    assert hours[1].counts == {
        "accepted": 0, "answered": 0, "appended": 1, "attempts": 0, "calls": 0, "claimed": 0,
        "dead_letters": 1, "deliveries": 2, "duplicates": 2, "ended": 0, "missing": {"claimed:trace": 1},
        "reasons": {"attempts_spent": 1}, "receipt": 0, "receipts": 0, "received": 0, "settled": 0,
        "started": 0, "states": {"PARKED": 1},
    }  # fmt: skip


def test_states_and_reasons_add_up_within_their_group(spark: SparkSession) -> None:
    rows = [
        delivery("sent", state="SENT"),
        delivery("refused", state="REJECTED", reason="code:E1"),
        delivery("refused otherwise", state="REJECTED", reason="code:E2", acceptances=2),
        delivery("of a later version", state="FROZEN", missing=["claimed:trace", "settled:trace"]),
        delivery("stateless", missing=["claimed:trace"]),
        delivery("other lane", lane="push.notice", state="SENT"),
    ]
    (other, (*_, counts, latencies)), doubled = funnels.funnels(frame(spark, "deliveries", rows))
    assert doubled == 1
    assert latencies == {}
    assert (other.counts["deliveries"], other.counts["states"]) == (1, {"SENT": 1})
    assert counts["deliveries"] == 5
    assert list(counts["states"].items()) == [("FROZEN", 1), ("REJECTED", 2), ("SENT", 1)]
    assert counts["reasons"] == {"code": 2}
    assert counts["missing"] == {"claimed:trace": 2, "settled:trace": 1}


def test_half_milliseconds_are_rounded_to_even(spark: SparkSession) -> None:
    rows = [delivery(f"k{ms}", call_ms=ms, wait_ms=ms - 1) for ms in (1, 2)]
    (hour,) = funnels.funnels(frame(spark, "deliveries", rows)).hours
    assert hour.latencies == {"wait": [2, 0, 1, 1, 1], "call": [2, 2, 2, 2, 2]}


def test_an_hour_is_within_the_day_of_its_row(spark: SparkSession) -> None:
    midnight = NOON - 12 * HOUR
    rows = [
        delivery("skewed ahead", appended_at=NOON + 3 * DAY_MS),
        delivery("skewed behind", first_at=NOON - 3 * DAY_MS),
        delivery("neither"),
        delivery("last", appended_at=midnight + DAY_MS - 1),
    ]
    found = frame(spark, "deliveries", rows).select("delivery_key", funnels.hour().alias("hour"))
    assert {row["delivery_key"]: (row["hour"] - midnight) // HOUR for row in found.collect()} == {
        "skewed ahead": 23,
        "skewed behind": 0,
        "neither": 0,
        "last": 23,
    }
