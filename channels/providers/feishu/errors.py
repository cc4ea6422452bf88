"""Feishu's and Lark's errors that `im/v1/messages` can answer.

A fault of the application is NotSent: it may be mended. An internal error, or a busy server, is Unknown: no
page says that nothing was sent.
"""

from __future__ import annotations

from typing import Final

from channels.judging import error_table as codes
from channels.judging.error_table import HOUR, MINUTE, ErrorTable, RowSource
from channels.providers.feishu.wire import COMMON, RATE_LIMITED, SERVER_CODES
from message.outcomes import Limit

_SECOND: Final = 1_000

_CREATE: Final = RowSource(
    "https://open.feishu.cn/document/server-docs/im-v1/message/create",
    "2026-11-22",
    copy="copies of its table in public repositories",
)

ERRORS: Final = ErrorTable(
    codes.documented(
        _CREATE,
        codes.rejected("230001", "a parameter is not valid"),
        codes.rejected("230002", "the bot is not in the group"),
        codes.account_fault("230006", "the application has no bot", HOUR),
        codes.rejected("230013", "the person is outside those whom the bot may reach"),
        codes.rejected("230015", "a conversation of two cannot be shared"),
        codes.rejected("230017", "the bot does not own the file or image"),
        codes.rejected("230018", "the group's settings forbid it"),
        codes.rejected("230019", "no such topic"),
        codes.paced(
            "230020", Limit.RECEIVER, "more than five messages a second to one receiver", _SECOND
        ),
        codes.rejected("230022", "the content has sensitive words"),
        codes.rejected("230025", "the content is too long"),
        codes.account_fault("230027", "the application lacks a permission", HOUR),
        codes.rejected("230028", "the content did not pass the audit"),
        codes.rejected("230029", "the person has left the company"),
        codes.rejected("230034", "no such receive_id"),
        codes.rejected("230035", "the bot may not speak here"),
        codes.shut_out("230036", "the tenant's key was deleted", HOUR),
        codes.rejected("230038", "a conversation of two with another tenant is forbidden"),
        codes.unknown("230049", "an earlier request with this uuid is being sent"),
        codes.rejected("230053", "the person has stopped the bot"),
        codes.rejected("230054", "this type of message is not taken here"),
        codes.rejected("230055", "the file is not of the message's type"),
        codes.rejected("230075", "encrypted conversations are not reached"),
        codes.rejected("230099", "the card cannot be made of this content"),
        codes.rejected("232009", "the group was dissolved"),
    ),
    codes.unproved(
        "an application met it; no page of Feishu's that was read has it",
        codes.rejected("230101", "the message is not taken in this conversation"),
    ),
    codes.documented(
        COMMON,
        codes.rejected("9499", "the request cannot be read"),
        codes.unknown("1500", "an internal error"),
        codes.unknown("2200", "an internal error"),
        codes.paced("11232", Limit.ACCOUNT, "the provider is under load", MINUTE),
        codes.paced("11233", Limit.RECEIVER, "more messages to one chat than allowed", MINUTE),
        codes.paced("11247", Limit.ACCOUNT, "more messages than allowed", MINUTE),
        codes.paced(RATE_LIMITED, Limit.ACCOUNT, "more calls than allowed", MINUTE),
        codes.shut_out("99991401", "our address is not on the list", MINUTE),
        codes.used_up("99991403", "the month's calls are used up", HOUR),
        codes.account_fault("99991661", "there is no access token"),
        codes.shut_out("99991662", "the application is switched off", HOUR),
        codes.account_fault("99991663", "the tenant_access_token is not valid"),
        codes.account_fault("99991668", "the access token is not valid"),
        codes.account_fault("99991671", "the access token is of no known form"),
        codes.account_fault("99991672", "the application lacks a permission", HOUR),
        codes.shut_out("99991673", "the tenant may not use the application", HOUR),
        codes.account_fault("99991677", "the access token has expired"),
        codes.rejected("99992351", "no such open_id"),
        codes.rejected("99992355", "no such chat_id"),
        codes.rejected("99992356", "no such chat_id"),
        codes.rejected("99992360", "no such user_id"),
        codes.rejected("99992361", "the open_id is of another application"),
        codes.rejected("99992364", "the user_id is of another tenant"),
        codes.rejected("99992381", "the union_id is of another tenant"),
    ),
    codes.documented(
        SERVER_CODES,
        codes.unknown("5000", "an internal error"),
        codes.unknown("10101", "an internal error"),
        codes.unknown("18121", "the same request is being processed"),
        codes.unknown("55001", "an internal error"),
        codes.unknown("90235", "the server is busy"),
        codes.paced("90217", Limit.ACCOUNT, "more calls than allowed", MINUTE),
        codes.paced("190005", Limit.ACCOUNT, "more calls of the application than allowed", MINUTE),
        codes.paced("1000004", Limit.ACCOUNT, "more calls of the method than allowed", MINUTE),
        codes.paced("1000005", Limit.ACCOUNT, "more calls of the application than allowed", MINUTE),
    ),
    codes.unproved(
        "public clients show the answer; no page of Feishu's that was read has it",
        codes.rejected("99992402", "a field of the request is not valid"),
    ),
)
