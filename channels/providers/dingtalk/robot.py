r"""DingTalk's group robot: one message into the robot's group.

    POST <endpoint>/robot/send?access_token=…&timestamp=1690000000000&sign=…
    {"msgtype": "text", "text": {"content": "…"}, "at": {"atMobiles": ["138…"], "isAtAll": false}}
    {"errcode": 0, "errmsg": "ok"}

    sign = urlquote(base64(HMAC-SHA256(key=secret, message="<timestamp>\n<secret>")))    ms, ±1 hour

The access_token alone decides which group gets it. An account is one robot and names its group: the
receiver is `group:` and that name, and a notification to anybody else is refused. `content`:
channels/providers/dingtalk/content.py. Over 20 messages in a minute the robot is silenced for ten.
There is no idempotency, no query and no message id: the call's key is the provider id.

`errcode` 310000 has several meanings, and only its text separates them. A missing keyword is the message's
fault, a refused sign or address the account's. The text was English up to 2022 ("keywords not in content").
It is Chinese since ("关键词不匹配", seen in srcrs/BilibiliTask#53, RayWangQvQ/BiliBiliToolPro#271 and
veops/ops-tools#20, read 2026-11-22). The gateway's throttle answers {"status": 1111, "wait": 5,
"punish": "deny"}, with an errcode or without.

Sources: https://open.dingtalk.com/document/orgapp/custom-robots-send-group-messages,
https://open.dingtalk.com/document/robots/customize-robot-security-settings
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final
from urllib.parse import quote, quote_plus

import httpx
import msgspec

from channels.accounts.reach import ONE_GROUP, GroupName, Reach, wrong_receiver
from channels.bad_content import UNSENDABLE, reason_of
from channels.base import ClockedChannel
from channels.capabilities import Capabilities
from channels.channel import Account, Answer, Call, Failure
from channels.endpoints import with_query
from channels.http_client.request import extensions_of, fields_of, post_json
from channels.judging.error_table import ErrorTable
from channels.judging.foreign_json import UNREADABLE
from channels.judging.outcomes import for_all, of_failure
from channels.providers.dingtalk.content import ActionCard, At, DingTalkContent, mobile, read
from channels.providers.dingtalk.robot_errors import ERRORS, KEYWORDS, SECURITY, THROTTLED
from channels.providers.dingtalk.wire import ENDPOINT, address, refused
from channels.secret import Secret
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome

_PROVIDER: Final = "dingtalk_robot"
_SEND: Final = "robot/send"
_KEYS: Final = frozenset({"text", "markdown", "link", "action_card", "feed_card", "at"})
_MAX_BYTES: Final = 20_000
_OF_KEYWORDS: Final = ("keyword", "关键词")
_WIRE_NAMES: Final = {"action_card": "actionCard", "feed_card": "feedCard"}


class DingTalkRobotOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of an account: the `access_token` of the robot's address, the signing secret, a group."""

    access_token: Secret
    secret: Secret | None = None
    group: GroupName
    """The name of the group that it is in: its one receiver is `group:` and this name."""


class _Throttle(msgspec.Struct):
    """The answer of the gateway's throttle."""

    status: int
    wait: Annotated[int, msgspec.Meta(ge=0, le=3_600)] = 5
    errcode: int | None = None


class DingTalkRobotChannel(ClockedChannel):
    """Stateless but for a clock."""

    provider: ClassVar[str] = _PROVIDER
    channel: ClassVar[str] = "dingtalk"
    options: ClassVar[type[msgspec.Struct]] = DingTalkRobotOptions
    endpoint: ClassVar[str] = ENDPOINT
    reach: ClassVar[Reach] = ONE_GROUP
    counted_by: ClassVar[Sequence[str]] = ("access_token",)
    errors: ClassVar[ErrorTable] = ERRORS
    silencing_limits: ClassVar[Sequence[tuple[int, int]]] = ((20, 60),)
    """(count, seconds) per robot; above it the provider takes nothing for ten minutes."""
    promises: ClassVar[Capabilities] = Capabilities(
        title="DingTalk group robot",
        limits="one group an account; 20 messages a minute, then ten minutes' silence; 20,000 bytes",
        source=(
            "https://open.dingtalk.com/document/orgapp/custom-robots-send-group-messages",
            "https://open.dingtalk.com/document/robots/customize-robot-security-settings",
        ),
    )

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """Refuses any receiver but the robot's group, and a content that it cannot send."""
        if wrong := wrong_receiver(account, self.channel, delivery.receiver):
            return wrong
        try:
            size = len(_body(delivery))
        except UNSENDABLE as exc:
            return reason_of(exc)
        if size > _MAX_BYTES:
            return f"too_long: the message has {size:,} bytes; DingTalk takes {_MAX_BYTES:,}"
        return ""

    def request(self, call: Call) -> httpx.Request:
        """Returns the POST of the call's one delivery, signed with the current time."""
        (delivery,) = call.deliveries
        url = address(call.account.endpoint, _SEND)
        asked = with_query(url, self._query(call.account.options))
        return post_json(asked, fields_of(url), _body(delivery), extensions_of(call.account))

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Returns the outcome of the call's one delivery."""
        if isinstance(answer, Failure):
            return for_all(call, of_failure(answer))
        outcome = _throttled(answer) or refused(self.errors, answer)
        if outcome is None:
            return for_all(call, Accepted(call.key))
        return for_all(call, _told_apart(outcome))

    def _query(self, options: DingTalkRobotOptions) -> str:
        query = f"access_token={quote(options.access_token.reveal(), safe='')}"
        if options.secret is None:
            return query
        timestamp = int(self._now() * 1_000)
        return f"{query}&timestamp={timestamp}&sign={quote_plus(_sign(timestamp, options.secret))}"


def _sign(timestamp: int, secret: Secret) -> str:
    key = secret.reveal()
    digest = hmac.digest(key.encode(), f"{timestamp}\n{key}".encode(), "sha256")
    return base64.b64encode(digest).decode()


def _throttled(answer: httpx.Response) -> AnyOutcome | None:
    """Returns the outcome of the gateway's throttle without an errcode; None for other answers."""
    try:
        throttle = msgspec.json.decode(answer.content, type=_Throttle)
    except UNREADABLE:
        return None
    if str(throttle.status) != THROTTLED or throttle.errcode is not None:
        return None
    return ERRORS.outcome(THROTTLED, retry_after_ms=throttle.wait * 1_000)


def _told_apart(outcome: AnyOutcome) -> AnyOutcome:
    if isinstance(outcome, Accepted) or outcome.code != SECURITY:
        return outcome
    text = outcome.detail.lower()
    missing = any(word in text for word in _OF_KEYWORDS)
    return ERRORS.outcome(KEYWORDS, outcome.detail) if missing else outcome


def _body(delivery: Delivery) -> bytes:
    """Returns the message as JSON. Raises BadContent."""
    content = read(delivery, _PROVIDER, _KEYS)
    name = _WIRE_NAMES.get(content.kind, content.kind)
    worded: dict[str, Any] = {"msgtype": name, name: _worded(content)}
    if content.at is not None:
        worded["at"] = _at(content.at)
    return msgspec.json.encode(worded)


def _worded(content: DingTalkContent) -> Any:
    if content.text is not None:
        return {"content": content.text}
    if content.link is not None:
        link = content.link
        return {
            "title": link.title,
            "text": link.text,
            "messageUrl": link.url,
            "picUrl": link.image,
        }
    if content.action_card is not None:
        return _card(content.action_card)
    if content.feed_card is not None:
        lines = content.feed_card
        return {
            "links": [{"title": x.title, "messageURL": x.url, "picURL": x.image} for x in lines]
        }
    return content.markdown


def _card(card: ActionCard) -> dict[str, Any]:
    worded: dict[str, Any] = {"title": card.title, "text": card.text}
    if card.single is not None:
        return worded | {"singleTitle": card.single.title, "singleURL": card.single.url}
    return worded | {
        "btnOrientation": "1" if card.orientation == "horizontal" else "0",
        "btns": [{"title": button.title, "actionURL": button.url} for button in card.buttons or ()],
    }


def _at(at: At) -> dict[str, Any]:
    mobiles = [mobile(number) for number in at.mobiles]
    return {"atMobiles": mobiles, "atUserIds": at.users, "isAtAll": at.all}


CHANNELS = (DingTalkRobotChannel(),)
