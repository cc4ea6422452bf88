"""What the `feishu` channel can say; the application and the robot word it alike.

`content` holds exactly one of these keys, which names the kind of message:

    text                        "a text", with <at user_id="…"></at> where someone is called on
    post                        {"zh_cn": {"title", "content": [[…]]}}
    card                        the card's JSON, or {"type": "template", "data": {"template_id", …}}
    image                       {"image_key"}
    file, audio, sticker        {"file_key"}                                        application alone
    media                       {"file_key", "image_key"?}                          application alone
    share_chat                  {"chat_id"}
    share_user                  {"user_id"}                                         application alone

A `template` of the provider's is a card made in its card builder: `id` is the card's, `params` are its
variables.

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
    """Part of a content: a key that is none of ours is a mistake, and would be lost."""


class FeishuImage(_Part, frozen=True, kw_only=True):
    """An image that was uploaded before."""

    image_key: Text


class FeishuFile(_Part, frozen=True, kw_only=True):
    """A file that was uploaded before."""

    file_key: Text


class FeishuMedia(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """A video, with the image that stands for it."""

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
    """A message as both providers word it."""

    msg_type: str
    body: Any
    """What the application sends as a JSON text, and the robot as it is."""


def read(delivery: Delivery, provider: str, allowed: frozenset[str]) -> FeishuWorded:
    """Returns what this provider sends of the delivery; raises BadContent. `allowed` are its keys."""
    template, said = delivery.template_for(provider), delivery.content_for(provider)
    if template is not None:
        data = {"template_id": template.id, "template_variable": template.params}
        return FeishuWorded(_CARD, {"type": "template", "data": data})
    if said is None and (refused := no_form(delivery, provider)):
        raise BadContent(refused)
    try:
        content = msgspec.convert(said, FeishuContent)
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
