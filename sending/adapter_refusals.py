"""Asks an adapter whether it can ever send a delivery, before the account is final.

A message over which the adapter raises is refused: it must not end the process, which would read it again.
"""

from __future__ import annotations

from channels.channel import Account, Channel
from channels.engine import adapter_failed
from message.delivery import Delivery
from message.foreign_text import shown


def refusal_of(delivery: Delivery, account: Account, channel: Channel) -> str:
    """Returns `code: sentence`, without private texts of the message; empty if it can be sent."""
    if channel.takes_anything:
        return ""
    try:
        refused = channel.refusal(account, delivery)
    except Exception as exc:  # any error of an adapter over one message
        return f"adapter_error: {adapter_failed(channel, 'refusal', exc)}"
    if not refused:
        return ""
    code, colon, detail = refused.partition(": ")
    return f"{code}{colon}{shown(detail, delivery.private_texts())}"
