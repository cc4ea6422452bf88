"""Apple's provider tokens: a JWT that the account's own key signs, without a request.

    header     {"alg": "ES256", "kid": <key id>}
    claims     {"iss": <team id>, "iat": <seconds>}

Apple refuses a token older than an hour (ExpiredProviderToken). It refuses a new one within 20 minutes of
the last, counted over a team's keys and providers (TooManyProviderTokenUpdates). So `iat` is the start of
the current half hour. All processes then sign the same bytes (RFC 6979), even `hongyan accounts test` or a
fleet with flushed stores. The fleet replaces its token at an age of 51 to 55 minutes, 21 minutes or more
after its first use.

Sources, read 2026-11-22: "Establishing a token-based connection to APNs"
(https://developer.apple.com/documentation/usernotifications/establishing-a-token-based-connection-to-apns),
https://developer.apple.com/forums/thread/702056 (what counts as an update)
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import lru_cache
from time import time
from typing import Annotated, Final

import httpx
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from channels.channel import Account, LoginRefused, Token, TokenRefused
from channels.secret import Secret

STEP_S: Final = 1_800
"""Seconds between two times of issue."""
LIFE_S: Final = 3_300
"""Seconds after its time of issue for which a token is used."""
_SIZE: Final = 32
Id = Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z]{10}\Z")]
Topic = Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z._\-]{1,255}\Z")]


class ApnsOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of an account."""

    team_id: Id
    """Ten characters, from the developer account's membership page."""
    key_id: Id
    """Ten characters, of the key that was made for APNs."""
    private_key: Secret
    """The text of the key's .p8 file."""
    topic: Topic
    """The application's bundle id."""

    def __post_init__(self) -> None:
        """Raises ValueError, without the key's text, for a key that cannot sign."""
        if _key(self.private_key) is None:
            raise ValueError(
                "private_key is not a P-256 private key in PEM; give the .p8 file's text"
            )


class _Header(msgspec.Struct):
    alg: str
    kid: str


class _Claims(msgspec.Struct):
    iss: str
    iat: int


class ApnsTokens:
    """Stateless but for a clock."""

    def __init__(self, now: Callable[[], float] = time) -> None:
        self._now = now

    def request(self, account: Account, stale: str) -> Token:
        """Returns the token of this half hour. Raises LoginRefused if Apple just refused it: Apple takes no
        newer one so soon."""
        now = self._now()
        issued = int(now) // STEP_S * STEP_S
        if stale and issued_at(stale) >= issued:
            text = "Apple calls a token expired that is less than half an hour old"
            raise LoginRefused(f"ExpiredProviderToken: {text}; check this machine's clock")
        return Token(signed(account.options, issued), issued + LIFE_S - now)

    def read(self, answer: httpx.Response) -> Token:
        """Raises TokenRefused: no request is made, so there is no answer."""
        raise TokenRefused("no answer brings a token: the account's own key signs it")


def signed(options: ApnsOptions, issued: int) -> str:
    """Returns the JWT (RFC 7515 §7.1); `issued` is its time of issue in epoch seconds."""
    text = f"{_part(_Header('ES256', options.key_id))}.{_part(_Claims(options.team_id, issued))}"
    key = _key(options.private_key)
    assert key is not None  # ApnsOptions refuses others
    r, s = decode_dss_signature(_signature(key, text.encode()))
    return f"{text}.{_text(r.to_bytes(_SIZE, 'big') + s.to_bytes(_SIZE, 'big'))}"


def issued_at(token: str) -> int:
    """Returns a token's time of issue in epoch seconds; 0 if it has none."""
    try:
        part = token.split(".")[1]
        claims = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
        return msgspec.json.decode(claims, type=_Claims).iat
    except (IndexError, ValueError, msgspec.MsgspecError):
        return 0


def _signature(key: ec.EllipticCurvePrivateKey, data: bytes) -> bytes:
    """Returns a DER signature; deterministic if the library supports it (OpenSSL 3.2)."""
    try:
        return key.sign(data, ec.ECDSA(SHA256(), deterministic_signing=True))
    except UnsupportedAlgorithm:
        return key.sign(data, ec.ECDSA(SHA256()))


@lru_cache(maxsize=64)
def _key(secret: Secret) -> ec.EllipticCurvePrivateKey | None:
    """Returns the parsed key; None if it is no P-256 key. Cached: parsing takes longer than signing."""
    try:
        key = load_pem_private_key(secret.reveal().encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    return None


def _part(part: msgspec.Struct) -> str:
    return _text(msgspec.json.encode(part))


def _text(data: bytes) -> str:
    """Returns base64url without padding (RFC 7515 §2)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
