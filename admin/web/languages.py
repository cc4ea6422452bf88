"""Texts of the pages by language: `admin/languages/LANGUAGE/PAGE.toml`, one flat table a file.

The key `overview.title` is `title` in overview.toml. `{name}` in a text is replaced by an argument.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[1] / "languages"
ENGLISH: Final = "en"
LANGUAGES: Final = {"en": "English", "zh": "中文"}


class Texts:
    """The texts of one language."""

    def __init__(self, language: str, texts: Mapping[str, str]) -> None:
        self.language = language
        self._texts = texts

    def __call__(self, key: str, **arguments: object) -> str:
        """Returns the text of a key, with its arguments put in; an unknown key as it is."""
        text = self._texts.get(key, key)
        for name, value in arguments.items():
            text = text.replace(f"{{{name}}}", str(value))
        return text

    def has(self, key: str) -> bool:
        """Returns whether there is a text of this key."""
        return key in self._texts

    def keys(self) -> frozenset[str]:
        """Returns all keys."""
        return frozenset(self._texts)


@cache
def texts_of(language: str) -> Texts:
    """Returns the texts of a language of LANGUAGES, read once. Raises ValueError for a key that is twice or
    no text."""
    texts: dict[str, str] = {}
    for file in sorted((FOLDER / language).glob("*.toml")):
        for key, value in tomllib.loads(file.read_text(encoding="utf-8")).items():
            if not isinstance(value, str):
                raise ValueError(f"{file}: {key}: write one text for a key, in quotes")
            texts[f"{file.stem}.{key}"] = value
    return Texts(language, texts)


def language_of(wanted: str, accept: str) -> str:
    """Returns the language: the one that is wanted, else the first known one that the browser accepts."""
    if wanted in LANGUAGES:
        return wanted
    for part in accept.split(","):
        name = part.partition(";")[0].strip().lower()[:2]
        if name in LANGUAGES:
            return name
    return ENGLISH
