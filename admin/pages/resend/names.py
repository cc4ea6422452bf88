"""Uploaded and pasted ids, one a line; of a line of CSV its first cell. Our own CSV of failures fits."""

from __future__ import annotations

from typing import Final, NamedTuple

from recovery.resend_jobs.actions import NAME_AT_MOST

HEADS: Final = frozenset({"delivery_key", "message_id", "id", "key"})
"""First cells of a line with titles."""
ERRORS_SHOWN: Final = 20
_QUOTES: Final = "\"' \t\ufeff"


class WrongLine(NamedTuple):
    """A line that is no id."""

    number: int
    text: str
    """Its beginning."""
    why: str
    """A key of the page's texts."""


class GivenNames(NamedTuple):
    """The ids of a text."""

    names: list[str]
    wrong: list[WrongLine]


def read_names(text: str) -> GivenNames:
    """Returns the ids without repeats, and every line that is none."""
    names: dict[str, None] = {}
    wrong = []
    for number, line in enumerate(text.splitlines(), 1):
        cell = line.replace(";", ",").replace("\t", ",").split(",", 1)[0].strip(_QUOTES)
        if not cell or (number == 1 and cell.lower() in HEADS):
            continue
        if len(cell) > NAME_AT_MOST:
            wrong.append(WrongLine(number, cell[:40], "resend.line_long"))
        elif not (cell.isascii() and cell.isprintable()) or " " in cell:
            wrong.append(WrongLine(number, cell[:40], "resend.line_strange"))
        else:
            names[cell] = None
    return GivenNames(list(names), wrong)


def decoded(content: bytes) -> str | None:
    """Returns the text of a file; None for one that is no text."""
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeError:
        return None
    return None if "\0" in text else text
