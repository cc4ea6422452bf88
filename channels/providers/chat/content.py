"""The content of the `chat` channel, and its mentions.

`content` holds `text` or `markdown`, or the provider's own structure, with or without one of them:

    text          shown as it is: nothing in it is formatting, a link in disguise or a mention
    markdown      in the provider's own dialect; the writer escapes text that must not be formatted
    mention       the names to mention; the texts can mention nobody else
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
"""An invisible character that separates a sign from the name behind it."""
_AT: Final = re.compile(r"(?<![A-Za-z0-9])@(?=\w)")
_URL: Final = re.compile(r"https?://[^\s<>]+")
_HOST: Final = re.compile(r"https?://[^/?#]*")
_WITHIN: Final = re.compile(r"[A-Za-z0-9/=?&#@:.~%+_-]")
"""A character behind which a web address goes on. Behind any other the sentence may go on without blank."""
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
    """Returns the content for this provider. Raises BadContent. `own` are the provider's structures."""
    written = delivery.content_for(provider)
    if written is None:
        raise BadContent(no_form(delivery, provider) or _NO_TEMPLATES)
    try:
        content = msgspec.convert(written, ChatContent)
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
    """Returns the mentions in the provider's form. Raises BadContent if `worded` returns an empty text."""
    found = [(name, worded(name)) for name in dict.fromkeys(names)]
    if not all(text for _, text in found):
        raise BadContent("bad_content: mention: holds a name that the provider does not have")
    return [text for _, text in found]


def in_front(called: Iterable[str], text: str) -> str:
    """Returns the text with the mentions in front."""
    return " ".join(filter(None, (*called, text)))


def quiet_at(text: str, sign: re.Pattern[str] = _AT) -> str:
    """Returns the text without mentions of the form `@name`: `_BLANK` separates sign and name. Behind the
    host of a web address the sign becomes `%40`, so that it still opens. `sign` finds the signs."""
    whole = _URL.sub(lambda found: _encoded(found[0], sign), text)
    return sign.sub(f"@{_BLANK}", whole)


def _encoded(address: str, sign: re.Pattern[str]) -> str:
    """Returns the address with `%40` for the signs behind its host."""
    host = _HOST.match(address)
    first = host.end() if host else 0

    def written(found: re.Match[str]) -> str:
        own = found.start() > first and _WITHIN.match(address, found.start() - 1)
        return "%40" if own else found[0]

    return sign.sub(written, address)


def quiet_angles(text: str) -> str:
    """Returns the text without mentions of the forms `<!name>` and `<@name>`, likewise."""
    return text.replace("<!", f"<{_BLANK}!").replace("<@", f"<{_BLANK}@")


def unformatted(text: str, signs: frozenset[str]) -> str:
    """Returns the text with a backslash before each of the signs and each mark of a list or heading. Web
    addresses stay unchanged."""
    escaped = {ord(sign): f"\\{sign}" for sign in signs}
    pieces: list[str] = []
    end = 0
    for found in _URL.finditer(text):
        pieces += (text[end : found.start()].translate(escaped), found[0])
        end = found.end()
    whole = "".join([*pieces, text[end:].translate(escaped)])
    return _LINE.sub(_unlisted, whole)


def _unlisted(found: re.Match[str]) -> str:
    """Escapes the dot of `1.`, else the mark itself."""
    before, mark = found.groups()
    return f"{before}{mark}\\" if mark.isdigit() else f"{before}\\{mark}"


def each_text(tree: T, change: Callable[[str], str]) -> T:
    """Returns the structure with every text changed; field names stay."""
    if isinstance(tree, str):
        return change(tree)  # type: ignore[return-value]  # a text for a text
    if isinstance(tree, list):
        return [each_text(one, change) for one in tree]  # type: ignore[return-value]
    if isinstance(tree, dict):
        return {name: each_text(one, change) for name, one in tree.items()}  # type: ignore[return-value]
    return tree
