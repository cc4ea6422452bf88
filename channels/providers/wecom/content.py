"""The content of a WeCom message, for applications and group robots.

A content has one key, the kind of message, with WeCom's own field names:

    {"text": {"content": "…"}}                 or, for short, {"text": "…"}
    {"markdown": {"content": "…"}}             or {"markdown": "…"}
    {"textcard": {"title", "description", "url", "btntxt"}}
    {"news": {"articles": [{"title", "description", "url", "picurl"}, …]}}      1 to 8
    {"template_card": {"card_type": …, …}}
    {"file": {"media_id": "…"}}                {"voice": {"media_id": "…"}}
    {"image": {"media_id": "…"}}               an application's; a robot's: {"image": {"base64": "…"}}
    {"video": {"media_id", "title", "description"}}                             applications alone
    {"markdown_v2": {"content": "…"}}          or {"markdown_v2": "…"}          robots alone

Only a robot's text may mention members: `mentioned_list`, `mentioned_mobile_list`. WeCom silently cuts long
texts, so they are refused here. It counts a textcard's title and description in characters, all else in
bytes; older copies of the page count these in bytes too. There are no provider templates.

Source: https://developer.work.weixin.qq.com/document/path/90236 (applications), …/91770 and …/99110
(robots), read 2026-11-22
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Mapping
from hashlib import md5
from typing import Any, Final, Literal

import msgspec

from channels.bad_content import BadContent, no_form
from channels.providers._common.wechat import holds_control
from message.delivery import Delivery
from message.foreign_text import broken_rule

CARD_TYPES: Final = frozenset(
    {
        "text_notice",
        "news_notice",
        "button_interaction",
        "vote_interaction",
        "multiple_interaction",
    }
)
_MAX_ARTICLES: Final = 8
MAX_IMAGE: Final = 2 * 1_024 * 1_024
"""Bytes of an image that a robot sends."""
_TASK_ID = re.compile(r"[A-Za-z0-9_@-]{1,128}")


class WecomText(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Plain text, or markdown."""

    content: str
    mentioned_list: list[str] = []
    mentioned_mobile_list: list[str] = []

    @property
    def mentions(self) -> bool:
        """Whether it mentions anybody."""
        return bool(self.mentioned_list or self.mentioned_mobile_list)


class Textcard(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A card with one link."""

    title: str
    description: str
    url: str
    btntxt: str = ""


class Article(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One article of a news message: a link, or a page of a mini-program."""

    title: str
    description: str = ""
    url: str = ""
    picurl: str = ""
    appid: str = ""
    pagepath: str = ""


class News(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Articles in their order."""

    articles: list[Article]


class WecomFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that was uploaded as temporary material."""

    media_id: str


class WecomImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An image: uploaded as temporary material, or its bytes in base64."""

    media_id: str = ""
    base64: str = ""
    md5: str = ""
    """Digest of the image, in hexadecimal; computed here if left out."""


class Video(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A video that was uploaded as temporary material."""

    media_id: str
    title: str = ""
    description: str = ""


class WecomContent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All keys of `content`; exactly one is set."""

    text: WecomText | str | None = None
    markdown: WecomText | str | None = None
    textcard: Textcard | None = None
    news: News | None = None
    template_card: dict[str, Any] | None = None
    file: WecomFile | None = None
    image: WecomImage | None = None
    voice: WecomFile | None = None
    video: Video | None = None
    markdown_v2: WecomText | str | None = None


class Message(msgspec.Struct, frozen=True):
    """A content and its kind (`msgtype`)."""

    kind: str
    body: Any


def content_of(delivery: Delivery, provider: str) -> Mapping[str, Any] | None:
    """Returns the content for this provider. Raises BadContent if its template has none for it."""
    given = delivery.content_for(provider)
    if given is None and (refused := no_form(delivery, provider)):
        raise BadContent(refused)
    return given


def message_of(given: Mapping[str, Any] | None) -> Message:
    """Returns the message in a content. Raises BadContent."""
    if given is None:
        raise BadContent("no_template: WeCom has no templates of its own; give a content")
    try:
        content = msgspec.convert(given, WecomContent)
    except msgspec.ValidationError as exc:
        raise BadContent(f"bad_content: {broken_rule(exc)}") from exc
    found = [(kind, getattr(content, kind)) for kind in content.__struct_fields__]
    found = [(kind, body) for kind, body in found if body is not None]
    if len(found) != 1:
        raise BadContent(
            f"bad_content: give exactly one of {', '.join(WecomContent.__struct_fields__)}"
        )
    ((kind, body),) = found
    if isinstance(body, WecomImage):
        return Message(kind, _with_digest(body))
    return Message(kind, WecomText(body) if isinstance(body, str) else body)


def _with_digest(image: WecomImage) -> WecomImage:
    """Returns the image with its MD5, which WeCom wants beside base64. Raises BadContent."""
    if not image.base64:
        return image
    try:
        data = b64decode(image.base64, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise BadContent("bad_content: image.base64 is no base64") from exc
    if len(data) > MAX_IMAGE:
        raise BadContent(f"too_long: the image has {len(data):,} bytes; {MAX_IMAGE:,} are taken")
    digest = md5(data, usedforsecurity=False).hexdigest()
    if image.md5 not in ("", digest):
        raise BadContent("bad_content: image.md5 is not that of image.base64")
    return msgspec.structs.replace(image, md5=digest)


def refusal_of(message: Message, limits: Mapping[str, int]) -> str:
    """Returns why it can never be sent, as `code: sentence`; empty if it can. `limits`: bytes by kind."""
    if holds_control(msgspec.to_builtins(message.body)):
        return "bad_character: a control character is not taken"
    if isinstance(message.body, WecomText):
        return _text(message.body, message.kind, limits[message.kind])
    if isinstance(message.body, Textcard):
        return _textcard(message.body)
    if isinstance(message.body, News):
        return _news(message.body)
    if isinstance(message.body, WecomFile):
        return "" if message.body.media_id else f"bad_content: {message.kind} needs a media_id"
    if isinstance(message.body, WecomImage):
        return _image(message.body)
    if isinstance(message.body, Video):
        return _video(message.body)
    return _card(message.body)


def _text(text: WecomText, kind: str, limit: int) -> str:
    if not text.content:
        return "bad_content: the text is empty"
    if text.mentions and kind != "text":
        return (
            f"bad_content: WeCom mentions nobody in {kind}; write <@userid> there, or send a text"
        )
    size = len(text.content.encode())
    return f"too_long: {kind} is {size:,} bytes; {limit:,} are taken" if size > limit else ""


def _textcard(card: Textcard) -> str:
    if not (card.title and card.description and card.url):
        return "bad_content: textcard needs title, description and url"
    if wrong := _too_long(card, "textcard", {"url": 2_048}):
        return wrong
    return _too_long(card, "textcard", {"title": 128, "description": 512}, unit="characters")


def _news(news: News) -> str:
    if not 1 <= len(news.articles) <= _MAX_ARTICLES:
        return f"bad_content: news has 1 to {_MAX_ARTICLES} articles"
    sizes = {"title": 128, "description": 512, "url": 2_048, "picurl": 2_048}
    for article in news.articles:
        if not article.title or not (article.url or (article.appid and article.pagepath)):
            return "bad_content: an article needs a title and a url, or an appid and pagepath"
        if wrong := _too_long(article, "news", sizes):
            return wrong
    return ""


def _image(image: WecomImage) -> str:
    if bool(image.media_id) == bool(image.base64):
        return "bad_content: image needs a media_id (an application's) or base64 (a robot's)"
    return ""


def _video(video: Video) -> str:
    if not video.media_id:
        return "bad_content: video needs a media_id"
    return _too_long(video, "video", {"title": 128, "description": 512})


def _too_long(
    struct: msgspec.Struct,
    kind: str,
    sizes: Mapping[str, int],
    unit: Literal["bytes", "characters"] = "bytes",
) -> str:
    for name, limit in sizes.items():
        text = getattr(struct, name)
        size = len(text.encode() if unit == "bytes" else text)
        if size > limit:
            return f"too_long: {kind}.{name} is {size:,} {unit}; {limit:,} are taken"
    return ""


def _card(card: Mapping[str, Any]) -> str:
    if card.get("card_type") not in CARD_TYPES:
        return f"bad_content: template_card.card_type is one of {', '.join(sorted(CARD_TYPES))}"
    task_id = card.get("task_id", "x")
    if not isinstance(task_id, str) or not _TASK_ID.fullmatch(task_id):
        return "bad_content: template_card.task_id is 1 to 128 letters, digits, _, - and @"
    if not isinstance(card.get("main_title", {}), dict):
        return "bad_content: template_card.main_title is an object"
    return ""
