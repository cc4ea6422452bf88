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

A receiver is a userid. `content`: channels/providers/dingtalk/content.py; there are no provider
templates. `msg` is at most 2,048 bytes.

The answer names no single receiver: the provider took a task (`Accepted.queued`). Only getsendresult lists
the members whom the notice did not reach, for 24 hours, by task_id. Recovery asks once for all members of a
task and settles each: SENT only if the provider lists the member as read or unread.

An attempt in doubt has no task_id, so `resolve` cannot ask. But the provider gives one user the same
content only once a day and answers a repeat with success. So the same bytes may be sent again on that day.
The day's borders are not documented: `fingerprint` changes at midnight in China, and shortly before it
every second.

A refusal for one member (`RECEIVER_CODES`: "at least one userid") does not name the member: all deliveries
of the call come back, each in a call of its own.

Sources: https://open.dingtalk.com/document/orgapp/asynchronous-sending-of-enterprise-session-messages,
https://open.dingtalk.com/document/orgapp/gets-the-result-of-sending-messages-asynchronously-to-the-enterprise,
https://open.dingtalk.com/document/orgapp/notification-of-work-withdrawal,
https://open.dingtalk.com/document/orgapp/obtain-orgapp-token
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from typing import ClassVar, Final
from urllib.parse import quote

import httpx
import msgspec

from channels.accounts.reach import wrong_receiver
from channels.bad_content import UNSENDABLE, reason_of
from channels.base import ClockedChannel
from channels.capabilities import Capabilities
from channels.channel import (
    Account,
    Answer,
    Attempt,
    Call,
    Dialogue,
    Failure,
    RecallDialogue,
    SentCall,
    TokenSource,
)
from channels.endpoints import with_query
from channels.http_client.request import extensions_of, fields_of, post_json
from channels.judging.error_table import HOUR, ErrorTable
from channels.judging.outcomes import for_all, of_failure
from channels.judging.recall_outcomes import taken_back
from channels.providers.dingtalk.app_account import DingTalkOptions, DingTalkTokens
from channels.providers.dingtalk.errors import ERRORS, RECEIVER_CODES, SAME_TODAY, TOKEN_CODES
from channels.providers.dingtalk.notice import MAX_BYTES, PROVIDER, Again, resolved, worded
from channels.providers.dingtalk.wire import ENDPOINT, address, read, refused
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome, NotSent, Rejected, Unknown

_DOCUMENTS: Final = "https://open.dingtalk.com/document/orgapp"
_SEND: Final = "topapi/message/corpconversation/asyncsend_v2"
_RESULT: Final = "topapi/message/corpconversation/getsendresult"
_RECALL: Final = "topapi/message/corpconversation/recall"
_MAX_USERID: Final = 64
_CHINA: Final = timezone(timedelta(hours=8))
_CHINA_MS: Final = 8 * HOUR
_DAY_MS: Final = 24 * HOUR
_ALONE_MS: Final = 1_000
_MIDNIGHT_S: Final = 120.0
"""Before midnight: within it a repeat might already count as the next day's."""


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


class DingTalkChannel(ClockedChannel):
    """Stateless but for a clock."""

    provider: ClassVar[str] = PROVIDER
    channel: ClassVar[str] = "dingtalk"
    max_batch: ClassVar[int] = 100
    options: ClassVar[type[msgspec.Struct]] = DingTalkOptions
    endpoint: ClassVar[str] = ENDPOINT
    dedup_window_ms: ClassVar[int] = 23 * HOUR
    result_window_ms: ClassVar[int] = 23 * HOUR
    recall_window_ms: ClassVar[int] = 24 * HOUR
    tokens: ClassVar[TokenSource | None] = DingTalkTokens()
    counted_by: ClassVar[Sequence[str]] = ("app_key",)
    errors: ClassVar[ErrorTable] = ERRORS
    account_limits: ClassVar[Sequence[tuple[int, int]]] = ((5_000, 60),)
    """(members, seconds) that one application reaches; DingTalk drops the others (143103)."""
    receiver_limits: ClassVar[Sequence[tuple[int, int]]] = ((500, 86_400),)
    """(count, seconds) per application and member; DingTalk drops more silently."""
    promises: ClassVar[Capabilities] = Capabilities(
        title="DingTalk work notice (asyncsend_v2)",
        idempotency="one member gets the same content once a day; a repeat is told as success",
        resolve="the same bytes again on the same day",
        receipts="none; SENT only once getsendresult lists the member as reached, which recovery asks",
        limits=(
            "100 members a call, 5,000 a minute, 2,048 bytes; 500 notices a member and day, and "
            "another notification with the same content to one member is kept back"
        ),
        recall="within 24 hours, by task_id, from every member of the call",
        source=(
            f"{_DOCUMENTS}/asynchronous-sending-of-enterprise-session-messages",
            f"{_DOCUMENTS}/notification-of-work-withdrawal",
            f"{_DOCUMENTS}/gets-the-result-of-sending-messages-asynchronously-to-the-enterprise",
            f"{_DOCUMENTS}/server-api-error-codes-1",
        ),
    )

    def batch_key(self, delivery: Delivery) -> Hashable:
        """Joins deliveries of one content. A retry goes alone: one member may have had the call refused."""
        return (worded(delivery), delivery.key) if delivery.spent > 1 else worded(delivery)

    def fingerprint(self, call: Call) -> str:
        """Returns a digest of content and day: the provider's dedup ignores the call's other members."""
        options: DingTalkOptions = call.account.options
        text = b"%d\0%b\0%b" % (options.agent_id, worded(call.deliveries[0]), self._day())
        return sha256(text).hexdigest()

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """Refuses an impossible userid, and a content that this provider cannot send."""
        receiver = delivery.receiver
        if wrong := wrong_receiver(account, self.channel, receiver):
            return wrong
        if "," in receiver or len(receiver) > _MAX_USERID:
            return f"bad_receiver: a userid has no comma and at most {_MAX_USERID} characters"
        try:
            size = len(worded(delivery))
        except UNSENDABLE as exc:
            return reason_of(exc)
        if size > MAX_BYTES:
            return f"too_long: the message has {size:,} bytes; DingTalk takes {MAX_BYTES:,}"
        return ""

    def request(self, call: Call) -> httpx.Request:
        """Returns the POST for all members of the call."""
        options: DingTalkOptions = call.account.options
        users = ",".join(delivery.receiver for delivery in call.deliveries)
        msg = msgspec.Raw(worded(call.deliveries[0]))
        return _post(call.account, _SEND, call.token, _Call(options.agent_id, users, False, msg))

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Returns one outcome for all members: the answer names none of them."""
        if isinstance(answer, Failure):
            return for_all(call, of_failure(answer))
        outcome = refused(self.errors, answer)
        if outcome is not None and len(call.deliveries) > 1:
            outcome = _of_many(outcome)
        if outcome is not None:
            return [_of_repeat(delivery, outcome) for delivery in call.deliveries]
        reply = read(answer)
        if reply is None or not reply.task_id:
            return for_all(call, Unknown("no_task", "the answer names no task"))
        options: DingTalkOptions = call.account.options
        if options.confirm:
            return for_all(call, Accepted(str(reply.task_id), queued=True))
        return [_unconfirmed(delivery, str(reply.task_id)) for delivery in call.deliveries]

    def token_refused(self, answer: httpx.Response) -> bool:
        """Returns whether the token was not valid, missing or expired."""
        reply = read(answer)
        return reply is not None and reply.code in TOKEN_CODES

    def resolve(self, account: Account, attempt: Attempt) -> Dialogue | None:
        """Asks for one member's result of a task. Returns None without the task's number."""
        return self._result(account, attempt) if attempt.task.isdecimal() else None

    def _result(self, account: Account, attempt: Attempt) -> Dialogue:
        options: DingTalkOptions = account.options
        question = _Question(options.agent_id, int(attempt.task))
        answer = yield _post(account, _RESULT, attempt.token, question)
        again = Again(attempt.last_call > attempt.called_at, _left_of_day_ms(attempt.now))
        return resolved(answer, attempt.delivery.receiver, attempt.task, again)

    def recall(self, account: Account, sent: SentCall) -> RecallDialogue | None:
        """Recalls by task. Returns None without the task's number."""
        return self._recall(account, sent) if sent.provider_id.isdigit() else None

    def _recall(self, account: Account, sent: SentCall) -> RecallDialogue:
        options: DingTalkOptions = account.options
        wish = _Recall(options.agent_id, int(sent.provider_id))
        answer = yield _post(account, _RECALL, sent.token, wish)
        reply = None if isinstance(answer, Failure) else read(answer)
        code, words = (reply.code, reply.detail) if reply else ("", "")
        return taken_back(self.errors, answer, code, words)

    def _day(self) -> bytes:
        now = self._now()
        today, soon = _date(now), _date(now + _MIDNIGHT_S)
        return today if today == soon else b"%b at %d s" % (today, int(now))


def _of_many(outcome: AnyOutcome) -> AnyOutcome:
    """Turns a refusal for one unnamed member of several into NotSent: nothing was sent to anybody."""
    if isinstance(outcome, Rejected) and outcome.code in RECEIVER_CODES:
        reason = "DingTalk refused the call for one of its members and did not say which"
        return NotSent(outcome.code, reason, _ALONE_MS, joint=True)
    return outcome


def _of_repeat(delivery: Delivery, outcome: AnyOutcome) -> AnyOutcome:
    """Turns "had this content today" after an earlier attempt into Accepted: it proves that attempt."""
    if isinstance(outcome, Rejected) and outcome.code in SAME_TODAY and delivery.spent > 1:
        return Accepted()
    return outcome


def _unconfirmed(delivery: Delivery, task: str) -> Accepted:
    """Returns the acceptance of a task whose result nobody reads. After an earlier attempt it has no name:
    if DingTalk dropped the repeat, a recall by its task would take nothing back."""
    return Accepted(task if delivery.spent <= 1 else "")


def _left_of_day_ms(now_ms: int) -> int:
    """Returns the milliseconds until the next day begins in China."""
    return _DAY_MS - (now_ms + _CHINA_MS) % _DAY_MS


def _date(epoch_s: float) -> bytes:
    return datetime.fromtimestamp(epoch_s, _CHINA).date().isoformat().encode()


def _post(account: Account, path: str, token: str, body: msgspec.Struct) -> httpx.Request:
    url = address(account.endpoint, path)
    asked = with_query(url, f"access_token={quote(token, safe='')}")
    return post_json(asked, fields_of(url), msgspec.json.encode(body), extensions_of(account))


CHANNELS = (DingTalkChannel(),)
