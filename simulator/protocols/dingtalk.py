"""DingTalk's work notices: `gettoken`, `asyncsend_v2`, `getsendresult`, `recall`.

Checked as the provider does: key and secret, the token, the agent_id, at most 100 userids, a message of at
most 2,048 bytes in the shape of its type. The answer names no single receiver: only getsendresult shows an
error of one, some time after the send (behaviour `results_after_ms`, 300). The same content to the same
member on the same day (in China) is answered with success and dropped: the call has its own task, whose
result says 143106. A task can be recalled within 24 hours, also one that reached nobody. Credentials:
`app_key`, `app_secret`, `agent_id`.

Source: https://open.dingtalk.com/document/orgapp/asynchronous-sending-of-enterprise-session-messages
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final

import msgspec

from simulator.ledger import LedgerRecord
from simulator.protocols._dingtalk import answer, query, token_refused
from simulator.protocols._json import json_object
from simulator.protocols._tokens import IssuedTokens
from simulator.servers.http_request import Request
from simulator.wire import (
    ID,
    ProtocolContext,
    Question,
    ReceivedCall,
    Recipient,
    Reply,
    Verdict,
    WireProtocol,
)

_AGENT: Final = "1000001"
_MAX_USERS: Final = 100
_MAX_MSG: Final = 2_048
_FAILED: Final = "failed"
"""A receiver's code in fault rules for `failed_user_id_list`; one that begins with 143 is forbidden, any
other an invalid userid."""
_FIRST_TASK: Final = 256_000_000_000
_DAY_MS: Final = 86_400_000
_RESULTS_AFTER_MS: Final = "300"
_CHINA_MS: Final = 8 * 3_600_000
_FIELDS: Final[Mapping[str, Sequence[str]]] = {
    "text": ("content",),
    "markdown": ("title", "text"),
    "link": ("messageUrl", "picUrl", "title", "text"),
    "action_card": ("title", "markdown"),
    "oa": ("body",),
    "image": ("media_id",),
    "file": ("media_id",),
}
"""Fields that each type of message needs."""


class DingTalk(WireProtocol):
    """Its state is its tokens, and its acceptances: rebuilt from the ledger."""

    name = "dingtalk"

    def __init__(self, world: ProtocolContext) -> None:
        super().__init__(world)
        self._tokens = IssuedTokens(world, self.name)
        self._given: dict[str, tuple[int, str]] = {}
        """Day and task of the last acceptance, by content and member."""
        self._tasks: dict[str, list[str]] = {}
        """Members that a task reached."""
        self._failed: dict[str, dict[str, str]] = {}
        """Members that a task did not reach, and the code."""
        self._at: dict[str, int] = {}
        """Time at which a task was accepted, epoch milliseconds."""
        after_ms = world.behaviour(self.name, "results_after_ms", _RESULTS_AFTER_MS)
        self._results_after_ms = int(after_ms)
        self._task = ""

    def read(self, request: Request, path: str) -> ReceivedCall | Question | Reply:
        """Serves four paths; any other is 404."""
        if path == "/gettoken":
            return self._token(request)
        serve = {
            "/topapi/message/corpconversation/asyncsend_v2": self._send,
            "/topapi/message/corpconversation/getsendresult": self._ask,
            "/topapi/message/corpconversation/recall": self._recall,
        }.get(path)
        if serve is None:
            return answer(404, "请求的URI地址不存在")
        body = self._body(request)
        return body if isinstance(body, Reply) else serve(body)

    def provider_id(self, seq: int) -> str:
        """Returns the task of the whole call, named after its first member."""
        self._task = self._task or str(_FIRST_TASK + seq)
        return self._task

    def repeat_id(self, earlier: str, seq: int) -> str:
        """Returns the call's own task: a repeat is another task."""
        return self.provider_id(seq)

    def known(self, send: ReceivedCall, recipient: Recipient) -> str | None:
        """Returns the task in which this member got this content today; else None."""
        day, task = self._given.get(recipient.key, (-1, ""))
        return task if day == self._day(self.world.now_ms()) else None

    def accepted(self, record: LedgerRecord) -> None:
        """Adds a member to a task."""
        self._given[record.key] = (self._day(record.at_ms), record.provider_id)
        self._tasks.setdefault(record.provider_id, []).append(record.receiver)
        self._at.setdefault(record.provider_id, record.at_ms)

    def reply(self, send: ReceivedCall, verdicts: Sequence[Verdict]) -> Reply:
        """Returns success, even if some members were not reached."""
        task = verdicts[0].provider_id
        failed = {v.recipient.receiver: v.code for v in verdicts if v.code}
        dropped = {v.recipient.receiver: "143106" for v in verdicts if v.repeated}
        self._failed.setdefault(task, {}).update({**failed, **dropped})
        self._at.setdefault(task, self.world.now_ms())
        return answer(0, task_id=int(task), request_id=f"sim{task}")

    def refuse(self, code: str) -> Reply:
        """Returns an error: 60011 as `sub_code` of the gateway's 88, `15.CODE` as one of a service's 15."""
        outer, _, inner = code.partition(".")
        if inner:
            return answer(int(outer), "Remote service error", sub_code=inner, sub_msg="参数错误")
        if code == "60011":
            return answer(88, "ding talk error", sub_code=code, sub_msg="没有调用该接口的权限")
        return answer(int(code), f"error {code}", request_id="sim")

    def _token(self, request: Request) -> Question | Reply:
        if request.method != "GET":
            return answer(43001, "需要GET请求")
        asked = query(request)
        if asked.get("appkey") != self.world.credential(self.name, "app_key", ID):
            return answer(40089, "不合法的corpid或corpsecret")
        if asked.get("appsecret") != self.world.credential(self.name, "app_secret"):
            return answer(40089, "不合法的corpid或corpsecret")
        return Question("TOKEN", self._give)

    def _give(self) -> Reply:
        token, seconds = self._tokens.give()
        return answer(0, access_token=token, expires_in=seconds)

    def _body(self, request: Request) -> dict[str, Any] | Reply:
        if request.method != "POST":
            return answer(43002, "需要POST请求")
        if refused := token_refused(self._tokens, request):
            return refused
        body = json_object(request.body)
        if body is None:
            return answer(47001, "解析JSON内容错误")
        if str(body.get("agent_id")) != self.world.credential(self.name, "agent_id", _AGENT):
            return answer(40056, "不合法的agentid")
        return body

    def _send(self, body: Mapping[str, Any]) -> ReceivedCall | Reply:
        users = [user for user in str(body.get("userid_list", "")).split(",") if user]
        if not users:
            return answer(1430000, "接受者为空")
        if len(users) > _MAX_USERS:
            return answer(40032, "不合法的UserID列表长度")
        msg = body.get("msg")
        if not _well_formed(msg):
            return answer(34014, "会话消息的json结构无效或不完整")
        if len(msgspec.json.encode(msg)) > _MAX_MSG:
            return answer(45002, "消息内容超过限制")
        self._task = ""
        digest = sha256(msgspec.json.encode(msg, order="deterministic")).hexdigest()[:16]
        return ReceivedCall([Recipient(user, f"{self.name}:{digest}:{user}") for user in users])

    def _ask(self, body: Mapping[str, Any]) -> Question | Reply:
        task = str(body.get("task_id", ""))
        return Question("GET", partial(self._result, task), key=task)

    def _recall(self, body: Mapping[str, Any]) -> Question | Reply:
        task = str(body.get("msg_task_id", ""))
        return Question("RECALL", partial(self._taken_back, task), key=task)

    def _taken_back(self, task: str) -> Reply:
        at_ms = self._at.get(task)
        if at_ms is None or self.world.now_ms() - at_ms > _DAY_MS:
            return answer(40035, "不合法的参数")
        self.world.count(f"recalled.{self.name}.{task}")
        return answer(0)

    def _result(self, task: str) -> Reply:
        if task not in self._tasks and task not in self._failed:
            return answer(40035, "不合法的参数")
        age_ms = self.world.now_ms() - self._at.get(task, 0)
        if age_ms > _DAY_MS:
            return answer(40035, "不合法的参数")
        ready = age_ms >= self._results_after_ms
        self.world.count(f"results.{self.name}.{task}")
        failed = self._failed.get(task, {}) if ready else {}
        forbidden = [
            {"code": code, "count": 1, "userid": user}
            for user, code in failed.items()
            if code.startswith("143")
        ]
        others = [user for user, code in failed.items() if not code.startswith("143")]
        broken = [user for user in others if failed[user] == _FAILED]
        result = {
            "invalid_user_id_list": [user for user in others if user not in broken],
            "forbidden_user_id_list": [one["userid"] for one in forbidden],
            "failed_user_id_list": broken,
            "read_user_id_list": [],
            "unread_user_id_list": self._tasks.get(task, []) if ready else [],
            "invalid_dept_id_list": [],
            "forbidden_list": forbidden,
        }
        return answer(0, send_result=result, request_id=f"sim{task}")

    @staticmethod
    def _day(at_ms: int) -> int:
        return (at_ms + _CHINA_MS) // _DAY_MS


def _well_formed(msg: Any) -> bool:
    """Returns whether it is of a known type, with the type's object and its fields."""
    if not isinstance(msg, dict) or msg.get("msgtype") not in _FIELDS:
        return False
    kind = msg["msgtype"]
    part = msg.get(kind)
    if not isinstance(part, dict) or set(msg) != {"msgtype", kind}:
        return False
    if kind == "action_card":
        single = bool(part.get("single_title")) and bool(part.get("single_url"))
        if single == bool(part.get("btn_json_list")):
            return False
    # An empty picUrl is accepted.
    return all(name == "picUrl" or part.get(name) for name in _FIELDS[kind])


PROTOCOLS = (DingTalk,)
