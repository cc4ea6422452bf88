"""Tokens at rest: sealed with a key made of the account's own credentials.

A process that may use a token knows the account's credentials, so no other key is configured or passed on.
The name under which a token is kept comes from them too. With a new secret no process uses a token of the
old one. Two fleets on one Redis share a token only with the same login.
"""

from __future__ import annotations

import os
from hashlib import sha256
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from channels.channel import Account
from channels.secret import Secret

_KEY: Final = 32
_NAME: Final = 12
_NONCE: Final = 12
_SALT: Final = b"hongyan access token"
"""Public: it separates the keys derived here from others' keys of the same credentials."""


class TokenCipher:
    """Seals one account's token; `name` is its place in the store."""

    def __init__(self, account: Account) -> None:
        login = msgspec.json.encode(
            [account.provider, account.endpoint, account.options],
            enc_hook=_revealed,
            order="sorted",
        )
        self.name = f"{account.name}:{_derived(login, b'name', _NAME).hex()}"
        self._cipher = AESGCM(_derived(login, b"key", _KEY))

    def close(self, token: str) -> bytes:
        """Returns the bytes to keep: nonce, ciphertext and tag, bound to the name."""
        nonce = os.urandom(_NONCE)
        return nonce + self._cipher.encrypt(nonce, token.encode(), self.name.encode())

    def open(self, sealed: bytes) -> str | None:
        """Returns the token; None if it was damaged or belongs elsewhere."""
        try:
            nonce, rest = sealed[:_NONCE], sealed[_NONCE:]
            return self._cipher.decrypt(nonce, rest, self.name.encode()).decode()
        except (InvalidTag, ValueError):
            return None


def digest_of(token: str) -> str:
    """Returns the text by which processes compare tokens; empty for none."""
    return sha256(token.encode()).hexdigest() if token else ""


def _derived(login: bytes, purpose: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=_SALT, info=purpose).derive(login)


def _revealed(value: object) -> object:
    if isinstance(value, Secret):
        return value.reveal()
    raise NotImplementedError(type(value))
