"""What an adapter says of a delivery that it can never send: asked before its account is chosen for good.

An adapter that fails over a message refuses that message: it must not take the process down, which would
read it again and again.
"""

from __future__ import annotations

from channels.channel import Account, Channel
from channels.engine import adapter_failed
from message.delivery import Delivery
from message.foreign_text import shown


def refusal_of(delivery: Delivery, account: Account, channel: Channel) -> str:
    """Returns `code: sentence`, without what it may repeat of the message; empty: it can be sent."""
    if channel.takes_anything:
        return ""
    try:
        refused = channel.refusal(account, delivery)
    except Exception as exc:  # whatever an adapter raises over one message
        return f"adapter_error: {adapter_failed(channel, 'refusal', exc)}"
    if not refused:
        return ""
    code, colon, detail = refused.partition(": ")
    return f"{code}{colon}{shown(detail, delivery.private_texts())}"
