"""Passwords: Argon2id, and the rule for new ones.

One hash takes 64 MiB, and strangers may ask for a check. So AT_ONCE hashes are computed at the same time,
and further callers wait. A waiting sign-in holds a thread of the server's pool: at most MOST_SIGN_INS do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

SHORTEST: Final = 12
LONGEST: Final = 1_024
AT_ONCE: Final = 2
"""Hashes at the same time: 128 MiB of the 512 MiB that a console may have."""
MOST_SIGN_INS: Final = 20
"""Sign-ins at the same time: half of AnyIO's 40 threads. The others are for pages."""
_TURNS: Final = threading.BoundedSemaphore(AT_ONCE)
_PLACES: Final = threading.BoundedSemaphore(MOST_SIGN_INS)
_HASHER: Final = PasswordHasher()
_NOBODY: Final = _HASHER.hash("nobody has this password")
"""Checked for unknown names, so that they take as long as known ones."""


class TooManySignIns(Exception):
    """Every place has its sign-in."""


def sign_in_place() -> AbstractContextManager[None]:
    """Holds the place of one sign-in by password. Raises TooManySignIns at once if none is free."""
    return place_among(_PLACES)


@contextmanager
def place_among(places: threading.BoundedSemaphore) -> Iterator[None]:
    """Holds one of the places. Raises TooManySignIns at once if none is free."""
    if not places.acquire(blocking=False):
        raise TooManySignIns
    try:
        yield
    finally:
        places.release()


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
    """Returns the hash to be stored. Waits for its turn."""
    with _TURNS:
        return _HASHER.hash(password)


def fits(password_hash: str, password: str) -> bool:
    """Returns whether the password is the one of the hash. An empty hash fits none, and takes as long.
    Waits for its turn."""
    try:
        with _TURNS:
            _HASHER.verify(password_hash or _NOBODY, password[:LONGEST])
    except (Argon2Error, InvalidHashError):
        return False
    return bool(password_hash)
