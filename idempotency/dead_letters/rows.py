"""Words of the index of dead letters. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

OLDEST: Final = 0
NEWEST: Final = 1 << 62
ANYWHERE: Final = None
"""In place of lanes: all of them, and letters without a lane."""
LONGEST_ORIGIN: Final = 400
LONGEST_DETAIL: Final = 1_000
LONGEST_WORD: Final = 64


class LetterState(StrEnum):
    """States of a letter."""

    OPEN = "OPEN"
    REPLAYED = "REPLAYED"
    DISCARDED = "DISCARDED"


class KeptForm(StrEnum):
    """How much of the record the letter has."""

    WHOLE = "WHOLE"
    CUT = "CUT"
    STUB = "STUB"
    FOREIGN = "FOREIGN"
    """It names no origin: no worker of ours wrote it."""


class LetterEntry(NamedTuple):
    """One letter as it is entered."""

    origin: str
    partition: int
    place: int
    at: int
    reason: str
    detail: str
    lane: str
    message_id: str
    size: int
    form: str
    digest: str


class IndexedLetter(NamedTuple):
    """One letter as the index has it. Times are epoch milliseconds."""

    origin: str
    partition: int
    place: int
    at: int
    reason: str
    detail: str
    lane: str
    message_id: str
    size: int
    form: str
    state: str
    ended_at: int | None
    ended_by: str | None
    why: str | None

    @property
    def open(self) -> bool:
        """Whether nobody has decided about it."""
        return self.state == LetterState.OPEN

    @property
    def replayable(self) -> bool:
        """Whether the letter has the whole record and its topic."""
        return self.form == KeptForm.WHOLE


class LetterKey(NamedTuple):
    """Place of a letter in the order of pages."""

    at: int
    origin: str


class LetterFilter(NamedTuple):
    """Conditions on letters; an empty text is none."""

    state: str = ""
    reason: str = ""
    lanes: tuple[str, ...] | None = ANYWHERE
    """Lanes that a person may see; ANYWHERE: all."""
    since: int = OLDEST
    until: int = NEWEST


class TopicPlace(NamedTuple):
    """How far one partition is read."""

    partition: int
    topic_id: str
    next_offset: int
    end_offset: int
    seen_at: int


class IndexLag(NamedTuple):
    """How far the index is behind the topic, as recovery saw it last."""

    letters: int
    seen_at: int
    """Epoch milliseconds by the database's clock; 0: no recovery has read the topic yet."""


def clean(text: str, longest: int) -> str:
    """Returns the text as both databases take it: cut, without NUL and lone surrogates."""
    return text[:longest].replace("\0", "\ufffd").encode("utf-8", "replace").decode()
