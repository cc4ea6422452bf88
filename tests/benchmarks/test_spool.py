"""`hongyan bench spool` in small: records arrive, a kill loses none, and a missing record is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import spool
from benchmarks.ground import LANE, Servers, topics
from benchmarks.meter import judged_ratio
from benchmarks.spool_keeper import made
from deploy.local.stack import Stack

_RATES = ("bare", "keep", "keep_callers", "bare_batch", "keep_all", "direct", "drain")


@pytest.fixture
def servers(stack: Stack, redis_url: str) -> Servers:
    return Servers(stack.bootstrap, stack.database_url, redis_url)


@pytest.mark.timeout(180)
def test_every_way_is_measured_and_a_kill_loses_nothing(servers: Servers, tmp_path: Path) -> None:
    size = spool.SpoolSize(records=1_000, puts=64)
    report = spool.measure(servers, size, rounds=1, say=lambda _line: None, folder=tmp_path)
    assert tuple(report["medians"]) == _RATES
    assert all(one["per_second"] > 0 for one in report["medians"].values())
    killed = report["killed"]
    assert killed["kept"] > size.records
    assert killed["found"] >= killed["kept"]
    assert [one["holds"] for one in report["ratios"] if one["ratio"] == "lost"] == [True]
    assert not list(tmp_path.iterdir()), "the folders are gone"


def test_a_drain_that_published_less_than_was_kept_is_no_figure(
    servers: Servers, tmp_path: Path
) -> None:
    with topics(servers, [LANE]) as prefix:
        records = made(LANE.topic(prefix), 20)
        spool._kept_together(tmp_path, records[:-1])
        with pytest.raises(RuntimeError, match="in the spool"):
            spool._drained(servers.bootstrap, tmp_path, records)


def test_a_share_is_the_median_of_the_rounds_and_may_miss_its_bar() -> None:
    rates = {"keep": [1.0, 9.0, 2.0], "bare": [10.0, 10.0, 10.0]}
    assert spool._share(rates, "keep", "bare") == 0.2
    missed = judged_ratio("keep / bare", 0.2, spool.WANTED_KEEP, at_most=False)
    assert not missed["holds"]
    assert not judged_ratio("open_ms", 2_001, spool.WANTED_OPEN_MS, at_most=True)["holds"]
