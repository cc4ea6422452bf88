"""A secret that no log, error or repr can show by accident."""

from __future__ import annotations

from typing import Final

_SHOWN: Final = "Secret(***)"
_PEM: Final = "-----BEGIN "
_UNFIT: Final = "must be a text of printable ASCII characters"


class Secret:
    """Holds one text; only `reveal` gives it away."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Returns the text itself, for the wire and nothing else."""
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


def secret_of(wanted: type, value: object) -> object:
    """Turns texts into secrets; raises NotImplementedError for any other type, as msgspec wants it."""
    if wanted is not Secret:
        raise NotImplementedError(wanted)
    if not isinstance(value, str) or not value.strip() or not value.isascii():
        raise ValueError(_UNFIT)
    lines = value.splitlines() if value.startswith(_PEM) else [value]
    if not all(line.isprintable() for line in lines):
        raise ValueError(_UNFIT)
    return Secret(value.strip())
