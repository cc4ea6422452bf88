"""The content of the `chat` channel, and its mentions.

`content` holds `text` or `markdown`, or the provider's own structure, with or without one of them:

    text          shown as it is: nothing in it is formatting, a link in disguise or a mention
    markdown      in the provider's own dialect; what is not to be formatted is escaped by its writer
    mention       who is called on; nobody else ever is, whatever the texts hold
    blocks        Slack's Block Kit                               slack alone
    embeds        Discord's embeds                                discord alone
    attachments   message attachments                             slack, mattermost
    card          an Adaptive Card                                teams alone

A value of a template that holds `<!channel>`, `@everyone` or `@here` reaches the group as these characters.
There are no provider templates.

The dialects: Slack's mrkdwn (`*bold*`, `<https://…|a link>`), Discord's Markdown (`**bold**`), Mattermost's
(CommonMark with tables), the subset of an Adaptive Card's TextBlock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final, TypeVar

import msgspec

from channels.bad_content import BadContent, no_form
from message.delivery import Delivery
from message.foreign_text import broken_rule

Text = Annotated[str, msgspec.Meta(min_length=1)]
Parts = Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)]
Called = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
_NO_TEMPLATES: Final = "no_template: incoming webhooks have no templates; give content"
_OWN: Final = frozenset({"blocks", "embeds", "attachments", "card"})
_BLANK: Final = "\u200b"
"""Takes no room on the screen, and parts a sign from the name behind it."""
_AT: Final = re.compile(r"(?<![A-Za-z0-9])@(?=\w)")
_URL: Final = re.compile(r"https?://[^\s<>]+")
_LINE: Final = re.compile(r"(?m)^(\s{0,8})([-+=]|\d{1,9}(?=[.)]))")
T = TypeVar("T")


class ChatContent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All keys of `content`."""

    text: Text | None = None
    markdown: Text | None = None
    mention: list[Called] = []
    blocks: Parts | None = None
    embeds: Parts | None = None
    attachments: Parts | None = None
    card: Annotated[dict[str, Any], msgspec.Meta(min_length=1)] | None = None


def read(delivery: Delivery, provider: str, own: Iterable[str]) -> ChatContent:
    """Returns what this provider sends of the delivery; raises BadContent. `own` are its structures."""
    said = delivery.content_for(provider)
    if said is None:
        raise BadContent(no_form(delivery, provider) or _NO_TEMPLATES)
    try:
        content = msgspec.convert(said, ChatContent)
    except msgspec.ValidationError as exc:
        raise BadContent(f"bad_content: {broken_rule(exc)}") from exc
    given = {name for name in _OWN if getattr(content, name) is not None}
    if foreign := given.difference(own):
        raise BadContent(f"bad_content: {min(foreign)} is not {provider}'s")
    if content.text is not None and content.markdown is not None:
        raise BadContent("bad_content: give text or markdown, not both")
    if content.text is None and content.markdown is None and not given:
        raise BadContent(f"bad_content: give {', '.join(('text', 'markdown', *own))}")
    return content


def mentions(names: Iterable[str], worded: Callable[[str], str]) -> list[str]:
    """Returns the mentions as the provider writes them; raises BadContent for a name that it does not have.
    `worded` returns an empty text for such a one."""
    found = [(name, worded(name)) for name in dict.fromkeys(names)]
    if not all(text for _, text in found):
        raise BadContent("bad_content: mention: holds a name that the provider does not have")
    return [text for _, text in found]


def in_front(called: Iterable[str], text: str) -> str:
    """The text behind those who are called on."""
    return " ".join(filter(None, (*called, text)))


def quiet_at(text: str) -> str:
    """The text without mentions of the form `@name`: an invisible character parts sign and name."""
    return _AT.sub(f"@{_BLANK}", text)


def quiet_angles(text: str) -> str:
    """The text without mentions of the forms `<!name>` and `<@name>`, likewise."""
    return text.replace("<!", f"<{_BLANK}!").replace("<@", f"<{_BLANK}@")


def unformatted(text: str, signs: frozenset[str]) -> str:
    """The text with a backslash before every one of the signs, and before what begins a list or a heading;
    addresses of the web stay as they are."""
    escaped = {ord(sign): f"\\{sign}" for sign in signs}
    pieces: list[str] = []
    end = 0
    for found in _URL.finditer(text):
        pieces += (text[end : found.start()].translate(escaped), found[0])
        end = found.end()
    whole = "".join([*pieces, text[end:].translate(escaped)])
    return _LINE.sub(_unlisted, whole)


def _unlisted(found: re.Match[str]) -> str:
    """`1.` begins a list by its dot, `-` by itself."""
    before, mark = found.groups()
    return f"{before}{mark}\\" if mark.isdigit() else f"{before}\\{mark}"


def each_text(tree: T, change: Callable[[str], str]) -> T:
    """The same structure with every text in it changed; names of fields stay."""
    if isinstance(tree, str):
        return change(tree)  # type: ignore[return-value]  # a text for a text
    if isinstance(tree, list):
        return [each_text(one, change) for one in tree]  # type: ignore[return-value]
    if isinstance(tree, dict):
        return {name: each_text(one, change) for name, one in tree.items()}  # type: ignore[return-value]
    return tree
