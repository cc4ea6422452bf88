"""A secret that no log, error or repr can show by accident."""

from __future__ import annotations

from typing import Final

_SHOWN: Final = "Secret(***)"


class Secret:
    """Holds one text; only `reveal` gives it away."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the wire and nothing else."""
        return self._text

    def __repr__(self) -> str:
        return _SHOWN

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")
