"""The few forms of our own documentation pages, as data for a template: nothing here writes HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_INLINE: Final = re.compile(
    r"\*\*(?P<strong>[^*]+)\*\*|`(?P<code>[^`]+)`|\[(?P<link>[^]]+)\]\([^)]*\)"
)


class ProsePiece(NamedTuple):
    """A piece of a paragraph."""

    kind: str
    """strong, code or text."""
    text: str


class Block(NamedTuple):
    """A paragraph, a list, or lines to type."""

    kind: str
    """paragraph, list or code."""
    lines: list[list[ProsePiece]]
    """One for a paragraph; code has one piece a line."""


def blocks_of(section: str) -> Iterator[Block]:
    """Yields the blocks of a section."""
    parts = re.split(r"```\w*\n(.*?)```", section, flags=re.DOTALL)
    for number, part in enumerate(parts):
        if number % 2:
            yield Block("code", [[ProsePiece("text", line)] for line in part.rstrip().split("\n")])
            continue
        for paragraph in filter(None, re.split(r"\n\s*\n", part.strip())):
            yield _prose(paragraph)


def _prose(paragraph: str) -> Block:
    if paragraph.lstrip().startswith("- "):
        items = re.split(r"^\s*- ", paragraph, flags=re.MULTILINE)[1:]
        return Block("list", [list(_pieces(item)) for item in items])
    return Block("paragraph", [list(_pieces(paragraph))])


def _pieces(text: str) -> Iterator[ProsePiece]:
    text, place = " ".join(text.split()), 0
    for found in _INLINE.finditer(text):
        if found.start() > place:
            yield ProsePiece("text", text[place : found.start()])
        kind = found.lastgroup or "text"
        yield ProsePiece("text" if kind == "link" else kind, found[kind].replace("`", ""))
        place = found.end()
    if place < len(text):
        yield ProsePiece("text", text[place:])
