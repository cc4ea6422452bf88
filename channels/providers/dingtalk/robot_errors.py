"""The errors of DingTalk's robots. 310000 with a text about keywords has a row of its own, and so has the
gateway's throttle."""

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
    (
        *documented(
            _CODES,
            ErrorRow("-1", "not_sent", "the system is busy", MINUTE),
            ErrorRow("40035", "rejected", "a parameter is missing"),
            ErrorRow("43004", "rejected", "another Content-Type is wanted"),
            shut_out(SECURITY, "the robot refuses sign, time or address", MINUTE),
            ErrorRow("400013", "not_sent", "the group was dissolved", HOUR, account=True),
            shut_out("400101", "no such access_token", HOUR),
            shut_out("400102", "the robot was switched off", HOUR),
            ErrorRow("400105", "rejected", "no such type of message"),
            ErrorRow("400106", "not_sent", "the robot is not in the group", HOUR, account=True),
            paced("410100", Limit.ACCOUNT, "sent too fast", _SILENCED),
            ErrorRow("430101", "rejected", "a link that is not safe"),
            ErrorRow("430102", "rejected", "a text that is not proper"),
            ErrorRow("430103", "rejected", "an image that is not proper"),
            ErrorRow("430104", "rejected", "a content that is not proper"),
        ),
        *documented(
            _SEEN,
            paced(THROTTLED, Limit.ACCOUNT, "the gateway refuses for a few seconds", 5_000),
            paced("130101", Limit.ACCOUNT, "more than 20 messages a minute", _SILENCED),
        ),
        *unproved(
            _LISTED,
            paced("90030", Limit.ACCOUNT, "more calls than allowed", HOUR),
            shut_out("300001", "no such access_token", HOUR),
            shut_out("300005", "no such access_token", HOUR),
            ErrorRow("460101", "rejected", "the message is too long"),
        ),
        *documented(
            _WORDS_SEEN,
            ErrorRow(
                KEYWORDS, "rejected", "310000: none of the robot's keywords is in the message"
            ),
        ),
    )
)
