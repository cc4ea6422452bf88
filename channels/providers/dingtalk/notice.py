"""The body of a DingTalk work notice, and the reading of its result.

getsendresult has no pages (its parameters are agent_id and task_id, read 2026-11-22). A task here has at
most a hundred members, and one answer lists them all.

Sources: https://open.dingtalk.com/document/orgapp/message-types-and-data-format,
https://open.dingtalk.com/document/orgapp/gets-the-result-of-sending-messages-asynchronously-to-the-enterprise
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from channels.channel import Answer, Failure, Resolution, ResolveResult
from channels.judging.error_table import MINUTE
from channels.judging.foreign_json import UNREADABLE
from channels.providers.dingtalk.content import ActionCard, DingTalkContent, read
from channels.providers.dingtalk.errors import DAY_LIMITS, RESULTS, SAME_TODAY
from message.delivery import Delivery

PROVIDER: Final = "dingtalk"
KEYS: Final = frozenset({"text", "markdown", "link", "action_card", "oa", "image", "file"})
"""Keys of `content`."""
MAX_BYTES: Final = 2_048
_MARGIN_MS: Final = 5 * MINUTE
"""Before midnight: a retry may start later than its delay."""
_EARLIER: Final = "an earlier call may have arrived"


class Again(msgspec.Struct, frozen=True):
    """Facts beside a result that decide whether a repeat is safe."""

    doubted: bool
    """An earlier call may have reached the member."""
    tomorrow_ms: int
    """Milliseconds until the next day begins in China; then DingTalk no longer drops a repeat."""


class _Forbidden(msgspec.Struct):
    userid: str = ""
    code: str | int = ""


class _Results(msgspec.Struct):
    invalid_user_id_list: list[str] | None = None
    forbidden_user_id_list: list[str] | None = None
    failed_user_id_list: list[str] | None = None
    read_user_id_list: list[str] | None = None
    unread_user_id_list: list[str] | None = None
    forbidden_list: list[_Forbidden] | None = None


class _Result(msgspec.Struct):
    errcode: int
    send_result: _Results | None = None


def worded(delivery: Delivery) -> bytes:
    """Returns `msg` as JSON. Raises BadContent."""
    content = read(delivery, PROVIDER, KEYS)
    return msgspec.json.encode({"msgtype": content.kind, content.kind: _body(content)})


def _body(content: DingTalkContent) -> Any:
    if content.text is not None:
        return {"content": content.text}
    if content.link is not None:
        link = content.link
        return {
            "messageUrl": link.url,
            "picUrl": link.image,
            "title": link.title,
            "text": link.text,
        }
    if content.action_card is not None:
        return _card(content.action_card)
    return getattr(content, content.kind)


def _card(card: ActionCard) -> dict[str, Any]:
    worded: dict[str, Any] = {"title": card.title, "markdown": card.text}
    if card.single is not None:
        return worded | {"single_title": card.single.title, "single_url": card.single.url}
    buttons = [{"title": button.title, "action_url": button.url} for button in card.buttons or ()]
    return worded | {
        "btn_orientation": "1" if card.orientation == "horizontal" else "0",
        "btn_json_list": buttons,
    }


def resolved(answer: Answer, userid: str, task_id: str, again: Again) -> ResolveResult:
    """Returns getsendresult's result for one member. A member in the read list has the notice. A member in
    the unread list has it too, unless another list names him. In no list: ask later."""
    if isinstance(answer, Failure):
        return ResolveResult(Resolution.ASK_LATER, detail=answer.code)
    if not answer.is_success:
        return ResolveResult(Resolution.ASK_LATER, detail=f"http_{answer.status_code}")
    try:
        result = msgspec.json.decode(answer.content, type=_Result)
    except UNREADABLE:
        return ResolveResult(Resolution.ASK_LATER, detail="malformed_answer")
    found = result.send_result
    if result.errcode != 0 or found is None:
        return ResolveResult(Resolution.ASK_LATER, detail=str(result.errcode))
    if userid in (found.read_user_id_list or ()):
        return ResolveResult(Resolution.SENT, task_id)
    return _not_read(found, userid, task_id, again)


def _not_read(found: _Results, userid: str, task_id: str, again: Again) -> ResolveResult:
    for forbidden in found.forbidden_list or ():
        if forbidden.userid == userid:
            return _forbidden(str(forbidden.code), task_id, again)
    if userid in (found.forbidden_user_id_list or ()):
        return _forbidden("", task_id, again)
    if userid in (found.invalid_user_id_list or ()):
        return _refused("invalid_user: no such member, or out of sight", task_id, again)
    if userid in (found.failed_user_id_list or ()):
        return _not_sent("failed", task_id, again, MINUTE)
    if userid in (found.unread_user_id_list or ()):
        return ResolveResult(Resolution.SENT, task_id)
    return ResolveResult(Resolution.ASK_LATER, detail="in none of the task's lists yet")


def _forbidden(code: str, task_id: str, again: Again) -> ResolveResult:
    """Returns the result of a notice kept back. "Same content today" proves an earlier call in doubt, whose
    task nobody knows: a recall by this one would take nothing back."""
    row = RESULTS.row(code)
    if code in SAME_TODAY and again.doubted:
        return ResolveResult(Resolution.SENT)
    if row is not None and row.kind == "rejected":
        return _refused(f"{code}: {row.meaning}", task_id, again)
    if code in DAY_LIMITS:
        return _not_sent(code, task_id, again, again.tomorrow_ms)
    delay_ms = MINUTE if row is None or row.delay_ms is None else row.delay_ms
    return _not_sent(code or "forbidden", task_id, again, delay_ms)


def _not_sent(code: str, task_id: str, again: Again, delay_ms: int) -> ResolveResult:
    """Returns NOT_SENT; ASK_LATER if a retry could double an earlier call in doubt. DingTalk drops a repeat
    only on the same day."""
    if again.doubted and delay_ms + _MARGIN_MS >= again.tomorrow_ms:
        return ResolveResult(Resolution.ASK_LATER, detail=f"{code}; {_EARLIER}", final=True)
    return ResolveResult(Resolution.NOT_SENT, task_id, code, delay_ms)


def _refused(why: str, task_id: str, again: Again) -> ResolveResult:
    """Returns REFUSED for this task; ASK_LATER after an earlier call in doubt, which it does not settle."""
    if again.doubted:
        code = why.partition(": ")[0]
        return ResolveResult(Resolution.ASK_LATER, detail=f"{code}; {_EARLIER}", final=True)
    return ResolveResult(Resolution.REFUSED, task_id, why)
