"""Volcengine SMS: the errors of SendSms 2020-01-01, and those of the gateway before it.

The service answers `RE:…` and `VE:…`: login, parameters and configuration, before anything is sent.
The gateway answers names, with an HTTP status. Later failures (`NE:…`, `CR:…`, `CE:…`, `SY:…`, `UN:…`)
come in receipts alone.
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

_SEND: Final = RowSource("https://www.volcengine.com/docs/6361/173288", "2026-11-22")
_GATEWAY: Final = RowSource(
    "https://www.volcengine.com/docs/6369/68677", "2026-11-22", copy="the page in part"
)
_SIBLING: Final = RowSource("https://www.volcengine.com/docs/6448/76370", "2026-11-22")
"""Another product's page; the gateway is the same."""
_AUTH: Final = RowSource(
    "https://www.volcengine.com/docs/6408/78947", "2026-11-22", copy="the page in part"
)
"""Another product's page; the gateway is the same."""

TABLE: Final = ErrorTable(
    (
        # The account: it can send no message; another account may.
        *documented(
            _SEND,
            shut_out("RE:0000", "the login is refused", HOUR),
            ErrorRow("RE:0001", "not_sent", "SMS is not activated for the account", HOUR, True),
            ErrorRow("RE:0002", "not_sent", "the product was shut down", HOUR, True),
            shut_out("RE:0003", "there is no such message group", HOUR),
            shut_out("RE:0007", "our address is not on the list", HOUR),
            ErrorRow("RE:0010", "not_sent", "the account is in arrears", HOUR, True),
        ),
        *documented(
            _GATEWAY,
            ErrorRow(
                "InvalidTimestamp", "not_sent", "the signature is of another time", MINUTE, True
            ),
            shut_out("InvalidAccessKey", "there is no such key", HOUR),
            shut_out("SignatureDoesNotMatch", "the secret is not the key's", HOUR),
            shut_out("AccessDenied", "the key may not send SMS", HOUR),
        ),
        *documented(
            _SIBLING,
            shut_out("InvalidClientTokenId", "there is no such key", HOUR),
            shut_out("MissingAuthenticationToken", "the Authorization field is missing", HOUR),
            shut_out("MissingSignature", "the signature is missing", HOUR),
            shut_out("LackPolicy", "the key has no policy", HOUR),
            shut_out("LackProjectPolicy", "the key has no policy for the project", HOUR),
        ),
        *documented(
            _AUTH,
            shut_out("InvalidAuthorization", "the Authorization field is malformed", HOUR),
            shut_out("InvalidCredential", "the Credential is malformed", HOUR),
            shut_out("InvalidSecretToken", "the temporary token is wrong", HOUR),
        ),
        # Pace.
        *documented(
            _SEND,
            paced(
                "RE:0013",
                Limit.ACCOUNT,
                "more messages than the console allows",
                HOUR,
                account=True,
            ),
        ),
        *documented(
            _SIBLING, paced("FlowLimitExceeded", Limit.ACCOUNT, "the gateway is throttling", 1_000)
        ),
        # The receiver.
        *documented(
            _SEND,
            ErrorRow("RE:0006", "rejected", "the number is malformed"),
            ErrorRow("RE:0011", "rejected", "the account does not send to this region"),
        ),
        # Signature, template, text.
        *documented(
            _SEND,
            ErrorRow("RE:0004", "rejected", "the message group has no such approved signature"),
            ErrorRow("RE:0005", "rejected", "the message group has no such approved template"),
            ErrorRow("RE:0009", "rejected", "a parameter of the call is malformed"),
            ErrorRow("RE:0012", "rejected", "the message group does not send this kind"),
            ErrorRow("VE:0001", "rejected", "a video template, and the account sends none"),
            ErrorRow("VE:0002", "rejected", "the video template is not available"),
            ErrorRow("VE:0003", "rejected", "the video template is of another signature"),
            ErrorRow("VE:0004", "rejected", "the video template has expired"),
        ),
        # The call itself: only a change of ours mends it.
        *documented(
            _GATEWAY,
            ErrorRow("MissingParameter", "rejected", "Action or Version is missing"),
            ErrorRow("MissingRequestInfo", "rejected", "X-Date is missing, or the like"),
            ErrorRow("ServiceNotFound", "rejected", "no such service"),
            ErrorRow("InvalidActionOrVersion", "rejected", "no such operation"),
        ),
        *documented(_SIBLING, ErrorRow("MethodNotAllowed", "rejected", "the call must be a POST")),
        # Unknown outcome.
        *documented(_SEND, ErrorRow("RE:0500", "unknown", "the service failed inside")),
        *documented(
            _GATEWAY,
            ErrorRow("InternalError", "unknown", "the gateway failed inside"),
            ErrorRow("InternalServiceTimeout", "unknown", "the service did not answer in time"),
        ),
        *documented(
            _SIBLING,
            ErrorRow("UndefinedError", "unknown", "the gateway failed inside"),
            ErrorRow("FailToConnect", "unknown", "the gateway did not reach the service"),
            ErrorRow("InternalServiceError", "unknown", "the service failed behind the gateway"),
            ErrorRow("ServiceUnavailableTemp", "unknown", "the service is away for the moment"),
        ),
    )
)

ABOUT_ONE: Final = frozenset({"RE:0006", "RE:0011"})
"""Codes by which one number can refuse a call for many."""
