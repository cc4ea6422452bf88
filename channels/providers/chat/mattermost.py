"""Mattermost's incoming webhooks: one message into the webhook's channel.

    POST <server>/hooks/<key>       {"text": "…"}
    200  ok                         text/plain, no id
    400  {"id": "web.incoming_webhook.invalid.app_error", "message": "…", "status_code": 400, …}

The endpoint is the server's own. A mention is `@name` anywhere, and the server turns Slack's `<!channel>`
and `<@id>` into mentions. So an invisible character separates sign and name in `text`, `markdown` and
`attachments`. In a web address, where the server finds names too, the sign is written `%40`. Only `mention`
mentions somebody: `channel`, `here`, `all`, or a user name. A member's own keywords (such as a first name)
are unknown here and may still notify the member.

The server splits a text of more than 16,383 characters into several posts, which may fail one by one. The
adapter refuses such a text. There is no rate limit by default; a server that has one answers 429.

Sources, read 2026-11-22: https://developers.mattermost.com/integrate/webhooks/incoming/, and of
https://github.com/mattermost/mattermost server/channels/app/webhook.go (codes, HandleIncomingWebhook),
server/channels/app/slack.go (`<!channel>`), server/public/model/post.go (PostMessageMaxRunesV2)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import httpx
import msgspec

from channels.bad_content import BadContent
from channels.capabilities import Capabilities
from channels.channel import Call
from channels.judging import error_table as codes
from channels.judging.error_table import HOUR, ErrorTable, RowSource
from channels.judging.foreign_json import decoded
from channels.judging.outcomes import CONTRADICTION, refusal
from channels.providers.chat.content import (
    each_text,
    in_front,
    mentions,
    quiet_angles,
    quiet_at,
    read,
    unformatted,
)
from channels.providers.chat.incoming_webhook import LIMITER_STATUS, HookChannel, refused
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome, Limit, Unknown

_OWN: Final = ("attachments",)
_ALL: Final = frozenset({"channel", "here", "all"})
_NAME: Final = re.compile(r"[a-z][a-z0-9._-]{0,63}")
_SIGNS: Final = frozenset("\\`*_{}[]#>~|")
_MAX_TEXT: Final = 16_383
_OK: Final = b"ok"
_TOO_MANY: Final = 429
_HOOK: Final = "web.incoming_webhook"

_CODES: Final = RowSource(
    "https://github.com/mattermost/mattermost/blob/master/server/channels/app/webhook.go",
    "2026-11-22",
)

_ERRORS: Final = ErrorTable(
    codes.unproved(
        LIMITER_STATUS, codes.paced("429", Limit.ACCOUNT, "more requests than the server allows")
    ),
    codes.documented(
        _CODES,
        codes.rejected(f"{_HOOK}.parse.app_error", "the body cannot be read"),
        codes.rejected("model.incoming_hook.parse_data.app_error", "the body is no JSON"),
        codes.rejected(f"{_HOOK}.text.app_error", "the message has no text"),
        codes.rejected(f"{_HOOK}.user.app_error", "the user does not exist"),
        codes.rejected("model.post.*", "the post is not as a post has to be"),
        codes.shut_out(f"{_HOOK}.invalid.app_error", "no such webhook", HOUR),
        codes.account_fault(f"{_HOOK}.channel.app_error", "no such channel", HOUR),
        codes.account_fault("app.channel.get.existing.app_error", "no channel", HOUR),
        codes.account_fault(
            f"{_HOOK}.channel_locked.app_error", "the webhook is for another channel", HOUR
        ),
        codes.account_fault(f"{_HOOK}.permissions.app_error", "its maker may not post there", HOUR),
        codes.shut_out(f"{_HOOK}.disabled.app_error", "incoming webhooks are turned off", HOUR),
        codes.account_fault(
            "api.post.create_post.can_not_post_to_deleted.error", "the channel is archived", HOUR
        ),
        codes.account_fault(
            "api.post.create_post.town_square_read_only", "the channel is kept for others", HOUR
        ),
        codes.unknown("app.channel.get.find.app_error", "the server's database failed"),
        codes.unknown("app.post.save.app_error", "the post may not have been kept"),
    ),
)


class _Error(msgspec.Struct):
    id: str = ""
    message: str = ""


_decoder = msgspec.json.Decoder(_Error)


class MattermostChannel(HookChannel):
    """Stateless."""

    provider: ClassVar[str] = "mattermost"
    errors: ClassVar[ErrorTable] = _ERRORS
    promises: ClassVar[Capabilities] = Capabilities(
        title="Mattermost incoming webhook",
        limits="one group an account; 16,383 characters; the server's own rate limit, if it has one",
        source=("https://developers.mattermost.com/integrate/webhooks/incoming/",),
    )
    account_limits: ClassVar[Sequence[tuple[int, int]]] = ()

    def body(self, delivery: Delivery) -> dict[str, Any]:
        content = read(delivery, self.provider, _OWN)
        text = content.markdown or ""
        if content.text is not None:
            text = unformatted(content.text, _SIGNS)
        text = in_front(mentions(content.mention, _mention), _quiet(text))
        if len(text) > _MAX_TEXT:
            raise BadContent(f"too_long: Mattermost takes {_MAX_TEXT:,} characters in one post")
        body: dict[str, Any] = {"text": text} if text else {}
        if content.attachments is not None:
            body["attachments"] = each_text(content.attachments, _quiet)
        return body

    def outcome(self, call: Call, answer: httpx.Response) -> AnyOutcome:
        """Returns the outcome by the error's id, else by the status."""
        if answer.content.strip() == _OK:
            return Accepted(call.key) if answer.status_code == 200 else CONTRADICTION
        if answer.status_code == _TOO_MANY:
            return refused(self.errors, "429", "", answer)
        error = _read(answer)
        if error is None or not error.id:
            return refusal(answer) or Unknown("malformed_answer", "an answer of another server")
        return refused(self.errors, error.id, error.message, answer)


def _quiet(text: str) -> str:
    return quiet_angles(quiet_at(text))


def _mention(name: str) -> str:
    return f"@{name}" if name in _ALL or _NAME.fullmatch(name) else ""


def _read(answer: httpx.Response) -> _Error | None:
    return decoded(_decoder.decode, answer.content)


CHANNELS = (MattermostChannel(),)
