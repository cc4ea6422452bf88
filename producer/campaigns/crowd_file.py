"""A crowd file: its fingerprint, the watch over its changes, and reading from a place on."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

from producer.campaigns.contract import CrowdSource, RunPlace
from producer.campaigns.crowd_rows import (
    CrowdLines,
    CrowdRow,
    Parse,
    csv_parser,
    header_of,
    json_parser,
    rows_of,
)

_CHUNK: Final = 1 << 20
_BUFFER: Final = 1 << 18
_SEEK_STEP: Final = 1 << 26
BLOCK_BYTES: Final = 1 << 20
"""Bytes of lines after which a block of rows ends."""
_BROKEN: Final = (OSError, EOFError, zlib.error)
KeepGoing = Callable[[], None]
"""Is called between two parts of a long reading; raises what shall end it."""


class CrowdUnusable(Exception):
    """The file is away, unreadable, or not the one of the campaign; one sentence."""


class Fingerprint(NamedTuple):
    """Size and SHA-256 (hex) of a file's bytes."""

    size: int
    sha256: str


class _FileMark(NamedTuple):
    """Facts that change with a file's bytes."""

    device: int
    inode: int
    size: int
    modified_ns: int


def no_pause() -> None:
    """Lets a long reading go on."""


def fingerprint(path: str, keep_going: KeepGoing = no_pause) -> Fingerprint:
    """Returns the fingerprint of a file. Raises CrowdUnusable."""
    digest, size = sha256(), 0
    try:
        with Path(path).open("rb", buffering=0) as file:
            while part := file.read(_CHUNK):
                digest.update(part)
                size += len(part)
                keep_going()
    except OSError as exc:
        raise _unreadable(path, exc) from exc
    return Fingerprint(size, digest.hexdigest())


class CrowdWatch:
    """Tells whether the file is still the campaign's. For one thread."""

    def __init__(self, source: CrowdSource, keep_going: KeepGoing = no_pause) -> None:
        self._source = source
        self._keep_going = keep_going
        self._known: _FileMark | None = None

    def check(self) -> None:
        """Compares the file's bytes, if anything about it changed since the last call. Raises
        CrowdUnusable."""
        mark = self._mark()
        if mark == self._known:
            return
        found = fingerprint(self._source.path, self._keep_going)
        if found != (self._source.size, self._source.sha256) or mark != self._mark():
            raise CrowdUnusable(
                f"{self._source.path} changed since the campaign was made: put the old file back, or"
                " cancel the campaign and make a new one"
            )
        self._known = mark

    def _mark(self) -> _FileMark:
        try:
            found = Path(self._source.path).stat()
        except OSError as exc:
            raise _unreadable(self._source.path, exc) from exc
        return _FileMark(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


class CrowdReader:
    """Rows of an open crowd file, from a checkpoint on. For one thread."""

    def __init__(
        self,
        file: BinaryIO,
        source: CrowdSource,
        reached: RunPlace,
        keep_going: KeepGoing = no_pause,
    ) -> None:
        """`keep_going` is called on the way to the checkpoint. Raises CampaignRefused for a CSV file
        without a header, CrowdUnusable."""
        self._source = source
        self.header: list[str] = []
        """The titles of a CSV file's columns."""
        lines = CrowdLines(file)
        with _errors(source.path):
            parse = self._parser(lines)
            if reached.place:
                _seek(file, reached.place, keep_going)
                lines = CrowdLines(file, reached.line, reached.place)
        self._rows = rows_of(lines, parse, reached.done)
        self._place = reached.place
        self.is_over = False
        """Whether `take` met the end of the file."""

    def _parser(self, lines: CrowdLines) -> Parse:
        if self._source.format == "jsonl":
            return json_parser(self._source)
        self.header = header_of(lines, self._source)
        return csv_parser(self.header, self._source)

    def __iter__(self) -> Iterator[CrowdRow]:
        """Yields the rows. Raises CrowdUnusable."""
        with _errors(self._source.path):
            for row in self._rows:  # noqa: UP028 - an end of this generator must not end the rows
                yield row

    def take(self, most: int) -> list[CrowdRow]:
        """Returns the next rows: at most `most`, and none after BLOCK_BYTES of lines. Raises
        CrowdUnusable."""
        taken, end = list[CrowdRow](), self._place + BLOCK_BYTES
        with _errors(self._source.path):
            while len(taken) < most and self._place < end:
                row = next(self._rows, None)
                if row is None:
                    self.is_over = True
                    break
                taken.append(row)
                self._place = row.place
        return taken


def _seek(file: BinaryIO, place: int, keep_going: KeepGoing) -> None:
    """Goes to a place in steps, since a gzip file is unpacked up to it."""
    for step in range(file.tell(), place, _SEEK_STEP):
        file.seek(step)
        keep_going()
    file.seek(place)


@contextmanager
def opened_crowd(source: CrowdSource) -> Iterator[BinaryIO]:
    """Opens the file, unpacked. Raises CrowdUnusable."""
    with ExitStack() as stack:
        with _errors(source.path):
            raw = stack.enter_context(Path(source.path).open("rb", buffering=_BUFFER))
        yield cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if source.packed else raw


@contextmanager
def _errors(path: str) -> Iterator[None]:
    try:
        yield
    except _BROKEN as exc:
        raise _unreadable(path, exc) from exc


def _unreadable(path: str, exc: BaseException) -> CrowdUnusable:
    why = getattr(exc, "strerror", None) or exc
    return CrowdUnusable(f"{path} cannot be read here: {why}")
