r"""Slack's incoming webhooks: one message into the webhook's channel.

    POST https://hooks.slack.com/services/T000/B000/XXX     {"text": "…", "mrkdwn": false}
    200  ok                                                 text/html, no id
    404  no_service                                         the code is the whole body

Mentions and links are written between angle brackets. In `text` the adapter writes `&`, `<` and `>` as
`&amp;`, `&lt;` and `&gt;`. In `markdown`, `blocks` and `attachments` it does so only for `<` before `!` and
`@`: links work, mentions do not. `mention` names `channel`, `here`, `everyone`, a member (`U…`, `W…`) or a
user group (`S…`). A plain text without a mention is sent with formatting turned off.

A webhook may send one message a second, with short bursts; above it comes 429 with Retry-After. Slack cuts
a text after 40,000 characters, so the adapter refuses a longer one.

Codes: Slack's changelog of 2016-05-17 has invalid_payload, user_not_found, action_prohibited,
channel_not_found, channel_is_archived and rollup_error. Clients of Slack list the others, which came later.
All but rollup_error come with a 4xx, which refuses whatever its code is.

Sources, read 2026-11-22:
https://api.slack.com/changelog/2016-05-17-changes-to-errors-for-incoming-webhooks,
https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks,
https://docs.slack.dev/messaging/formatting-message-text
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any, ClassVar, Final

import httpx

from channels.bad_content import BadContent
from channels.capabilities import Capabilities
from channels.channel import Call
from channels.judging import error_table as codes
from channels.judging.error_table import HOUR, ErrorTable, RowSource
from channels.judging.outcomes import CONTRADICTION, refusal
from channels.providers.chat.content import ChatContent, each_text, in_front, mentions, read
from channels.providers.chat.incoming_webhook import HookChannel, refused
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome, Limit, Unknown

_OWN: Final = ("blocks", "attachments")
_ALL: Final = frozenset({"channel", "here", "everyone"})
_MEMBER: Final = re.compile(r"[UW][A-Z0-9]{5,20}")
_USERGROUP: Final = re.compile(r"S[A-Z0-9]{5,20}")
_MAX_TEXT: Final = 40_000
_MAX_BLOCKS: Final = 50
_OK: Final = b"ok"
_CODE: Final = re.compile(rb"[a-z]{2,20}(?:_[a-z0-9]{2,20}){1,5}")
_TOO_MANY: Final = 429
_SECOND: Final = 1_000

_CHANGELOG: Final = RowSource(
    "https://api.slack.com/changelog/2016-05-17-changes-to-errors-for-incoming-webhooks",
    "2026-11-22",
)
_DECODER: Final = RowSource(
    "https://routeforms.com/tools/slack-webhook-error-decoder", "2026-11-22"
)
"""A third party's list of the answers of Slack's webhooks."""
_SEEN: Final = RowSource("https://gitlab.com/gitlab-org/gitlab/-/issues/361457", "2026-11-22")
_LISTED: Final = "clients of Slack list it; no page of Slack's that was read has it"

_ERRORS: Final = ErrorTable(
    codes.documented(
        _CHANGELOG,
        codes.rejected("invalid_payload", "the body cannot be read as a message"),
        codes.rejected("user_not_found", "the member does not exist"),
        codes.account_fault("channel_not_found", "the channel does not exist", HOUR),
        codes.account_fault("channel_is_archived", "the channel is archived", HOUR),
        codes.account_fault("action_prohibited", "an administrator forbids it", HOUR),
        codes.unknown("rollup_error", "an error inside Slack"),
    ),
    codes.unproved(
        _LISTED,
        codes.rejected("no_text", "the message has no text"),
        codes.rejected("too_many_attachments", "more than 100 attachments"),
        codes.account_fault(
            "posting_to_general_channel_denied", "an administrator keeps #general for others", HOUR
        ),
        codes.shut_out("no_service_id", "the address has no webhook", HOUR),
        codes.shut_out("no_active_hooks", "the webhook is disabled", HOUR),
    ),
    codes.documented(
        _DECODER,
        codes.rejected("invalid_blocks", "a block is not as Block Kit has it"),
        codes.rejected("invalid_blocks_format", "the blocks are not a list of blocks"),
        codes.shut_out("no_service", "the webhook is removed or invalid", HOUR),
        codes.shut_out("no_team", "there is no such workspace", HOUR),
        codes.shut_out("invalid_token", "the address is expired or wrong", HOUR),
        codes.paced("rate_limited", Limit.ACCOUNT, "more than one message a second", _SECOND),
    ),
    codes.documented(_SEEN, codes.shut_out("team_disabled", "the workspace is off", HOUR)),
)


class SlackChannel(HookChannel):
    """Stateless."""

    provider: ClassVar[str] = "slack"
    endpoint: ClassVar[str] = "https://hooks.slack.com"
    account_limits: ClassVar[Sequence[tuple[int, int]]] = ((60, 60),)
    """(messages, seconds): one a second, counted per minute since short bursts are documented to pass."""
    errors: ClassVar[ErrorTable] = _ERRORS
    promises: ClassVar[Capabilities] = Capabilities(
        title="Slack incoming webhook",
        limits="one group an account; 1 message a second; 40,000 characters",
        source=(
            "https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks",
            "https://api.slack.com/changelog/2016-05-17-changes-to-errors-for-incoming-webhooks",
        ),
    )

    def body(self, delivery: Delivery) -> dict[str, Any]:
        content = read(delivery, self.provider, _OWN)
        called = mentions(content.mention, _mention)
        body: dict[str, Any] = {}
        text = in_front(called, _text(content))
        if len(text) > _MAX_TEXT:
            raise BadContent(f"too_long: Slack cuts a text after {_MAX_TEXT:,} characters")
        if text:
            body["text"] = text
        if content.text is not None and not called:
            body["mrkdwn"] = False
        if content.blocks is not None:
            if len(content.blocks) > _MAX_BLOCKS:
                raise BadContent(f"too_long: Slack takes {_MAX_BLOCKS} blocks")
            body["blocks"] = each_text(content.blocks, _quiet)
        if content.attachments is not None:
            body["attachments"] = each_text(content.attachments, _quiet)
        return body

    def outcome(self, call: Call, answer: httpx.Response) -> AnyOutcome:
        """Returns the outcome by the code, which is the whole body, else by the status."""
        text = answer.content.strip()
        if text == _OK:
            return Accepted(call.key) if answer.status_code == 200 else CONTRADICTION
        if answer.status_code == _TOO_MANY:
            return refused(self.errors, "rate_limited", "", answer)
        if answer.is_success or not _CODE.fullmatch(text):
            return refusal(answer) or Unknown("malformed_answer", "an answer that is not Slack's")
        return refused(self.errors, text.decode(), "", answer)


def _text(content: ChatContent) -> str:
    if content.text is not None:
        return escape(content.text, quote=False)
    return _quiet(content.markdown or "")


def _quiet(text: str) -> str:
    """Returns the text without mentions: their first bracket is escaped."""
    return text.replace("<!", "&lt;!").replace("<@", "&lt;@")


def _mention(name: str) -> str:
    if name in _ALL:
        return f"<!{name}>"
    if _MEMBER.fullmatch(name):
        return f"<@{name}>"
    return f"<!subteam^{name}>" if _USERGROUP.fullmatch(name) else ""


CHANNELS = (SlackChannel(),)
