"""The content of the `feishu` channel, for the application and the robot.

`content` holds exactly one of these keys, the kind of message:

    text                        "a text", with <at user_id="…"></at> for a mention
    post                        {"zh_cn": {"title", "content": [[…]]}}
    card                        the card's JSON, or {"type": "template", "data": {"template_id", …}}
    image                       {"image_key"}
    file, audio, sticker        {"file_key"}                                        application alone
    media                       {"file_key", "image_key"?}                          application alone
    share_chat                  {"chat_id"}
    share_user                  {"user_id"}                                         application alone

A provider's `template` is a card of its card builder: `id` is the card's, `params` are its variables.

Sources: https://open.feishu.cn/document/server-docs/im-v1/message-content-description/create_json,
https://open.feishu.cn/document/ukTMukTMukTM/ucTM5YjL3ETO24yNxkjN (robot),
https://open.feishu.cn/document/uAjLw4CM/ukzMukzMukzM/feishu-cards/send-feishu-card (template)
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from channels.bad_content import BadContent, no_form
from message.delivery import Delivery
from message.foreign_text import broken_rule

Text = Annotated[str, msgspec.Meta(min_length=1)]
Filled = Annotated[dict[str, Any], msgspec.Meta(min_length=1)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Part of a content. An unknown key is refused: it would be lost."""


class FeishuImage(_Part, frozen=True, kw_only=True):
    """An image that was uploaded before."""

    image_key: Text


class FeishuFile(_Part, frozen=True, kw_only=True):
    """A file that was uploaded before."""

    file_key: Text


class FeishuMedia(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """A video, with its cover image."""

    file_key: Text
    image_key: str = ""


class Chat(_Part, frozen=True, kw_only=True):
    """The card of a group."""

    chat_id: Text


class User(_Part, frozen=True, kw_only=True):
    """The card of a person."""

    user_id: Text


class FeishuContent(_Part, frozen=True, kw_only=True):
    """All keys of `content`."""

    text: Text | None = None
    post: Filled | None = None
    card: Filled | None = None
    image: FeishuImage | None = None
    file: FeishuFile | None = None
    audio: FeishuFile | None = None
    sticker: FeishuFile | None = None
    media: FeishuMedia | None = None
    share_chat: Chat | None = None
    share_user: User | None = None


_KEYS: Final = FeishuContent.__struct_fields__
_CARD: Final = "interactive"


class FeishuWorded(msgspec.Struct, frozen=True):
    """A message in the form of both providers."""

    msg_type: str
    body: Any
    """The content; the application sends it as a JSON text, the robot as an object."""


def read(delivery: Delivery, provider: str, allowed: frozenset[str]) -> FeishuWorded:
    """Returns the message for this provider. Raises BadContent. `allowed` are its keys."""
    template, written = delivery.template_for(provider), delivery.content_for(provider)
    if template is not None:
        data = {"template_id": template.id, "template_variable": template.params}
        return FeishuWorded(_CARD, {"type": "template", "data": data})
    if written is None and (refused := no_form(delivery, provider)):
        raise BadContent(refused)
    try:
        content = msgspec.convert(written, FeishuContent)
    except msgspec.ValidationError as exc:
        raise BadContent(f"bad_content: {broken_rule(exc)}") from exc
    given = [key for key in _KEYS if getattr(content, key) is not None]
    if len(given) != 1 or given[0] not in allowed:
        listed = ", ".join(key for key in _KEYS if key in allowed)
        raise BadContent(f"bad_content: give exactly one of {listed}")
    return _worded(given[0], getattr(content, given[0]))


def _worded(key: str, body: Any) -> FeishuWorded:
    if key == "text":
        return FeishuWorded("text", {"text": body})
    return FeishuWorded(_CARD if key == "card" else key, body)
