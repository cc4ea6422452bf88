"""Rows of crowd files: what is read, what is bad by which line, and reading on from any checkpoint."""

from __future__ import annotations

import csv
import gzip
import io
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.campaigns import crowd_file
from producer.campaigns.contract import CampaignRefused, CrowdSource, RunPlace
from producer.campaigns.crowd_file import (
    CrowdReader,
    CrowdUnusable,
    CrowdWatch,
    fingerprint,
    opened_crowd,
)
from producer.campaigns.crowd_rows import LONGEST_LINE, CrowdRow
from producer.campaigns.row_ids import row_id


def source_of(path: Path, **facts: Any) -> CrowdSource:
    found = fingerprint(str(path))
    given: dict[str, Any] = {
        "format": "csv",
        "size": found.size,
        "sha256": found.sha256,
        "rows": 0,
    } | facts
    return CrowdSource(path=str(path), **given)


def rows_of(source: CrowdSource, reached: RunPlace = RunPlace()) -> list[CrowdRow]:  # noqa: B008 - frozen
    with opened_crowd(source) as file:
        return list(CrowdReader(file, source, reached))


def in_memory(content: bytes, reached: RunPlace, **facts: Any) -> list[CrowdRow]:
    given: dict[str, Any] = {"format": "csv", "size": 0, "sha256": "", "rows": 0} | facts
    source = CrowdSource(path="m", **given)
    return list(CrowdReader(io.BytesIO(content), source, reached))


CELL = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=6
) | st.sampled_from(["", 'a"b', "two\nlines", "a,b", "\r\n"])


@given(st.lists(st.tuples(CELL, CELL), max_size=12), st.sampled_from(["\n", "\r\n"]))
def test_csv_is_read_as_the_standard_library_writes_it_from_any_row_on(
    records: list[tuple[str, str]], ending: str
) -> None:
    target = io.StringIO()
    writer = csv.writer(target, lineterminator=ending, quoting=csv.QUOTE_ALL)
    writer.writerows([("receiver", "name"), *records])
    content = target.getvalue().encode()
    rows = in_memory(content, RunPlace())
    assert [(row.fields["receiver"], row.fields["name"]) for row in rows] == records
    assert [row.number for row in rows] == list(range(1, len(records) + 1))
    for row in rows:
        reached = RunPlace(place=row.place, line=row.last_line, done=row.number)
        assert in_memory(content, reached) == rows[row.number :]


def test_a_quote_that_is_never_closed_makes_its_own_line_bad(tmp_path: Path) -> None:
    file = tmp_path / "crowd.csv"
    file.write_bytes(b'receiver,name\n1,a\n2,"b\n3,c\n4,"d ""e"""\n5,f,g\n6,h\n')
    rows = rows_of(source_of(file))
    assert [(row.line, row.code) for row in rows] == [
        *[(2, ""), (3, "not_csv"), (4, ""), (5, ""), (6, "wrong_columns"), (7, "")]
    ]
    assert rows[3].fields == {"receiver": "4", "name": 'd "e"'}


def test_a_line_that_is_too_long_or_no_text_is_bad_and_the_next_ones_are_read(
    tmp_path: Path,
) -> None:
    file = tmp_path / "crowd.csv"
    long = b"2," + b"x" * LONGEST_LINE * 2
    file.write_bytes(b"\xef\xbb\xbfreceiver,name\n1,a\n" + long + b"\n3,\xff\n4,d")
    rows = rows_of(source_of(file))
    assert [(row.line, row.code) for row in rows] == [
        *[(2, ""), (3, "line_too_long"), (4, "not_text"), (5, "")]
    ]
    assert rows[-1].place == file.stat().st_size


def test_json_lines_keep_their_types_and_a_packed_file_is_read_on(tmp_path: Path) -> None:
    file = tmp_path / "crowd.jsonl.gz"
    lines = [json.dumps({"receiver": f"r{n}", "amount": n}) for n in range(1, 6)]
    file.write_bytes(gzip.compress("\n\n".join([*lines[:2], "[1]", "{", *lines[2:]]).encode()))
    source = source_of(file, format="jsonl", packed=True)
    rows = rows_of(source)
    assert [row.code for row in rows] == ["", "", "not_an_object", "not_json", "", "", ""]
    assert rows[1].fields == {"receiver": "r2", "amount": 2}
    assert rows[4].line == 9
    for row in rows:
        reached = RunPlace(place=row.place, line=row.last_line, done=row.number)
        assert rows_of(source, reached) == rows[row.number :]


def test_the_way_to_a_checkpoint_far_into_a_packed_file_asks_whether_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd_file, "_SEEK_STEP", 1_000)
    file = tmp_path / "crowd.csv.gz"
    file.write_bytes(gzip.compress(b"receiver,name\n" + b"1,abcdef\n" * 999))
    source = source_of(file, packed=True)
    rows, asked = rows_of(source), list[int]()
    reached = RunPlace(place=rows[900].place, line=rows[900].last_line, done=901)
    with opened_crowd(source) as opened:
        reader = CrowdReader(opened, source, reached, lambda: asked.append(1))
        assert list(reader) == rows[901:]
    assert len(asked) >= 8


def test_gb18030_is_read(tmp_path: Path) -> None:
    file = tmp_path / "crowd.csv"
    file.write_bytes("receiver,name\n1,李梅𠮷\n".encode("gb18030"))
    (row,) = rows_of(source_of(file, encoding="gb18030"))
    assert row.fields["name"] == "李梅𠮷"


@pytest.mark.parametrize("content", [b"", b"\n\n", b"a,a\n1,2\n", b"a,\n1,2\n", b'"a,b\n'])
def test_a_file_without_a_good_header_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "crowd.csv"
    file.write_bytes(content)
    with pytest.raises(CampaignRefused, match=r"crowd\.csv"):
        rows_of(source_of(file))


def test_a_packed_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    file = tmp_path / "crowd.csv.gz"
    file.write_bytes(gzip.compress(b"receiver,name\n" + b"1,a\n" * 9_999)[:-20])
    with pytest.raises(CrowdUnusable, match="cannot be read here"):
        rows_of(source_of(file, packed=True))


def test_the_watch_sees_a_change_of_one_byte_a_replacement_and_a_removal(tmp_path: Path) -> None:
    file = tmp_path / "crowd.csv"
    file.write_bytes(b"receiver\n1\n")
    watch = CrowdWatch(source_of(file))
    watch.check()
    same = tmp_path / "same"
    same.write_bytes(b"receiver\n1\n")
    same.replace(file)
    watch.check()
    file.write_bytes(b"receiver\n2\n")
    with pytest.raises(CrowdUnusable, match="changed since the campaign was made"):
        watch.check()
    file.unlink()
    with pytest.raises(CrowdUnusable, match="No such file"):
        watch.check()


def test_a_reader_goes_on_after_a_loop_that_was_left(tmp_path: Path) -> None:
    file = tmp_path / "crowd.csv"
    file.write_text("receiver\n" + "1\n" * 9)
    source = source_of(file)
    with opened_crowd(source) as opened:
        reader = CrowdReader(opened, source, RunPlace())
        assert len(list(islice(reader, 4))) == 4
        assert [row.number for row in reader] == [5, 6, 7, 8, 9]


def test_a_block_of_rows_ends_at_its_bytes(tmp_path: Path) -> None:
    file = tmp_path / "crowd.csv.gz"
    line = b"1," + b"x" * (crowd_file.BLOCK_BYTES // 4) + b"\n"
    file.write_bytes(gzip.compress(b"receiver,name\n" + line * 10 + b"2,last\n"))
    source = source_of(file, packed=True)
    with opened_crowd(source) as opened:
        reader, blocks = CrowdReader(opened, source, RunPlace()), list[list[int]]()
        while not reader.is_over:
            blocks.append([row.number for row in reader.take(200)])
    assert blocks == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11]]


def test_a_take_of_few_rows_says_when_the_file_is_over(tmp_path: Path) -> None:
    file = tmp_path / "crowd.csv"
    file.write_text("receiver\n" + "1\n" * 5)
    source = source_of(file)
    with opened_crowd(source) as opened:
        reader = CrowdReader(opened, source, RunPlace())
        found = [(len(reader.take(3)), reader.is_over) for _ in range(3)]
    assert found == [(3, False), (2, True), (0, True)]


def test_ids_follow_from_run_and_row_and_are_uuids() -> None:
    assert row_id("cm-1.17", 1) == row_id("cm-1.17", 1)
    made = {row_id(run, row) for run in ("cm-1.17", "cm-1.1", "cm-2.17") for row in range(1_000)}
    assert len(made) == 3_000
    assert all(len(one) == 32 and one[12] == "8" and one[16] in "89ab" for one in made)
    # Written by hand: a change of the rule would double the rows of every open run.
    assert row_id("cm-1.17", 1) == "a3b2ef3b50ae8b77ac346895facfcd88"
