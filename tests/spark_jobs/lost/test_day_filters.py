"""Filters of archived days: what they admit is confirmed, and a filter in doubt is not used."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from spark_jobs.lost.day_filters import ArchivedDay, DayFilters

DAY = ArchivedDay("deliveries_20260101", "16400")
KEYS = [sha256(b"%d" % number).hexdigest()[:32] for number in range(20_000)]
KEPT, OTHERS = KEYS[:10_000], KEYS[10_000:]


@pytest.fixture
def filters(tmp_path: Path) -> DayFilters:
    found = DayFilters(tmp_path)
    assert found.build(DAY, KEPT, len(KEPT))
    return found


def the_file(folder: Path) -> Path:
    return folder / "deliveries_20260101.filter"


def test_no_key_of_the_day_is_ever_absent(filters: DayFilters) -> None:
    admitted = filters.admitted([DAY], KEYS)[DAY]
    assert admitted.issuperset(KEPT)
    assert len(admitted) - len(KEPT) < 0.005 * len(OTHERS), "and few others are admitted"


def test_it_takes_two_bytes_a_key(filters: DayFilters, tmp_path: Path) -> None:
    assert the_file(tmp_path).stat().st_size < 2 * len(KEPT)


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[:-1],
        lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]),
        lambda whole: whole.replace(b'"keys"', b'"kyes"', 1)[1:],
        lambda _whole: b"",
        lambda _whole: b"null\n",
        lambda whole: whole.replace(b'"v": 1', b'"v": 9', 1),
    ],
)
def test_a_damaged_filter_is_not_used(damage: object, filters: DayFilters, tmp_path: Path) -> None:
    file = the_file(tmp_path)
    file.write_bytes(damage(file.read_bytes()))  # type: ignore[operator]
    assert filters.admitted([DAY], KEPT) == {}


def test_bits_with_a_good_sum_that_are_no_filter_are_not_used(
    filters: DayFilters, tmp_path: Path
) -> None:
    head = {"v": 1, **DAY._asdict(), "keys": 1, "sha256": sha256(b"x").hexdigest()}
    the_file(tmp_path).write_bytes(json.dumps(head).encode() + b"\nx")
    assert filters.admitted([DAY], KEPT) == {}


def test_the_filter_of_another_table_is_not_used(filters: DayFilters) -> None:
    assert filters.admitted([DAY._replace(identity="16401")], KEPT) == {}
    assert filters.admitted([ArchivedDay("deliveries_20260102", "16400")], KEPT) == {}


@pytest.mark.parametrize("count", [len(KEPT) - 1, len(KEPT) + 1])
def test_a_day_that_changed_while_it_was_read_gets_no_filter(count: int, tmp_path: Path) -> None:
    filters = DayFilters(tmp_path / "new")
    assert not filters.build(DAY, KEPT, count)
    assert filters.admitted([DAY], KEPT) == {}


def test_filters_leave_with_their_days(filters: DayFilters, tmp_path: Path) -> None:
    newer = ArchivedDay("deliveries_20260102", "16500")
    filters.build(newer, KEPT, len(KEPT))

    assert filters.drop_others([newer]) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["deliveries_20260102.filter"]


def test_a_filter_is_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_file: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        DayFilters(tmp_path).build(DAY, KEPT, len(KEPT))
    assert DayFilters(tmp_path).admitted([DAY], KEPT) == {}
