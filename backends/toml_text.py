"""Parses TOML; every problem of the text is one error with its line.

The library raises three errors: for syntax, for depth (RecursionError), for numbers with too many digits
(ValueError). It also reads numbers that no other parser takes.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Final

MAX_DEPTH: Final = 32
_BOUND: Final = 1 << 63
_AT_LINE: Final = re.compile(r"at line (\d+)")


class TomlTrouble(ValueError):
    """A text that cannot be used. `line` is 0 if it is not known; `path` is the key's, or empty."""

    def __init__(self, text: str, line: int = 0, path: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.line = line
        self.path = path


def parsed(text: str) -> dict[str, Any]:
    """Returns the document. Raises TomlTrouble."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        found = _AT_LINE.search(str(exc))
        raise TomlTrouble(f"no TOML: {exc}", int(found[1]) if found else 0) from exc
    except RecursionError:
        raise TomlTrouble("is nested too deeply") from None
    except ValueError:
        raise TomlTrouble("holds a number of too many digits") from None
    check(data)
    return data


def check(data: dict[str, Any]) -> None:
    """Raises TomlTrouble for a depth or a number that nothing here takes."""
    for path, value in _leaves(data):
        if len(path) > MAX_DEPTH:
            raise TomlTrouble(f"{_dotted(path[:3])}…: is nested deeper than {MAX_DEPTH}")
        if isinstance(value, float) and not math.isfinite(value):
            raise TomlTrouble(f"{_dotted(path)}: must be a finite number", path=path)
        if isinstance(value, int) and not -_BOUND <= value < _BOUND:
            raise TomlTrouble(f"{_dotted(path)}: is a number beyond 64 bits", path=path)


def did_you_mean(found: object, known: Iterable[str]) -> str:
    """`; did you mean threads?`, or nothing where no known name is close."""
    close = get_close_matches(str(found), known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _leaves(data: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields every value with its path; a list's items share its path. No recursion, for any depth."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), data)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict) and len(path) <= MAX_DEPTH:
            waiting.extend(((*path, key), one) for key, one in value.items())
        elif isinstance(value, list) and len(path) <= MAX_DEPTH:
            waiting.extend(((*path, "[]"), one) for one in value)
        else:
            yield path, value


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(path).replace(".[]", "[]")
