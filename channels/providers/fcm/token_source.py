"""Google's access tokens for a service account: its key signs a JWT, exchanged for a bearer token.

    POST https://oauth2.googleapis.com/token          application/x-www-form-urlencoded
    grant_type=urn:ietf:params:oauth:grant-type:jwt-bearer&assertion=<header>.<claims>.<signature>
    {"access_token": "ya29.…", "expires_in": 3599, "token_type": "Bearer"}
    {"error": "invalid_grant", "error_description": "…"}                                 status 400

    header     {"alg": "RS256", "typ": "JWT", "kid": <private_key_id>}
    claims     {"iss": <client_email>, "scope", "aud": "https://oauth2.googleapis.com/token", "iat", "exp"}

An account with Google's own endpoint asks Google. With another endpoint it asks `<endpoint>/token`. A
`token_uri` overrides both. `aud` stays Google's.

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
"""Life of a JWT; Google takes no longer one."""
_MAX_DETAIL: Final = 200


class FcmOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of an account, named as in the service account's key file."""

    project_id: str
    client_email: str
    private_key: Secret
    private_key_id: str = ""
    token_uri: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError, without the key's text, for a key that cannot sign or a bad `token_uri`."""
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
"""Google's errors that say nothing of the login (RFC 6749 §4.1.2.1)."""
_FAILURES: Final = 500


class FcmTokens:
    """Stateless but for a clock. Each request gives a new token; earlier ones stay valid."""

    def __init__(self, now: Callable[[], float] = time) -> None:
        self._now = now

    def request(self, account: Account, stale: str) -> httpx.Request:
        """Returns the exchange of a JWT, signed with the current time."""
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
        """Returns the token. Raises LoginRefused with Google's error, TokenRefused if it may pass."""
        try:
            reply = msgspec.json.decode(answer.content, type=_Answered)
        except UNREADABLE as exc:
            raise TokenRefused(f"http_{answer.status_code}: an answer without a token") from exc
        if not reply.access_token:
            code = reply.error or f"http_{answer.status_code}"
            login = reply.error and reply.error not in _PASSING and answer.status_code < _FAILURES
            refused = LoginRefused if login else TokenRefused
            raise refused(f"{code}: {reply.error_description[:_MAX_DETAIL]}")
        return Token(reply.access_token, reply.expires_in)


def signed(options: FcmOptions, now_s: int) -> str:
    """Returns the JWT (RFC 7515 §7.1), valid from `now_s` for an hour. The same input has the same text."""
    header = _Header("RS256", "JWT", options.private_key_id)
    claims = _Claims(options.client_email, SCOPE, TOKEN_URI, now_s, now_s + _LIFE_S)
    text = f"{_part(header)}.{_part(claims)}"
    key = _key(options.private_key)
    assert isinstance(key, rsa.RSAPrivateKey)  # FcmOptions refuses others
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
    """Returns the parsed key; None if it cannot be read. Cached: parsing takes longer than signing."""
    try:
        return load_pem_private_key(secret.reveal().encode(), None)
    except (ValueError, TypeError):
        return None


def _part(part: msgspec.Struct) -> str:
    return _text(msgspec.json.encode(part))


def _text(data: bytes) -> str:
    """Returns base64url without padding (RFC 7515 §2)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
