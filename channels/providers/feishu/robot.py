r"""Feishu's (and Lark's) custom robot: one message into the robot's group.

    POST <endpoint>/open-apis/bot/v2/hook/<hook>
    {"timestamp": "1690000000", "sign": "…", "msg_type": "text", "content": {"text": "…"}}
    {"timestamp": "1690000000", "sign": "…", "msg_type": "interactive", "card": {…}}
    {"code": 0, "msg": "success", "data": {}}                       older: {"StatusCode": 0, …}

    sign = base64(HMAC-SHA256(key="<timestamp>\n<secret>", message=""))              seconds, ±1 hour

The HMAC key holds timestamp and secret, the message is empty: the reverse of DingTalk's. The hook alone
decides which group gets it. An account is one robot and names its group: the receiver is `group:` and that
name, and a notification to anybody else is refused. If the name is the group's chat_id, `oc_…` alone is
enough, as for an application. `content`: channels/providers/feishu/content.py.
There is no idempotency, no query and no message id: the call's key is the provider id. 100 messages a
minute, 5 a second, 20 KB a request; on the hour and half past, 11232 may come below that.

Code 9499 means an unreadable body or too many requests; only its text separates them.

Source: https://open.feishu.cn/document/ukTMukTMukTM/ucTM5YjL3ETO24yNxkjN
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence
from typing import Any, ClassVar, Final
from urllib.parse import quote

import httpx
import msgspec

from channels.accounts.reach import ONE_GROUP, GroupName, Reach, wrong_receiver
from channels.bad_content import UNSENDABLE, reason_of
from channels.base import ClockedChannel
from channels.capabilities import Capabilities
from channels.channel import Account, Answer, Call, Failure
from channels.endpoints import below
from channels.http_client.request import extensions_of, fields_of, post_json
from channels.judging import error_table as codes
from channels.judging.error_table import HOUR, MINUTE, ErrorTable, RowSource
from channels.judging.outcomes import for_all, of_failure
from channels.providers.feishu.content import Chat, FeishuWorded, read
from channels.providers.feishu.wire import COMMON, ENDPOINT, RATE_LIMITED, address, refused
from channels.secret import Secret
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome, Limit

_HOOK: Final = "open-apis/bot/v2/hook"
_KEYS: Final = frozenset({"text", "post", "card", "image", "share_chat"})
_CARD: Final = "interactive"
_MAX_BYTES: Final = 20 * 1_024
_BAD_REQUEST, _TOO_MANY = "9499", "9499.too_many"

_ROBOT: Final = RowSource(
    "https://open.feishu.cn/document/ukTMukTMukTM/ucTM5YjL3ETO24yNxkjN",
    "2026-11-22",
    copy="a summary of the page in a public repository, made on 2026-09-11",
)
_SHOWN: Final = "public clients show the answer; no page of Feishu's that was read has it"

_ERRORS: Final = ErrorTable(
    codes.documented(
        _ROBOT,
        codes.rejected(_BAD_REQUEST, "the body cannot be read, or is too large"),
        codes.shut_out("19001", "no such hook", HOUR),
        codes.shut_out("19021", "sign or time is refused", MINUTE),
        codes.shut_out("19022", "our address is not on the list", MINUTE),
        codes.rejected("19024", "none of the robot's keywords is in the message"),
    ),
    codes.unproved(
        _SHOWN,
        codes.paced(_TOO_MANY, Limit.ACCOUNT, "9499: too many requests", MINUTE),
        codes.rejected("19002", "a field is missing"),
    ),
    codes.documented(
        COMMON,
        codes.paced(
            "11232", Limit.ACCOUNT, "the robot, or the provider, has too much to do", MINUTE
        ),
        codes.paced("11233", Limit.ACCOUNT, "more messages to the group than allowed", MINUTE),
        codes.unknown("2200", "an internal error"),
        codes.paced(RATE_LIMITED, Limit.ACCOUNT, "more calls than allowed", MINUTE),
    ),
)


class FeishuRobotOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of an account: the last part of the robot's address, the signing secret, the group."""

    hook: Secret
    secret: Secret | None = None
    group: GroupName
    """The name of the group that it is in: its one receiver is `group:` and this name."""


class _Body(msgspec.Struct, omit_defaults=True):
    timestamp: str = ""
    sign: str = ""
    msg_type: str | msgspec.UnsetType = msgspec.UNSET
    content: Any = None
    card: Any = None


class FeishuRobotChannel(ClockedChannel):
    """Stateless but for a clock."""

    provider: ClassVar[str] = "feishu_robot"
    channel: ClassVar[str] = "feishu"
    knows_templates: ClassVar[bool] = True
    options: ClassVar[type[msgspec.Struct]] = FeishuRobotOptions
    endpoint: ClassVar[str] = ENDPOINT
    reach: ClassVar[Reach] = ONE_GROUP
    counted_by: ClassVar[Sequence[str]] = ("hook",)
    errors: ClassVar[ErrorTable] = _ERRORS
    silencing_limits: ClassVar[Sequence[tuple[int, int]]] = ((5, 1), (100, 60))
    """(count, seconds) per robot."""
    promises: ClassVar[Capabilities] = Capabilities(
        title="Feishu / Lark custom robot",
        limits="one group an account; 100 messages a minute, 5 a second; 20 KB",
        source=("https://open.feishu.cn/document/ukTMukTMukTM/ucTM5YjL3ETO24yNxkjN",),
    )

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """Refuses any receiver but the robot's group, and a content that it cannot send."""
        options: FeishuRobotOptions = account.options
        if wrong := wrong_receiver(account, self.channel, delivery.receiver):
            return wrong
        try:
            size = len(self._body(options, delivery))
        except UNSENDABLE as exc:
            return reason_of(exc)
        if size > _MAX_BYTES:
            return f"too_long: the message has {size:,} bytes; Feishu takes {_MAX_BYTES:,}"
        return ""

    def request(self, call: Call) -> httpx.Request:
        """Returns the POST of the call's one delivery, signed with the current time."""
        (delivery,) = call.deliveries
        options: FeishuRobotOptions = call.account.options
        base = address(call.account.endpoint, _HOOK)
        url = below(base, quote(options.hook.reveal(), safe=""))
        body = self._body(options, delivery)
        return post_json(url, fields_of(url), body, extensions_of(call.account))

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Returns the outcome of the call's one delivery."""
        if isinstance(answer, Failure):
            return for_all(call, of_failure(answer))
        outcome = refused(self.errors, answer)
        return for_all(call, Accepted(call.key) if outcome is None else _told_apart(outcome))

    def _body(self, options: FeishuRobotOptions, delivery: Delivery) -> bytes:
        message = read(delivery, self.provider, _KEYS)
        body = _Body(msg_type=message.msg_type)
        if options.secret is not None:
            timestamp = str(int(self._now()))
            body.timestamp, body.sign = timestamp, _sign(timestamp, options.secret)
        if message.msg_type == _CARD:
            body.card = message.body
        else:
            body.content = _content(message)
        return msgspec.json.encode(body)


def _content(message: FeishuWorded) -> Any:
    """Returns the content of a message; two types differ from the application's form."""
    if message.msg_type == "post":
        return {"post": message.body}
    if isinstance(message.body, Chat):
        return {"share_chat_id": message.body.chat_id}
    return message.body


def _sign(timestamp: str, secret: Secret) -> str:
    key = f"{timestamp}\n{secret.reveal()}".encode()
    return base64.b64encode(hmac.digest(key, b"", "sha256")).decode()


def _told_apart(outcome: AnyOutcome) -> AnyOutcome:
    if isinstance(outcome, Accepted) or outcome.code != _BAD_REQUEST:
        return outcome
    many = "too many" in outcome.detail.lower()
    return _ERRORS.outcome(_TOO_MANY, outcome.detail) if many else outcome


CHANNELS = (FeishuRobotChannel(),)
