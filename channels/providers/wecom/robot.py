"""WeCom group robot (企业微信群机器人): messages to the robot's group.

    POST /cgi-bin/webhook/send?key=KEY      {"msgtype": "text", "text": {"content": "…"}}
    {"errcode": 0, "errmsg": "ok"}

The key selects the group and is the account's secret. An account names its group: the receiver is `group:`
and that name, which is not sent. A notification to anybody else is refused. There is no client id, message
id or query: an attempt in doubt stays in doubt. Contents: channels/providers/wecom/content.py; markdown may
have 4,096 bytes here, and a card needs no task_id.

Sources: https://developer.work.weixin.qq.com/document/path/91770, error codes …/90313
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import httpx
import msgspec

from channels.accounts.reach import ONE_GROUP, GroupName, Reach, wrong_receiver
from channels.bad_content import BadContent
from channels.base import BaseChannel
from channels.capabilities import Capabilities
from channels.channel import Account, Answer, Call
from channels.judging import error_table as codes
from channels.judging.error_table import MINUTE, ErrorTable, RowSource
from channels.judging.outcomes import for_all
from channels.providers._common.wechat import PreparedAccounts, failed
from channels.providers.wecom.content import WecomImage, content_of, message_of, refusal_of
from channels.providers.wecom.errors import BUSY, CODES, MESSAGE_ROWS
from channels.secret import Secret
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome, Limit

_SEND: Final = "cgi-bin/webhook/send"
_DOCUMENTS: Final = "https://developer.work.weixin.qq.com/document/path"
_LIMITS: Final = {"text": 2_048, "markdown": 4_096, "markdown_v2": 4_096}
_KINDS: Final = frozenset(
    {"text", "markdown", "markdown_v2", "news", "image", "voice", "file", "template_card"}
)


_SEEN: Final = RowSource("https://github.com/wes-lin/Cloud189Checkin/issues/175", "2026-11-22")
_LISTED: Final = "no page of WeCom's that was read has it, and no report of it was found"


class RobotOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of an account: the key at the end of the webhook's address, and the group."""

    key: Secret
    group: GroupName
    """The name of the group that it is in: its one receiver is `group:` and this name."""


_encoder = msgspec.json.Encoder(order="deterministic")


class WecomRobotChannel(BaseChannel):
    """Thread-safe: its only state is a `PreparedAccounts`."""

    provider: ClassVar[str] = "wecom_robot"
    channel: ClassVar[str] = "wecom"
    options: ClassVar[type[msgspec.Struct]] = RobotOptions
    endpoint: ClassVar[str] = "https://qyapi.weixin.qq.com"
    reach: ClassVar[Reach] = ONE_GROUP
    silencing_limits: ClassVar[Sequence[tuple[int, int]]] = ((20, 60),)
    """(messages, seconds) of one robot."""
    counted_by: ClassVar[Sequence[str]] = ("key",)
    errors: ClassVar[ErrorTable] = ErrorTable(
        (BUSY,),
        MESSAGE_ROWS,
        codes.documented(
            CODES,
            codes.paced("45009", Limit.ACCOUNT, "more than 20 messages in a minute", MINUTE),
            codes.paced("45033", Limit.ACCOUNT, "too many calls at the same moment", 1_000),
        ),
        codes.documented(
            _SEEN, codes.shut_out("93000", "the key is wrong or the robot gone", 10 * MINUTE)
        ),
        codes.unproved(
            _LISTED,
            codes.shut_out("93004", "the robot is switched off", 10 * MINUTE),
            codes.account_fault("93008", "the robot is not in the group", 10 * MINUTE),
        ),
    )
    promises: ClassVar[Capabilities] = Capabilities(
        title="WeCom group robot (企业微信群机器人)",
        limits="one group a robot, 20 messages a minute",
        source=(f"{_DOCUMENTS}/91770", f"{_DOCUMENTS}/90313"),
    )

    def __init__(self) -> None:
        self._accounts = PreparedAccounts(_SEND)

    def refusal(self, account: Account, delivery: Delivery) -> str:
        if wrong := wrong_receiver(account, self.channel, delivery.receiver):
            return wrong
        try:
            message = message_of(content_of(delivery, self.provider))
        except BadContent as exc:
            return str(exc)
        if message.kind not in _KINDS:
            return f"bad_content: a robot sends no {message.kind}"
        if isinstance(message.body, WecomImage) and message.body.media_id:
            return "bad_content: a robot sends an image by base64"
        return refusal_of(message, _LIMITS)

    def request(self, call: Call) -> httpx.Request:
        """Returns the POST of the call's one delivery."""
        (delivery,) = call.deliveries
        message = message_of(content_of(delivery, self.provider))
        body = {"msgtype": message.kind, message.kind: message.body}
        options: RobotOptions = call.account.options
        return self._accounts.of(call.account).post(
            {"key": options.key.reveal()}, _encoder.encode(body)
        )

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Returns the outcome of the call's one delivery; WeCom gives it no id."""
        return failed(call, answer, self.errors) or for_all(call, Accepted(call.key))


CHANNELS = (WecomRobotChannel(),)
