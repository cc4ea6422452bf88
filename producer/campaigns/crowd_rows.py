"""Rows of a crowd file: CSV with a header, or JSON lines. Pure functions over lines.

A quote that is never closed would swallow the lines after it. So a CSV record of several lines that does
not fit the header is bad by its first line alone, and the others are read again.
"""

from __future__ import annotations

import csv
import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Final, NamedTuple

from producer.campaigns.contract import CampaignRefused, CrowdSource

LONGEST_LINE: Final = 1 << 20
"""Bytes; a longer line is a bad row."""
MOST_LINES: Final = 100
"""Lines of one CSV record."""
_BOM: Final = b"\xef\xbb\xbf"
_DISCARD: Final = 1 << 16
_OPEN_QUOTE: Final = "unexpected end of data"


class CrowdLine(NamedTuple):
    """One line. `content` is None for one that is too long."""

    number: int
    end: int
    """The byte after it."""
    content: bytes | None


class CrowdRow(NamedTuple):
    """One row. `fields` are its columns; `code` and `detail` say why it is bad, else they are empty."""

    number: int
    line: int
    """Of its first line, from 1."""
    last_line: int
    place: int
    """The byte after it."""
    fields: dict[str, Any]
    code: str = ""
    detail: str = ""


class RowFault(Exception):
    """The lines are no row: `code` for programs, `detail` for people."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class CrowdLines:
    """Lines of a file from a place on; some may be put back. For one thread."""

    def __init__(self, file: BinaryIO, number: int = 0, place: int = 0) -> None:
        self._file = file
        self._number = number
        self._place = place
        self._back: deque[CrowdLine] = deque()

    def next(self) -> CrowdLine | None:
        """Returns the next line; None at the end."""
        if self._back:
            return self._back.popleft()
        content: bytes | None = self._file.readline(LONGEST_LINE + 1)
        if not content:
            return None
        self._place += len(content)
        if len(content) > LONGEST_LINE:
            self._discard(content)
            content = None
        elif self._place == len(content) and content.startswith(_BOM):
            content = content[len(_BOM) :]
        self._number += 1
        return CrowdLine(self._number, self._place, content)

    def put_back(self, lines: Sequence[CrowdLine]) -> None:
        """Has these lines read again."""
        self._back.extendleft(reversed(lines))

    def _discard(self, begun: bytes) -> None:
        """Reads the rest of a line that is too long."""
        part = begun
        while part and not part.endswith(b"\n"):
            part = self._file.readline(_DISCARD)
            self._place += len(part)


Parse = Callable[[CrowdLine, CrowdLines], tuple[dict[str, Any], CrowdLine]]
"""Returns the columns of the row that begins with a line, and its last line. Raises RowFault; then the row
is that line alone."""


def rows_of(lines: CrowdLines, parse: Parse, number: int) -> Iterator[CrowdRow]:
    """Yields the rows; `number` is that of the row before. Empty lines are none."""
    while (line := lines.next()) is not None:
        if line.content is not None and not line.content.strip():
            continue
        number += 1
        try:
            if line.content is None:
                raise RowFault("line_too_long", f"a line of more than {LONGEST_LINE:,} bytes")
            fields, last = parse(line, lines)
            yield CrowdRow(number, line.number, last.number, last.end, fields)
        except RowFault as exc:
            yield CrowdRow(number, line.number, line.number, line.end, {}, exc.code, exc.detail)


def csv_parser(header: Sequence[str], source: CrowdSource) -> Parse:
    """Returns the parser of CSV records with this header."""

    def parse(line: CrowdLine, lines: CrowdLines) -> tuple[dict[str, Any], CrowdLine]:
        taken = [line]
        try:
            cells = _cells(taken, lines, source)
            if len(cells) != len(header):
                raise RowFault("wrong_columns", f"{len(cells)} cells; the header has {len(header)}")
        except RowFault:
            lines.put_back(taken[1:])
            raise
        return dict(zip(header, cells, strict=True)), taken[-1]

    return parse


def _cells(taken: list[CrowdLine], lines: CrowdLines, source: CrowdSource) -> list[str]:
    """Returns the cells of a record; adds its further lines to `taken`. Raises RowFault."""
    texts = [_text(taken[0], source)]
    while True:
        try:
            return next(csv.reader(texts, delimiter=source.separator, strict=True))
        except csv.Error as exc:
            if _OPEN_QUOTE not in str(exc):
                raise RowFault("not_csv", f"not CSV: {exc}") from exc
        further = lines.next() if len(taken) < MOST_LINES else None
        if further is None:
            raise RowFault("not_csv", f"a quote is not closed within {len(taken)} lines")
        taken.append(further)
        texts.append(_text(further, source))


def header_of(lines: CrowdLines, source: CrowdSource) -> list[str]:
    """Returns the titles of a CSV file's columns. Raises CampaignRefused."""
    line = lines.next()
    while line is not None and line.content is not None and not line.content.strip():
        line = lines.next()
    if line is None:
        raise CampaignRefused(f"{source.path}: it is empty; its first line must name the columns")
    try:
        header = [title.strip() for title in _cells([line], lines, source)]
    except RowFault as exc:
        raise CampaignRefused(f"{source.path}, line {line.number}: {exc.detail}") from exc
    if len(set(header)) < len(header) or not all(header):
        raise CampaignRefused(
            f"{source.path}, line {line.number}: each column needs a title of its own"
        )
    return header


def json_parser(source: CrowdSource) -> Parse:
    """Returns the parser of JSON lines."""

    def parse(line: CrowdLine, _lines: CrowdLines) -> tuple[dict[str, Any], CrowdLine]:
        try:
            fields = json.loads(_text(line, source))
        except (ValueError, RecursionError) as exc:
            raise RowFault("not_json", f"not JSON: {exc}") from exc
        if not isinstance(fields, dict):
            raise RowFault("not_an_object", "must be one JSON object")
        return fields, line

    return parse


def _text(line: CrowdLine, source: CrowdSource) -> str:
    try:
        return (line.content or b"").decode(source.encoding)
    except UnicodeDecodeError as exc:
        raise RowFault(
            "not_text", f"not {source.encoding} at byte {exc.start} of the line"
        ) from exc
