"""Header fields of a mail, encoded and folded (RFC 5322 §2.2.3, RFC 2047, RFC 2231). The standard library's
`email` is not used, so the bytes are the same on any Python.

    a subject    unchanged if plain ASCII, else encoded whole: no blank can be lost between parts
    an address   its name as words, as a quoted string, or encoded; the address itself is never changed
    a field      as the notification has it; only words outside ASCII are encoded
    a filename   quoted, or percent-encoded (RFC 2231) if a quoted one could be misread

A line has at most 76 characters; only a word that cannot be folded makes a longer one. No line exceeds 998
(RFC 5322 §2.1.1): contents have at most 900 characters, addresses 254.
Encoded words and pieces of a filename end between characters, since parsers decode each by itself.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import quote

from channels.providers._common.email_content import Mailbox

_WIDTH: Final = 76
"""Characters of a line: the limit for lines with an encoded word (RFC 2047 §2), applied to all."""
_BEFORE, _AFTER = "=?utf-8?b?", "?="
_AROUND: Final = len(_BEFORE) + len(_AFTER)
_MAX_WORD: Final = 75
"""Characters of one encoded word (RFC 2047 §2)."""
_LEAST_ROOM: Final = 8
"""Base64 of the longest character."""
_MAX_QUOTED: Final = 60
"""A longer name is encoded: a quoted string is not folded."""
_PIECE: Final = 60
_ATOMS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?: [A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_FOLDS = re.compile(r"(?<=[^ ]) (?=[^ ])")
"""A single blank: a parser that unfolds the line restores exactly one."""
_CHARSET: Final = "utf-8''"
_IN_FILENAME: Final = "!#$&+-.^_`|~"
"""Characters that percent-encoding leaves as they are, beside letters and digits (RFC 2231 §7)."""


class _Field:
    """One header field as it grows, word by word."""

    def __init__(self, name: str) -> None:
        self._done: list[str] = []
        self._line = self._start = f"{name}:"

    def __str__(self) -> str:
        return "\r\n".join([*self._done, self._line])

    def word(self, word: str) -> None:
        """Appends a word that cannot be folded. The first word stays on the line of the field's name."""
        if self._line != self._start and len(self._line) + 1 + len(word) > _WIDTH:
            self._fold()
        self._line += f" {word}"

    def encoded(self, text: str) -> None:
        """Appends the text as encoded words; a parser joins them without the folds."""
        rest = text
        while rest:
            if self._room() < _LEAST_ROOM:
                self._fold()
            size = _fitting(rest, self._room() // 4 * 3)
            self._line += f" {_BEFORE}{b64encode(rest[:size].encode()).decode()}{_AFTER}"
            rest = rest[size:]
            if rest:
                self._fold()

    def _room(self) -> int:
        """Returns how many characters of base64 still fit on the line."""
        return min(_WIDTH - len(self._line) - 1, _MAX_WORD) - _AROUND

    def _fold(self) -> None:
        self._done.append(self._line)
        self._line = ""


def subject(text: str) -> str:
    """Returns the Subject field."""
    field = _Field("Subject")
    words = text.split(" ")
    if _is_plain(text) and all(words) and max(map(len, words)) < _WIDTH:
        for word in words:
            field.word(word)
    else:
        field.encoded(text)
    return str(field)


def addresses(name: str, boxes: Sequence[Mailbox]) -> str:
    """Returns a field of addresses with their names."""
    field = _Field(name)
    for place, box in enumerate(boxes, 1):
        comma = "," if place < len(boxes) else ""
        if not box.name:
            field.word(f"{box.address}{comma}")
            continue
        _write_name(field, box.name)
        field.word(f"<{box.address}>{comma}")
    return str(field)


def given(name: str, value: str) -> str:
    """Returns a field of the notification's own. ASCII words stay unchanged: addresses and links among them
    must not be encoded (RFC 2047 §5)."""
    field = _Field(name)
    beside: list[str] = []
    for word in [*_FOLDS.split(value), ""]:
        if word and not word.isascii():
            beside.append(word)
            continue
        if beside:
            field.encoded(" ".join(beside))
            beside.clear()
        if word:
            field.word(word)
    return str(field)


def plain(name: str, words: Iterable[str]) -> str:
    """Returns a field of words that need no encoding."""
    field = _Field(name)
    for word in words:
        field.word(word)
    return str(field)


def disposition(kind: str, filename: str) -> str:
    """Returns Content-Disposition (RFC 2183) with a filename."""
    if _is_plain(filename) and not set('"\\') & set(filename):
        return plain("Content-Disposition", (f"{kind};", f'filename="{filename}"'))
    pieces = list(_pieces(filename))
    if len(pieces) == 1:
        named = [f"filename*={_CHARSET}{pieces[0]}"]
    else:
        named = [f"filename*{n}*={'' if n else _CHARSET}{one}" for n, one in enumerate(pieces)]
    return plain("Content-Disposition", (f"{kind};", *_with_semicolons(named)))


def _write_name(field: _Field, name: str) -> None:
    if _is_plain(name) and _ATOMS.fullmatch(name):
        for word in name.split(" "):
            field.word(word)
    elif _is_plain(name) and len(name) <= _MAX_QUOTED and "  " not in name:
        field.word('"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"')
    else:
        field.encoded(name)


def _is_plain(text: str) -> bool:
    """Returns whether the text needs no encoding. A parser takes `=?` for the start of an encoded word."""
    return text.isascii() and "=?" not in text and text == text.strip()


def _fitting(text: str, size: int) -> int:
    """Returns how many leading characters fit into `size` bytes of UTF-8; at least one."""
    taken = 0
    for place, char in enumerate(text):
        taken += len(char.encode())
        if taken > size:
            return max(place, 1)
    return len(text)


def _pieces(filename: str) -> Iterator[str]:
    """Yields the percent-encoded filename in pieces, cut between characters."""
    piece = ""
    for char in filename:
        encoded = quote(char, safe=_IN_FILENAME)
        if len(piece) + len(encoded) > _PIECE:
            yield piece
            piece = ""
        piece += encoded
    yield piece


def _with_semicolons(parameters: Sequence[str]) -> Iterator[str]:
    *others, last = parameters
    yield from (f"{one};" for one in others)
    yield last
