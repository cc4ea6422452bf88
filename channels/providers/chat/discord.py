r"""Discord's webhooks: one message into the webhook's channel.

    POST https://discord.com/api/webhooks/<id>/<token>?wait=true
         {"content": "…", "allowed_mentions": {"parse": [], "users": []}}
    200  {"id": "1084…", …}         `wait` makes the answer name the message, or the error
    4xx  {"code": 50035, "message": "Invalid Form Body", "errors": {…}}
    429  {"message": "…", "retry_after": 64.57, "global": false}

    DELETE …/messages/<message id>?  204       recalls it, at any time

Without `allowed_mentions` Discord mentions everybody whom a content names. The adapter always sends it,
with exactly the names of `mention`: `everyone`, `here`, a member's id, `role:` and a role's id. It cannot
allow one of `everyone` and `here` alone, nor in one place alone. So where `mention` has one of them, an
invisible character separates sign and name in the text. `embeds` mention nobody. `thread_id` in the
webhook's address chooses a thread.

Discord documents no fixed limit. Commonly a webhook may send five messages in two seconds, a channel 30 a
minute; the adapter keeps to the wait of a 429. "If a webhook returns a 404 status you should not attempt to
use it again": the account's breaker opens.

Sources, read 2026-11-22 (repository discord/discord-api-docs): docs/resources/webhook,
docs/resources/message#allowed-mentions-object, docs/topics/opcodes-and-status-codes#json,
docs/topics/rate-limits
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import ceil, isfinite
from typing import Any, ClassVar, Final

import httpx
import msgspec

from channels.bad_content import BadContent
from channels.capabilities import Capabilities
from channels.channel import (
    Account,
    Answer,
    Call,
    Failure,
    RecallDialogue,
    RecallResult,
    RecallStatus,
    SentCall,
)
from channels.endpoints import with_query
from channels.http_client.request import extensions_of, fields_of
from channels.judging import error_table as codes
from channels.judging.error_table import HOUR, MINUTE, ErrorTable, RowSource
from channels.judging.foreign_json import decoded
from channels.judging.outcomes import CONTRADICTION, refusal
from channels.judging.retry_after import MAX_MS
from channels.providers.chat.content import in_front, mentions, quiet_at, read, unformatted
from channels.providers.chat.incoming_webhook import HookChannel, hook_url, refused
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome, Limit, Unknown

_OWN: Final = ("embeds",)
_ALL: Final = frozenset({"everyone", "here"})
_AT_ALL: Final = re.compile(r"@(?=everyone|here)")
"""The sign of a mention of all, which counts behind any character, a backslash among them."""
_ID: Final = re.compile(r"[0-9]{5,20}", re.ASCII)
_ROLE: Final = "role:"
_MAX_TEXT: Final = 2_000
_MAX_EMBEDS: Final = 10
_SIGNS: Final = frozenset("\\`*_{}[]()<>#|~:@")
_RATE_LIMITED: Final = "429"
_UNKNOWN_MESSAGE: Final = "10008"
_SECOND: Final = 1_000
_RECALL_MS: Final = 30 * 24 * HOUR

_CODES: Final = RowSource(
    "https://discord.com/developers/docs/topics/opcodes-and-status-codes#json",
    "2026-11-22",
    copy="RESTJSONErrorCodes of discord-api-types 0.38.57 (npm)",
)
_LIMITS: Final = RowSource(
    "https://discord.com/developers/docs/topics/rate-limits",
    "2026-11-22",
    copy="the repository discord/discord-api-docs",
)

_ERRORS: Final = ErrorTable(
    codes.documented(
        _LIMITS, codes.paced(_RATE_LIMITED, Limit.ACCOUNT, "more requests than allowed", _SECOND)
    ),
    codes.documented(
        _CODES,
        codes.paced("20016", Limit.ACCOUNT, "the channel is in slow mode", MINUTE),
        codes.paced("20028", Limit.ACCOUNT, "the channel's write rate limit", MINUTE),
        codes.paced("20029", Limit.ACCOUNT, "the server's write rate limit", MINUTE),
        codes.paced("40062", Limit.ACCOUNT, "the resource is being rate limited", MINUTE),
        codes.account_fault("10003", "the channel does not exist", HOUR),
        codes.shut_out("10015", "the webhook does not exist", HOUR),
        codes.shut_out("10016", "the webhook's service does not exist", HOUR),
        codes.account_fault("40004", "sending is turned off for a while", MINUTE),
        codes.account_fault("40006", "turned off at Discord for a while", MINUTE),
        codes.shut_out("40333", "Cloudflare blocks our address", HOUR),
        codes.account_fault("40058", "a forum: the address needs a thread_id", HOUR),
        codes.account_fault("50008", "the channel takes no texts", HOUR),
        codes.account_fault("50013", "a permission is missing", HOUR),
        codes.account_fault("50024", "the channel is of another type", HOUR),
        codes.shut_out("50027", "the webhook's token is wrong", HOUR),
        codes.account_fault("50083", "the thread is archived", HOUR),
        codes.account_fault("220001", "a forum: the address needs a thread_id", HOUR),
        codes.account_fault("220004", "no webhooks of services in forums", HOUR),
        codes.rejected("20009", "explicit content"),
        codes.rejected("40005", "the request is too large"),
        codes.rejected("50006", "the message is empty"),
        codes.rejected("50035", "a field is malformed or too long"),
        codes.rejected("50041", "no such version of the API"),
        codes.rejected("50109", "the body is no JSON"),
        codes.rejected("200000", "blocked by the server's moderation"),
        codes.rejected("240000", "blocked for a harmful link"),
        codes.unknown("130000", "overloaded"),
    ),
)


class _Answered(msgspec.Struct):
    id: str = ""
    code: int | None = None
    message: str = ""
    retry_after: float | None = None


_decoder = msgspec.json.Decoder(_Answered)


class DiscordChannel(HookChannel):
    """Stateless."""

    provider: ClassVar[str] = "discord"
    endpoint: ClassVar[str] = "https://discord.com"
    account_limits: ClassVar[Sequence[tuple[int, int]]] = ((5, 2), (30, 60))
    recall_window_ms: ClassVar[int] = _RECALL_MS
    errors: ClassVar[ErrorTable] = _ERRORS
    promises: ClassVar[Capabilities] = Capabilities(
        title="Discord webhook",
        limits="one group an account; 5 messages in 2 seconds, 30 a minute; 2,000 characters",
        recall="within 30 days, by message id",
        source=(
            "https://discord.com/developers/docs/resources/webhook",
            "https://discord.com/developers/docs/topics/opcodes-and-status-codes",
            "https://discord.com/developers/docs/topics/rate-limits",
        ),
    )

    def address(self, account: Account) -> httpx.URL:
        """Returns the address with `wait`: without it Discord answers before it makes the message."""
        return with_query(hook_url(account), "wait=true")

    def body(self, delivery: Delivery) -> dict[str, Any]:
        content = read(delivery, self.provider, _OWN)
        text = content.markdown or ""
        if content.text is not None:
            text = unformatted(content.text, _SIGNS)
        if _ALL.intersection(content.mention):
            text = quiet_at(text, _AT_ALL)
        text = in_front(mentions(content.mention, _mention), text)
        if len(text) > _MAX_TEXT:
            raise BadContent(
                f"too_long: Discord takes {_MAX_TEXT:,} characters, backslashes before signs included"
            )
        body: dict[str, Any] = {"allowed_mentions": _allowed(content.mention)}
        if text:
            body["content"] = text
        if content.embeds is not None:
            if len(content.embeds) > _MAX_EMBEDS:
                raise BadContent(f"too_long: Discord takes {_MAX_EMBEDS} embeds")
            body["embeds"] = content.embeds
        return body

    def outcome(self, call: Call, answer: httpx.Response) -> AnyOutcome:
        """Returns the outcome by Discord's own code, else by the status."""
        reply = _read(answer)
        if reply is not None and _ID.fullmatch(reply.id):
            return Accepted(reply.id) if answer.status_code == 200 else CONTRADICTION
        if answer.status_code == int(_RATE_LIMITED):
            return self._paced(reply, answer)
        if reply is None or not reply.code:
            return refusal(answer) or Unknown("malformed_answer", "an answer that is not Discord's")
        return refused(self.errors, str(reply.code), reply.message, answer)

    def _paced(self, reply: _Answered | None, answer: httpx.Response) -> AnyOutcome:
        """Returns the outcome of a 429, by its code if the table has it. A ban by address has no JSON."""
        code = str(reply.code) if reply is not None and reply.code else _RATE_LIMITED
        known = code if self.errors.row(code) is not None else _RATE_LIMITED
        return refused(self.errors, known, reply.message if reply else "", answer, _wait(reply))

    def recall(self, account: Account, sent: SentCall) -> RecallDialogue | None:
        """Returns a dialogue that deletes the message; None without a message id."""
        return _recall(account, sent.provider_id) if _ID.fullmatch(sent.provider_id) else None


def _recall(account: Account, message_id: str) -> RecallDialogue:
    url = hook_url(account)
    path, mark, query = url.raw_path.partition(b"?")
    whole = path.rstrip(b"/") + b"/messages/" + message_id.encode() + mark + query
    url = url.copy_with(raw_path=whole)
    answer = yield httpx.Request(
        "DELETE", url, headers=fields_of(url), extensions=extensions_of(account)
    )
    return _taken_back(answer)


def _taken_back(answer: Answer) -> RecallResult:
    if isinstance(answer, Failure):
        return RecallResult(RecallStatus.ASK_LATER, answer.code)
    status, reply = answer.status_code, _read(answer)
    code = str(reply.code) if reply is not None and reply.code else ""
    if 200 <= status < 300 or (status == 404 and code == _UNKNOWN_MESSAGE):
        return RecallResult(RecallStatus.BACK)
    detail = f"http_{status}" + (f": {code}" if code else "")
    refuses = 400 <= status < 500 and status not in (408, 425, int(_RATE_LIMITED))
    return RecallResult(RecallStatus.REFUSED if refuses else RecallStatus.ASK_LATER, detail)


def _allowed(names: Sequence[str]) -> dict[str, Any]:
    """Returns the `allowed_mentions`: only these names are mentioned."""
    allowed: dict[str, Any] = {"parse": ["everyone"] if _ALL.intersection(names) else []}
    users = [name for name in dict.fromkeys(names) if _ID.fullmatch(name)]
    roles = [name.removeprefix(_ROLE) for name in dict.fromkeys(names) if name.startswith(_ROLE)]
    return {**allowed, "users": users, "roles": roles}


def _mention(name: str) -> str:
    if name in _ALL:
        return f"@{name}"
    if name.startswith(_ROLE):
        role = name.removeprefix(_ROLE)
        return f"<@&{role}>" if _ID.fullmatch(role) else ""
    return f"<@{name}>" if _ID.fullmatch(name) else ""


def _read(answer: httpx.Response) -> _Answered | None:
    return decoded(_decoder.decode, answer.content)


def _wait(reply: _Answered | None) -> int | None:
    """Returns `retry_after` in milliseconds, more exact than Retry-After; None if it has no valid one."""
    seconds = reply.retry_after if reply is not None else None
    if seconds is None or not isfinite(seconds) or seconds < 0:
        return None
    return min(ceil(seconds * 1_000), MAX_MS)


CHANNELS = (DiscordChannel(),)
