"""Receivers as a trace shows them: enough to recognise one's own, too little to reach a stranger."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from message.envelope import Notification
from message.foreign_text import MASK as MASK
from message.foreign_text import shown_name
from message.receivers import CHATS, GROUP

_PHONE_HEAD, _PHONE_TAIL = 3, 4
_COUNTRY = 3
"""`+86`; with another country's code a digit more or less of the number is shown."""
_OTHER_HEAD, _OTHER_TAIL = 2, 2
_NUMBER: Final = re.compile(r"\+?\d{5,}")
_WORD: Final = re.compile(r"[^\s\"'<>:,;]+")
_UNBROKEN: Final = re.compile(r"\S+")
_HIDDEN_AT_LEAST = 3
"""A receiver with fewer hidden characters is hidden whole."""

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


_template_name = lru_cache(1_024)(shown_name)


def template_of(notification: Notification) -> str:
    """Returns the name of its template as it may be shown; empty for inline content."""
    return _template_name(notification.template.id) if notification.template else ""


def mask(channel: str, receiver: str) -> str:
    """Returns `+86138***0001` for `+8613800000001`, `a***@example.com` for `ann@example.com`; of others the
    first two characters and the last two, of a group's name, too: `group:op***rs`."""
    if channel == "email" and "@" in receiver:
        return _mail(receiver)
    if channel == "sms":
        return _phone(receiver)
    if channel in CHATS and receiver.startswith(GROUP):
        return f"{GROUP}{_ends(receiver[len(GROUP) :], _OTHER_HEAD, _OTHER_TAIL)}"
    return _ends(receiver, _OTHER_HEAD, _OTHER_TAIL)


def _mail(receiver: str) -> str:
    local, _, domain = receiver.rpartition("@")
    return f"{local[:1] if len(local) > 1 else ''}{MASK}@{domain}"


def _phone(receiver: str) -> str:
    head = _PHONE_HEAD + (_COUNTRY if receiver.startswith("+") else 0)
    return _ends(receiver, head, _PHONE_TAIL)


def _ends(text: str, head: int, tail: int) -> str:
    if len(text) < head + tail + _HIDDEN_AT_LEAST:
        return MASK
    return f"{text[:head]}{MASK}{text[-tail:]}"


def masked_text(text: str) -> str:
    """Returns a person's text on one line, numbers and addresses masked."""
    return impersonal(" ".join(text.split()), _UNBROKEN)


def impersonal(text: str, word: re.Pattern[str] = _WORD) -> str:
    """Returns the text, addresses and long numbers masked; in time linear to its length."""
    return _NUMBER.sub(MASK, word.sub(lambda found: MASK if "@" in found[0] else found[0], text))
