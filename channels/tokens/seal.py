"""Tokens at rest: sealed with a key made of the account's own credentials.

Whoever may use a token knows the credentials it was given for, so no other key has to be configured or
handed around. The name under which a token is kept comes from them too: with a new secret no process
uses what the old one was given, and two fleets on one Redis meet only if they use the same login.
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
"""Public: it keeps what is derived here apart from what others may derive of the same credentials."""


class TokenCipher:
    """Of one account; `name` is where its token is kept."""

    def __init__(self, account: Account) -> None:
        login = msgspec.json.encode(
            [account.provider, account.endpoint, account.options],
            enc_hook=_revealed,
            order="sorted",
        )
        self.name = f"{account.name}:{_derived(login, b'name', _NAME).hex()}"
        self._cipher = AESGCM(_derived(login, b"key", _KEY))

    def close(self, token: str) -> bytes:
        """What is kept: nonce, ciphertext and tag, bound to the name."""
        nonce = os.urandom(_NONCE)
        return nonce + self._cipher.encrypt(nonce, token.encode(), self.name.encode())

    def open(self, sealed: bytes) -> str | None:
        """The token; None for what was damaged or belongs elsewhere."""
        try:
            nonce, rest = sealed[:_NONCE], sealed[_NONCE:]
            return self._cipher.decrypt(nonce, rest, self.name.encode()).decode()
        except (InvalidTag, ValueError):
            return None


def digest_of(token: str) -> str:
    """What processes compare tokens by; empty for none."""
    return sha256(token.encode()).hexdigest() if token else ""


def _derived(login: bytes, purpose: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=_SALT, info=purpose).derive(login)


def _revealed(value: object) -> object:
    if isinstance(value, Secret):
        return value.reveal()
    raise NotImplementedError(type(value))
