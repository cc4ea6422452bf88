"""The content of the `push` channel, and its form at Apple Push Notification service.

`content` holds at least one of

    text, title     the same as aps {"alert": {"title": title, "body": text}}
    data            {"key": anything}: members beside `aps`, for the application
    apns            {"payload": {"aps": {…}, …}, "headers": {…}}, as Apple documents both

A key of `apns` overrides the value made from the others. `headers` may have apns-push-type, apns-priority,
apns-collapse-id, apns-expiration and apns-topic. `text`, `title`, `data` of texts and `apns` mean the same
to FCM (channels/providers/fcm/message.py), so one content serves both.

Defaults:

    apns-push-type    `alert` if the content shows, badges or sounds something, else `background`
    apns-priority     10, and 5 for `background`
    apns-topic        the account's, with the ending that Apple documents for the push type
    apns-expiration   the delivery's expires_at: Apple keeps one notification of an application for an
                      offline device, for at most 30 days
    apns-collapse-id  the call's key, for an alert: a repeat replaces the first on the device

There are no provider templates. The payload has at most 4,096 bytes, of VoIP 5,120.

Sources, read 2026-11-22: "Sending notification requests to APNs"
(https://developer.apple.com/documentation/usernotifications/sending-notification-requests-to-apns),
"Generating a remote notification"
(https://developer.apple.com/documentation/usernotifications/generating-a-remote-notification)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from channels.bad_content import BadContent, no_form
from message.delivery import Delivery
from message.foreign_text import broken_rule

PROVIDER: Final = "apns"
Text = Annotated[str, msgspec.Meta(min_length=1)]
_NO_TEMPLATES: Final = "no_provider_template: APNs has no templates of its own; give content"
_MAX_BYTES: Final = 4_096
_MAX_VOIP_BYTES: Final = 5_120
_MAX_KEPT_S: Final = 30 * 86_400
_SHOWN: Final = frozenset({"alert", "badge", "sound"})
_ALERT, _BACKGROUND, _VOIP = "alert", "background", "voip"
_ENDINGS: Final[Mapping[str, str]] = {
    _ALERT: "",
    _BACKGROUND: "",
    "complication": ".complication",
    "controls": ".push-type.controls",
    "fileprovider": ".pushkit.fileprovider",
    "liveactivity": ".push-type.liveactivity",
    "location": ".location-query",
    "mdm": "",
    "pushtotalk": ".voip-ptt",
    _VOIP: ".voip",
    "widgets": ".push-type.widgets",
}
"""Push types, and the ending of each type's topic."""
_RULES: Final[Mapping[str, re.Pattern[str]]] = {
    "apns-push-type": re.compile("|".join(_ENDINGS)),
    "apns-priority": re.compile("1|5|10"),
    "apns-collapse-id": re.compile(r"[!-~](?:[ -~]{0,62}[!-~])?|"),
    "apns-expiration": re.compile("[0-9]{1,12}"),
    "apns-topic": re.compile(r"[0-9A-Za-z._\-]{1,255}"),
}


class Own(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The provider's own part."""

    payload: dict[str, Any] = {}
    headers: dict[str, str] = {}


class ApnsContent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All keys of `content`."""

    text: Text | None = None
    title: Text | None = None
    data: dict[str, Any] = {}
    apns: Own = Own()

    @property
    def aps(self) -> dict[str, Any]:
        """The dictionary that Apple reads."""
        given: dict[str, Any] = self.apns.payload.get("aps", {})
        texts = {"title": self.title, "body": self.text}
        alert = {key: text for key, text in texts.items() if text is not None}
        return ({"alert": alert} if alert else {}) | given

    @property
    def push_type(self) -> str:
        """The push type of the headers, else that of the content."""
        made = _ALERT if _SHOWN & self.aps.keys() else _BACKGROUND
        return self.apns.headers.get("apns-push-type", made)


class ApnsWorded(NamedTuple):
    """One notification as it goes over the wire."""

    headers: dict[str, str]
    payload: bytes


def read(delivery: Delivery) -> ApnsContent:
    """Returns the content for this provider. Raises BadContent."""
    written = delivery.content_for(PROVIDER)
    if written is None:
        raise BadContent(no_form(delivery, PROVIDER) or _NO_TEMPLATES)
    try:
        content = msgspec.convert(written, ApnsContent)
    except msgspec.ValidationError as exc:
        raise BadContent(f"bad_content: {broken_rule(exc)}") from exc
    if not (content.text or content.title or content.data or content.apns.payload):
        raise BadContent("bad_content: give text, title, data or apns.payload")
    if "aps" in content.data:
        raise BadContent("bad_content: data: the key 'aps' is Apple's own; give apns.payload")
    if not isinstance(content.apns.payload.get("aps", {}), dict):
        raise BadContent("bad_content: apns.payload.aps must be an object")
    _check_headers(content.apns.headers)
    _check_type(content)
    most = _MAX_VOIP_BYTES if content.push_type == _VOIP else _MAX_BYTES
    if len(_payload(content)) > most:
        raise BadContent(f"too_long: APNs takes {most:,} bytes of payload")
    return content


def worded(delivery: Delivery, topic: str, key: str, now_s: float) -> ApnsWorded:
    """Returns headers and payload; `topic` is the account's, `key` the call's, `now_s` epoch seconds."""
    content = read(delivery)
    kind = content.push_type
    headers = {
        "apns-push-type": kind,
        "apns-priority": "5" if kind == _BACKGROUND else "10",
        "apns-topic": topic + _ENDINGS[kind],
        "apns-expiration": str(int(min(delivery.expires_at / 1_000, now_s + _MAX_KEPT_S))),
        "apns-collapse-id": key if kind == _ALERT else "",
    }
    headers |= content.apns.headers
    return ApnsWorded({name: value for name, value in headers.items() if value}, _payload(content))


def names_topic(delivery: Delivery) -> bool:
    """Returns whether the content names the topic, in place of the account."""
    return "apns-topic" in read(delivery).apns.headers


def _payload(content: ApnsContent) -> bytes:
    aps = content.aps
    if content.push_type == _BACKGROUND:
        aps = {"content-available": 1, **aps}
    return msgspec.json.encode(content.data | content.apns.payload | {"aps": aps})


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if name not in _RULES:
            known = ", ".join(_RULES)
            raise BadContent(f"bad_content: apns.headers: an unknown name; known are {known}")
        if not _RULES[name].fullmatch(value):
            raise BadContent(f"bad_content: apns.headers: {name} has a value that APNs refuses")


def _check_type(content: ApnsContent) -> None:
    """Raises BadContent if push type and payload disagree: Apple may refuse, delay or drop the push."""
    shows = bool(_SHOWN & content.aps.keys())
    if content.push_type == _ALERT and not shows:
        raise BadContent(
            "bad_content: an alert shows, badges or sounds something; give one of them"
        )
    if content.push_type != _BACKGROUND:
        return
    if shows:
        raise BadContent("bad_content: a background push has no alert, badge or sound")
    if content.apns.headers.get("apns-priority") == "10":
        raise BadContent("bad_content: a background push has apns-priority 5 or 1")
