"""SQLite's archive files survive writes that were cut short; damage costs its own rows, and is reported."""

from __future__ import annotations

import gzip
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from idempotency.archive.row_files import HEAD, RowFile, rows_with
from idempotency.ledger import LedgerUnavailable

ANY: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "archive" / "deliveries-20261213.jsonl.gz"


def batch(number: int) -> list[dict[str, Any]]:
    """Three rows of one batch, which do not compress to nothing."""
    return [{"place": n, "batch": number, "row": n, "noise": os.urandom(200)} for n in range(3)]


def written(path: Path, batches: int) -> list[int]:
    """Writes the batches with one writer. Returns the file's size after each."""
    file, sizes = RowFile(path), []
    for number in range(batches):
        file.append("delivery", batch(number))
        sizes.append(path.stat().st_size)
    return sizes


def batches_in(path: Path) -> list[int]:
    """Returns the batches that our reader finds, one for each row."""
    return [row["batch"] for row in rows_with(path, "delivery", ANY).rows]


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """The kernel writes up to that size and refuses the rest, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_each_batch_is_a_member_that_any_gzip_reads(path: Path) -> None:
    written(path, 3)
    lines = gzip.decompress(path.read_bytes()).splitlines()
    rows = [msgspec.json.decode(line) for line in lines]
    assert [row["batch"] for row in rows] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert rows[0].keys() == {"kind", "batch", "row", "noise"}
    assert batches_in(path) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert rows_with(path, "delivery", ANY).damage == ""
    assert rows_with(path, "payload", ANY).rows == []


def test_a_write_that_the_disk_cuts_short_leaves_the_file_as_it_was(path: Path) -> None:
    file = RowFile(path)
    file.append("delivery", batch(0))
    before = path.read_bytes()
    with (
        files_end_at(len(before) + 300),
        pytest.raises(LedgerUnavailable, match="cannot be written"),
    ):
        file.append("delivery", batch(1))
    assert path.read_bytes() == before
    file.append("delivery", batch(1))
    gzip.decompress(path.read_bytes())
    assert batches_in(path) == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("failure", [OSError(5, "I/O error"), KeyboardInterrupt()])
def test_a_write_that_is_not_on_disk_leaves_the_file_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    def fails(_: int) -> None:
        raise failure

    (size,) = written(path, 1)
    with monkeypatch.context() as patched:
        patched.setattr("idempotency.archive.row_files.os.fsync", fails)
        with pytest.raises((LedgerUnavailable, KeyboardInterrupt)):
            RowFile(path).append("delivery", batch(1))
    assert path.stat().st_size == size


@pytest.mark.parametrize("kept", [1, 5, 12, 300, -9, -4])
def test_a_torn_end_makes_way_for_the_next_write(path: Path, kept: int) -> None:
    """A crash left any part of the last member; a power loss, blocks of zeros too."""
    first, second = written(path, 2)
    end = first + kept if kept > 0 else second + kept
    cut = path.read_bytes()[:end]
    for torn in (cut, cut + bytes(50)):
        path.write_bytes(torn)
        assert batches_in(path) == [0, 0, 0]
        RowFile(path).append("delivery", batch(7))
        assert path.read_bytes()[:first] == torn[:first]
        gzip.decompress(path.read_bytes())
        assert batches_in(path) == [0, 0, 0, 7, 7, 7]


def test_a_torn_first_write_makes_way_too(path: Path) -> None:
    written(path, 1)
    content = path.read_bytes()
    for end in (0, 2, len(content) - 1):
        path.write_bytes(content[:end])
        RowFile(path).append("delivery", batch(7))
        assert batches_in(path) == [7, 7, 7]


def test_what_another_process_wrote_in_between_stays(path: Path) -> None:
    one, other = RowFile(path), RowFile(path)
    one.append("delivery", batch(0))
    other.append("delivery", batch(1))
    one.append("delivery", batch(2))
    path.write_bytes(path.read_bytes() + HEAD)
    other.append("delivery", batch(3))
    gzip.decompress(path.read_bytes())
    assert batches_in(path) == [n for n in range(4) for _ in range(3)]


def test_bytes_that_are_none_of_ours_are_not_taken_away(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"somebody unpacked it here")
    with pytest.raises(LedgerUnavailable, match="none of ours"):
        RowFile(path).append("delivery", batch(0))
    assert path.read_bytes() == b"somebody unpacked it here"


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]


@pytest.mark.parametrize("damage", ["cut", "flipped", "head", "twice"])
def test_rows_before_and_behind_damage_are_read_and_the_damage_is_reported(
    path: Path, damage: str
) -> None:
    first, second, third = written(path, 4)[:3]
    content, middle = path.read_bytes(), (first + second) // 2
    changed = {
        "cut": content[: second - 20] + content[second:],
        "flipped": flipped(content, middle),
        "head": flipped(content, first),
        "twice": flipped(flipped(content, middle), third - 1),
    }[damage]
    path.write_bytes(changed)
    found = rows_with(path, "delivery", ANY)
    whole = [0, 3] if damage == "twice" else [0, 2, 3]
    assert [row["batch"] for row in found.rows] == [n for n in whole for _ in range(3)]
    lost = {"cut": second - first - 20, "twice": third - first}.get(damage, second - first)
    assert f"{path} cannot be read whole: {lost:,} of its {len(changed):,} bytes" in found.damage
    RowFile(path).append("delivery", batch(4))
    assert path.read_bytes().startswith(changed), "damage in the middle is no torn end"
    assert batches_in(path) == [n for n in [*whole, 4] for _ in range(3)]


def test_a_member_larger_than_one_read_is_whole(path: Path) -> None:
    rows = [{"batch": n, "noise": os.urandom(50_000)} for n in range(9)]
    file = RowFile(path)
    file.append("delivery", rows)
    file.append("delivery", batch(9))
    path.write_bytes(path.read_bytes() + HEAD)
    RowFile(path).append("delivery", batch(10))
    assert batches_in(path) == [*range(9), 9, 9, 9, 10, 10, 10]


def test_a_file_that_is_not_there_is_a_sentence(path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match="cannot be read"):
        rows_with(path, "delivery", ANY)


def test_a_new_file_is_on_disk_with_its_folders_entry(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power loss must not take away the name of a file whose rows are deleted already."""
    synced: list[str] = []
    fsync = os.fsync

    def noted(file: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))
        fsync(file)

    monkeypatch.setattr("idempotency.archive.row_files.os.fsync", noted)
    written(path, 2)
    folder = path.parent
    assert synced == [str(one) for one in (path, folder, folder.parent, folder.parent.parent, path)]
