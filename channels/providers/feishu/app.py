r"""Feishu (and Lark) messages of an application's bot: `im/v1/messages`, one receiver a call.

    POST <endpoint>/open-apis/im/v1/messages?receive_id_type=open_id         Authorization: Bearer t-…
    {"receive_id": "ou_…", "msg_type": "text", "content": "{\"text\":\"…\"}", "uuid": "<call key>"}
    {"code": 0, "msg": "success", "data": {"message_id": "om_…", …}}

    DELETE <endpoint>/open-apis/im/v1/messages/om_…
    {"code": 0, "msg": "success", "data": {}}

    POST <endpoint>/open-apis/auth/v3/tenant_access_token/internal   {"app_id", "app_secret"}
    {"code": 0, "msg": "ok", "tenant_access_token": "t-…", "expire": 7200}

`content` on the wire is a JSON text. A receiver is an open_id (`ou_…`), a union_id (`on_…`), an e-mail
address, or else a user_id. A group is its chat_id (`oc_…`, `group:oc_…`), and no other name. The
notification's `content`: channels/providers/feishu/content.py.
Lark's own endpoint is https://open.larksuite.com.

Of requests with one `uuid` (at most 50 characters) at most one succeeds within an hour. A repeat gets the
first one's message_id, so an attempt in doubt is repeated within 55 minutes.

Sources: https://open.feishu.cn/document/server-docs/im-v1/message/create,
https://open.feishu.cn/document/server-docs/im-v1/message/delete,
https://open.feishu.cn/document/ukTMukTMukTM/ukDNz4SO0MjL5QzM/auth-v3/auth/tenant_access_token_internal,
https://open.feishu.cn/document/home/user-identity-introduction/introduction
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Final

import httpx
import msgspec
from email_validator import EmailNotValidError, validate_email

from channels.accounts.reach import PERSONS_AND_CHATS, Reach, wrong_receiver
from channels.bad_content import UNSENDABLE, reason_of
from channels.base import BaseChannel
from channels.capabilities import Capabilities
from channels.channel import (
    Account,
    Answer,
    Call,
    Failure,
    LoginRefused,
    RecallDialogue,
    RecallResult,
    RecallStatus,
    SentCall,
    Token,
    TokenRefused,
    TokenSource,
)
from channels.http_client.request import extensions_of, fields_of, post_json
from channels.judging.error_table import HOUR, MINUTE, ErrorTable
from channels.judging.foreign_json import UNREADABLE
from channels.judging.outcomes import for_all, of_failure
from channels.judging.recall_outcomes import taken_back
from channels.providers.feishu.content import FeishuWorded
from channels.providers.feishu.content import read as read_content
from channels.providers.feishu.errors import ERRORS
from channels.providers.feishu.wire import (
    ENDPOINT,
    address,
    address_for,
    code_of,
    read,
    refused,
)
from channels.secret import Secret
from message.delivery import Delivery
from message.foreign_text import rule_in
from message.outcomes import Accepted, AnyOutcome, Limit, Unknown
from message.receivers import group_of

_SEND: Final = "open-apis/im/v1/messages"
_TENANT_TOKEN: Final = "open-apis/auth/v3/tenant_access_token/internal"  # noqa: S105 (a path)
_KEYS: Final = frozenset(
    {
        "text",
        "post",
        "card",
        "image",
        "file",
        "audio",
        "sticker",
        "media",
        "share_chat",
        "share_user",
    }
)
_MAX_TEXT: Final = 150 * 1_024
_MAX_RICH: Final = 30 * 1_024
_RICH: Final = frozenset({"post", "interactive"})
_TYPES: Final = {"ou": "open_id", "on": "union_id"}
_PERSON_ID = re.compile(r"(ou|on)_[0-9a-z]{20,64}", re.ASCII)
"""An open_id or union_id. A company's user_ids may begin like it, but are shorter."""
_TOKEN_CODES: Final = frozenset({"99991661", "99991663", "99991668", "99991671", "99991677"})
_PASSING: Final = frozenset(
    row.code for row in ERRORS if row.kind == "unknown" or row.limit is Limit.ACCOUNT
)
"""Codes of a token request that say nothing of the login."""
_LATER: Final = frozenset({408, 425, 429, *range(500, 600)})
_MESSAGE_ID = re.compile(r"om_[0-9A-Za-z_-]{1,128}", re.ASCII)
_GONE: Final = frozenset({"230011", "230110"})
"""Codes of im/v1 for a message that was recalled before, or deleted."""


class FeishuOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of an account."""

    app_id: str
    app_secret: Secret


class _Body(msgspec.Struct):
    receive_id: str
    msg_type: str
    content: str
    uuid: str


class _App(msgspec.Struct):
    app_id: str
    app_secret: str


class _TokenGiven(msgspec.Struct):
    tenant_access_token: str
    expire: float


class FeishuTokens:
    """Tokens of the tenant; Feishu repeats a token until half an hour before its end."""

    def request(self, account: Account, stale: str) -> httpx.Request:
        """Returns a POST with id and secret in its body."""
        options: FeishuOptions = account.options
        url = address(account.endpoint, _TENANT_TOKEN)
        body = msgspec.json.encode(_App(options.app_id, options.app_secret.reveal()))
        return post_json(url, fields_of(url), body, extensions_of(account))

    def read(self, answer: httpx.Response) -> Token:
        """Returns the token. Raises LoginRefused with the provider's code, TokenRefused if it may pass."""
        reply = read(answer)
        code = code_of(reply)
        if reply is not None and code not in ("", "0"):
            passing = code in _PASSING or answer.status_code in _LATER
            refused = TokenRefused if passing else LoginRefused
            raise refused(f"{code}: {reply.detail}")
        try:
            given = msgspec.json.decode(answer.content, type=_TokenGiven)
        except UNREADABLE as exc:
            raise TokenRefused(f"http_{answer.status_code}: an answer without a token") from exc
        return Token(given.tenant_access_token, given.expire)


class FeishuChannel(BaseChannel):
    """Stateless."""

    provider: ClassVar[str] = "feishu"
    channel: ClassVar[str] = "feishu"
    knows_templates: ClassVar[bool] = True
    options: ClassVar[type[msgspec.Struct]] = FeishuOptions
    endpoint: ClassVar[str] = ENDPOINT
    dedup_window_ms: ClassVar[int] = 55 * MINUTE
    recall_window_ms: ClassVar[int] = 24 * HOUR
    """An upper bound of ours: the company's administrator sets the time, and Feishu refuses later recalls
    (https://open.larkoffice.com/document/uAjLw4CM/ukTMukTMukTM/reference/im-v1/message/delete.md, read
    2026-11-22)."""
    tokens: ClassVar[TokenSource | None] = FeishuTokens()
    reach: ClassVar[Reach] = PERSONS_AND_CHATS
    account_limits: ClassVar[Sequence[tuple[int, int]]] = ((50, 1), (1_000, 60))
    """(count, seconds) per application and tenant."""
    counted_by: ClassVar[Sequence[str]] = ("app_id",)
    errors: ClassVar[ErrorTable] = ERRORS
    receiver_limits: ClassVar[Sequence[tuple[int, int]]] = ((5, 1),)
    """(count, seconds) per receiver."""
    promises: ClassVar[Capabilities] = Capabilities(
        title="Feishu / Lark message (im/v1/messages)",
        idempotency="of requests with one uuid, the call key, one succeeds within an hour",
        resolve="the same request again within 55 minutes",
        limits=(
            "one receiver a call; 50 calls a second and 1,000 a minute, 5 a second to one "
            "receiver; 150 KB of text, 30 KB of post or card"
        ),
        recall="by message_id, as long as the company's administrator allows, at most 24 hours",
        source=(
            "https://open.feishu.cn/document/server-docs/im-v1/message/create",
            "https://open.feishu.cn/document/server-docs/api-call-guide/frequency-control",
            "https://open.feishu.cn/document/server-docs/api-call-guide/generic-error-code",
        ),
    )

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """Refuses an impossible receiver, and a content that Feishu cannot send."""
        if wrong := wrong_receiver(account, self.channel, delivery.receiver):
            return wrong
        try:
            if "@" in delivery.receiver:
                validate_email(delivery.receiver, check_deliverability=False)
            message = read_content(delivery, self.provider, _KEYS)
            size = len(msgspec.json.encode(message.body))
        except EmailNotValidError as exc:
            return f"bad_receiver: {rule_in(str(exc))}"
        except UNSENDABLE as exc:
            return reason_of(exc)
        limit = _MAX_RICH if message.msg_type in _RICH else _MAX_TEXT
        if size > limit:
            return f"too_long: the content has {size:,} bytes; Feishu takes {limit:,}"
        return ""

    def request(self, call: Call) -> httpx.Request:
        """Returns the POST of the call's one delivery."""
        (delivery,) = call.deliveries
        account = call.account
        receiver, id_type = _receive_id(delivery.receiver)
        url = address_for(account.endpoint, _SEND, f"receive_id_type={id_type}")
        bearer = (b"Authorization", b"Bearer " + call.token.encode("latin-1"))
        body = _body(receiver, read_content(delivery, self.provider, _KEYS), call.key)
        return post_json(url, [*fields_of(url), bearer], body, extensions_of(account))

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Returns the outcome of the call's one delivery; a repeat gets the first one's answer."""
        if isinstance(answer, Failure):
            return for_all(call, of_failure(answer))
        outcome = refused(self.errors, answer)
        if outcome is not None:
            return for_all(call, outcome)
        reply = read(answer)
        if reply is None or not reply.message_id:
            return for_all(call, Unknown("no_message_id", "the answer names no message"))
        return for_all(call, Accepted(reply.message_id))

    def recall(self, account: Account, sent: SentCall) -> RecallDialogue | None:
        """Recalls by message_id. Returns None without one."""
        return self._recall(account, sent) if _MESSAGE_ID.fullmatch(sent.provider_id) else None

    def _recall(self, account: Account, sent: SentCall) -> RecallDialogue:
        url = address(account.endpoint, f"{_SEND}/{sent.provider_id}")
        bearer = (b"Authorization", b"Bearer " + sent.token.encode("latin-1"))
        answer = yield httpx.Request(
            "DELETE", url, headers=[*fields_of(url), bearer], extensions=extensions_of(account)
        )
        reply = None if isinstance(answer, Failure) else read(answer)
        code = code_of(reply)
        if code in _GONE:
            return RecallResult(RecallStatus.BACK)
        return taken_back(self.errors, answer, code, reply.detail if reply is not None else "")

    def token_refused(self, answer: httpx.Response) -> bool:
        """Returns whether the token was missing, not valid or expired."""
        return code_of(read(answer)) in _TOKEN_CODES


def _receive_id(receiver: str) -> tuple[str, str]:
    """Returns the receive_id of a receiver, and its type."""
    if (chat_id := group_of("feishu", receiver)) is not None:
        return chat_id, "chat_id"
    known = _PERSON_ID.fullmatch(receiver)
    if known is not None:
        return receiver, _TYPES[known[1]]
    return receiver, "email" if "@" in receiver else "user_id"


def _body(receiver: str, message: FeishuWorded, key: str) -> bytes:
    content = msgspec.json.encode(message.body).decode()
    return msgspec.json.encode(_Body(receiver, message.msg_type, content, key))


CHANNELS = (FeishuChannel(),)
