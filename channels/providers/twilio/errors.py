"""Twilio: the documented errors of creating a Message.

Each code has a page below https://www.twilio.com/docs/api/errors. Codes of delivery (30001 and on) come
with receipts and never answer a send. Codes of channels other than SMS are left out.
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
)
from message.outcomes import Limit

_LIST: Final = RowSource(
    "https://www.twilio.com/docs/api/errors",
    "2026-11-22",
    copy="a copy of the list in a public repository, and the pages of 21211, 21611 and 63038",
)

TABLE: Final = ErrorTable(
    (
        # The account or its sender: another account may send it.
        *documented(
            _LIST,
            shut_out("10001", "the account is not active", HOUR),
            shut_out("20003", "the token is not the account's", HOUR),
            shut_out("20005", "the account is not active", HOUR),
            shut_out("20006", "access is denied", HOUR),
            shut_out("20008", "not with test credentials", HOUR),
            shut_out("20403", "forbidden", HOUR),
            shut_out("20404", "there is no such account", HOUR),
            ErrorRow("21212", "not_sent", "the sender is malformed", HOUR, True),
            ErrorRow("21267", "not_sent", "a trial account has no sender of letters", HOUR, True),
            ErrorRow("21601", "not_sent", "the sender is not of this account", HOUR, True),
            ErrorRow("21603", "not_sent", "there is no sender", HOUR, True),
            ErrorRow("21606", "not_sent", "the sender cannot send", HOUR, True),
            ErrorRow("21607", "not_sent", "a trial account's sender is the sandbox", HOUR, True),
            paced(
                "21611",
                Limit.ACCOUNT,
                "10 hours of messages wait at the sender",
                10 * MINUTE,
                account=True,
            ),
            ErrorRow("21657", "not_sent", "the sender's name is invalid", HOUR, True),
            ErrorRow("21659", "not_sent", "the sender is no number of Twilio's", HOUR, True),
            ErrorRow("21660", "not_sent", "the sender is of another account", HOUR, True),
            ErrorRow("21661", "not_sent", "the sender cannot send SMS", HOUR, True),
            ErrorRow("21701", "not_sent", "there is no such messaging service", HOUR, True),
            ErrorRow("21702", "not_sent", "the messaging service takes nothing now", HOUR, True),
            ErrorRow(
                "21703", "not_sent", "the messaging service has no number to send from", HOUR, True
            ),
            ErrorRow("21704", "not_sent", "the messaging service has no numbers", HOUR, True),
            ErrorRow("21705", "not_sent", "the messaging service is invalid", HOUR, True),
            ErrorRow("21709", "not_sent", "the sender's name is not the service's", HOUR, True),
            paced("63038", Limit.ACCOUNT, "the account's limit of 24 hours", HOUR, account=True),
        ),
        # Pace: "never processed and always safe to retry".
        *documented(_LIST, paced("20429", Limit.ACCOUNT, "too many requests at once")),
        # The receiver.
        *documented(
            _LIST,
            ErrorRow("21211", "rejected", "the number is malformed"),
            ErrorRow("21408", "rejected", "the account may not send to this country"),
            ErrorRow("21604", "rejected", "there is no receiver"),
            ErrorRow("21608", "rejected", "a trial account sends to verified numbers only"),
            ErrorRow("21610", "rejected", "the receiver has unsubscribed"),
            ErrorRow("21612", "rejected", "this sender cannot reach this number"),
            ErrorRow("21614", "rejected", "the number is not a mobile one"),
            ErrorRow("21635", "rejected", "the number is a landline"),
        ),
        # The text.
        *documented(
            _LIST,
            ErrorRow("21602", "rejected", "there is no text"),
            ErrorRow("21605", "rejected", "the text is too long"),
            ErrorRow("21617", "rejected", "the text is over 1,600 characters"),
            ErrorRow("21618", "rejected", "the text cannot be sent"),
            ErrorRow("21619", "rejected", "neither text nor media nor content template"),
            ErrorRow("21654", "rejected", "variables without a content template"),
            ErrorRow("21655", "rejected", "there is no such content template"),
            ErrorRow("21656", "rejected", "the variables are no JSON object"),
        ),
        # In doubt: "it is possible for a customer to receive multiple messages".
        *documented(
            _LIST,
            ErrorRow("20500", "unknown", "the provider failed inside, or timed out"),
            ErrorRow("20503", "unknown", "the provider is not available for the moment"),
            ErrorRow("20504", "unknown", "timed out inside"),
        ),
    )
)
