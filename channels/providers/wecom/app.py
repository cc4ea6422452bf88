"""WeCom (企业微信): application messages, to up to 1,000 members a call.

    POST /cgi-bin/message/send?access_token=TOKEN
    {"touser": "a|b", "msgtype", "agentid", MSGTYPE: {…}, "enable_duplicate_check": 1,
     "duplicate_check_interval": 1800, "client_call": CALL KEY}      (the last three: `duplicate_check`)
    {"errcode": 0, "errmsg": "ok", "msgid", "invaliduser": "c|d", "unlicenseduser": "e"}

    POST /cgi-bin/message/recall?access_token=TOKEN     {"msgid"}, within 24 hours, for all members
    {"errcode": 0, "errmsg": "ok"}                      (in WeCom; not what its WeChat plug-in shows)

Duplicates, only with `duplicate_check = true` in the account: "messages of the same content (the request's
JSON) are not received again" within the interval. So the JSON is deterministic, with members in
alphabetical order, and holds the call's key. A repeat of the call has the same JSON. Another call with the
same text to the same member has not; otherwise WeCom would drop it silently. The key's field `client_call`
is not WeCom's own, and no document says that such a field counts. If it does not, WeCom drops an equal text
to one member within 30 minutes and answers success. So the check is off until a live test has shown that
the field counts (docs/decisions/094). A template card without a `task_id`, which WeCom does read, gets the
call's key there too. The ledger keeps the digest of the whole body (`fingerprint`).

errcode 0 is partial: members in `invaliduser` (unknown, or out of the application's sight) and
`unlicenseduser` got nothing; userids are in lower case. WeCom silently drops messages above 30 a minute or
1,000 an hour to a member: `receiver_limits`. A receiver is a userid; `@all` is not one. Contents:
channels/providers/wecom/content.py, and beside the kind `safe` 0 or 1.

Sources: https://developer.work.weixin.qq.com/document/path/90236 (send), …/91039 (gettoken),
…/90313 (error codes), …/90312 (rate limits), …/94867 (recall)
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Final

import httpx
import msgspec

from channels.accounts.reach import wrong_receiver
from channels.bad_content import BadContent
from channels.base import BaseChannel
from channels.capabilities import Capabilities
from channels.channel import (
    Account,
    Answer,
    Call,
    Failure,
    RecallDialogue,
    SentCall,
    Token,
    TokenSource,
)
from channels.judging.error_table import HOUR, MINUTE, ErrorTable
from channels.judging.outcomes import for_all
from channels.judging.recall_outcomes import taken_back
from channels.providers._common.wechat import (
    PreparedAccounts,
    WechatPrepared,
    code_of,
    decoded,
    failed,
    given_token,
    message_id,
    words_of,
)
from channels.providers.wecom.content import (
    Message,
    WecomImage,
    WecomText,
    content_of,
    message_of,
    refusal_of,
)
from channels.providers.wecom.errors import (
    INVALID,
    RECEIVER_CODES,
    ROWS,
    SAME_MEMBER,
    TOKEN_CODES,
    UNLICENSED,
)
from channels.secret import Secret
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome, NotSent, Rejected, Unknown

_PROVIDER: Final = "wecom"
_SEND: Final = "cgi-bin/message/send"
_RECALL: Final = "cgi-bin/message/recall"
_TOKEN: Final = "cgi-bin/gettoken"  # noqa: S105 (a path)
_DOCUMENTS: Final = "https://developer.work.weixin.qq.com/document/path"
_INTERVAL_S: Final = 1_800
"""WeCom's default. It bounds wrong drops, should WeCom compare less than documented."""
_DEDUP_MS: Final = 28 * MINUTE
"""The interval, less the time that the repeat needs to arrive."""
_LIMITS: Final = {"text": 2_048, "markdown": 2_048}
_USERID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
_AGAIN_MS: Final = 1_000
_NAMING: Final = frozenset({"0", "81013"})
"""Codes whose answers name the members who got nothing."""


class WecomOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of an account."""

    corpid: str
    corpsecret: Secret
    agentid: Annotated[int, msgspec.Meta(ge=1)]
    duplicate_check: bool = False
    """WeCom drops repeats of a call, and nothing else: to be switched on after the live test that
    docs/channels.md names. Off: what is in doubt is for the lane's policy to decide."""


class _Named(msgspec.Struct):
    """The members whom it did not reach; a list without any is left out, empty or null."""

    invaliduser: str | None = None
    unlicenseduser: str | None = None


_encoder = msgspec.json.Encoder(order="sorted")


class CorpToken:
    """Tokens of the application. WeCom repeats a valid token, so no process voids another's.

    Source: https://developer.work.weixin.qq.com/document/path/91039
    """

    def request(self, account: Account, stale: str) -> httpx.Request:
        """See `TokenSource.request`. WeCom wants the secret in the URL."""
        options: WecomOptions = account.options
        query = {"corpid": options.corpid, "corpsecret": options.corpsecret.reveal()}
        return WechatPrepared(account, _TOKEN).get(query)

    def read(self, answer: httpx.Response) -> Token:
        return given_token(answer)


class WecomChannel(BaseChannel):
    """Thread-safe: its only state is a `PreparedAccounts`."""

    provider: ClassVar[str] = _PROVIDER
    channel: ClassVar[str] = "wecom"
    max_batch: ClassVar[int] = 1_000
    options: ClassVar[type[msgspec.Struct]] = WecomOptions
    endpoint: ClassVar[str] = "https://qyapi.weixin.qq.com"
    dedup_window_ms: ClassVar[int] = _DEDUP_MS
    recall_window_ms: ClassVar[int] = 24 * HOUR
    tokens: ClassVar[TokenSource | None] = CorpToken()
    company: ClassVar[str] = "corpid"
    counted_by: ClassVar[Sequence[str]] = ("corpid", "agentid")
    errors: ClassVar[ErrorTable] = ErrorTable(ROWS)
    receiver_limits: ClassVar[Sequence[tuple[int, int]]] = ((30, 60), (1_000, 3_600))
    """(messages, seconds) of one application to one member; WeCom drops more silently."""
    promises: ClassVar[Capabilities] = Capabilities(
        title="WeCom, application messages (企业微信应用消息)",
        idempotency="with `duplicate_check` in the account: the same JSON is received once in 30 minutes",
        resolve="with `duplicate_check`: repeat with the same JSON within 28 minutes; else none",
        needs="`duplicate_check = true`, after one live test: with it on, send one text to a member twice "
        "within a minute (`hongyan accounts test`); if only one arrives, leave it off",
        limits="1,000 members a call; a member 30 a minute and 1,000 an hour, more are dropped silently",
        recall="within 24 hours, by msgid, from every member of the call; not in the WeChat plug-in",
        source=tuple(f"{_DOCUMENTS}/{page}" for page in (90236, 91039, 90313, 90312, 94867)),
    )

    def __init__(self) -> None:
        self._accounts = PreparedAccounts(_SEND)

    def batch_key(self, delivery: Delivery) -> Hashable:
        """Joins deliveries of one content. A retry goes alone: one member may have had the call refused."""
        content = _encoder.encode(delivery.content_for(_PROVIDER))
        return (content, delivery.key) if delivery.spent > 1 else content

    def refusal(self, account: Account, delivery: Delivery) -> str:
        if wrong := wrong_receiver(account, self.channel, delivery.receiver):
            return wrong
        if not _USERID.fullmatch(delivery.receiver):
            return "bad_userid: a userid is 1 to 64 letters, digits, _, -, . and @"
        try:
            message, safe = _parts(delivery)
        except BadContent as exc:
            return str(exc)
        if safe not in (0, 1):
            return "bad_content: safe is 0 or 1"
        if message.kind == "markdown_v2":
            return "bad_content: only a robot sends markdown_v2"
        if isinstance(message.body, WecomImage) and message.body.base64:
            return "bad_content: an application sends an image by its media_id"
        if isinstance(message.body, WecomText) and message.body.mentions:
            return "bad_content: only a robot's text mentions members"
        return refusal_of(message, _LIMITS)

    def request(self, call: Call) -> httpx.Request:
        """Returns the POST of one message to all members of the call."""
        return self._accounts.of(call.account).post({"access_token": call.token}, _body(call))

    def dedup_window(self, account: Account) -> int:
        """Returns the window in milliseconds; 0 without the check."""
        options: WecomOptions = account.options
        return self.dedup_window_ms if options.duplicate_check else 0

    def fingerprint(self, call: Call) -> str:
        """Returns the digest of the body, which WeCom compares; empty without the check."""
        options: WecomOptions = call.account.options
        return sha256(_body(call)).hexdigest() if options.duplicate_check else ""

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Returns outcomes per member; of two deliveries to one member only the first was sent."""
        whole = failed(call, answer, self.errors) or for_all(
            call, Accepted(message_id(call, answer))
        )
        if (
            isinstance(answer, httpx.Response)
            and (code := code_of(answer)) in _NAMING | RECEIVER_CODES
        ):
            if code in _NAMING:
                whole = self._but_for_those_named(call, answer, whole)
            elif len(_members(call)) > 1:
                reason = "WeCom refused the call for one of its members and did not say which"
                whole = for_all(call, NotSent(code, reason, _AGAIN_MS, joint=True))
        return _first_of_each_member(call, whole)

    def token_refused(self, answer: httpx.Response) -> bool:
        """Returns whether the token was refused; WeCom checks it before it sends."""
        return code_of(answer) in TOKEN_CODES

    def recall(self, account: Account, sent: SentCall) -> RecallDialogue | None:
        """Recalls by msgid. Returns None without one."""
        return self._recall(account, sent) if sent.provider_id else None

    def _recall(self, account: Account, sent: SentCall) -> RecallDialogue:
        body = msgspec.json.encode({"msgid": sent.provider_id})
        answer = yield WechatPrepared(account, _RECALL).post({"access_token": sent.token}, body)
        if isinstance(answer, Failure):
            return taken_back(self.errors, answer, "", "")
        return taken_back(self.errors, answer, code_of(answer), words_of(answer))

    def _but_for_those_named(
        self, call: Call, answer: httpx.Response, others: Sequence[AnyOutcome]
    ) -> list[AnyOutcome]:
        named = decoded(answer, _Named)
        if named is None and all(isinstance(other, Rejected) for other in others):
            return list(others)
        if named is None:
            reason = "the answer names members in a form that is not documented"
            return for_all(call, Unknown("malformed", reason))
        codes = dict.fromkeys(_names(named.unlicenseduser), UNLICENSED)
        codes |= dict.fromkeys(_names(named.invaliduser), INVALID)
        members = (delivery.receiver.lower() for delivery in call.deliveries)
        return [
            self.errors.outcome(codes[member]) if member in codes else other
            for member, other in zip(members, others, strict=True)
        ]


def _body(call: Call) -> bytes:
    """Returns the body; the same call has the same bytes in any order of its deliveries."""
    message, safe = _parts(call.deliveries[0])
    body = message.body
    if message.kind == "template_card":
        body = {"task_id": call.key, **body}
    options: WecomOptions = call.account.options
    fields: dict[str, Any] = {
        "agentid": options.agentid,
        "msgtype": message.kind,
        "safe": safe,
        "touser": "|".join(sorted(_members(call))),
        message.kind: body,
    }
    if options.duplicate_check:
        fields |= {
            "client_call": call.key,
            "duplicate_check_interval": _INTERVAL_S,
            "enable_duplicate_check": 1,
        }
    return _encoder.encode(fields)


def _parts(delivery: Delivery) -> tuple[Message, Any]:
    content = content_of(delivery, _PROVIDER)
    if not isinstance(content, dict) or "safe" not in content:
        return message_of(content), 0
    rest = {name: value for name, value in content.items() if name != "safe"}
    return message_of(rest), content["safe"]


def _members(call: Call) -> set[str]:
    """Returns the call's userids; of those that differ only in case, the first."""
    first = {delivery.receiver.lower(): delivery.receiver for delivery in call.deliveries[::-1]}
    return set(first.values())


def _first_of_each_member(call: Call, outcomes: Sequence[AnyOutcome]) -> list[AnyOutcome]:
    seen: set[str] = set()
    result = []
    for delivery, outcome in zip(call.deliveries, outcomes, strict=True):
        member = delivery.receiver.lower()
        again = member in seen and not isinstance(outcome, Rejected)
        result.append(
            NotSent(SAME_MEMBER, "the call had one for this member", _AGAIN_MS, joint=True)
            if again
            else outcome
        )
        seen.add(member)
    return result


def _names(joined: str | None) -> frozenset[str]:
    names = (name.strip().lower() for name in (joined or "").split("|"))
    return frozenset(name for name in names if name)


CHANNELS = (WecomChannel(),)
