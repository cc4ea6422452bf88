"""Aliyun SMS: every documented error of SendSms and SendBatchSms, the gateway's own among them.

The service has the codes isv.* and isp.*, the gateway the others. Codes of other operations (AddSmsSign,
AddSmsTemplate, …) and of receipts never answer a send and are left out.
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

BUSINESS_LIMIT: Final = "isv.BUSINESS_LIMIT_CONTROL"
_DAY: Final = 24 * HOUR

_SMS: Final = RowSource(
    "https://help.aliyun.com/zh/sms/developer-reference/api-error-codes",
    "2026-11-22",
    copy="the page in part; the rest in lists that public clients made of it",
)
_GATEWAY: Final = RowSource("https://help.aliyun.com/en/document_detail/434846.html", "2026-11-22")
_CLIENT: Final = RowSource("https://developer.aliyun.com/ask/278265", "2026-11-22")
_SIBLING: Final = RowSource("https://help.aliyun.com/en/polardb/client-error-codes", "2026-11-22")
"""Another product's page; the gateway is the same."""
_SERVER: Final = RowSource("https://help.aliyun.com/en/dns/error-code", "2026-11-22")
"""Another product's page; the gateway is the same."""

TABLE: Final = ErrorTable(
    (
        # The account: it cannot send any message; another account may.
        *documented(
            _SMS,
            ErrorRow("isv.OUT_OF_SERVICE", "not_sent", "suspended for want of balance", HOUR, True),
            ErrorRow("isv.AMOUNT_NOT_ENOUGH", "not_sent", "the balance is not enough", HOUR, True),
            paced(
                "isv.DAY_LIMIT_CONTROL",
                Limit.ACCOUNT,
                "the account's limit of the day",
                HOUR,
                account=True,
            ),
            paced(
                "isv.MONTH_LIMIT_CONTROL",
                Limit.ACCOUNT,
                "the account's limit of the month",
                HOUR,
                account=True,
            ),
            ErrorRow("isv.PRODUCT_UN_SUBSCRIPT", "not_sent", "SMS is not activated", HOUR, True),
            ErrorRow(
                "isv.PRODUCT_UNSUBSCRIBE", "not_sent", "the product is not subscribed", HOUR, True
            ),
            shut_out("isv.ACCOUNT_NOT_EXISTS", "there is no such account", HOUR),
            ErrorRow("isv.ACCOUNT_ABNORMAL", "not_sent", "the account is abnormal", HOUR, True),
            ErrorRow(
                "isv.SECURITY_FROZEN_ACCOUNT", "not_sent", "the account is frozen", HOUR, True
            ),
            ErrorRow(
                "isv.DENY_IP_RANGE", "not_sent", "calls from this region are refused", HOUR, True
            ),
            shut_out("isp.RAM_PERMISSION_DENY", "the key may not send SMS", HOUR),
            shut_out("SignatureDoesNotMatch", "the secret is not the key's", HOUR),
            ErrorRow(
                "InvalidTimeStamp.Expired", "not_sent", "our clock is 15 minutes off", MINUTE, True
            ),
        ),
        *documented(
            _SIBLING,
            shut_out("IncompleteSignature", "the signature is malformed", HOUR),
            shut_out("Forbidden.RAM", "the key is not authorised by RAM", HOUR),
            ErrorRow("Forbidden.RiskControl", "not_sent", "refused by risk control", HOUR, True),
        ),
        *documented(
            _GATEWAY, shut_out("InvalidAccessKeyId.NotFound", "there is no such key", HOUR)
        ),
        *documented(_CLIENT, shut_out("InvalidAccessKeyId.Inactive", "the key is disabled", HOUR)),
        *documented(_SERVER, shut_out("Forbidden", "the key is not authorised", HOUR)),
        # Pace.
        *documented(_SMS, paced(BUSINESS_LIMIT, Limit.RECEIVER, "too many to this number", MINUTE)),
        *documented(
            _SIBLING, paced("Throttling", Limit.ACCOUNT, "the gateway is throttling", 1_000)
        ),
        *documented(
            _CLIENT,
            paced("Throttling.User", Limit.ACCOUNT, "too many calls of this account", 1_000),
            paced("Throttling.Api", Limit.ACCOUNT, "too many calls of this operation", 1_000),
        ),
        # The receiver.
        *documented(
            _SMS,
            ErrorRow("isv.MOBILE_NUMBER_ILLEGAL", "rejected", "the number is malformed"),
            ErrorRow(
                "isv.BLACK_KEY_CONTROL_LIMIT", "rejected", "the number asked not to be disturbed"
            ),
            ErrorRow("isv.CUSTOMER_REFUSED", "rejected", "the receiver has unsubscribed"),
            ErrorRow("isv.DOMESTIC_NUMBER_NOT_SUPPORTED", "rejected", "an international template"),
            ErrorRow("isv.SMS_TEST_NUMBER_LIMIT", "rejected", "test SMS go to bound numbers only"),
            ErrorRow("isv.MOBILE_COUNT_OVER_LIMIT", "rejected", "too many numbers in the call"),
        ),
        # Signature, template, text.
        *documented(
            _SMS,
            ErrorRow("isv.SMS_SIGNATURE_ILLEGAL", "rejected", "the account has no such signature"),
            ErrorRow("isv.SMS_SIGN_ILLEGAL", "rejected", "the signature is forbidden"),
            ErrorRow("isv.SIGN_STATE_ILLEGAL", "rejected", "the signature is not available"),
            ErrorRow("isv.SIGN_NAME_ILLEGAL", "rejected", "the signature is malformed"),
            ErrorRow("isv.SIGNATURE_BLACKLIST", "rejected", "the signature is blacklisted"),
            ErrorRow(
                "isv.SIGN_SOURCE_ILLEGAL", "rejected", "the signature's origin is not supported"
            ),
            ErrorRow(
                "isv.SMS_SIGNATURE_SCENE_ILLEGAL", "rejected", "signature and template do not fit"
            ),
            ErrorRow("isv.EXTEND_CODE_ERROR", "rejected", "one extension code for two signatures"),
            ErrorRow("isv.ONE_CODE_MULTIPLE_SIGN", "rejected", "one code for several signatures"),
            ErrorRow("isv.CODE_ERROR", "rejected", "the extension code is not available"),
            ErrorRow("isv.CODE_EXCEED_LIMIT", "rejected", "too many extension codes"),
            ErrorRow("isv.SMS_TEMPLATE_ILLEGAL", "rejected", "no such approved template"),
            ErrorRow("isv.TEMPLATE_MISSING_PARAMETERS", "rejected", "a parameter is missing"),
            ErrorRow("isv.TEMPLATE_PARAMS_ILLEGAL", "rejected", "a parameter is not of its kind"),
            ErrorRow(
                "isv.INVALID_JSON_PARAM", "rejected", "the parameters are no JSON object of texts"
            ),
            ErrorRow("isv.INVALID_PARAMETERS", "rejected", "a parameter of the call is malformed"),
            ErrorRow("isv.PARAM_LENGTH_LIMIT", "rejected", "a parameter is too long"),
            ErrorRow("isv.PARAM_NOT_SUPPORT_URL", "rejected", "a parameter holds a URL"),
            ErrorRow("isv.SMS_CONTENT_ILLEGAL", "rejected", "the text is forbidden"),
            ErrorRow(
                "isv.UNSUPPORTED_CONTENT", "rejected", "the text holds unsupported characters"
            ),
            ErrorRow(
                "isv.SMS_CONTENT_MISMATCH_TEMPLATE_TYPE", "rejected", "not a text of this kind"
            ),
            ErrorRow(
                "isv.SMS_TEST_SIGN_TEMPLATE_LIMIT",
                "rejected",
                "test signature and template go together",
            ),
            ErrorRow(
                "isv.SMS_TEST_TEMPLATE_PARAMS_ILLEGAL", "rejected", "a test code has 4 to 6 digits"
            ),
        ),
        # The call itself: only a change of our code mends it.
        *documented(
            _SMS,
            ErrorRow("InvalidVersion", "rejected", "no such version of the API"),
            ErrorRow("InvalidAction.NotFound", "rejected", "no such operation"),
        ),
        *documented(
            _GATEWAY,
            ErrorRow("InvalidApi.NotFound", "rejected", "no such operation"),
            ErrorRow("InvalidTimeStamp.Format", "rejected", "the date is malformed"),
            ErrorRow("MissingPhoneNumbers", "rejected", "PhoneNumbers is missing"),
            ErrorRow("MissingPhoneNumberJson", "rejected", "PhoneNumberJson is missing"),
            ErrorRow("MissingSignName", "rejected", "SignName is missing"),
            ErrorRow("MissingSignNameJson", "rejected", "SignNameJson is missing"),
            ErrorRow("MissingTemplateCode", "rejected", "TemplateCode is missing"),
        ),
        # In doubt.
        *documented(
            _SMS,
            ErrorRow("isp.SYSTEM_ERROR", "unknown", "the provider failed inside"),
            ErrorRow("isp.GATEWAY_ERROR", "unknown", "the provider's gateway failed"),
        ),
        *documented(
            _SERVER,
            ErrorRow("InternalError", "unknown", "the provider failed inside"),
            ErrorRow("ServiceUnavailable", "unknown", "the provider failed for the moment"),
        ),
        # Our nonce has 256 bits: a repeated one means that something on the way repeated the request.
        *documented(
            _SMS, ErrorRow("SignatureNonceUsed", "unknown", "this very request came twice")
        ),
    )
)

ABOUT_ONE: Final = frozenset(
    {
        BUSINESS_LIMIT,
        "isv.MOBILE_NUMBER_ILLEGAL",
        "isv.BLACK_KEY_CONTROL_LIMIT",
        "isv.CUSTOMER_REFUSED",
        "isv.DOMESTIC_NUMBER_NOT_SUPPORTED",
        "isv.SMS_TEST_NUMBER_LIMIT",
        "isv.TEMPLATE_MISSING_PARAMETERS",
        "isv.TEMPLATE_PARAMS_ILLEGAL",
        "isv.PARAM_LENGTH_LIMIT",
        "isv.PARAM_NOT_SUPPORT_URL",
        "isv.SMS_CONTENT_ILLEGAL",
        "isv.UNSUPPORTED_CONTENT",
        "isv.SMS_SIGNATURE_ILLEGAL",
    }
)
"""Codes of one number, its parameters or its signature that refuse a whole call."""


def limit_ms(message: str) -> int | None:
    """Returns how long a number with too many messages waits; None unless the message names the period
    (触发天级流控)."""
    if "天级" in message:
        return _DAY
    return HOUR if "小时级" in message else None
