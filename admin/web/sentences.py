"""Sentences that other packages write in English, in the reader's language: refusals, effects, problems.

The catalogue is keyed by the English sentence, as gettext's is. Files of `languages/LANGUAGE/sentences/`
have entries such as `"drops {}" = "删去了 {0}"`, where `{}` stands for any text. A sentence without a
translation stays as it is. A text that a gap holds is translated, too, if the catalogue has it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final, NamedTuple

from admin.web.languages import FOLDER

GAP: Final = "{}"
LONGEST: Final = 4_000
"""Longer texts are no sentences of ours."""
_DEEPEST: Final = 3
_NUMBER: Final = re.compile(r"\{(\d)\}")


class Pattern(NamedTuple):
    """One entry of the catalogue."""

    pieces: tuple[str, ...]
    """The fixed texts around the gaps."""
    text: str
    """The translation, with `{0}`, `{1}` … for the gaps."""

    def gaps(self, sentence: str) -> list[str] | None:
        """Returns the texts in the gaps; None if the sentence is another one. Linear: no piece is looked
        for twice."""
        first, last = self.pieces[0], self.pieces[-1]
        if len(self.pieces) == 1:
            return [] if sentence == first else None
        if not sentence.startswith(first) or not sentence.endswith(last):
            return None
        found, at, end = [], len(first), len(sentence) - len(last)
        for piece in self.pieces[1:-1]:
            next_at = sentence.find(piece, at, end)
            if next_at < 0:
                return None
            found.append(sentence[at:next_at])
            at = next_at + len(piece)
        return [*found, sentence[at:end]] if at <= end else None


class Sentences:
    """The sentences of one language."""

    def __init__(self, entries: Mapping[str, str]) -> None:
        self.entries = dict(entries)
        made = [Pattern(tuple(english.split(GAP)), text) for english, text in entries.items()]
        self._whole = {one.pieces[0]: one.text for one in made if len(one.pieces) == 1}
        open_ = [one for one in made if len(one.pieces) > 1]
        # The pattern with the most fixed text is the one that is meant.
        self._open = sorted(open_, key=lambda one: -sum(map(len, one.pieces)))

    def __call__(self, sentence: str, depth: int = 0) -> str:
        """Returns the sentence in this language; as it is where the catalogue lacks it."""
        if not self.entries or not sentence or len(sentence) > LONGEST:
            return sentence
        if whole := self._whole.get(sentence):
            return whole
        for pattern in self._open if depth < _DEEPEST else ():
            gaps = pattern.gaps(sentence)
            if gaps is not None:
                return _filled(pattern.text, [self(one, depth + 1) for one in gaps])
        return self._after_its_place(sentence, depth)

    def _after_its_place(self, sentence: str, depth: int) -> str:
        """Returns `PLACE: SENTENCE` with its sentence translated: problems name their place first."""
        place, colon, rest = sentence.partition(": ")
        if not colon or depth >= _DEEPEST:
            return sentence
        return f"{place}: {self(rest, depth + 1)}"


def _filled(text: str, values: list[str]) -> str:
    """Returns the text with its gaps filled; a value's own braces stay."""
    return _NUMBER.sub(lambda found: values[int(found[1])], text)


@cache
def sentences_of(language: str) -> Sentences:
    """Returns the sentences of a language, read once; none for English."""
    return Sentences(dict(_read(language)))


def _read(language: str) -> Iterator[tuple[str, str]]:
    for file in sorted((FOLDER / language / "sentences").glob("*.toml")):
        yield from tomllib.loads(file.read_text(encoding="utf-8")).items()
