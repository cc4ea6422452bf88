"""The envelope: the format of a Kafka value, version 1 (docs/envelope.md).

`decode` turns bytes into a `Notification` or raises `EnvelopeError`. The error names the reason as a code,
the field as a path (`$.receivers[3]`), and the mistake in one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Any, Final

import msgspec

from message.vocabulary import CHANNELS, KINDS, Lane

VERSION: Final = 1
MAX_BYTES: Final = 1 << 20
MAX_RECEIVERS: Final = 1_000
MAX_ID: Final = 64
MAX_RECEIVER: Final = 256
MAX_AHEAD_MS: Final = 600_000
"""A creation time further ahead than this is a broken clock, not a schedule."""
MAX_TIME_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""
CONTROL: Final = "[\x00-\x1f\x7f-\x9f\u2028\u2029]"
"""Pattern of the characters that no id, receiver or key may hold; with the characters themselves, since
dialects of patterns differ in escapes."""

_BOM = b"\xef\xbb\xbf"
_CHANNELS, _KINDS = frozenset(CHANNELS), frozenset(KINDS)
_CONTROL = re.compile(CONTROL)

EpochMs = Annotated[int, msgspec.Meta(ge=0, le=MAX_TIME_MS)]


class EnvelopeError(ValueError):
    """A value that is no notification: `code` for programs, `path` to the field, `detail` for people."""

    def __init__(self, code: str, path: str, detail: str) -> None:
        super().__init__(f"{code} at {path}: {detail}")
        self.code = code
        self.path = path
        self.detail = detail


class Template(msgspec.Struct, frozen=True, gc=False):
    """A named text and its variables."""

    id: str
    params: dict[str, Any] = {}


class Notification(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """One request to send one content to one or more receivers over one channel.

    Times are epoch milliseconds; `ttl_ms` None means the lane's. Exactly one of `template` and
    `content` is set. Unknown fields of the wire form are ignored here and kept in the raw bytes, which
    travel on. `decode` and `encode` take an empty `ordering_key` or `resend_of` as None.
    """

    v: int = VERSION
    id: str
    biz_id: str | None = None
    channel: str
    kind: str
    receivers: list[str]
    account: str | None = None
    template: Template | None = None
    content: dict[str, Any] | None = None
    created_at: EpochMs
    ttl_ms: int | None = None
    ordering_key: str | None = None
    resend_of: str | None = None
    attributes: dict[str, Any] = {}

    @property
    def lane(self) -> Lane:
        """The lane of this notification."""
        return Lane(self.channel, self.kind)

    @property
    def kafka_key(self) -> str:
        """The record's key: `ordering_key`, else `id`."""
        return self.ordering_key or self.id


class _Version(msgspec.Struct):
    v: int


_decoder = msgspec.json.Decoder(Notification)
_version_decoder = msgspec.json.Decoder(_Version)
_json = msgspec.json.Encoder().encode


def encode(notification: Notification) -> bytes:
    """Returns the wire form, checked by the same rules as `decode`. Raises EnvelopeError."""
    notification = _checked(notification)
    try:
        value = _json(notification)
    except (UnicodeEncodeError, TypeError, RecursionError) as exc:
        raise EnvelopeError("not_json", "$", f"cannot be written as JSON: {exc}") from exc
    if len(value) > MAX_BYTES:
        _check_size(value)
    return value


def decode(value: bytes | None) -> Notification:
    """Returns the notification in a Kafka value. Raises EnvelopeError with the field's path."""
    if not value:
        raise EnvelopeError("not_json", "$", "the value is empty; send one JSON object")
    _check_size(value)
    try:
        if not value.isascii():
            # All of it: the decoder checks only the fields that it reads, and the value travels on whole.
            str(value, "utf-8")
        notification = _decoder.decode(value)
    except msgspec.ValidationError as exc:
        raise _wrong(value, exc) from exc
    except UnicodeDecodeError as exc:
        raise EnvelopeError("not_json", "$", f"the value is not UTF-8 at byte {exc.start}") from exc
    except msgspec.DecodeError as exc:
        fault = f"the value is not JSON: {exc}"
        if value.startswith(_BOM):
            fault = "a byte order mark precedes the JSON; leave it out"
        raise EnvelopeError("not_json", "$", fault) from exc
    except RecursionError as exc:
        raise EnvelopeError("not_json", "$", "the value is nested too deeply") from exc
    return _checked(notification)


def check_arrival(notification: Notification, lane: Lane, now_ms: int) -> None:
    """Checks the rules that need the topic and the time. Raises EnvelopeError."""
    if notification.channel != lane.channel:
        raise _mismatch("$.channel", lane)
    if notification.kind != lane.kind:
        raise _mismatch("$.kind", lane)
    if notification.created_at > now_ms + MAX_AHEAD_MS:
        ahead = (notification.created_at - now_ms) // 1000
        raise EnvelopeError(
            "created_ahead",
            "$.created_at",
            f"created {ahead} s ahead of our clock; check the sender's clock",
        )


def check_account(notification: Notification, lane: Lane, known: Collection[str]) -> None:
    """Checks that the account it names is among the lane's, which are `known`. Raises EnvelopeError."""
    account = notification.account
    if account is not None and account not in known:
        names = ", ".join(sorted(known))
        raise EnvelopeError(
            "unknown_account",
            "$.account",
            f"no such account serves lane {lane.name}; there are {names}",
        )


def _mismatch(path: str, lane: Lane) -> EnvelopeError:
    return EnvelopeError("wrong_topic", path, f"does not belong into the topic of lane {lane.name}")


def _check_size(value: bytes) -> None:
    if len(value) > MAX_BYTES:
        raise EnvelopeError(
            "too_large", "$", f"{len(value):,} bytes; at most {MAX_BYTES:,} are taken"
        )


def _wrong(value: bytes, exc: msgspec.ValidationError) -> EnvelopeError:
    """Names a failed validation: an unknown version first, since its fields may mean anything."""
    try:
        found = _version_decoder.decode(value).v
    except (msgspec.MsgspecError, RecursionError):
        found = VERSION
    if found != VERSION:
        return _unknown_version(found)
    text, _, path = str(exc).partition(" - at `")
    path = path.rstrip("`") or "$"
    if path == "$.receivers[...]":
        path = f"$.receivers[{_first_wrong(value)}]"
    return EnvelopeError("wrong_type", path, text)


def _first_wrong(value: bytes) -> int | str:
    """Returns the index of the first receiver that is no text: msgspec does not name it."""
    try:
        receivers = msgspec.json.decode(value)["receivers"]
    except (msgspec.MsgspecError, RecursionError):
        return "..."
    found = receivers if isinstance(receivers, list) else []
    return next((i for i, receiver in enumerate(found) if not isinstance(receiver, str)), "...")


def _unknown_version(found: int) -> EnvelopeError:
    return EnvelopeError("unknown_version", "$.v", f"version {found}; this one reads {VERSION}")


def _checked(n: Notification) -> Notification:
    """Returns the notification by the rules beyond types, which are checked cheapest first; one pass per
    notification on the hot path. Raises EnvelopeError.

    Ordinary receivers are recognised inline: a call for each costs more than the test.
    """
    if n.v != VERSION:
        raise _unknown_version(n.v)
    name = n.id
    if not (0 < len(name) <= MAX_ID and name.isascii() and name.isprintable()):
        raise EnvelopeError("bad_id", "$.id", f"must be 1 to {MAX_ID} printable ASCII characters")
    if n.channel not in _CHANNELS:
        raise EnvelopeError("unknown_channel", "$.channel", f"must be one of {', '.join(CHANNELS)}")
    if n.kind not in _KINDS:
        raise EnvelopeError("unknown_kind", "$.kind", f"must be one of {', '.join(KINDS)}")
    template = n.template
    if (template is None) == (n.content is None):
        raise EnvelopeError("no_content", "$", "exactly one of template and content must be given")
    if n.ttl_ms is not None and n.ttl_ms <= 0:
        raise EnvelopeError("bad_ttl", "$.ttl_ms", "must be above 0, or null for the lane's")
    receivers = n.receivers
    if not 0 < len(receivers) <= MAX_RECEIVERS:
        raise EnvelopeError(
            "bad_receivers", "$.receivers", f"{len(receivers):,} receivers; 1 to {MAX_RECEIVERS:,}"
        )
    for one in receivers:
        if not (0 < len(one) <= MAX_RECEIVER and one.isascii() and one.isprintable()) or (
            one.isspace()
        ):
            _check_receivers(receivers)
            break
    return _with_checked_texts(n)


def _check_receivers(receivers: list[str]) -> None:
    for index, receiver in enumerate(receivers):
        if not 0 < len(receiver) <= MAX_RECEIVER or receiver.isspace():
            path = f"$.receivers[{index}]"
            raise EnvelopeError("bad_receiver", path, f"must be 1 to {MAX_RECEIVER} characters")
        if not (receiver.isascii() and receiver.isprintable()):
            _check_text(f"$.receivers[{index}]", receiver)


def _with_checked_texts(n: Notification) -> Notification:
    text = n.biz_id
    if text is not None and not (
        len(text) <= MAX_RECEIVER and text.isascii() and text.isprintable()
    ):
        _check_text("$.biz_id", text)
    if n.account is not None:
        _check_text("$.account", n.account)
    if n.template is not None:
        _check_text("$.template.id", n.template.id)
    if n.ordering_key is None and n.resend_of is None:
        return n
    return _with_checked_names(n)


def _with_checked_names(n: Notification) -> Notification:
    """Returns the notification with an empty `ordering_key` or `resend_of` as None: it names nothing."""
    key, original = n.ordering_key or None, n.resend_of or None
    if key is not None:
        _check_text("$.ordering_key", key)
    if original is not None:
        _check_text("$.resend_of", original)
    if key is n.ordering_key and original is n.resend_of:
        return n
    return msgspec.structs.replace(n, ordering_key=key, resend_of=original)


def _check_text(path: str, text: str) -> None:
    if len(text) > MAX_RECEIVER:
        raise EnvelopeError("too_long", path, f"at most {MAX_RECEIVER} characters are taken")
    if not text.isprintable() and _CONTROL.search(text):
        raise EnvelopeError("control_character", path, "control characters are not taken")
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise EnvelopeError("not_unicode", path, "half a surrogate pair is not taken")
