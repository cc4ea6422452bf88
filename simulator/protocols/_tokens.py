"""Access tokens as the providers give them out: the same one while it is good, and none good for ever."""

from __future__ import annotations

import base64
import secrets
from enum import StrEnum
from typing import Final, NamedTuple

from simulator.wire import ProtocolContext

_MS: Final = 1_000
_BYTES: Final = 64


class Standing(StrEnum):
    """The state of a token."""

    GOOD = "good"
    EXPIRED = "expired"
    UNKNOWN = "unknown"
    """Never given out, or voided by a later one."""


class _Given(NamedTuple):
    text: str
    ends_ms: int
    generation: int


class IssuedTokens:
    """The tokens of one login. Within the last `overlap_s` of a token, at most a tenth of its life, a
    request gets a new one. The old one lives on to its end."""

    def __init__(self, world: ProtocolContext, name: str, *, overlap_s: float = 0.0) -> None:
        self._world = world
        self._name = name
        self._overlap_ms = min(overlap_s, world.token_ttl_s / 10) * _MS
        self._given: list[_Given] = []

    def give(self, *, force: bool = False) -> tuple[str, int]:
        """Returns a token and its seconds left; counted as `tokens.<name>`. `force` voids all before."""
        self._world.count(f"tokens.{self._name}")
        now = self._world.now_ms()
        self._given = [one for one in self._given if self._good(one, now)]
        if force:
            self._given.clear()
        latest = self._given[-1] if self._given else None
        if latest is None or latest.ends_ms - now <= self._overlap_ms:
            ends_ms = now + int(self._world.token_ttl_s * _MS)
            latest = _Given(secrets.token_urlsafe(_BYTES), ends_ms, self._world.token_generation)
            self._given.append(latest)
            self._world.count(f"new_tokens.{self._name}")
        return latest.text, max(1, (latest.ends_ms - now) // _MS)

    def standing(self, text: str) -> Standing:
        """Returns the state of a token."""
        for one in self._given:
            if one.text == text:
                return Standing.GOOD if self._good(one, self._world.now_ms()) else Standing.EXPIRED
        return Standing.UNKNOWN

    def _good(self, one: _Given, now: int) -> bool:
        return now < one.ends_ms and one.generation == self._world.token_generation


def base64url(text: str) -> bytes:
    """Returns a part of a JWT. Raises ValueError."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
