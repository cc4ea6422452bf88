"""WeCom's error codes that sending a message can meet.

Source: https://developer.work.weixin.qq.com/document/path/90313. A fault of the application is NotSent: it
may be mended, or another account may send the message.
"""

from __future__ import annotations

from typing import Final

from channels.judging import error_table as codes
from channels.judging.error_table import MINUTE, RowSource
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
(BUSY,) = codes.documented(CODES, codes.unknown("-1", "the system is busy"))

RECEIVER_ROWS: Final = codes.documented(
    CODES,
    codes.rejected("40003", "the userid is not valid"),
    codes.rejected("40031", "the list of userids is not valid"),
    codes.rejected("43004", "the member is not bound to WeChat"),
    codes.rejected("46004", "the member does not exist"),
    codes.rejected("50002", "the member is out of the application's sight"),
    codes.rejected("60011", "the application may not reach the member"),
    codes.rejected("60111", "the userid does not exist"),
)
"""Codes about a member, whom the answer does not name."""
RECEIVER_CODES: Final = frozenset(row.code for row in RECEIVER_ROWS)

MESSAGE_ROWS: Final = (
    *codes.documented(
        CODES,
        codes.rejected("40007", "the media_id is not valid, or older than three days"),
        codes.rejected("40008", "the msgtype is not valid"),
        codes.rejected("40033", "the request holds a character that is not taken"),
        codes.rejected("40035", "a parameter is not valid"),
        codes.rejected("40058", "a parameter does not fit the API"),
        codes.rejected("40063", "a parameter is empty"),
        codes.rejected("40094", "a link is not valid"),
        codes.rejected("41006", "the media_id is missing"),
        codes.rejected("41010", "the url is missing"),
        codes.rejected("41016", "the title is missing"),
        codes.rejected("41033", "the description is missing"),
        codes.rejected("44001", "the file is empty"),
        codes.rejected("44004", "the text is empty"),
        codes.rejected("45001", "the file is too large"),
        codes.rejected("45002", "the content is too long"),
        codes.rejected("45004", "the description is too long"),
        codes.rejected("45008", "the number of articles is not allowed"),
        codes.rejected("85002", "the text holds words that are not allowed"),
    ),
    *codes.documented(_URL, codes.rejected("40039", "a link is too long")),
    *codes.unproved(
        "other APIs of WeChat's have it; WeCom's page has the codes next to it",
        codes.rejected("45003", "the title is too long"),
    ),
)

ROWS: Final = (
    BUSY,
    *codes.documented(
        CODES,
        codes.shut_out("40001", "the secret is not valid", 10 * MINUTE),
        codes.shut_out("40013", "the CorpID is not valid", 10 * MINUTE),
        codes.not_sent("40014", "the token is not valid"),
        codes.rejected("40032", "the call names too many members"),
        codes.shut_out("40056", "the agentid is not valid", 10 * MINUTE),
        codes.rejected("40074", "news cannot be confidential"),
        codes.not_sent("41001", "the token is missing"),
        codes.rejected("41011", "the agentid is missing"),
        codes.not_sent("42001", "the token has expired"),
        codes.paced("45009", Limit.ACCOUNT, "too many calls; shut out for a minute", MINUTE),
        codes.paced("45033", Limit.ACCOUNT, "too many calls at the same moment", 1_000),
        codes.account_fault("48002", "the application may not use this API", 10 * MINUTE),
        codes.shut_out("50003", "the application is switched off", 10 * MINUTE),
        codes.shut_out("60020", "our IP is not in the whitelist", 10 * MINUTE),
        codes.rejected("81013", "every member is unknown or out of the application's sight"),
        codes.rejected("82001", "every receiver named is empty"),
        codes.shut_out("301002", "the secret is another application's", 10 * MINUTE),
        codes.shut_out("2000002", "there is no such CorpID", 10 * MINUTE),
    ),
    *codes.documented(
        _SEND,
        codes.rejected(INVALID, "the member is unknown or out of the application's sight"),
        codes.rejected(UNLICENSED, "the member has no licence for the basic API"),
    ),
    *RECEIVER_ROWS,
    *MESSAGE_ROWS,
)
