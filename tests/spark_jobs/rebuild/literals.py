"""Literal rows of the warehouse, and random lives of deliveries made of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from hashlib import sha256
from typing import Any

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession

from spark_jobs.tables import TABLES
from spark_jobs.warehouse import columns_of

DAY_MS = 86_400_000
DAY = date(2026, 11, 20)
NOON = int(datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp() * 1000)
LANES = ("sms.notice", "sms.verification", "email.notice")


def frame(spark: SparkSession, table: str, rows: Iterable[dict[str, Any]]) -> DataFrame:
    """The rows as a frame of that table; absent columns are null."""
    names = columns_of(table)
    found = [tuple(row.get(name) for name in names) for row in rows]
    return spark.createDataFrame(found, TABLES[table])


def event(stage: str, at: int, key: str = "k1", **fields: Any) -> dict[str, Any]:
    """An event; its id is of its content unless given."""
    row = {
        "day": day_of(at),
        "timestamp": at + 50,
        "at": at,
        "stage": stage,
        "message_id": "m1",
        "delivery_key": key,
        "lane": "sms.notice",
        "attempt": 1,
        **fields,
    }
    text = msgspec.json.encode({**row, "day": str(row["day"])})
    return {"id": sha256(text).hexdigest()[:16] + ":0", **row}


def record(
    offset: int, at: int, keys: Sequence[str | None] = ("k1",), **fields: Any
) -> dict[str, Any]:
    """A record of a dispatch topic."""
    return {
        "day": day_of(at),
        "topic": "hongyan.dispatch.sms.notice",
        "topic_id": "id-1",
        "partition": 0,
        "offset": offset,
        "timestamp": at,
        "message_id": "m1",
        "lane": "sms.notice",
        "created_at": at - 5,
        "deliveries": [
            (key, f"+86***{place}" if key else "***", None) for place, key in enumerate(keys)
        ],
        **fields,
    }


def day_of(at: int) -> date:
    return datetime.fromtimestamp(at / 1000, UTC).date()


def origin_of(row: dict[str, Any]) -> str:
    return f"{row['topic']}/{row['partition']}/{row['offset']}"


class Lives:
    """Random deliveries: what the warehouse would hold of them."""

    def __init__(self, seed: int, count: int, days: int = 3) -> None:
        self.random = random.Random(seed)
        self.events: list[dict[str, Any]] = []
        self.records: list[dict[str, Any]] = []
        self.dead_letters: list[dict[str, Any]] = []
        for number in range(count):
            self._live(
                number, NOON + self.random.randrange(days) * DAY_MS + self.random.randrange(10**7)
            )

    def _live(self, number: int, at: int) -> None:
        choose = self.random.choice
        message, key, lane = f"m{number}", f"{number:032x}", choose(LANES)
        common: dict[str, Any] = {
            "message_id": message,
            "key": key,
            "lane": lane,
            "created_at": at - 5,
        }
        row = record(number, at, [key], message_id=message, lane=lane, biz_id=f"b{number}")
        if self.random.random() < 0.9:
            self.records.append(row)
            if self.random.random() < 0.1:
                self.records.append(
                    {**row, "offset": number + 10_000, "timestamp": at + choose([0, 1000])}
                )
        if self.random.random() < 0.1:
            self.dead_letters.append(
                {
                    "day": day_of(at),
                    "timestamp": at + 9,
                    "origin": origin_of(row),
                    "reason": choose(["a", "b"]),
                }
            )
        for attempt in range(1, choose([1, 1, 1, 2, 4])):
            at += choose([0, 1, 1000, DAY_MS // 2])
            self._attempt(attempt, at, {**common, "origin": origin_of(row), "attempt": attempt})
        for _ in range(choose([0, 0, 1, 2])):
            at += choose([0, 5, DAY_MS])
            stage, state = choose(
                [
                    ("receipt", "DELIVERED"),
                    ("duplicate", "SENT"),
                    ("conflict", "SENT"),
                    ("fenced", ""),
                    ("dropped", "DROPPED"),
                ]
            )
            self.events.append(
                event(
                    stage,
                    at,
                    state=state,
                    attempt=choose([0, 1, 2]),
                    reason=choose(["", "x"]),
                    **common,
                )
            )

    def _attempt(self, attempt: int, at: int, common: dict[str, Any]) -> None:
        choose = self.random.choice
        state = choose(["SENT", "RETRY", "UNKNOWN", "REJECTED"])
        marks = {
            "received_at": at,
            "claimed_at": at + 1,
            "started_at": at + 2,
            "answered_at": at + 7,
        }
        account = {"account": choose(["main", "other"]), "provider_id": choose([None, "p1"])}
        named = {"worker": choose(["w1", "w2"]), "policy_version": choose(["v1:a", "v2:b"])}
        if self.random.random() < 0.2:
            self.events.append(event("attempted", at + 7, **{**common, **marks, **named}))
        if self.random.random() < 0.85:
            self.events.append(
                event("settled", at + 9, state=state, **{**common, **marks, **account, **named})
            )
        if state == "UNKNOWN":
            self.events.append(
                event("resolved", at + 9, state=choose(["SENT", "RETRY"]), **{**common, **account})
            )


def shuffled(frames: Sequence[list[Any]], seed: int) -> None:
    for rows in frames:
        random.Random(seed).shuffle(rows)


def table_of(frame: DataFrame) -> list[Row]:
    """The rows, sorted: equal lists are equal tables."""
    return sorted(frame.collect(), key=lambda row: row["delivery_key"])
