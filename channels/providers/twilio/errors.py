"""Twilio: the documented errors of creating a Message.

Each code has a page below https://www.twilio.com/docs/api/errors. Codes of delivery (30001 and on) come
with receipts and never answer a send. Codes of channels other than SMS are left out.
"""

from __future__ import annotations

from typing import Final

from channels.judging import error_table as codes
from channels.judging.error_table import HOUR, MINUTE, ErrorTable, RowSource
from message.outcomes import Limit

_LIST: Final = RowSource(
    "https://www.twilio.com/docs/api/errors",
    "2026-11-22",
    copy="a copy of the list in a public repository, and the pages of 21211, 21611 and 63038",
)
_AUTHORIZATION: Final = RowSource("https://www.twilio.com/docs/api/errors/70051", "2026-11-28")
_SENDER: Final = RowSource("https://www.twilio.com/docs/api/errors/21606", "2026-11-28")
_COUNTRY: Final = RowSource("https://www.twilio.com/docs/api/errors/21659", "2026-11-28")
_CALLBACK: Final = RowSource("https://www.twilio.com/docs/api/errors/21609", "2026-11-28")

TABLE: Final = ErrorTable(
    # The account or its sender: another account may send it.
    codes.documented(
        _LIST,
        codes.shut_out("10001", "the account is not active", HOUR),
        codes.shut_out("20003", "the token is not the account's", HOUR),
        codes.shut_out("20005", "the account is not active", HOUR),
        codes.shut_out("20006", "access is denied", HOUR),
        codes.shut_out("20008", "not with test credentials", HOUR),
        codes.shut_out("20403", "forbidden", HOUR),
        codes.shut_out("20404", "there is no such account", HOUR),
        codes.account_fault("21212", "the sender is malformed", HOUR),
        codes.account_fault("21267", "a trial account has no sender of letters", HOUR),
        codes.account_fault("21601", "the sender is not of this account", HOUR),
        codes.account_fault("21603", "there is no sender", HOUR),
        codes.account_fault("21607", "a trial account's sender is the sandbox", HOUR),
        codes.used_up("21611", "10 hours of messages wait at the sender", 10 * MINUTE),
        codes.account_fault("21657", "the sender's name is invalid", HOUR),
        codes.account_fault("21660", "the sender is of another account", HOUR),
        codes.account_fault("21661", "the sender cannot send SMS", HOUR),
        codes.account_fault("21701", "there is no such messaging service", HOUR),
        codes.account_fault("21702", "the messaging service takes nothing now", HOUR),
        codes.account_fault("21703", "the messaging service has no number to send from", HOUR),
        codes.account_fault("21704", "the messaging service has no numbers", HOUR),
        codes.account_fault("21705", "the messaging service is invalid", HOUR),
        codes.account_fault("21709", "the sender's name is not the service's", HOUR),
        codes.used_up("63038", "the account's limit of 24 hours", HOUR),
        # Pace: "never processed and always safe to retry".
        codes.paced("20429", Limit.ACCOUNT, "too many requests at once"),
        # The receiver.
        codes.rejected("21211", "the number is malformed"),
        codes.rejected("21408", "the account may not send to this country"),
        codes.rejected("21604", "there is no receiver"),
        codes.rejected("21608", "a trial account sends to verified numbers only"),
        codes.rejected("21610", "the receiver has unsubscribed"),
        codes.rejected("21612", "this sender cannot reach this number"),
        codes.rejected("21614", "the number is not a mobile one"),
        codes.rejected("21635", "the number is a landline"),
        # The text.
        codes.rejected("21602", "there is no text"),
        codes.rejected("21605", "the text is too long"),
        codes.rejected("21617", "the text is over 1,600 characters"),
        codes.rejected("21618", "the text cannot be sent"),
        codes.rejected("21619", "neither text nor media nor content template"),
        codes.rejected("21654", "variables without a content template"),
        codes.rejected("21655", "there is no such content template"),
        codes.rejected("21656", "the variables are no JSON object"),
        # In doubt: "it is possible for a customer to receive multiple messages".
        codes.unknown("20500", "the provider failed inside, or timed out"),
        codes.unknown("20503", "the provider is not available for the moment"),
        codes.unknown("20504", "timed out inside"),
    ),
    # Of a short code both refuse the message: it reaches no receiver of another country.
    codes.documented(
        _SENDER,
        codes.account_fault("21606", "the sender cannot send; of a short code: Rejected", HOUR),
    ),
    codes.documented(
        _COUNTRY,
        codes.account_fault(
            "21659", "the sender is no number of Twilio's; of a short code: Rejected", HOUR
        ),
    ),
    codes.documented(
        _AUTHORIZATION,
        codes.shut_out("70051", "account or API key missing, suspended or not permitted", HOUR),
    ),
    codes.documented(
        _CALLBACK,
        codes.account_fault("21609", "the account's status_callback is not a URL it takes", HOUR),
    ),
)

OF_COUNTRY: Final = frozenset({"21606", "21659"})
"""Codes by which a short code also refuses a receiver of another country."""
