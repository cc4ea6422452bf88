"""The content of the `push` channel, and its form at Firebase Cloud Messaging.

`content` holds at least one of

    text, title     the same as notification {"body": text, "title": title}
    notification    {"title"?, "body"?, "image"?}
    data            {"key": "text"}; keys that begin with `google.` or `gcm.`, `from` and
                    `message_type` are the provider's own

and optionally the provider's own fields for one kind of device: `android`, `apns`, `webpush`,
`fcm_options`. There are no provider templates. Data and notification together have at most 4,096 bytes, to
a topic 2,048.

Defaults:

    the end           the delivery's expires_at (`android.ttl`, `apns-expiration`, webpush `TTL`); FCM keeps
                      an undelivered message for at most four weeks
    the call's key    the name of the notification on the device (`android.notification.tag`,
                      `apns-collapse-id`, webpush `tag`): a repeat replaces the first

Sources: https://firebase.google.com/docs/reference/fcm/rest/v1/projects.messages,
https://firebase.google.com/docs/cloud-messaging/customize-messages/setting-message-lifespan
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from channels.bad_content import BadContent, no_form
from message.delivery import Delivery
from message.foreign_text import broken_rule, shown_name

Text = Annotated[str, msgspec.Meta(min_length=1)]
PROVIDER: Final = "fcm"
_NO_TEMPLATES: Final = "no_provider_template: FCM has no templates of its own; give content"
_MAX_BYTES: Final = 4_096
_MAX_TOPIC_BYTES: Final = 2_048
_TOPIC: Final = "/topics/"
_MAX_TTL_S: Final = 28 * 86_400
_RESERVED: Final = frozenset({"from", "message_type"})
_OWN: Final = ("google.", "gcm.")


class FcmNotification(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Title, text and image on the device."""

    title: str = ""
    body: str = ""
    image: str = ""


class FcmContent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All keys of `content`."""

    text: Text | None = None
    title: Text | None = None
    notification: FcmNotification | None = None
    data: dict[str, str] | None = None
    android: dict[str, Any] = {}
    apns: dict[str, Any] = {}
    webpush: dict[str, Any] = {}
    fcm_options: dict[str, Any] | None = None

    @property
    def shown(self) -> FcmNotification | None:
        """The notification, from `notification` or from `text` and `title`; None without any."""
        if self.text is None and self.title is None:
            return self.notification
        return FcmNotification(title=self.title or "", body=self.text or "")


def read(delivery: Delivery) -> FcmContent:
    """Returns the content for this provider. Raises BadContent."""
    written = delivery.content_for(PROVIDER)
    if written is None:
        raise BadContent(no_form(delivery, PROVIDER) or _NO_TEMPLATES)
    try:
        content = msgspec.convert(written, FcmContent)
    except msgspec.ValidationError as exc:
        raise BadContent(f"bad_content: {broken_rule(exc)}") from exc
    if content.notification is not None and (content.text or content.title):
        raise BadContent("bad_content: give notification, or text and title, not both")
    if content.shown is None and not content.data:
        raise BadContent("bad_content: give text, notification or data")
    _check_data(content.data or {})
    _check_objects(content)
    limit = _MAX_TOPIC_BYTES if delivery.receiver.startswith(_TOPIC) else _MAX_BYTES
    if len(msgspec.json.encode((content.shown, content.data))) > limit:
        raise BadContent(f"too_long: FCM takes {limit:,} bytes of notification and data")
    return content


def message(delivery: Delivery, key: str, now_s: float) -> dict[str, Any]:
    """Returns the request's `message`; `key` is the call's, `now_s` epoch seconds."""
    content = read(delivery)
    shown = content.shown
    name = key if shown is not None else ""
    ends_s = min(delivery.expires_at / 1_000, now_s + _MAX_TTL_S)
    worded: dict[str, Any] = _target(delivery.receiver)
    if shown is not None:
        worded["notification"] = shown
    if content.data:
        worded["data"] = content.data
    left_s = max(0, int(ends_s - now_s))
    worded["android"] = _android(content.android, left_s, name)
    worded["apns"] = _apns(content.apns, int(ends_s), name)
    worded["webpush"] = _webpush(content.webpush, left_s, name)
    if content.fcm_options is not None:
        worded["fcm_options"] = content.fcm_options
    return worded


def _check_data(data: dict[str, str]) -> None:
    for key in data:
        if not key or key in _RESERVED or key.startswith(_OWN):
            raise BadContent(f"bad_content: data: the key {shown_name(key)!r} is FCM's own")


def _check_objects(content: FcmContent) -> None:
    """Raises BadContent unless the fields that get defaults are objects."""
    for name, part, inner in (
        ("android", content.android, "notification"),
        ("apns", content.apns, "headers"),
        ("webpush", content.webpush, "headers"),
        ("webpush", content.webpush, "notification"),
    ):
        if not isinstance(part.get(inner, {}), dict):
            raise BadContent(f"bad_content: {name}.{inner} must be an object")


def _target(receiver: str) -> dict[str, Any]:
    if receiver.startswith(_TOPIC):
        return {"topic": receiver.removeprefix(_TOPIC)}
    return {"token": receiver}


def _android(given: dict[str, Any], left_s: int, name: str) -> dict[str, Any]:
    worded = {"ttl": f"{left_s}s", **given}
    if name:
        worded["notification"] = {"tag": name, **worded.get("notification", {})}
    return worded


def _apns(given: dict[str, Any], ends_s: int, name: str) -> dict[str, Any]:
    ours = {"apns-expiration": str(ends_s)} | ({"apns-collapse-id": name} if name else {})
    return {**given, "headers": {**ours, **given.get("headers", {})}}


def _webpush(given: dict[str, Any], left_s: int, name: str) -> dict[str, Any]:
    worded = {**given, "headers": {"TTL": str(left_s), **given.get("headers", {})}}
    if name:
        worded["notification"] = {"tag": name, **given.get("notification", {})}
    return worded
