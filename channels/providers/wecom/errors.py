"""WeCom's error codes, those that sending a message can meet.

Source: https://developer.work.weixin.qq.com/document/path/90313. What is wrong with the application is no
reason to give a message up: it may be mended, or another account may send it.
"""

from __future__ import annotations

from typing import Final

from channels.judging.error_table import MINUTE, Row, Source, documented, paced, shut_out
from message.outcomes import Limit

INVALID: Final = "invaliduser"
UNLICENSED: Final = "unlicenseduser"
SAME_MEMBER: Final = "same_member"
TOKEN_CODES: Final = frozenset({"40014", "41001", "42001"})
CODES: Final = Source(
    "https://developer.work.weixin.qq.com/document/path/90313",
    "2026-11-22",
    copy="WxJava's table of it, as wx-rust-common 0.1.5 (crates.io) has it",
)
_URL: Final = Source(CODES.url, "2026-11-22", copy="https://cnblogs.com/Pireua/p/17282413.html")
_SEND: Final = Source(
    "https://developer.work.weixin.qq.com/document/path/90236",
    "2026-11-22",
    copy="WxJava's result of a send, as wx-rust-cp 0.1.5 (crates.io) has it",
)
(BUSY,) = documented(
    CODES, Row("-1", "not_sent", "the system is busy; at most three more tries", 2_000)
)

RECEIVER_ROWS: Final = documented(
    CODES,
    Row("40003", "rejected", "the userid is not valid"),
    Row("40031", "rejected", "the list of userids is not valid"),
    Row("43004", "rejected", "the member is not bound to WeChat"),
    Row("46004", "rejected", "the member does not exist"),
    Row("50002", "rejected", "the member is out of the application's sight"),
    Row("60011", "rejected", "the application may not reach the member"),
    Row("60111", "rejected", "the userid does not exist"),
)
"""About a member: with several in the call nobody can say whom."""
RECEIVER_CODES: Final = frozenset(row.code for row in RECEIVER_ROWS)

MESSAGE_ROWS: Final = (
    *documented(
        CODES,
        Row("40007", "rejected", "the media_id is not valid, or older than three days"),
        Row("40008", "rejected", "the msgtype is not valid"),
        Row("40033", "rejected", "the request holds a character that is not taken"),
        Row("40035", "rejected", "a parameter is not valid"),
        Row("40058", "rejected", "a parameter does not fit the API"),
        Row("40063", "rejected", "a parameter is empty"),
        Row("40094", "rejected", "a link is not valid"),
        Row("41006", "rejected", "the media_id is missing"),
        Row("41010", "rejected", "the url is missing"),
        Row("41016", "rejected", "the title is missing"),
        Row("41033", "rejected", "the description is missing"),
        Row("44001", "rejected", "the file is empty"),
        Row("44004", "rejected", "the text is empty"),
        Row("45001", "rejected", "the file is too large"),
        Row("45002", "rejected", "the content is too long"),
        Row("45004", "rejected", "the description is too long"),
        Row("45008", "rejected", "the number of articles is not allowed"),
        Row("85002", "rejected", "the text holds words that are not allowed"),
    ),
    *documented(_URL, Row("40039", "rejected", "a link is too long")),
)

ROWS: Final = (
    BUSY,
    *documented(
        CODES,
        shut_out("40001", "the secret is not valid", 10 * MINUTE),
        shut_out("40013", "the CorpID is not valid", 10 * MINUTE),
        Row("40014", "not_sent", "the token is not valid"),
        Row("40032", "rejected", "the call names too many members"),
        shut_out("40056", "the agentid is not valid", 10 * MINUTE),
        Row("40074", "rejected", "news cannot be confidential"),
        Row("41001", "not_sent", "the token is missing"),
        Row("41011", "rejected", "the agentid is missing"),
        Row("42001", "not_sent", "the token has expired"),
        paced("45009", Limit.ACCOUNT, "too many calls; shut out for a minute", MINUTE),
        paced("45033", Limit.ACCOUNT, "too many calls at the same moment", 1_000),
        Row("48002", "not_sent", "the application may not use this API", 10 * MINUTE, account=True),
        shut_out("50003", "the application is switched off", 10 * MINUTE),
        shut_out("60020", "our IP is not in the whitelist", 10 * MINUTE),
        Row("81013", "rejected", "every member is unknown or out of the application's sight"),
        Row("82001", "rejected", "every receiver named is empty"),
        shut_out("301002", "the secret is another application's", 10 * MINUTE),
        shut_out("2000002", "there is no such CorpID", 10 * MINUTE),
    ),
    *documented(
        _SEND,
        Row(INVALID, "rejected", "the member is unknown or out of the application's sight"),
        Row(UNLICENSED, "rejected", "the member has no licence for the basic API"),
    ),
    *RECEIVER_ROWS,
    *MESSAGE_ROWS,
)
