"""The form of completed runs in commit metadata."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.kafka import offset_metadata as runs
from dispatcher.kafka.offset_metadata import OffsetRange


@st.composite
def watermark_and_runs(draw: st.DrawFn) -> tuple[int, list[OffsetRange]]:
    watermark = draw(st.integers(0, 2**40))
    position, found = watermark, []
    for gap, length in draw(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)))):
        found.append(OffsetRange(position + gap, position + gap + length))
        position += gap + length
    return watermark, found


@given(watermark_and_runs())
def test_runs_come_back_as_they_went(case: tuple[int, list[OffsetRange]]) -> None:
    watermark, found = case
    assert runs.decode(runs.encode(watermark, found, limit=10**6), watermark) == found


@given(watermark_and_runs(), st.integers(0, 400))
def test_text_never_exceeds_the_limit_and_names_no_run_that_was_not(
    case: tuple[int, list[OffsetRange]], limit: int
) -> None:
    watermark, found = case
    text = runs.encode(watermark, found, limit)
    assert len(text) <= limit
    kept = runs.decode(text, watermark)
    assert set(kept) <= set(found)


def test_the_longest_runs_stay_when_not_all_fit() -> None:
    short = [OffsetRange(i * 10, i * 10 + 1) for i in range(1, 2000)]
    long = OffsetRange(50_000, 90_000)
    text = runs.encode(0, [*short, long], limit=200)
    kept = runs.decode(text, 0)
    assert long in kept
    assert len(kept) > 20


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        "",
        "host-17/pid-4",
        "hy1:",
        "hy1:!!!!",
        "hy1:AAAA",
        "hy2:" + runs.encode(5, [OffsetRange(7, 9)])[4:],
        runs.encode(5, [OffsetRange(7, 9)])[:-4],
        runs.encode(5, [OffsetRange(7, 9)]).replace("A", "B"),
        runs.encode(6, [OffsetRange(7, 9)]),
        '{"json": true}',
        "hy1:" + "A" * 4000,
    ],
)
def test_foreign_damaged_or_stale_metadata_reads_as_no_runs(metadata: str | None) -> None:
    assert runs.decode(metadata, 5) == []


@given(st.text(max_size=200) | st.binary(max_size=100).map(lambda b: "hy1:" + b.hex()))
def test_no_text_makes_decoding_fail(metadata: str) -> None:
    assert runs.decode(metadata, 0) == []
