"""Reasons why an adapter cannot send a content, each as a code and a sentence."""

from __future__ import annotations

from message.delivery import Delivery
from message.foreign_text import shown_name


class BadContent(ValueError):
    """A content that a provider cannot send; the text is `code: one sentence`."""


def no_form(delivery: Delivery, provider: str) -> str:
    """Returns the refusal of a delivery whose template has nothing for the provider; empty for others."""
    named, rendered = delivery.notification.template, delivery.rendered
    if named is None or rendered is None or not rendered.of(provider).empty:
        return ""
    return f"no_template: template {shown_name(named.id)} has nothing for {provider}"
