"""DingTalk's errors that a work notice can meet.

A fault of the application, the company or our address is NotSent, and the account pauses for a while. 60011
comes as the `sub_code` of 88.

Codes below 100 come from the gateway of Taobao's Open Platform (TOP): it refused the request before any
service saw it. Only 15 comes from the service. Its `sub_code` isv.* names the caller's fault; isp.* is the
service's own, and leaves the call in doubt.

`RESULT_ROWS` are documented for getsendresult, whose list has a code beside each userid. They are in the
table of the send too, since an answer with such a code took no task.
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
from message.outcomes import Limit

RECEIVER_CODES: Final = frozenset({"33012", "40003", "40031", "46004", "50002", "60121"})
"""Codes about at least one member of the call, whom the answer does not name."""
TOKEN_CODES: Final = frozenset({"40001", "40014", "41001", "42001"})
"""Codes of a refused access_token."""
DAY_LIMITS: Final = frozenset({"143105", "143205"})
"""Codes of a member's day share that is used up; the day ends at midnight in China."""
SAME_TODAY: Final = frozenset({"143106", "143206"})
"""Codes of a content that the member has had today."""

_CODES: Final = RowSource(
    "https://open.dingtalk.com/document/orgapp/server-api-error-codes-1",
    "2026-11-22",
    copy="a copy in a public repository, and blog.csdn.net/weixin_38171468/article/details/106051120",
)
_RESULT: Final = RowSource(
    "https://open.dingtalk.com/document/orgapp/gets-the-result-of-sending-messages-asynchronously-to-the-enterprise",
    "2026-11-22",
    copy="https://zidingyi.apifox.cn/api-37157310",
)
_PLATFORM: Final = RowSource(
    "http://blog.unvs.cn/archives/taobao-oauth-top-error-code.html", "2026-11-22"
)
"""A copy of TOP's table of platform errors."""
_SHUT_OUT: Final = "too many calls: refused for a while"

RESULT_ROWS: Final = documented(
    _RESULT,
    paced("143103", Limit.ACCOUNT, "more receivers a minute than one application may", MINUTE),
    paced("143104", Limit.ACCOUNT, "more receivers a minute than the company may", MINUTE),
    paced(
        "143105",
        Limit.RECEIVER,
        "the member has had 500 notices of this application today",
        HOUR,
    ),
    ErrorRow("143106", "rejected", "the member has had this very content today"),
    paced("143203", Limit.ACCOUNT, "more receivers a minute than one company may get", MINUTE),
    paced("143204", Limit.ACCOUNT, "more receivers a minute than one vendor may send", MINUTE),
    paced("143205", Limit.RECEIVER, "the member has had its share of this application today", HOUR),
    ErrorRow("143206", "rejected", "the member has had this very content today"),
    ErrorRow("1430000", "rejected", "there is no receiver"),
    ErrorRow("1430001", "rejected", "a grant type that is not known"),
    ErrorRow("1430002", "rejected", "the content is forbidden"),
    paced("1430003", Limit.ACCOUNT, "the provider protects itself", MINUTE),
    ErrorRow("1430004", "rejected", "the member is under executive protection"),
)
RESULTS: Final = ErrorTable(RESULT_ROWS)
ERRORS: Final = ErrorTable(
    (
        *documented(
            _CODES,
            ErrorRow("-1", "not_sent", "the system is busy; three tries at most", MINUTE),
            ErrorRow("404", "not_sent", "no such path: look at the endpoint", MINUTE, account=True),
            ErrorRow(
                "88", "not_sent", "the gateway refused without a sub_code", MINUTE, account=True
            ),
            shut_out("33001", "no such company: the token is another's", MINUTE),
            ErrorRow("33012", "rejected", "no such userid"),
            ErrorRow("34014", "rejected", "the message's JSON is incomplete"),
            ErrorRow("34016", "rejected", "the message is too long"),
            ErrorRow("40001", "not_sent", "the access_token is not valid", account=True),
            ErrorRow("40003", "rejected", "no such userid"),
            ErrorRow("40004", "rejected", "a file of a type that is not taken"),
            ErrorRow("40007", "rejected", "no such media_id"),
            ErrorRow("40008", "rejected", "no such type of message"),
            ErrorRow("40014", "not_sent", "the access_token is not valid", account=True),
            ErrorRow("40031", "rejected", "the list of userids is not valid"),
            ErrorRow("40032", "rejected", "the list of userids is too long"),
            ErrorRow("40033", "rejected", "characters that are not taken"),
            ErrorRow("40035", "rejected", "a parameter is not valid"),
            shut_out("40056", "no such agent_id", MINUTE),
            ErrorRow("41001", "not_sent", "there is no access_token", account=True),
            ErrorRow("41011", "rejected", "there is no agent_id"),
            ErrorRow("42001", "not_sent", "the access_token has expired", account=True),
            ErrorRow("43004", "rejected", "another Content-Type is wanted"),
            ErrorRow("44002", "rejected", "the body is empty"),
            ErrorRow("44004", "rejected", "the text is empty"),
            ErrorRow("45002", "rejected", "the message is too long"),
            ErrorRow("45003", "rejected", "the title is too long"),
            paced("45009", Limit.ACCOUNT, "more calls than allowed", MINUTE),
            ErrorRow("46004", "rejected", "no such member"),
            ErrorRow("47001", "rejected", "the body is not JSON"),
            ErrorRow("48002", "not_sent", "the API is switched off", HOUR, account=True),
            ErrorRow("50002", "rejected", "the member is outside what the application may see"),
            shut_out("50003", "the application is switched off", HOUR),
            shut_out("52019", "no such agent_id", MINUTE),
            ErrorRow("60011", "not_sent", "the application may not call this", HOUR, account=True),
            shut_out("60020", "our address is not on its list", MINUTE),
            ErrorRow("60121", "rejected", "no such member"),
            shut_out("70001", "the company does not exist or was dissolved", HOUR),
        ),
        *documented(
            _PLATFORM,
            ErrorRow("1", "rejected", "the gateway could not read the request"),
            paced("7", Limit.ACCOUNT, "more calls than the gateway takes", MINUTE),
            ErrorRow("15", "unknown", "a service behind the gateway failed"),
            ErrorRow("15.isv.*", "rejected", "a service refused what the call says"),
            ErrorRow("22", "rejected", "the gateway knows no such method"),
            ErrorRow("40", "rejected", "a parameter is missing"),
            ErrorRow("41", "rejected", "a parameter is not valid"),
        ),
        *RESULT_ROWS,
        *documented(
            _CODES,
            *(paced(str(code), Limit.ACCOUNT, _SHUT_OUT, MINUTE) for code in range(90001, 90015)),
        ),
        *unproved(
            "the copies of the page that were read end at 90014",
            *(paced(str(code), Limit.ACCOUNT, _SHUT_OUT, MINUTE) for code in range(90015, 90019)),
        ),
    )
)
