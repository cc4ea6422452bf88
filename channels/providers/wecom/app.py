"""WeCom (企业微信): application messages, to up to 1,000 members a call.

    POST /cgi-bin/message/send?access_token=TOKEN
    {"touser": "a|b", "msgtype", "agentid", MSGTYPE: {…}, "enable_duplicate_check": 1,
     "duplicate_check_interval": 1800, "client_call": CALL KEY}      (the last three: `duplicate_check`)
    {"errcode": 0, "errmsg": "ok", "msgid", "invaliduser": "c|d", "unlicenseduser": "e"}

    POST /cgi-bin/message/recall?access_token=TOKEN     {"msgid"}, within 24 hours, for all members
    {"errcode": 0, "errmsg": "ok"}                      (in WeCom; not what its WeChat plug-in shows)

Duplicates, only with `duplicate_check = true` in the account: "messages of the same content (the request's
JSON) are not received again" within the interval. So the JSON is written deterministically, members in
alphabetical order, and the call's key stands in it: a repeat of the call has the same JSON, two calls with
one text to one member do not, or the second would be dropped without a word. Its own member `client_call`
is none that WeCom reads, and no document says that such a member counts: should WeCom compare the fields it
knows, an equal text to one member within 30 minutes is dropped and answered as success. So the check is off
until a live test has shown that it counts (docs/decisions/094). A template card has a place that WeCom does
read, `task_id`; the call's key stands there too where the card has none. The ledger keeps the digest of the
whole body (`fingerprint`).

errcode 0 is partial: members in `invaliduser` (not there, or out of the application's sight) and
`unlicenseduser` got nothing, userids in lower case. An application that sends a member more than 30
messages a minute or 1,000 an hour is not told that WeCom drops the rest: `receiver_limits`.
A receiver is a userid; `@all` is not one. Contents: `_wecom_content`, and beside the kind `safe` 0 or 1.

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
"""Their default; what is dropped wrongly, should they compare less than they say, is bounded by it."""
_DEDUP_MS: Final = 28 * MINUTE
"""The interval, less the time that the repeat needs to arrive."""
_LIMITS: Final = {"text": 2_048, "markdown": 2_048}
_USERID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
_TOGETHER: Final = 2
"""Attempts that share a call: from the third on a delivery goes alone, so that one member whom WeCom
refuses with the whole call cannot hold up the others for ever."""
_AGAIN_MS: Final = 1_000
_NAMING: Final = frozenset({"0", "81013"})
"""Answers that name the members who got nothing."""


class WecomOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an account may say."""

    corpid: str
    corpsecret: Secret
    agentid: Annotated[int, msgspec.Meta(ge=1)]
    duplicate_check: bool = False
    """WeCom drops repeats of a call, and nothing else: to be switched on after the live test that
    docs/channels.md names. Off: what is in doubt is for the lane's policy to decide."""


class _Named(msgspec.Struct):
    """Whom it did not reach. Each is left out, empty or null where it names nobody."""

    invaliduser: str | None = None
    unlicenseduser: str | None = None


_encoder = msgspec.json.Encoder(order="sorted")


class CorpToken:
    """Asked again while its token is good, WeCom gives the same one: nobody voids anybody's.

    Source: https://developer.work.weixin.qq.com/document/path/91039
    """

    def request(self, account: Account, stale: str) -> httpx.Request:
        """See `TokenSource.request`. The secret stands in the URL, where WeCom wants it."""
        options: WecomOptions = account.options
        query = {"corpid": options.corpid, "corpsecret": options.corpsecret.reveal()}
        return WechatPrepared(account, _TOKEN).get(query)

    def read(self, answer: httpx.Response) -> Token:
        """See `TokenSource.read`."""
        return given_token(answer)


class WecomChannel(BaseChannel):
    """Safe from many threads."""

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
    """Messages to one member of one application, and in how many seconds: more are dropped silently."""
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
        """The same content joins, whoever it is for."""
        content = _encoder.encode(delivery.content_for(_PROVIDER))
        return content if delivery.spent <= _TOGETHER else (content, delivery.key)

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """See `Channel.refusal`."""
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
        """One message to every member of the call."""
        return self._accounts.of(call.account).post({"access_token": call.token}, _body(call))

    def dedup_window(self, account: Account) -> int:
        """None without the check."""
        options: WecomOptions = account.options
        return self.dedup_window_ms if options.duplicate_check else 0

    def fingerprint(self, call: Call) -> str:
        """Of the body, which is what they compare; empty without the check."""
        options: WecomOptions = call.account.options
        return sha256(_body(call)).hexdigest() if options.duplicate_check else ""

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Per member; a member that stands twice in the call is served once, and the second not yet."""
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
                told = "WeCom refused the call for one of its members and did not say which"
                whole = for_all(call, NotSent(code, told, _AGAIN_MS))
        return _first_of_each_member(call, whole)

    def token_refused(self, answer: httpx.Response) -> bool:
        """Nothing was sent: the token was looked at first."""
        return code_of(answer) in TOKEN_CODES

    def recall(self, account: Account, sent: SentCall) -> RecallDialogue | None:
        """By the msgid."""
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
            told = "the answer names members in a form that is not documented"
            return for_all(call, Unknown("malformed", told))
        codes = dict.fromkeys(_names(named.unlicenseduser), UNLICENSED)
        codes |= dict.fromkeys(_names(named.invaliduser), INVALID)
        members = (delivery.receiver.lower() for delivery in call.deliveries)
        return [
            self.errors.outcome(codes[member]) if member in codes else other
            for member, other in zip(members, others, strict=True)
        ]


def _body(call: Call) -> bytes:
    """The same bytes for the same call, in whatever order its deliveries come."""
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
    """Userids count without their case: of those that differ in it alone, the first is written."""
    first = {delivery.receiver.lower(): delivery.receiver for delivery in call.deliveries[::-1]}
    return set(first.values())


def _first_of_each_member(call: Call, outcomes: Sequence[AnyOutcome]) -> list[AnyOutcome]:
    seen: set[str] = set()
    result = []
    for delivery, outcome in zip(call.deliveries, outcomes, strict=True):
        member = delivery.receiver.lower()
        again = member in seen and not isinstance(outcome, Rejected)
        result.append(
            NotSent(SAME_MEMBER, "the call had one for this member", _AGAIN_MS)
            if again
            else outcome
        )
        seen.add(member)
    return result


def _names(joined: str | None) -> frozenset[str]:
    names = (name.strip().lower() for name in (joined or "").split("|"))
    return frozenset(name for name in names if name)


CHANNELS = (WecomChannel(),)
