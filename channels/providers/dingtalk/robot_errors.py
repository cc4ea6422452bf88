"""The errors of DingTalk's robots. 310000 with a text about keywords has a row of its own, and so has the
gateway's throttle."""

from __future__ import annotations

from typing import Final

from channels.judging import error_table as codes
from channels.judging.error_table import HOUR, MINUTE, ErrorTable, RowSource
from message.outcomes import Limit

SECURITY: Final = "310000"
KEYWORDS: Final = "310000.keywords"
THROTTLED: Final = "1111"
_SILENCED: Final = 10 * MINUTE

_CODES: Final = RowSource(
    "https://open.dingtalk.com/document/orgapp/custom-robots-send-group-messages",
    "2026-11-22",
    copy="dagster-dingtalk (PyPI), which has its table",
)
_SEEN: Final = RowSource("https://blog.csdn.net/jialiuyang/article/details/118615052", "2026-11-22")
"""An answer with both codes."""
_WORDS_SEEN: Final = RowSource("https://github.com/srcrs/BilibiliTask/issues/53", "2026-11-22")
_LISTED: Final = "public clients list it; no page of DingTalk's that was read has it"

ERRORS: Final = ErrorTable(
    codes.documented(
        _CODES,
        codes.unknown("-1", "the system is busy"),
        codes.rejected("40035", "a parameter is missing"),
        codes.rejected("43004", "another Content-Type is wanted"),
        codes.shut_out(SECURITY, "the robot refuses sign, time or address", MINUTE),
        codes.account_fault("400013", "the group was dissolved", HOUR),
        codes.shut_out("400101", "no such access_token", HOUR),
        codes.shut_out("400102", "the robot was switched off", HOUR),
        codes.rejected("400105", "no such type of message"),
        codes.account_fault("400106", "the robot is not in the group", HOUR),
        codes.paced("410100", Limit.ACCOUNT, "sent too fast", _SILENCED),
        codes.rejected("430101", "a link that is not safe"),
        codes.rejected("430102", "a text that is not proper"),
        codes.rejected("430103", "an image that is not proper"),
        codes.rejected("430104", "a content that is not proper"),
    ),
    codes.documented(
        _SEEN,
        codes.paced(THROTTLED, Limit.ACCOUNT, "the gateway refuses for a few seconds", 5_000),
        codes.paced("130101", Limit.ACCOUNT, "more than 20 messages a minute", _SILENCED),
    ),
    codes.unproved(
        _LISTED,
        codes.paced("90030", Limit.ACCOUNT, "more calls than allowed", HOUR),
        codes.shut_out("300001", "no such access_token", HOUR),
        codes.shut_out("300005", "no such access_token", HOUR),
        codes.rejected("460101", "the message is too long"),
    ),
    codes.documented(
        _WORDS_SEEN,
        codes.rejected(KEYWORDS, "310000: none of the robot's keywords is in the message"),
    ),
)
