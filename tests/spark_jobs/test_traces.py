"""delta-rs reads what Spark wrote: whole rows, searches, deletion vectors and mapped columns."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from backends.settings import Settings, SparkSettings
from spark_jobs.tables import DELIVERIES
from tracing.events import Stage, TraceEvent
from tracing.rebuilt_traces import RebuiltTraces, TracesUnreadable, place_of, why_not
from tracing.stories import Parts, SearchTerms, stories_of
from tracing.timeline import RebuiltDelivery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.warehouse import Warehouse

NOW = 1_795_000_000_000
DAY, LATER = date(2026, 11, 18), date(2026, 11, 19)
DAY_MS = 86_400_000
NASTY = 'it\'s \\ "quoted" 鸿雁'
EVENT: dict[str, Any] = {
    "id": "life:1",
    "at": NOW + 50,
    "stage": "settled",
    "message_id": "m1",
    "delivery_key": "a" * 32,
    "state": "SENT",
    "attempt": 1,
    "detail": NASTY,
    "received_at": NOW + 10,
}
UNKNOWN = EVENT | {"stage": "a stage of a later version"}


def row(key: str, message: str, day: date = DAY, **fields: Any) -> dict[str, Any]:
    return {
        "day": day,
        "delivery_key": key,
        "message_id": message,
        "biz_id": "order-1",
        "lane": "sms.notice",
        "appended_at": NOW + (DAY_MS if day == LATER else 0),
        "missing": [],
        "timeline": [],
        **fields,
    }


ROWS = [
    row("a" * 32, "m1", receiver_hash="h1", template="T'1", timeline=[EVENT, UNKNOWN]),
    row("b" * 32, "m1", receiver_hash="h2", missing=["settled:trace"], state="UNKNOWN"),
    row("c" * 32, "m2", LATER, receiver_hash="h1", template="T2"),
]


@pytest.fixture
def written(spark: SparkSession, warehouse: Warehouse) -> RebuiltTraces:
    schema = spark.createDataFrame([], DELIVERIES).schema
    events = schema["timeline"].dataType.elementType.names  # type: ignore[attr-defined]

    def tuple_of(row: dict[str, Any]) -> tuple[Any, ...]:
        timeline = [tuple(event.get(name) for name in events) for event in row["timeline"]]
        return tuple((row | {"timeline": timeline}).get(name) for name in schema.names)

    frame = spark.createDataFrame([tuple_of(one) for one in ROWS], schema)
    warehouse.replace_days("deliveries", frame.coalesce(1), [DAY, LATER], "test", 1)
    return RebuiltTraces(warehouse.path("deliveries"))


def keys(found: Any) -> list[str]:
    return sorted(one.delivery_key[0] for one in found)


def test_rows_come_back_whole_and_are_found_by_each_name(
    written: RebuiltTraces, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = sorted(written.of_messages(["m1"]), key=lambda one: one.delivery_key)
    event = {name: value for name, value in EVENT.items() if name != "id"}
    assert first.timeline == [TraceEvent(**event | {"stage": Stage.SETTLED})], "others are left out"
    assert (first.receiver_hash, first.template, first.appended_at) == ("h1", "T'1", NOW)
    assert (second.missing, second.state) == (["settled:trace"], "UNKNOWN")
    assert keys(written.of_key("b" * 32)) == ["a", "b"], "the whole message"
    assert keys(written.of_biz("order-1", since=0, limit=5)) == ["a", "b", "c"]
    assert keys(written.of_biz("order-1", since=0, limit=1)) == ["c"], "the newest message"
    assert keys(written.of_biz("order-1", since=NOW + 1, limit=5)) == ["c"]
    assert written.of_messages(["m9", "x' OR '1'='1"]) == []
    assert written.of_messages([]) == []
    # ---- searches
    of_receiver = SearchTerms(frozenset({"h1", "h9"}))
    found = written.search(of_receiver, since=0, limit=5)
    assert [place.delivery_key[0] for place in found] == ["c", "a"], "newest first"
    assert keys(written.search(of_receiver, since=0, limit=1)) == ["c"]
    assert keys(written.search(of_receiver, since=NOW + 1, limit=5)) == ["c"]
    assert keys(written.search(SearchTerms(template="T'1"), since=0, limit=5)) == ["a"]
    both = SearchTerms(frozenset({"h1"}), "T2")
    assert keys(written.search(both, since=0, limit=5)) == ["c"]
    # ---- a table that is damaged is a sentence
    (part, *_) = Path(warehouse.path("deliveries")).glob(f"day={DAY}/*.parquet")
    part.write_bytes(b"no parquet")
    with pytest.raises(TracesUnreadable, match=r"the rebuilt traces in .* cannot be read: "):
        written.of_messages(["m1"])


@pytest.mark.soak(small="::test_rows_come_back_whole_and_are_found_by_each_name")
def test_deletion_vectors_and_mapped_columns_are_read(
    spark: SparkSession, written: RebuiltTraces, warehouse: Warehouse
) -> None:
    table = f"delta.`{warehouse.path('deliveries')}`"
    spark.sql(
        f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true',"
        " 'delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '3',"
        " 'delta.minWriterVersion' = '7', 'delta.enableChangeDataFeed' = 'false')"
    )
    spark.sql(f"DELETE FROM {table} WHERE receiver_hash = 'h2'")
    commits = sorted(Path(warehouse.path("deliveries"), "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in commits[-1].read_text().splitlines()]
    assert any(one.get("add", {}).get("deletionVector") for one in actions), "one is written"
    now = RebuiltTraces(warehouse.path("deliveries"))
    assert keys(now.of_messages(["m1", "m2"])) == ["a", "c"]


# ---- without Spark ---------------------------------------------------------------------------


def test_what_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    settings = Settings(base=str(tmp_path))
    assert why_not(settings) == (
        f"there are no rebuilt traces in {tmp_path}/warehouse/deliveries: `hongyan spark run` makes them"
    )
    (tmp_path / "warehouse" / "deliveries" / "_delta_log").mkdir(parents=True)
    assert why_not(settings) == ""
    with pytest.raises(TracesUnreadable):
        RebuiltTraces(place_of(settings))


@pytest.mark.parametrize(
    ("warehouse", "place"),
    [
        ("s3a://bucket/hongyan/", "s3://bucket/hongyan/deliveries"),
        ("gs://bucket/w", "gs://bucket/w/deliveries"),
        ("/var/w", "/var/w/deliveries"),
        ("w", "/etc/hongyan/w/deliveries"),
    ],
)
def test_a_warehouse_is_named_as_delta_rs_names_it(warehouse: str, place: str) -> None:
    settings = Settings(base="/etc/hongyan", spark=SparkSettings(warehouse=warehouse))
    assert place_of(settings) == place


def test_an_event_that_both_traces_have_is_shown_once_and_the_sources_are_named() -> None:
    live = TraceEvent(at=NOW + 50, stage=Stage.SETTLED, message_id="m1", delivery_key="k")
    other = TraceEvent(at=NOW + 90, stage=Stage.RECEIPT, message_id="m1", delivery_key="k")
    rebuilt = RebuiltDelivery(
        delivery_key="k",
        message_id="m1",
        appended_at=NOW,
        origin="t/0/7",
        state="SENT",
        missing=["claimed:trace"],
        timeline=[live, other],
    )
    parts = Parts(events=[live], rebuilt=[rebuilt], rebuilt_until=NOW + 99)
    (story,) = stories_of(["m1"], parts)
    (delivery,) = story.deliveries
    assert [(m.what, m.at - NOW) for m in delivery.moments] == [
        ("appended", 0),
        ("settled", 50),
        ("receipt", 90),
    ]
    assert delivery.sources == ["trace", "rebuilt"]
    assert (delivery.state, delivery.missing) == ("SENT", ["claimed:trace"])
    assert delivery.rebuilt_until == NOW + 99
    assert delivery.moments[0].origin == "t/0/7"
