"""The delivery key: one name per (message id, channel, receiver), the same for every attempt."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

import phonenumbers

KEY_LENGTH: Final = 32
_SEPARATOR = "\x1f"
_E164 = re.compile(r"\+[1-9][0-9]{4,14}")
_KEY: Final = re.compile(rf"[0-9a-f]{{{KEY_LENGTH}}}")


def delivery_key(message_id: str, channel: str, receiver: str) -> str:
    """Returns 32 hex digits of SHA-256 over id, channel and normalised receiver, joined by U+001F.

    `receiver` must already be normalised (see `normalise_receiver`).
    """
    text = f"{message_id}{_SEPARATOR}{channel}{_SEPARATOR}{receiver}"
    return sha256(text.encode()).hexdigest()[:KEY_LENGTH]


def is_key(text: str) -> bool:
    """Returns whether the text may be a delivery key. Some message ids look like one."""
    return _KEY.fullmatch(text) is not None


def normalise_receiver(channel: str, receiver: str) -> str:
    """Returns the receiver as its channel counts it: E.164, lower-case mail domain, else as written.

    A number without a country code stays as written: guessing one would send to a stranger, and two
    processes that guess differently would give one delivery two keys.
    """
    if channel == "sms":
        return _e164(receiver)
    if channel == "email":
        local, at, domain = receiver.rpartition("@")
        return f"{local}{at}{domain.lower()}" if at else receiver
    return receiver


def _e164(receiver: str) -> str:
    if _E164.fullmatch(receiver):
        return receiver
    try:
        number = phonenumbers.parse(receiver, None)
    except phonenumbers.NumberParseException:
        return receiver
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)
