"""API keys: their form, their hash, their rights. Pure rules.

A key is `hyk_<prefix>_<secret>`: 12 characters that find it, and 256 random bits in base64url. The database
has an HMAC-SHA256 of the secret, keyed by the prefix. A slow hash would protect guessable secrets alone
(docs/decisions/227-api-keys-are-hashed-with-sha-256.md).
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from message.vocabulary import LANES, Lane, LanePatternError, lanes_matching

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}")
ANY_LANE: Final = "*"
MOST_RATE: Final = 1e6
_MARK: Final = "hyk"
_PREFIX_BYTES: Final = 6
_SECRET_BYTES: Final = 32
_FORM: Final = re.compile(r"hyk_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


class KeyScope(StrEnum):
    """Rights of an API key."""

    SEND = "send"
    RECALL = "recall"
    READ = "read"


class KeyRefused(ValueError):
    """A key that cannot be made or changed so; the text is one sentence, `code` its name for pages."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class NewSecret(NamedTuple):
    """A secret that was just made."""

    prefix: str
    token: str
    """The whole key: shown once, stored nowhere."""
    digest: str


class KeyTerms(msgspec.Struct, frozen=True):
    """The rights of a key."""

    scopes: tuple[KeyScope, ...]
    lanes: tuple[str, ...]
    """Patterns of lanes."""
    rate_per_s: float
    """Notifications and other requests a second."""
    burst: int
    """Most of them at once."""


class ApiKey(msgspec.Struct, frozen=True):
    """A key as the gateway knows it, with one of its secrets."""

    id: str
    """Stays the same through rotations."""
    name: str
    terms: KeyTerms
    digest: str
    ends_at: int | None
    """Epoch milliseconds of the secret's end; None: it has none."""

    def may(self, scope: KeyScope) -> bool:
        """Returns whether the key has this right."""
        return scope in self.terms.scopes

    def covers(self, lane: Lane) -> bool:
        """Returns whether the key has this lane."""
        return any(lane.fits(pattern) for pattern in self.terms.lanes)

    @property
    def covers_all(self) -> bool:
        """Whether the key has every lane, those to come included."""
        return ANY_LANE in self.terms.lanes

    @property
    def lane_names(self) -> frozenset[str] | None:
        """The names of the key's lanes; None if it has every lane."""
        if self.covers_all:
            return None
        return frozenset(lane.name for lane in LANES if self.covers(lane))


def new_secret() -> NewSecret:
    """Returns a fresh key with its prefix and its digest."""
    prefix, secret = secrets.token_hex(_PREFIX_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
    return NewSecret(prefix, f"{_MARK}_{prefix}_{secret}", digest_of(prefix, secret))


def split(token: str) -> tuple[str, str] | None:
    """Returns prefix and secret of a key; None for another text."""
    found = _FORM.fullmatch(token)
    return (found[1], found[2]) if found else None


def digest_of(prefix: str, secret: str) -> str:
    """Returns the stored form of a secret, 64 hex digits."""
    return hmac.digest(prefix.encode(), secret.encode(), "sha256").hex()


def is_secret_of(prefix: str, secret: str, digest: str) -> bool:
    """Compares in constant time."""
    return hmac.compare_digest(digest_of(prefix, secret), digest)


def terms_of(
    scopes: Sequence[str], lanes: Sequence[str], rate_per_s: float, burst: int
) -> KeyTerms:
    """Returns checked terms; no lanes given: all. Raises KeyRefused."""
    chosen = tuple(scope for scope in KeyScope if scope in scopes)
    unknown = [one for one in scopes if one not in set(KeyScope)]
    if unknown or not chosen:
        wrong = f"there is no scope {unknown[0]!r}" if unknown else "a key needs a scope"
        raise KeyRefused("bad_scopes", f"{wrong}: give one or more of {', '.join(KeyScope)}")
    patterns = tuple(dict.fromkeys(one.strip() for one in lanes)) or (ANY_LANE,)
    if "" in patterns:  # as of an unset variable: it must not mean every lane
        raise KeyRefused(
            "bad_lanes", "a lane is blank: give a pattern, as sms.*, or * for all lanes"
        )
    try:
        lanes_matching(patterns)
    except LanePatternError as exc:
        raise KeyRefused("bad_lanes", str(exc)) from exc
    if not 0 < rate_per_s <= MOST_RATE or not 1 <= burst <= MOST_RATE:
        raise KeyRefused(
            "bad_rate", "a rate is above 0 and a burst is 1 or more, both at most 1,000,000"
        )
    return KeyTerms(chosen, patterns, rate_per_s, burst)


def check_name(name: str) -> None:
    """Raises KeyRefused for a name that is none."""
    if not NAME.fullmatch(name):
        raise KeyRefused(
            "bad_name",
            f"{name!r} is no name: give 1 to 100 letters, digits and . _ @ + -, a letter or digit first",
        )
