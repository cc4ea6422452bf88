"""A notification's bytes in the ledger: a digest to compare bodies, and the bytes themselves, sealed with
AES-256-GCM when `database.payload_key` is set.

A sealed value is `0x01 | key id (4) | nonce (12) | ciphertext and tag`, bound to its message id. A plain
one is the envelope as it came; JSON never begins with 0x01. Look-back's bodies may: its store knows plain
ones by their hash. The key id is the start of the key's SHA-256: an error can name a wrong or rotated key.
"""

from __future__ import annotations

import binascii
import os
from base64 import b64decode
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

DIGEST_BYTES: Final = 16
KEY_BYTES: Final = 32
_MARK: Final = b"\x01"
_ID, _NONCE = 4, 12
_HEAD: Final = len(_MARK) + _ID + _NONCE


class PayloadUnreadable(ValueError):
    """The configured key does not open a sealed payload; the text names the key that does."""


def body_digest(payload: bytes) -> bytes:
    """Returns the first 16 bytes of SHA-256 over the envelope as it came; the pre-filter's mark, too."""
    return sha256(payload).digest()[:DIGEST_BYTES]


class PayloadCipher:
    """Seals and opens payloads; without a key both leave plain bytes as they are."""

    def __init__(self, key: str = "") -> None:
        """`key` is base64 of 32 bytes, or empty. Raises ValueError, which never shows the key."""
        secret = _decoded(key)
        self._cipher = AESGCM(secret) if secret else None
        self._head = _MARK + sha256(secret).digest()[:_ID] if secret else b""

    @property
    def seals(self) -> bool:
        """Whether a key is configured."""
        return self._cipher is not None

    def seal(self, data: bytes, message_id: str) -> bytes:
        """Returns the bytes for the database."""
        if self._cipher is None:
            return data
        nonce = os.urandom(_NONCE)
        return self._head + nonce + self._cipher.encrypt(nonce, data, message_id.encode())

    def open(self, stored: bytes, message_id: str) -> bytes:
        """Returns the bytes that `seal` was given. Raises PayloadUnreadable."""
        if stored[:1] != _MARK:
            return stored
        wanted = stored[1 : 1 + _ID].hex()
        if self._cipher is None or stored[: 1 + _ID] != self._head:
            raise PayloadUnreadable(
                f"this payload needs the key {wanted}; set database.payload_key"
            )
        try:
            nonce = stored[1 + _ID : _HEAD]
            return self._cipher.decrypt(nonce, stored[_HEAD:], message_id.encode())
        except InvalidTag:
            raise PayloadUnreadable(f"this payload was damaged or moved (key {wanted})") from None


def _decoded(key: str) -> bytes:
    if not key:
        return b""
    try:
        secret = b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if len(secret) != KEY_BYTES:
        raise ValueError(
            "database.payload_key: must be base64 of 32 bytes: `openssl rand -base64 32`"
        )
    return secret
