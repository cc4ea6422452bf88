"""WeCom's error codes that sending a message can meet.

Source: https://developer.work.weixin.qq.com/document/path/90313. A fault of the application is NotSent: it
may be mended, or another account may send the message.
"""

from __future__ import annotations

from typing import Final

from channels.judging.error_table import MINUTE, ErrorRow, RowSource, documented, paced, shut_out
from message.outcomes import Limit

INVALID: Final = "invaliduser"
UNLICENSED: Final = "unlicenseduser"
SAME_MEMBER: Final = "same_member"
TOKEN_CODES: Final = frozenset({"40014", "41001", "42001"})
CODES: Final = RowSource(
    "https://developer.work.weixin.qq.com/document/path/90313",
    "2026-11-22",
    copy="WxJava's table of it, as wx-rust-common 0.1.5 (crates.io) has it",
)
_URL: Final = RowSource(CODES.url, "2026-11-22", copy="https://cnblogs.com/Pireua/p/17282413.html")
_SEND: Final = RowSource(
    "https://developer.work.weixin.qq.com/document/path/90236",
    "2026-11-22",
    copy="WxJava's result of a send, as wx-rust-cp 0.1.5 (crates.io) has it",
)
(BUSY,) = documented(
    CODES, ErrorRow("-1", "not_sent", "the system is busy; at most three more tries", 2_000)
)

RECEIVER_ROWS: Final = documented(
    CODES,
    ErrorRow("40003", "rejected", "the userid is not valid"),
    ErrorRow("40031", "rejected", "the list of userids is not valid"),
    ErrorRow("43004", "rejected", "the member is not bound to WeChat"),
    ErrorRow("46004", "rejected", "the member does not exist"),
    ErrorRow("50002", "rejected", "the member is out of the application's sight"),
    ErrorRow("60011", "rejected", "the application may not reach the member"),
    ErrorRow("60111", "rejected", "the userid does not exist"),
)
"""Codes about a member, whom the answer does not name."""
RECEIVER_CODES: Final = frozenset(row.code for row in RECEIVER_ROWS)

MESSAGE_ROWS: Final = (
    *documented(
        CODES,
        ErrorRow("40007", "rejected", "the media_id is not valid, or older than three days"),
        ErrorRow("40008", "rejected", "the msgtype is not valid"),
        ErrorRow("40033", "rejected", "the request holds a character that is not taken"),
        ErrorRow("40035", "rejected", "a parameter is not valid"),
        ErrorRow("40058", "rejected", "a parameter does not fit the API"),
        ErrorRow("40063", "rejected", "a parameter is empty"),
        ErrorRow("40094", "rejected", "a link is not valid"),
        ErrorRow("41006", "rejected", "the media_id is missing"),
        ErrorRow("41010", "rejected", "the url is missing"),
        ErrorRow("41016", "rejected", "the title is missing"),
        ErrorRow("41033", "rejected", "the description is missing"),
        ErrorRow("44001", "rejected", "the file is empty"),
        ErrorRow("44004", "rejected", "the text is empty"),
        ErrorRow("45001", "rejected", "the file is too large"),
        ErrorRow("45002", "rejected", "the content is too long"),
        ErrorRow("45004", "rejected", "the description is too long"),
        ErrorRow("45008", "rejected", "the number of articles is not allowed"),
        ErrorRow("85002", "rejected", "the text holds words that are not allowed"),
    ),
    *documented(_URL, ErrorRow("40039", "rejected", "a link is too long")),
)

ROWS: Final = (
    BUSY,
    *documented(
        CODES,
        shut_out("40001", "the secret is not valid", 10 * MINUTE),
        shut_out("40013", "the CorpID is not valid", 10 * MINUTE),
        ErrorRow("40014", "not_sent", "the token is not valid"),
        ErrorRow("40032", "rejected", "the call names too many members"),
        shut_out("40056", "the agentid is not valid", 10 * MINUTE),
        ErrorRow("40074", "rejected", "news cannot be confidential"),
        ErrorRow("41001", "not_sent", "the token is missing"),
        ErrorRow("41011", "rejected", "the agentid is missing"),
        ErrorRow("42001", "not_sent", "the token has expired"),
        paced("45009", Limit.ACCOUNT, "too many calls; shut out for a minute", MINUTE),
        paced("45033", Limit.ACCOUNT, "too many calls at the same moment", 1_000),
        ErrorRow(
            "48002", "not_sent", "the application may not use this API", 10 * MINUTE, account=True
        ),
        shut_out("50003", "the application is switched off", 10 * MINUTE),
        shut_out("60020", "our IP is not in the whitelist", 10 * MINUTE),
        ErrorRow("81013", "rejected", "every member is unknown or out of the application's sight"),
        ErrorRow("82001", "rejected", "every receiver named is empty"),
        shut_out("301002", "the secret is another application's", 10 * MINUTE),
        shut_out("2000002", "there is no such CorpID", 10 * MINUTE),
    ),
    *documented(
        _SEND,
        ErrorRow(INVALID, "rejected", "the member is unknown or out of the application's sight"),
        ErrorRow(UNLICENSED, "rejected", "the member has no licence for the basic API"),
    ),
    *RECEIVER_ROWS,
    *MESSAGE_ROWS,
)
