"""The keyed hash of a receiver; the trace and the ledger find receivers by it."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Final

_BLOCK: Final = 64
"""Bytes of a block of SHA-256."""
HashReceiver = Callable[[str, str], str]
"""Returns the keyed hash of a normalised receiver, from channel and receiver; empty without a key."""


def hasher(hash_key: str) -> HashReceiver:
    """Returns the hash under `outcomes.hash_key`, equal to `message.outcome_event.receiver_hash`. Both
    blocks of the key (RFC 2104) are hashed once here: `hmac.digest` takes almost three times as long."""
    if not hash_key:
        return no_hash
    key = hash_key.encode()
    block = (key if len(key) <= _BLOCK else sha256(key).digest()).ljust(_BLOCK, b"\0")
    inner = sha256(bytes(byte ^ 0x36 for byte in block))
    outer = sha256(bytes(byte ^ 0x5C for byte in block))

    def hashed(channel: str, receiver: str) -> str:
        one, both = inner.copy(), outer.copy()
        one.update(f"{channel}\x1f{receiver}".encode(errors="replace"))
        both.update(one.digest())
        return both.hexdigest()

    return hashed


def no_hash(_channel: str, _receiver: str) -> str:
    """Returns the hash without a key: none."""
    return ""
