"""The content of the `push` channel, and its form at GeTui.

`content` holds one of

    title, text      shown on the phone; a tap opens the application
    notification     the same in GeTui's fields: title, body, click_type, url, payload, channel_id, …
    transmission     a text for the application itself; nothing is shown

and optionally `push_channel`, the content for the phone makers' channels (`android`, `ios`, `harmony`).
Without it, title and text go there too: a phone gets nothing else while the application is not running.

GeTui keeps an undelivered message until the delivery's expires_at (`settings.ttl`), at most three days.

Sources, read 2026-11-22: https://docs.getui.com/getui/server/rest_v2/push, and of GeTui's own SDK
https://github.com/GetuiLaboratory/getui-pushapi-java-client-v2: dto/req/message/android/GTNotification.java
(lengths, click types)
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from channels.bad_content import BadContent, no_form
from message.delivery import Delivery
from message.foreign_text import broken_rule

PROVIDER: Final = "getui"
Text = Annotated[str, msgspec.Meta(min_length=1)]
Title = Annotated[str, msgspec.Meta(min_length=1, max_length=50)]
Body = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Filled = Annotated[dict[str, Any], msgspec.Meta(min_length=1)]
_NO_TEMPLATES: Final = "no_provider_template: GeTui has no templates of its own; give content"
_START: Final = "startapp"
_MAX_TTL_S: Final = 3 * 86_400
_ONLINE_ONLY: Final = -1
_MAX_TRANSMISSION: Final = 3_072


class GetuiContent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All keys of `content`."""

    title: Title | None = None
    text: Body | None = None
    notification: Filled | None = None
    transmission: Text | None = None
    push_channel: Filled | None = None


def read(delivery: Delivery) -> GetuiContent:
    """Returns the content for this provider. Raises BadContent."""
    written = delivery.content_for(PROVIDER)
    if written is None:
        raise BadContent(no_form(delivery, PROVIDER) or _NO_TEMPLATES)
    try:
        content = msgspec.convert(written, GetuiContent)
    except msgspec.ValidationError as exc:
        raise BadContent(f"bad_content: {broken_rule(exc)}") from exc
    if (content.title is None) != (content.text is None):
        raise BadContent("bad_content: give title and text, both of them")
    forms = (content.title, content.notification, content.transmission)
    if sum(form is not None for form in forms) != 1:
        raise BadContent("bad_content: give title and text, notification, or transmission")
    if len(content.transmission or "") > _MAX_TRANSMISSION:
        raise BadContent(f"too_long: GeTui takes {_MAX_TRANSMISSION:,} characters of transmission")
    return content


def message(delivery: Delivery, now_s: float) -> dict[str, Any]:
    """Returns `settings`, `push_message` and `push_channel`; `now_s` is epoch seconds."""
    content = read(delivery)
    left_s = min(int(delivery.expires_at / 1_000 - now_s), _MAX_TTL_S)
    worded: dict[str, Any] = {"settings": {"ttl": left_s * 1_000 if left_s > 0 else _ONLINE_ONLY}}
    if content.transmission is not None:
        worded["push_message"] = {"transmission": content.transmission}
    else:
        worded["push_message"] = {"notification": content.notification or _notification(content)}
    channel = content.push_channel or _channel(content)
    if channel is not None:
        worded["push_channel"] = channel
    return worded


def _notification(content: GetuiContent) -> dict[str, Any]:
    return {"title": content.title, "body": content.text, "click_type": _START}


def _channel(content: GetuiContent) -> dict[str, Any] | None:
    """Returns the default content for the phone makers' channels; None without a title."""
    if content.title is None:
        return None
    alert = {"title": content.title, "body": content.text}
    return {
        "android": {"ups": {"notification": _notification(content)}},
        "ios": {"type": "notify", "aps": {"alert": alert}},
    }
