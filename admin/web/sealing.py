"""Texts that go through an address unreadable: a search for a receiver, for one person and a while.

The key comes from `console.secret`. Without it each process makes one, and a restart ends all sealed texts.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from functools import cache
from typing import Final

import msgspec
from cryptography.fernet import Fernet, InvalidToken

LIFE_S: Final = 3_600
"""Life of a sealed text."""
_LONGEST: Final = 8_000


class SealedText(msgspec.Struct, frozen=True, array_like=True):
    """The content of a sealed text."""

    person: int
    text: str


class SealBroken(Exception):
    """A sealed text that is too old, another person's, or not ours."""


def sealed(secret: str, person: int, text: str) -> str:
    """Returns the text, encrypted for the person, fit for an address."""
    content = msgspec.json.encode(SealedText(person, text))
    return _cipher(secret).encrypt(content).decode()


def unsealed(secret: str, person: int, token: str) -> str:
    """Returns the person's text. Raises SealBroken."""
    if len(token) > _LONGEST:
        raise SealBroken
    try:
        content = _cipher(secret).decrypt(token.encode(), ttl=LIFE_S)
        found = msgspec.json.decode(content, type=SealedText)
    except (InvalidToken, ValueError, msgspec.DecodeError) as exc:
        raise SealBroken from exc
    if found.person != person:
        raise SealBroken
    return found.text


@cache
def _cipher(secret: str) -> Fernet:
    source = secret.encode() or secrets.token_bytes(32)
    digest = hashlib.sha256(b"hongyan sealed text\0" + source).digest()
    return Fernet(base64.urlsafe_b64encode(digest))
