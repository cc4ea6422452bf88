"""How a DingTalk work notice is worded, and how its result is read.

Sources: https://open.dingtalk.com/document/orgapp/message-types-and-data-format,
https://open.dingtalk.com/document/orgapp/gets-the-result-of-sending-messages-asynchronously-to-the-enterprise
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from channels.channel import Answer, Failure, Resolution, Resolved
from channels.providers._dingtalk_content import ActionCard, Content, read
from message.delivery import Delivery

PROVIDER: Final = "dingtalk"
KEYS: Final = frozenset({"text", "markdown", "link", "action_card", "oa", "image", "file"})
"""Of `content`."""
MAX_BYTES: Final = 2_048


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
    """`msg` as it goes over the wire; raises BadContent."""
    content = read(delivery, PROVIDER, KEYS)
    return msgspec.json.encode({"msgtype": content.kind, content.kind: _body(content)})


def _body(content: Content) -> Any:
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


def resolved(answer: Answer, userid: str, task_id: str) -> Resolved:
    """What getsendresult says of one member. Read or unread it has arrived; in no list the provider is
    still at it."""
    if isinstance(answer, Failure):
        return Resolved(Resolution.ASK_LATER, detail=answer.code)
    try:
        result = msgspec.json.decode(answer.content, type=_Result)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Resolved(Resolution.ASK_LATER, detail="malformed_answer")
    found = result.send_result
    if result.errcode != 0 or found is None:
        return Resolved(Resolution.ASK_LATER, detail=str(result.errcode))
    if userid in (found.read_user_id_list or ()) or userid in (found.unread_user_id_list or ()):
        return Resolved(Resolution.SENT, task_id)
    if code := _missed(found, userid):
        return Resolved(Resolution.NOT_SENT, task_id, code)
    return Resolved(Resolution.ASK_LATER, detail="in none of the task's lists yet")


def _missed(found: _Results, userid: str) -> str:
    """Why the notice did not reach the member; empty where the task does not say that it did not."""
    for forbidden in found.forbidden_list or ():
        if forbidden.userid == userid:
            return str(forbidden.code) or "forbidden"
    if userid in (found.forbidden_user_id_list or ()):
        return "forbidden"
    if userid in (found.invalid_user_id_list or ()):
        return "invalid_user"
    return "failed" if userid in (found.failed_user_id_list or ()) else ""
