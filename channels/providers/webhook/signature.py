"""Signatures of Standard Webhooks: they prove to the receiver who made a call, and when.

    webhook-id: <delivery key>                         the same for every attempt
    webhook-timestamp: 1790000000                      epoch seconds of this attempt
    webhook-signature: v1,<base64> [v1,<base64>]       HMAC-SHA256 of "<id>.<timestamp>.<body>", one a key

A secret is `whsec_` and the base64 of 24 to 64 bytes. While keys are exchanged, a call carries a signature
of each. The old key is removed after the receiver has changed to the new one.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md (read
2026-11-22).
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable
from typing import Final

from channels.secret import Secret

_PREFIX: Final = "whsec_"
_LEAST, _MOST = 24, 64


def signing_key(secret: Secret) -> bytes:
    """Returns the key of a secret. Raises ValueError, whose sentence does not show the secret."""
    text = secret.reveal()
    try:
        key = b64decode(text.removeprefix(_PREFIX), validate=True)
    except (NotBase64, ValueError):
        key = b""
    if not text.startswith(_PREFIX) or not _LEAST <= len(key) <= _MOST:
        raise ValueError(
            f"a signing secret is {_PREFIX} and the base64 of {_LEAST} to {_MOST} bytes"
        )
    return key


def signed_fields(
    keys: Iterable[bytes], message_id: bytes, now_s: int, body: bytes
) -> list[tuple[bytes, bytes]]:
    """Returns the three header fields of one call."""
    at = b"%d" % now_s
    signed = b"%b.%b.%b" % (message_id, at, body)
    made = [b"v1," + b64encode(hmac.digest(key, signed, "sha256")) for key in keys]
    return [
        (b"webhook-id", message_id),
        (b"webhook-timestamp", at),
        (b"webhook-signature", b" ".join(made)),
    ]
