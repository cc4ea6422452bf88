"""Reasons why an adapter cannot send a content, each as a code and a sentence."""

from __future__ import annotations

from typing import Final

from message.delivery import Delivery
from message.foreign_text import shown_name


class BadContent(ValueError):
    """A content that a provider cannot send; the text is `code: one sentence`."""


UNSENDABLE: Final = (BadContent, UnicodeEncodeError, TypeError)
"""Errors of a content that cannot be sent, the last two of its JSON."""


def reason_of(exc: Exception) -> str:
    """Returns the reason of an error in UNSENDABLE, as `code: one sentence`."""
    return (
        str(exc)
        if isinstance(exc, BadContent)
        else f"bad_content: cannot be written as JSON: {exc}"
    )


def no_form(delivery: Delivery, provider: str) -> str:
    """Returns the refusal of a delivery whose template has nothing for the provider; empty for others."""
    named, rendered = delivery.notification.template, delivery.rendered
    if named is None or rendered is None or not rendered.of(provider).empty:
        return ""
    return f"no_template: template {shown_name(named.id)} has nothing for {provider}"
