"""The content of the `dingtalk` channel, for work notices and robots.

`content` holds exactly one of these keys, the kind of message:

    text          "a text"
    markdown      {"title", "text"}
    link          {"title", "text", "url", "image"?}
    action_card   {"title", "text", "single": {"title", "url"}}
                  {"title", "text", "buttons": [{"title", "url"}], "orientation"?: "horizontal"}
    oa            the `oa` object as the provider documents it            work notice alone
    image, file   {"media_id"}, as the provider's upload gave it          work notice alone
    feed_card     [{"title", "url", "image"}]                             robot alone

and optionally, for a robot, `at`: {"mobiles"?: [...], "users"?: [userid], "all"?: true}. A mobile is
highlighted only if the text has `@13800000001`.

Sources: https://open.dingtalk.com/document/orgapp/message-types-and-data-format (work notice),
https://open.dingtalk.com/document/orgapp/custom-robots-send-group-messages (robot).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
import phonenumbers

from channels.bad_content import BadContent, no_form
from message.delivery import Delivery
from message.foreign_text import broken_rule

Text = Annotated[str, msgspec.Meta(min_length=1)]
_NO_TEMPLATES: Final = "no_provider_template: DingTalk has no templates of its own; give content"
_MAINLAND: Final = 86
_KINDS: Final = (
    "text",
    "markdown",
    "link",
    "action_card",
    "oa",
    "image",
    "file",
    "feed_card",
)


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Part of a content. An unknown key is refused: it would be lost."""


class Markdown(_Part, frozen=True, kw_only=True):
    """A Markdown text; the list of conversations shows `title`."""

    title: Text
    text: Text


class Link(_Part, frozen=True, kw_only=True):
    """A text that opens a page."""

    title: Text
    text: Text
    url: Text
    image: str = ""


class Button(_Part, frozen=True, kw_only=True):
    """A button that opens a page."""

    title: Text
    url: Text


class ActionCard(_Part, frozen=True, kw_only=True):
    """A card with one button, or with several."""

    title: Text
    text: Text
    single: Button | None = None
    buttons: Annotated[list[Button], msgspec.Meta(min_length=1)] | None = None
    orientation: Literal["vertical", "horizontal"] = "vertical"


class DingTalkMedia(_Part, frozen=True, kw_only=True):
    """A file that was uploaded before."""

    media_id: Text


class FeedLink(_Part, frozen=True, kw_only=True):
    """One line of a feed card."""

    title: Text
    url: Text
    image: Text


class At(_Part, frozen=True, kw_only=True):
    """The members that a robot mentions."""

    mobiles: list[str] = []
    users: list[Text] = []
    all: bool = False


class DingTalkContent(_Part, frozen=True, kw_only=True):
    """All keys of `content`."""

    text: Text | None = None
    markdown: Markdown | None = None
    link: Link | None = None
    action_card: ActionCard | None = None
    oa: dict[str, Any] | None = None
    image: DingTalkMedia | None = None
    file: DingTalkMedia | None = None
    feed_card: Annotated[list[FeedLink], msgspec.Meta(min_length=1)] | None = None
    at: At | None = None

    @property
    def kind(self) -> str:
        """The one key that is set."""
        return next(kind for kind in _KINDS if getattr(self, kind) is not None)


def read(delivery: Delivery, provider: str, allowed: frozenset[str]) -> DingTalkContent:
    """Returns the content for this provider. Raises BadContent. `allowed` are the keys that it takes."""
    written = delivery.content_for(provider)
    if written is None:
        raise BadContent(no_form(delivery, provider) or _NO_TEMPLATES)
    try:
        content = msgspec.convert(written, DingTalkContent)
    except msgspec.ValidationError as exc:
        raise BadContent(f"bad_content: {broken_rule(exc)}") from exc
    given = [key for key in DingTalkContent.__struct_fields__ if getattr(content, key) is not None]
    if foreign := [key for key in given if key not in allowed]:
        raise BadContent(f"bad_content: this provider cannot send {', '.join(foreign)}")
    if len([key for key in given if key in _KINDS]) != 1:
        raise BadContent(f"bad_content: give exactly one of {_listed(allowed)}")
    if content.action_card is not None:
        _check_card(content.action_card)
    return content


def mobile(number: str) -> str:
    """Returns a number in DingTalk's form: `13800000001`, abroad `+852-51234567`. Raises BadContent."""
    try:
        parsed = phonenumbers.parse(number, "CN")
    except phonenumbers.NumberParseException as exc:
        raise BadContent("bad_mobile: a number under at.mobiles cannot be read") from exc
    if not phonenumbers.is_possible_number(parsed):
        raise BadContent("bad_mobile: a number under at.mobiles cannot exist")
    national = phonenumbers.national_significant_number(parsed)
    mainland = parsed.country_code == _MAINLAND
    return national if mainland else f"+{parsed.country_code}-{national}"


def _check_card(card: ActionCard) -> None:
    if (card.single is None) == (card.buttons is None):
        raise BadContent("bad_content: action_card: give exactly one of single and buttons")


def _listed(allowed: frozenset[str]) -> str:
    return ", ".join(kind for kind in _KINDS if kind in allowed)
