"""Signatures and encryption of WeChat's pushes.

    signature       sha1 of token, timestamp and nonce, sorted and joined
    msg_signature   the same with the encrypted text among them
    <Encrypt>       base64 of AES-256-CBC, key = base64(EncodingAESKey + "="), IV = its first 16 bytes,
                    PKCS#7 to 32 bytes, over 16 random bytes | length (4, big-endian) | message | app id

Source: https://developers.weixin.qq.com/doc/oplatform/Third-party_Platforms/2.0/api/Before_Develop/Technical_Plan.html
"""

from __future__ import annotations

import binascii
import hashlib
from base64 import b64decode
from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC

KEY_CHARACTERS: Final = 43
_BLOCK, _RANDOM, _LENGTH = 32, 16, 4


class Undecipherable(ValueError):
    """Not encrypted with this key, or for another app."""


def signature(*parts: str) -> str:
    """Returns the SHA-1 that the protocol asks for, in hexadecimal."""
    joined = "".join(sorted(parts)).encode(errors="replace")
    return hashlib.sha1(joined, usedforsecurity=False).hexdigest()


def aes_key(encoded: str) -> bytes:
    """Returns the 32 bytes of an EncodingAESKey. Raises ValueError, which does not show it."""
    try:
        key = b64decode(f"{encoded}=") if len(encoded) == KEY_CHARACTERS else b""
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _BLOCK:
        raise ValueError(f"aes_key must be the {KEY_CHARACTERS} characters of the EncodingAESKey")
    return key


def decrypt(key: bytes, encrypted: str, app_id: str) -> bytes:
    """Returns the message. Raises Undecipherable."""
    try:
        data = b64decode(encrypted, validate=True)
        decryptor = Cipher(AES(key), CBC(key[:16])).decryptor()
        padded = decryptor.update(data) + decryptor.finalize()
    except (binascii.Error, ValueError) as exc:
        raise Undecipherable("it is not what AES-256-CBC gives") from exc
    if not padded or not 1 <= padded[-1] <= _BLOCK:
        raise Undecipherable("it was encrypted with another key")
    plain = padded[: -padded[-1]]
    start = _RANDOM + _LENGTH
    end = start + int.from_bytes(plain[_RANDOM:start], "big")
    if plain[end:] != app_id.encode():
        raise Undecipherable("it is for another app, or was encrypted with another key")
    return plain[start:end]
