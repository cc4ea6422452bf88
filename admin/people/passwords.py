"""Passwords: Argon2id, and the rule for new ones."""

from __future__ import annotations

from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

SHORTEST: Final = 12
LONGEST: Final = 1_024
_HASHER: Final = PasswordHasher()
_NOBODY: Final = _HASHER.hash("nobody has this password")
"""Checked for unknown names, so that they take as long as known ones."""


def problem_of(password: str, name: str = "") -> str:
    """Returns the key of the sentence that refuses a new password; empty: it is taken."""
    if len(password) < SHORTEST:
        return "password.short"
    if len(password) > LONGEST:
        return "password.long"
    if (name and name.lower() in password.lower()) or len(set(password)) < 5:
        return "password.simple"
    return ""


def hashed(password: str) -> str:
    """Returns the hash to be stored."""
    return _HASHER.hash(password)


def fits(password_hash: str, password: str) -> bool:
    """Returns whether the password is the one of the hash. An empty hash fits none, and takes as long."""
    try:
        _HASHER.verify(password_hash or _NOBODY, password[:LONGEST])
    except (Argon2Error, InvalidHashError):
        return False
    return bool(password_hash)
