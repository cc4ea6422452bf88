"""Feishu's and Lark's errors that `im/v1/messages` can answer.

A fault of the application is NotSent: it may be mended.
"""

from __future__ import annotations

from typing import Final

from channels.judging.error_table import (
    HOUR,
    MINUTE,
    ErrorRow,
    ErrorTable,
    RowSource,
    documented,
    paced,
    shut_out,
    unproved,
)
from channels.providers.feishu.wire import COMMON, RATE_LIMITED
from message.outcomes import Limit

_SECOND: Final = 1_000

_CREATE: Final = RowSource(
    "https://open.feishu.cn/document/server-docs/im-v1/message/create",
    "2026-11-22",
    copy="copies of its table in public repositories",
)

ERRORS: Final = ErrorTable(
    (
        *documented(
            _CREATE,
            ErrorRow("230001", "rejected", "a parameter is not valid"),
            ErrorRow("230002", "rejected", "the bot is not in the group"),
            ErrorRow("230006", "not_sent", "the application has no bot", HOUR, account=True),
            ErrorRow("230013", "rejected", "the person is outside those whom the bot may reach"),
            ErrorRow("230015", "rejected", "a conversation of two cannot be shared"),
            ErrorRow("230017", "rejected", "the bot does not own the file or image"),
            ErrorRow("230018", "rejected", "the group's settings forbid it"),
            ErrorRow("230019", "rejected", "no such topic"),
            paced(
                "230020",
                Limit.RECEIVER,
                "more than five messages a second to one receiver",
                _SECOND,
            ),
            ErrorRow("230022", "rejected", "the content has sensitive words"),
            ErrorRow("230025", "rejected", "the content is too long"),
            ErrorRow(
                "230027", "not_sent", "the application lacks a permission", HOUR, account=True
            ),
            ErrorRow("230028", "rejected", "the content did not pass the audit"),
            ErrorRow("230029", "rejected", "the person has left the company"),
            ErrorRow("230034", "rejected", "no such receive_id"),
            ErrorRow("230035", "rejected", "the bot may not speak here"),
            shut_out("230036", "the tenant's key was deleted", HOUR),
            ErrorRow(
                "230038", "rejected", "a conversation of two with another tenant is forbidden"
            ),
            ErrorRow("230049", "unknown", "an earlier request with this uuid is being sent"),
            ErrorRow("230053", "rejected", "the person has stopped the bot"),
            ErrorRow("230054", "rejected", "this type of message is not taken here"),
            ErrorRow("230055", "rejected", "the file is not of the message's type"),
            ErrorRow("230075", "rejected", "encrypted conversations are not reached"),
            ErrorRow("230099", "rejected", "the card cannot be made of this content"),
            ErrorRow("232009", "rejected", "the group was dissolved"),
        ),
        *unproved(
            "an application met it; no page of Feishu's that was read has it",
            ErrorRow("230101", "rejected", "the message is not taken in this conversation"),
        ),
        *documented(
            COMMON,
            ErrorRow("9499", "rejected", "the request cannot be read"),
            ErrorRow("1500", "unknown", "an internal error"),
            ErrorRow("2200", "unknown", "an internal error"),
            paced("11232", Limit.ACCOUNT, "the provider is under load", MINUTE),
            paced("11233", Limit.ACCOUNT, "more messages than allowed", MINUTE),
            paced("11247", Limit.ACCOUNT, "more messages than allowed", MINUTE),
            paced(RATE_LIMITED, Limit.ACCOUNT, "more calls than allowed", MINUTE),
            shut_out("99991401", "our address is not on the list", MINUTE),
            paced("99991403", Limit.ACCOUNT, "the month's calls are used up", HOUR, account=True),
            ErrorRow("99991661", "not_sent", "there is no access token", account=True),
            shut_out("99991662", "the application is switched off", HOUR),
            ErrorRow("99991663", "not_sent", "the tenant_access_token is not valid", account=True),
            ErrorRow("99991668", "not_sent", "the access token is not valid", account=True),
            ErrorRow("99991671", "not_sent", "the access token is of no known form", account=True),
            ErrorRow(
                "99991672", "not_sent", "the application lacks a permission", HOUR, account=True
            ),
            shut_out("99991673", "the tenant may not use the application", HOUR),
            ErrorRow("99991677", "not_sent", "the access token has expired", account=True),
            ErrorRow("99992351", "rejected", "no such open_id"),
            ErrorRow("99992355", "rejected", "no such chat_id"),
            ErrorRow("99992356", "rejected", "no such chat_id"),
            ErrorRow("99992360", "rejected", "no such user_id"),
            ErrorRow("99992361", "rejected", "the open_id is of another application"),
            ErrorRow("99992364", "rejected", "the user_id is of another tenant"),
            ErrorRow("99992381", "rejected", "the union_id is of another tenant"),
        ),
        *unproved(
            "public clients show the answer; no page of Feishu's that was read has it",
            ErrorRow("99992402", "rejected", "a field of the request is not valid"),
        ),
    )
)
