"""DingTalk work notices: `asyncsend_v2` of an application, to up to 100 members of its company a call.

    POST <endpoint>/topapi/message/corpconversation/asyncsend_v2?access_token=…
    {"agent_id": 1, "userid_list": "a,b", "to_all_user": false, "msg": {"msgtype": "text", "text": {…}}}
    {"errcode": 0, "errmsg": "ok", "task_id": 256271667526, "request_id": "…"}

    POST <endpoint>/topapi/message/corpconversation/getsendresult?access_token=…
    {"agent_id": 1, "task_id": 256271667526}
    {"errcode": 0, "send_result": {"invalid_user_id_list", "forbidden_list": [{"code", "count", "userid"}],
                                   "failed_user_id_list", "read_user_id_list", "unread_user_id_list"}}

    POST <endpoint>/topapi/message/corpconversation/recall?access_token=…     (within 24 hours)
    {"agent_id": 1, "msg_task_id": 256271667526}
    {"errcode": 0, "errmsg": "ok"}

    GET  <endpoint>/gettoken?appkey=…&appsecret=…
    {"errcode": 0, "access_token": "…", "expires_in": 7200}

A receiver is a userid. `content`: channels/providers/_dingtalk_content.py; there are no provider
templates. `msg` is at most 2,048 bytes.

The answer tells of no single receiver: whom the notice did not reach is only in getsendresult, for 24
hours, to those who know the task_id. An attempt in doubt lost just that, so `resolve` has nothing to
ask; but the provider itself gives one user the same content only once a day, and says success to the
repeat, so the same bytes may be sent again on that day. Which day is not documented: the digest that
`fingerprint` gives changes at midnight in China, and is never the same twice shortly before it.

Sources: https://open.dingtalk.com/document/orgapp/asynchronous-sending-of-enterprise-session-messages,
https://open.dingtalk.com/document/orgapp/gets-the-result-of-sending-messages-asynchronously-to-the-enterprise,
https://open.dingtalk.com/document/orgapp/notification-of-work-withdrawal,
https://open.dingtalk.com/document/orgapp/obtain-orgapp-token
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from time import time
from typing import ClassVar, Final
from urllib.parse import quote

import httpx
import msgspec

from channels.base import BaseChannel
from channels.channel import (
    Account,
    Answer,
    Attempt,
    Call,
    Dialogue,
    Failure,
    RecallDialogue,
    Sent,
    Token,
    TokenRefused,
    TokenSource,
)
from channels.endpoints import with_query
from channels.error_table import HOUR, ErrorTable
from channels.outcomes import for_all, of_failure
from channels.promises import Promises
from channels.providers._dingtalk_content import BadContent
from channels.providers._dingtalk_errors import ERRORS, SAME_TODAY, TOKEN_CODES
from channels.providers._dingtalk_notice import MAX_BYTES, PROVIDER, resolved, worded
from channels.providers._dingtalk_wire import (
    ENDPOINT,
    address,
    extensions,
    fields,
    read,
    refused,
)
from channels.recalls import taken_back
from channels.requests import post_json
from channels.secret import Secret
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome, Rejected

_DOCUMENTS: Final = "https://open.dingtalk.com/document/orgapp"
_SEND: Final = "topapi/message/corpconversation/asyncsend_v2"
_RESULT: Final = "topapi/message/corpconversation/getsendresult"
_RECALL: Final = "topapi/message/corpconversation/recall"
_GETTOKEN: Final = "gettoken"
_MAX_USERID: Final = 64
_CHINA: Final = timezone(timedelta(hours=8))
_MIDNIGHT_S: Final = 120.0
"""So long before midnight a repeat might already count as the next day's."""


class DingTalkOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an account must say: the application's key and secret, and its AgentId."""

    app_key: str
    app_secret: Secret
    agent_id: int


class _Call(msgspec.Struct):
    agent_id: int
    userid_list: str
    to_all_user: bool
    msg: msgspec.Raw


class _Question(msgspec.Struct):
    agent_id: int
    task_id: int


class _Recall(msgspec.Struct):
    agent_id: int
    msg_task_id: int


class _TokenGiven(msgspec.Struct):
    access_token: str
    expires_in: float


class DingTalkTokens:
    """`gettoken`; asked again it gives the same token, with its time begun anew."""

    def request(self, account: Account, stale: str) -> httpx.Request:
        """Key and secret stand in the query, where the provider wants them."""
        options: DingTalkOptions = account.options
        url = address(account.endpoint, _GETTOKEN)
        secret = quote(options.app_secret.reveal(), safe="")
        asked = with_query(url, f"appkey={quote(options.app_key, safe='')}&appsecret={secret}")
        return httpx.Request("GET", asked, headers=fields(url), extensions=extensions(account))

    def read(self, answer: httpx.Response) -> Token:
        """The token; raises TokenRefused with the provider's code."""
        said = read(answer)
        if said is not None and said.code != "0":
            raise TokenRefused(f"{said.code}: {said.detail}")
        try:
            given = msgspec.json.decode(answer.content, type=_TokenGiven)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            raise TokenRefused(f"http_{answer.status_code}: an answer without a token") from exc
        return Token(given.access_token, given.expires_in)


class DingTalkChannel(BaseChannel):
    """Holds nothing but a clock."""

    provider: ClassVar[str] = PROVIDER
    channel: ClassVar[str] = "dingtalk"
    max_batch: ClassVar[int] = 100
    options: ClassVar[type[msgspec.Struct]] = DingTalkOptions
    endpoint: ClassVar[str] = ENDPOINT
    dedup_window_ms: ClassVar[int] = 23 * HOUR
    recall_window_ms: ClassVar[int] = 24 * HOUR
    tokens: ClassVar[TokenSource | None] = DingTalkTokens()
    counted_by: ClassVar[Sequence[str]] = ("app_key",)
    errors: ClassVar[ErrorTable] = ERRORS
    receiver_limits: ClassVar[Sequence[tuple[int, int]]] = ((500, 86_400),)
    """(count, seconds) per application and member: what is above it is dropped silently."""
    promises: ClassVar[Promises] = Promises(
        title="DingTalk work notice (asyncsend_v2)",
        idempotency="one member gets the same content once a day; a repeat is told as success",
        resolve="the same bytes again on the same day; getsendresult where the task_id is known",
        receipts="getsendresult for 24 hours after the send",
        limits=(
            "100 members a call, 2,048 bytes; 500 notices a member and day, more are dropped "
            "silently, and so is another notification with the same content"
        ),
        recall="within 24 hours, by task_id, from every member of the call",
        source=(
            f"{_DOCUMENTS}/asynchronous-sending-of-enterprise-session-messages",
            f"{_DOCUMENTS}/notification-of-work-withdrawal",
            f"{_DOCUMENTS}/gets-the-result-of-sending-messages-asynchronously-to-the-enterprise",
            f"{_DOCUMENTS}/server-api-error-codes-1",
        ),
    )

    def __init__(self, now: Callable[[], float] = time) -> None:
        self._now = now

    def batch_key(self, delivery: Delivery) -> Hashable:
        """One call says one thing."""
        return worded(delivery)

    def fingerprint(self, call: Call) -> str:
        """Of the content and the day: whom the call names does not matter to the provider's dedup."""
        options: DingTalkOptions = call.account.options
        text = b"%d\0%b\0%b" % (options.agent_id, worded(call.deliveries[0]), self._day())
        return sha256(text).hexdigest()

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """A userid that cannot be one, a content that this provider cannot send."""
        receiver = delivery.receiver
        if "," in receiver or len(receiver) > _MAX_USERID:
            return f"bad_receiver: a userid has no comma and at most {_MAX_USERID} characters"
        try:
            size = len(worded(delivery))
        except BadContent as exc:
            return str(exc)
        except (UnicodeEncodeError, TypeError) as exc:
            return f"bad_content: cannot be written as JSON: {exc}"
        if size > MAX_BYTES:
            return f"too_long: the message has {size:,} bytes; DingTalk takes {MAX_BYTES:,}"
        return ""

    def request(self, call: Call) -> httpx.Request:
        """The POST for all members of the call."""
        options: DingTalkOptions = call.account.options
        users = ",".join(delivery.receiver for delivery in call.deliveries)
        msg = msgspec.Raw(worded(call.deliveries[0]))
        return _post(call.account, _SEND, call.token, _Call(options.agent_id, users, False, msg))

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """One for all: the answer tells no member from another."""
        if isinstance(answer, Failure):
            return for_all(call, of_failure(answer))
        outcome = refused(self.errors, answer)
        if outcome is not None:
            return [_of_repeat(delivery, outcome) for delivery in call.deliveries]
        said = read(answer)
        return for_all(call, Accepted(str(said.task_id) if said and said.task_id else ""))

    def token_refused(self, answer: httpx.Response) -> bool:
        """Not valid, missing or expired."""
        said = read(answer)
        return said is not None and said.code in TOKEN_CODES

    def resolve_task(self, account: Account, attempt: Attempt, task_id: int) -> Dialogue:
        """What became of one member of a task: for those who have its number."""
        options: DingTalkOptions = account.options
        question = _Question(options.agent_id, task_id)
        answer = yield _post(account, _RESULT, attempt.token, question)
        return resolved(answer, attempt.delivery.receiver, str(task_id))

    def recall(self, account: Account, sent: Sent) -> RecallDialogue | None:
        """By the task; without its number there is nothing to name."""
        return self._recall(account, sent) if sent.provider_id.isdigit() else None

    def _recall(self, account: Account, sent: Sent) -> RecallDialogue:
        options: DingTalkOptions = account.options
        wish = _Recall(options.agent_id, int(sent.provider_id))
        answer = yield _post(account, _RECALL, sent.token, wish)
        said = None if isinstance(answer, Failure) else read(answer)
        code, words = (said.code, said.detail) if said else ("", "")
        return taken_back(self.errors, answer, code, words)

    def _day(self) -> bytes:
        now = self._now()
        today, soon = _date(now), _date(now + _MIDNIGHT_S)
        return today if today == soon else b"%b at %d s" % (today, int(now))


def _of_repeat(delivery: Delivery, outcome: AnyOutcome) -> AnyOutcome:
    """That a member has this content already is, after an earlier attempt, proof of that one."""
    if isinstance(outcome, Rejected) and outcome.code in SAME_TODAY and delivery.spent > 1:
        return Accepted()
    return outcome


def _date(epoch_s: float) -> bytes:
    return datetime.fromtimestamp(epoch_s, _CHINA).date().isoformat().encode()


def _post(account: Account, path: str, token: str, body: msgspec.Struct) -> httpx.Request:
    url = address(account.endpoint, path)
    asked = with_query(url, f"access_token={quote(token, safe='')}")
    return post_json(asked, fields(url), msgspec.json.encode(body), extensions(account))


CHANNELS = (DingTalkChannel(),)
