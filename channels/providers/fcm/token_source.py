"""Google's access tokens for a service account: a JWT that it signs, exchanged for a bearer token.

    POST https://oauth2.googleapis.com/token          application/x-www-form-urlencoded
    grant_type=urn:ietf:params:oauth:grant-type:jwt-bearer&assertion=<header>.<claims>.<signature>
    {"access_token": "ya29.…", "expires_in": 3599, "token_type": "Bearer"}
    {"error": "invalid_grant", "error_description": "…"}                                 status 400

    header     {"alg": "RS256", "typ": "JWT", "kid": <private_key_id>}
    claims     {"iss": <client_email>, "scope", "aud": "https://oauth2.googleapis.com/token", "iat", "exp"}

An account whose endpoint is Google's own asks Google; one whose endpoint was replaced asks
`<endpoint>/token`, unless it says `token_uri`. `aud` stays Google's.

Source: https://developers.google.com/identity/protocols/oauth2/service-account#httprest
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import lru_cache
from time import time
from typing import Final
from urllib.parse import urlencode

import httpx
import msgspec
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from channels.channel import Account, LoginRefused, Token, TokenRefused
from channels.endpoints import below, endpoint_url
from channels.http_client.request import extensions_of
from channels.judging.foreign_json import UNREADABLE
from channels.secret import Secret

ENDPOINT: Final = "https://fcm.googleapis.com"
TOKEN_URI: Final = "https://oauth2.googleapis.com/token"  # noqa: S105 (an address)
SCOPE: Final = "https://www.googleapis.com/auth/firebase.messaging"
_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_LIFE_S: Final = 3_600
"""The longest that Google takes."""
_MAX_DETAIL: Final = 200


class FcmOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an account must say: the fields of the service account's key file that have these names."""

    project_id: str
    client_email: str
    private_key: Secret
    private_key_id: str = ""
    token_uri: str = ""

    def __post_init__(self) -> None:
        """A key that cannot sign is told at start, as any wrong option; never with its text."""
        if not isinstance(_key(self.private_key), rsa.RSAPrivateKey):
            raise ValueError("private_key is not an RSA private key in PEM")
        if self.token_uri:
            endpoint_url(self.token_uri)


class _Header(msgspec.Struct, omit_defaults=True):
    alg: str | msgspec.UnsetType = msgspec.UNSET
    typ: str | msgspec.UnsetType = msgspec.UNSET
    kid: str = ""


class _Claims(msgspec.Struct):
    iss: str
    scope: str
    aud: str
    iat: int
    exp: int


class _Answered(msgspec.Struct):
    access_token: str = ""
    expires_in: float = 0.0
    error: str = ""
    error_description: str = ""


_PASSING: Final = frozenset({"temporarily_unavailable", "server_error", "internal_failure"})
"""Errors of Google's that are not about the login (RFC 6749 §4.1.2.1)."""
_FAILURES: Final = 500


class FcmTokens:
    """Holds nothing but a clock. Each asked for is a new one; the earlier go on being good."""

    def __init__(self, now: Callable[[], float] = time) -> None:
        self._now = now

    def request(self, account: Account, stale: str) -> httpx.Request:
        """The exchange of a JWT that is signed for now."""
        assertion = signed(account.options, int(self._now()))
        body = urlencode({"grant_type": _GRANT, "assertion": assertion}).encode()
        return httpx.Request(
            "POST",
            _address(account),
            headers={
                "User-Agent": "hongyan",
                "Content-Type": "application/x-www-form-urlencoded",
            },
            content=body,
            extensions=extensions_of(account),
        )

    def read(self, answer: httpx.Response) -> Token:
        """The token; raises TokenRefused with Google's error."""
        try:
            said = msgspec.json.decode(answer.content, type=_Answered)
        except UNREADABLE as exc:
            raise TokenRefused(f"http_{answer.status_code}: an answer without a token") from exc
        if not said.access_token:
            code = said.error or f"http_{answer.status_code}"
            login = said.error and said.error not in _PASSING and answer.status_code < _FAILURES
            refused = LoginRefused if login else TokenRefused
            raise refused(f"{code}: {said.error_description[:_MAX_DETAIL]}")
        return Token(said.access_token, said.expires_in)


def signed(options: FcmOptions, now_s: int) -> str:
    """The JWT (RFC 7515 §7.1), good from `now_s` for an hour. PKCS #1 v1.5: same input, same text."""
    header = _Header("RS256", "JWT", options.private_key_id)
    claims = _Claims(options.client_email, SCOPE, TOKEN_URI, now_s, now_s + _LIFE_S)
    text = f"{_part(header)}.{_part(claims)}"
    key = _key(options.private_key)
    assert isinstance(key, rsa.RSAPrivateKey)  # FcmOptions took no other
    return f"{text}.{_text(key.sign(text.encode(), padding.PKCS1v15(), SHA256()))}"


def _address(account: Account) -> httpx.URL:
    options: FcmOptions = account.options
    if options.token_uri:
        return endpoint_url(options.token_uri)
    if account.endpoint == ENDPOINT:
        return endpoint_url(TOKEN_URI)
    return below(endpoint_url(account.endpoint), "token")


@lru_cache(maxsize=64)
def _key(secret: Secret) -> object:
    """The parsed key, or None where it is none; parsing takes longer than signing."""
    try:
        return load_pem_private_key(secret.reveal().encode(), None)
    except (ValueError, TypeError):
        return None


def _part(part: msgspec.Struct) -> str:
    return _text(msgspec.json.encode(part))


def _text(data: bytes) -> str:
    """Base64 as JSON Web Signatures write it (RFC 7515 §2)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
