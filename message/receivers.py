"""Receivers: one person, or a group.

    group:NAME        wecom, dingtalk, feishu, chat: the group of that name in the accounts' configuration
    oc_…              feishu: the group with that chat_id; `group:oc_…` names the same one
    /topics/NAME      push: everybody who takes the topic
    anything else     one person, and on every other channel so is everything

Receivers stay texts, and a delivery's key is made of the text as it is written. Pure.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

GROUP: Final = "group:"
"""Prefix of a receiver that names a group of a chat channel."""
CHATS: Final = frozenset({"wecom", "dingtalk", "feishu", "chat"})
"""Channels on which a receiver may be a group."""
_TOPIC: Final = "/topics/"
_CHAT_ID: Final = re.compile(r"oc_[0-9a-f]{20,64}")
"""Of Feishu. A user_id may begin with `oc_`, too, but nobody gives one out of so many hex digits.
Source: https://open.feishu.cn/document/server-docs/im-v1/message/create, read 2026-11-22."""


class ReceiverKind(StrEnum):
    """Kinds of receivers: a text names one, an account reaches one or both."""

    PERSON = "person"
    GROUP = "group"


def group_of(channel: str, receiver: str) -> str | None:
    """Returns the name of the group; None for a person. `group:` alone names the group ``."""
    if channel in CHATS:
        if receiver.startswith(GROUP):
            return receiver[len(GROUP) :]
        return receiver if channel == "feishu" and is_chat_id(receiver) else None
    if channel == "push" and receiver.startswith(_TOPIC):
        return receiver[len(_TOPIC) :]
    return None


def kind_of(channel: str, receiver: str) -> ReceiverKind:
    """Returns the kind of the receiver."""
    return ReceiverKind.PERSON if group_of(channel, receiver) is None else ReceiverKind.GROUP


def is_chat_id(text: str) -> bool:
    """Returns True for a chat_id of Feishu."""
    return _CHAT_ID.fullmatch(text) is not None
