"""The program's side of the ingest."""

from __future__ import annotations

from hongyan.spark.ingest import is_embedded
from spark_jobs.positions import PartitionPosition, Positions


def positions(*topic_ids: str) -> Positions:
    return Positions(
        5,
        [PartitionPosition("h.trace", one, None, n, None, 0, 1) for n, one in enumerate(topic_ids)],
    )


def test_the_embedded_kafka_is_known_by_its_topics_without_ids() -> None:
    assert is_embedded(positions("", ""))
    assert not is_embedded(positions("", "a"))
    assert not is_embedded(positions())
