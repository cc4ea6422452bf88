"""The keyed hash of a receiver; the trace and the ledger find receivers by it."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

TEXT_HASH_BYTES: Final = 16
HashReceiver = Callable[[str, str], str]
"""Returns the keyed hash of a normalised receiver, from channel and receiver; empty without a key."""


def hasher(hash_key: str) -> HashReceiver:
    """Returns the hash under `outcomes.hash_key`, equal to `message.outcome_event.receiver_hash`. The key
    is hashed once here, not for each receiver."""
    if not hash_key:
        return no_hash
    keyed = hmac.new(hash_key.encode(), digestmod="sha256")

    def hashed(channel: str, receiver: str) -> str:
        one = keyed.copy()
        one.update(f"{channel}\x1f{receiver}".encode(errors="replace"))
        return one.hexdigest()

    return hashed


def no_hash(_channel: str, _receiver: str) -> str:
    """Returns the hash without a key: none."""
    return ""


def text_hash(hash_receiver: HashReceiver, receiver: str) -> bytes | None:
    """Returns the keyed hash of a normalised receiver alone, whatever its channel; None without a key. A
    search that knows no channel looks for one such hash in place of ten (decision 294)."""
    hashed = hash_receiver("", receiver)
    return bytes.fromhex(hashed)[:TEXT_HASH_BYTES] if hashed else None
