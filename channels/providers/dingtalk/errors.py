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

from channels.judging import error_table as codes
from channels.judging.error_table import HOUR, MINUTE, ErrorTable, RowSource
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

RESULT_ROWS: Final = codes.documented(
    _RESULT,
    codes.paced(
        "143103", Limit.ACCOUNT, "more receivers a minute than one application may", MINUTE
    ),
    codes.paced("143104", Limit.ACCOUNT, "more receivers a minute than the company may", MINUTE),
    codes.paced(
        "143105", Limit.RECEIVER, "the member has had 500 notices of this application today", HOUR
    ),
    codes.rejected("143106", "the member has had this very content today"),
    codes.paced(
        "143203", Limit.ACCOUNT, "more receivers a minute than one company may get", MINUTE
    ),
    codes.paced(
        "143204", Limit.ACCOUNT, "more receivers a minute than one vendor may send", MINUTE
    ),
    codes.paced(
        "143205", Limit.RECEIVER, "the member has had its share of this application today", HOUR
    ),
    codes.rejected("143206", "the member has had this very content today"),
    codes.rejected("1430000", "there is no receiver"),
    codes.rejected("1430001", "a grant type that is not known"),
    codes.rejected("1430002", "the content is forbidden"),
    codes.paced("1430003", Limit.ACCOUNT, "the provider protects itself", MINUTE),
    codes.rejected("1430004", "the member is under executive protection"),
)
RESULTS: Final = ErrorTable(RESULT_ROWS)
ERRORS: Final = ErrorTable(
    codes.documented(
        _CODES,
        codes.unknown("-1", "the system is busy"),
        codes.account_fault("404", "no such path: look at the endpoint", MINUTE),
        codes.account_fault("88", "the gateway refused without a sub_code", MINUTE),
        codes.shut_out("33001", "no such company: the token is another's", MINUTE),
        codes.rejected("33012", "no such userid"),
        codes.rejected("34014", "the message's JSON is incomplete"),
        codes.rejected("34016", "the message is too long"),
        codes.account_fault("40001", "the access_token is not valid"),
        codes.rejected("40003", "no such userid"),
        codes.rejected("40004", "a file of a type that is not taken"),
        codes.rejected("40007", "no such media_id"),
        codes.rejected("40008", "no such type of message"),
        codes.account_fault("40014", "the access_token is not valid"),
        codes.rejected("40031", "the list of userids is not valid"),
        codes.rejected("40032", "the list of userids is too long"),
        codes.rejected("40033", "characters that are not taken"),
        codes.rejected("40035", "a parameter is not valid"),
        codes.shut_out("40056", "no such agent_id", MINUTE),
        codes.account_fault("41001", "there is no access_token"),
        codes.rejected("41011", "there is no agent_id"),
        codes.account_fault("42001", "the access_token has expired"),
        codes.rejected("43004", "another Content-Type is wanted"),
        codes.rejected("44002", "the body is empty"),
        codes.rejected("44004", "the text is empty"),
        codes.rejected("45002", "the message is too long"),
        codes.rejected("45003", "the title is too long"),
        codes.paced("45009", Limit.ACCOUNT, "more calls than allowed", MINUTE),
        codes.rejected("46004", "no such member"),
        codes.rejected("47001", "the body is not JSON"),
        codes.account_fault("48002", "the API is switched off", HOUR),
        codes.rejected("50002", "the member is outside what the application may see"),
        codes.shut_out("50003", "the application is switched off", HOUR),
        codes.shut_out("52019", "no such agent_id", MINUTE),
        codes.account_fault("60011", "the application may not call this", HOUR),
        codes.shut_out("60020", "our address is not on its list", MINUTE),
        codes.rejected("60121", "no such member"),
        codes.shut_out("70001", "the company does not exist or was dissolved", HOUR),
    ),
    codes.documented(
        _PLATFORM,
        codes.rejected("1", "the gateway could not read the request"),
        codes.paced("7", Limit.ACCOUNT, "more calls than the gateway takes", MINUTE),
        codes.unknown("15", "a service behind the gateway failed"),
        codes.rejected("15.isv.*", "a service refused what the call says"),
        codes.rejected("22", "the gateway knows no such method"),
        codes.rejected("40", "a parameter is missing"),
        codes.rejected("41", "a parameter is not valid"),
    ),
    RESULT_ROWS,
    codes.documented(
        _CODES,
        *(codes.paced(str(code), Limit.ACCOUNT, _SHUT_OUT, MINUTE) for code in range(90001, 90015)),
    ),
    codes.unproved(
        "the copies of the page that were read end at 90014",
        *(codes.paced(str(code), Limit.ACCOUNT, _SHUT_OUT, MINUTE) for code in range(90015, 90019)),
    ),
)
