"""Texts of strangers as they may be shown: bounded, on one line, without receivers or contents.

A provider's answer or a malformed record may repeat a receiver or a content. Such a text passes `shown`
before any log line, ledger row, trace event or header of a dead letter has it
(docs/decisions/078-details-name-the-field.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import unescape
from typing import Any, Final
from urllib.parse import unquote_plus

import msgspec

MASK: Final = "***"
MAX_SHOWN: Final = 300
"""Characters of a text that are shown."""
MAX_CODE: Final = 64
MAX_ANSWER: Final = 2_048
"""Bytes of a provider's answer that are shown, in UTF-8."""
_BEYOND: Final = 256
"""Bytes of an answer that are read beyond those shown, so that no half of a number or text stays."""
_MAX_READ: Final = 1_024
"""Characters of a text that are read."""
_MAX_PRIVATE: Final = 64 * 1_024
"""Characters of one private text that are compared."""
_MOST_PRIVATE: Final = 200
"""Private texts that are compared, at most."""
_UNKNOWN_FIELD: Final = "Object contains unknown field"
_LEAST: Final = 4
"""Shorter private texts are not masked: they identify nobody."""
_RUN: Final = 8
"""Length of a run that is masked where a text repeats only a part of a private text."""
_UNSHOWN: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]+"
)
_STEP: Final = 5
"""Between two pieces of four characters: each run of `_RUN` holds one of them."""
_KELVIN: Final = "\N{KELVIN SIGN}".encode().decode("latin-1")
"""The one character outside ASCII that is a single letter of ASCII in lower case."""
_BEGINNINGS: Final = re.compile(r"[^0-9a-z](?=(.{4}))", re.DOTALL)
"""Finds the pieces of a text in lower case with which a private text may stand alone."""
_encoder = msgspec.json.Encoder()
_WORD: Final = re.compile(r"[^\s\"'<>(){}\[\]:,;=]+")
_ESCAPED: Final = re.compile(r"\\u([0-9a-fA-F]{4})")
"""A character as JSON escapes it."""
_NUMBER: Final = re.compile(r"\+?\d(?:[ .()-]{0,2}\d){6,}")
"""Seven digits and more, however grouped; shorter ones are most often a provider's code."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_DIGITS: Final = re.compile(r"\d{7,}")


def shown(text: str, private: Iterable[str] = (), *, most: int = MAX_SHOWN) -> str:
    """Returns at most `most` characters; addresses, long numbers and private texts are masked."""
    text = _NUMBER.sub(MASK, _impersonal(text, private))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def shown_answer(content: bytes, private: list[str]) -> str:
    """Returns a provider's answer as it may be shown, in at most 2 KiB of UTF-8. It may be a page of a
    stranger: the search for private texts is made only if one of them may be in it."""
    text = content[: MAX_ANSWER + _BEYOND].decode("utf-8", "replace")
    text = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
    text = unescape(unquote_plus(text) if "%" in text else text)
    if not may_repeat(text, as_document(private)):
        private = []
    text = _NUMBER.sub(MASK, _impersonal(text, private, MAX_ANSWER + _BEYOND))
    return text.encode()[:MAX_ANSWER].decode("utf-8", "ignore")


def shown_code(code: str, private: Iterable[str] = ()) -> str:
    """Returns a provider's error code, likewise: its digits stay, since many codes are numbers."""
    return _impersonal(code, private)[:MAX_CODE]


def shown_name(name: str) -> str:
    """Returns the name of a field or a template, where it is one; a mask for anything else."""
    return name if _NAME.fullmatch(name) and not _DIGITS.search(name) else MASK


def broken_rule(exc: msgspec.ValidationError) -> str:
    """Returns the broken rule of a type and its place; without the value, which msgspec may quote."""
    rule, at, path = str(exc).partition(" - at `")
    if rule.startswith("Invalid enum value"):
        rule = "None of the possible values"
    elif rule.startswith(_UNKNOWN_FIELD):
        rule = f"{_UNKNOWN_FIELD} `{shown_name(rule[len(_UNKNOWN_FIELD) :].strip(' `'))}`"
    return f"{rule}{at}{path}"


def rule_in(sentence: str) -> str:
    """Returns a library's sentence up to its first quotation."""
    return f"{sentence.partition(':')[0].partition('(')[0].rstrip(' .')}."


def repeats(text: str, private: Iterable[str]) -> bool:
    """Returns True if the text holds one of the private texts, or a part of it."""
    low = _lowered(text)
    runs = [low[start : start + _RUN] for start in range(len(low) - _RUN + 1)]
    for one in private:
        compared = _comparable(one)
        if len(compared) >= _RUN:
            for run in runs:
                if run in compared:
                    return True
        elif next(_standing_alone(low, compared), None) is not None:
            return True
    return False


def may_repeat(text: str, document: bytes) -> bool:
    """Returns False only if `repeats` surely denies the text for every text, integer and key of this JSON
    document. It costs a fraction of `repeats`.

    A long private text shares eight characters with the text: one of the four-character pieces at 4, 9,
    14 … is among them. A short one begins at the text's beginning or after a character that is no letter
    and no digit. So the document is searched for these pieces. A number that is written with an exponent is
    not recognised.
    """
    if not text.isascii():
        return True
    low, held = text.lower(), document.lower().decode("latin-1")
    if "\\" in held or ("k" in low and _KELVIN in held):
        return True
    if len(low) < _LEAST:
        return False
    if low[:_LEAST] in held:
        return True
    for at in range(_LEAST, len(low) - _LEAST + 1, _STEP):
        if low[at : at + _LEAST] in held:
            return True
    if not low.isalnum():
        for piece in _BEGINNINGS.findall(low):
            if piece in held:
                return True
    return False


def as_document(trees: Any) -> bytes:
    """Returns the trees as JSON, for `may_repeat`. Raises RecursionError for a depth that only a stranger
    sends."""
    return _encoder.encode(trees)


def private_texts(*trees: Any) -> list[str]:
    """Returns the texts, the numbers, and the keys that are no names, in receivers, contents or parameters
    as decoded from JSON; the first 200."""
    found: list[str] = []
    open_ = list(trees)
    while open_ and len(found) < _MOST_PRIVATE:  # without recursion: the depth is a stranger's
        value = open_.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            open_.extend(value.values())
            open_.extend([key for key in value if not _is_word(key) and shown_name(key) == MASK])
        elif isinstance(value, list | tuple):
            open_.extend(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append(repr(value) if abs(value) < 1e15 else "")
    return found


def _is_word(key: str) -> bool:
    """Returns True for letters alone, as most names are: it is asked first, since it costs less."""
    return key.isalpha() and key.isascii() and len(key) <= MAX_CODE


def _impersonal(text: str, private: Iterable[str], most: int = _MAX_READ) -> str:
    """Returns one line without addresses and private texts; a form's escapes are undone first."""
    text = text[:most]
    text = _UNSHOWN.sub(" ", unquote_plus(text) if "%" in text else text)
    return _WORD.sub(_without_address, _without(text, private))


def _without_address(word: re.Match[str]) -> str:
    return MASK if "@" in word[0].strip("@") else word[0]


def _without(text: str, private: Iterable[str]) -> str:
    hidden = bytearray(len(text))
    low = _lowered(text)
    for one in private:
        _hide(low, _comparable(one), hidden)
    return _masked(text, hidden) if any(hidden) else text


def _hide(text: str, private: str, hidden: bytearray) -> None:
    """Marks the characters that repeat the private text, or eight in a row of it."""
    size = len(private)
    if size < _RUN:
        for start in _standing_alone(text, private):
            hidden[start : start + size] = b"\1" * size
        return
    for start in range(len(text) - _RUN + 1):
        if text[start : start + _RUN] in private:
            hidden[start : start + _RUN] = b"\1" * _RUN


def _standing_alone(text: str, private: str) -> Iterator[int]:
    """Yields the places of a short one as a word of its own: `4711`, but not the `time` of `timeout`."""
    size = len(private)
    start = text.find(private) if size >= _LEAST else -1
    while start >= 0:
        around = text[max(start - 1, 0) : start] + text[start + size : start + size + 1]
        if not any(char.isascii() and char.isalnum() for char in around):
            yield start
        start = text.find(private, start + 1)


def _comparable(private: str) -> str:
    """Returns the private text in the form of the search."""
    return _lowered(private[:_MAX_PRIVATE].lstrip("+"))


def _masked(text: str, hidden: bytearray) -> str:
    pieces: list[str] = []
    for place, char in enumerate(text):
        if not hidden[place]:
            pieces.append(char)
        elif not place or not hidden[place - 1]:
            pieces.append(MASK)
    return "".join(pieces)


def _lowered(text: str) -> str:
    """Returns the text in lower case, where that keeps every character's place."""
    low = text.lower()
    return low if len(low) == len(text) else text
