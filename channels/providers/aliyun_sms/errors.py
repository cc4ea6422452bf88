"""Aliyun SMS: every documented error of SendSms and SendBatchSms, the gateway's own among them.

The service has the codes isv.* and isp.*, the gateway the others. Codes of other operations (AddSmsSign,
AddSmsTemplate, …) and of receipts never answer a send and are left out.
"""

from __future__ import annotations

from typing import Final

from channels.judging import error_table as codes
from channels.judging.error_table import HOUR, MINUTE, ErrorTable, RowSource
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
_SPELT: Final = RowSource(
    "https://help.aliyun.com/zh/polardb/client-error-codes",
    "2026-11-28",
    copy="the page, which spells it Forbedden.NotSupportRAM; other products' lists spell it as here",
)
_RIGHTS: Final = RowSource("https://help.aliyun.com/en/document_detail/3060281.html", "2026-11-28")
"""Another product's page; the gateway is the same."""
_SERVER: Final = RowSource("https://help.aliyun.com/en/dns/error-code", "2026-11-22")
"""Another product's page; the gateway is the same."""

TABLE: Final = ErrorTable(
    # The account: it cannot send any message; another account may.
    codes.documented(
        _SMS,
        codes.account_fault("isv.OUT_OF_SERVICE", "suspended for want of balance", HOUR),
        codes.account_fault("isv.AMOUNT_NOT_ENOUGH", "the balance is not enough", HOUR),
        codes.used_up("isv.DAY_LIMIT_CONTROL", "the account's limit of the day", HOUR),
        codes.used_up("isv.MONTH_LIMIT_CONTROL", "the account's limit of the month", HOUR),
        codes.account_fault("isv.PRODUCT_UN_SUBSCRIPT", "SMS is not activated", HOUR),
        codes.account_fault("isv.PRODUCT_UNSUBSCRIBE", "the product is not subscribed", HOUR),
        codes.shut_out("isv.ACCOUNT_NOT_EXISTS", "there is no such account", HOUR),
        codes.account_fault("isv.ACCOUNT_ABNORMAL", "the account is abnormal", HOUR),
        codes.account_fault("isv.SECURITY_FROZEN_ACCOUNT", "the account is frozen", HOUR),
        codes.account_fault("isv.DENY_IP_RANGE", "calls from this region are refused", HOUR),
        codes.shut_out("isp.RAM_PERMISSION_DENY", "the key may not send SMS", HOUR),
        codes.shut_out("SignatureDoesNotMatch", "the secret is not the key's", HOUR),
        codes.account_fault("InvalidTimeStamp.Expired", "our clock is 15 minutes off", MINUTE),
    ),
    codes.documented(
        _SIBLING,
        codes.shut_out("IncompleteSignature", "the signature is malformed", HOUR),
        codes.shut_out("Forbidden.RAM", "the key is not authorised by RAM", HOUR),
        codes.account_fault("Forbidden.RiskControl", "refused by risk control", HOUR),
        codes.account_fault("Forbidden.*", "another of the account's refusals", HOUR),
        codes.shut_out("ActionUnauthorized", "the account may not call the operation", HOUR),
        codes.account_fault("InsufficientBalance", "the balance is not enough", HOUR),
        codes.account_fault("IllegalTimestamp", "the date is missing", HOUR),
    ),
    codes.documented(
        _SPELT, codes.shut_out("Forbidden.NotSupportRAM", "no operation for a RAM user's key", HOUR)
    ),
    codes.documented(_RIGHTS, codes.shut_out("NoPermission", "the key has no permission", HOUR)),
    codes.documented(
        _GATEWAY, codes.shut_out("InvalidAccessKeyId.NotFound", "there is no such key", HOUR)
    ),
    codes.documented(
        _CLIENT,
        codes.shut_out("InvalidAccessKeyId.Inactive", "the key is disabled", HOUR),
        codes.account_fault("InvalidSignatureMethod", "no such method of signing", HOUR),
    ),
    codes.unproved(
        "public clients list it; no page of Aliyun's that was read has it",
        codes.shut_out("InvalidAccessKeySecret", "the secret is not the key's", HOUR),
    ),
    codes.documented(
        _SERVER,
        codes.shut_out("Forbidden", "the key is not authorised", HOUR),
        codes.account_fault("Forbidden.UserVerification", "the account's owner is unproved", HOUR),
    ),
    # Pace.
    codes.documented(
        _SMS, codes.paced(BUSINESS_LIMIT, Limit.RECEIVER, "too many to this number", MINUTE)
    ),
    codes.documented(
        _SIBLING, codes.paced("Throttling*", Limit.ACCOUNT, "the gateway is throttling", 1_000)
    ),
    codes.documented(
        _CLIENT,
        codes.paced("Throttling.User", Limit.ACCOUNT, "too many calls of this account", 1_000),
        codes.paced("Throttling.Api", Limit.ACCOUNT, "too many calls of this operation", 1_000),
    ),
    # The receiver.
    codes.documented(
        _SMS,
        codes.rejected("isv.MOBILE_NUMBER_ILLEGAL", "the number is malformed"),
        codes.rejected("isv.BLACK_KEY_CONTROL_LIMIT", "the number asked not to be disturbed"),
        codes.rejected("isv.CUSTOMER_REFUSED", "the receiver has unsubscribed"),
        codes.rejected("isv.DOMESTIC_NUMBER_NOT_SUPPORTED", "an international template"),
        codes.rejected("isv.SMS_TEST_NUMBER_LIMIT", "test SMS go to bound numbers only"),
        codes.rejected("isv.MOBILE_COUNT_OVER_LIMIT", "too many numbers in the call"),
        # Signature, template, text.
        codes.rejected("isv.SMS_SIGNATURE_ILLEGAL", "the account has no such signature"),
        codes.rejected("isv.SMS_SIGN_ILLEGAL", "the signature is forbidden"),
        codes.rejected("isv.SIGN_STATE_ILLEGAL", "the signature is not available"),
        codes.rejected("isv.SIGN_NAME_ILLEGAL", "the signature is malformed"),
        codes.rejected("isv.SIGNATURE_BLACKLIST", "the signature is blacklisted"),
        codes.rejected("isv.SIGN_SOURCE_ILLEGAL", "the signature's origin is not supported"),
        codes.rejected("isv.SMS_SIGNATURE_SCENE_ILLEGAL", "signature and template do not fit"),
        codes.rejected("isv.EXTEND_CODE_ERROR", "one extension code for two signatures"),
        codes.rejected("isv.ONE_CODE_MULTIPLE_SIGN", "one code for several signatures"),
        codes.rejected("isv.CODE_ERROR", "the extension code is not available"),
        codes.rejected("isv.CODE_EXCEED_LIMIT", "too many extension codes"),
        codes.rejected("isv.SMS_TEMPLATE_ILLEGAL", "no such approved template"),
        codes.rejected("isv.TEMPLATE_MISSING_PARAMETERS", "a parameter is missing"),
        codes.rejected("isv.TEMPLATE_PARAMS_ILLEGAL", "a parameter is not of its kind"),
        codes.rejected("isv.INVALID_JSON_PARAM", "the parameters are no JSON object of texts"),
        codes.rejected("isv.INVALID_PARAMETERS", "a parameter of the call is malformed"),
        codes.rejected("isv.PARAM_LENGTH_LIMIT", "a parameter is too long"),
        codes.rejected("isv.PARAM_NOT_SUPPORT_URL", "a parameter holds a URL"),
        codes.rejected("isv.SMS_CONTENT_ILLEGAL", "the text is forbidden"),
        codes.rejected("isv.UNSUPPORTED_CONTENT", "the text holds unsupported characters"),
        codes.rejected("isv.SMS_CONTENT_MISMATCH_TEMPLATE_TYPE", "not a text of this kind"),
        codes.rejected(
            "isv.SMS_TEST_SIGN_TEMPLATE_LIMIT", "test signature and template go together"
        ),
        codes.rejected("isv.SMS_TEST_TEMPLATE_PARAMS_ILLEGAL", "a test code has 4 to 6 digits"),
        # The call itself: only a change of our code mends it.
        codes.rejected("InvalidVersion", "no such version of the API"),
        codes.rejected("InvalidAction.NotFound", "no such operation"),
    ),
    codes.documented(
        _GATEWAY,
        codes.rejected("InvalidApi.NotFound", "no such operation"),
        codes.rejected("InvalidTimeStamp.Format", "the date is malformed"),
        codes.rejected("MissingPhoneNumbers", "PhoneNumbers is missing"),
        codes.rejected("MissingPhoneNumberJson", "PhoneNumberJson is missing"),
        codes.rejected("MissingSignName", "SignName is missing"),
        codes.rejected("MissingSignNameJson", "SignNameJson is missing"),
        codes.rejected("MissingTemplateCode", "TemplateCode is missing"),
    ),
    # In doubt.
    codes.documented(
        _SMS,
        codes.unknown("isp.SYSTEM_ERROR", "the provider failed inside"),
        codes.unknown("isp.GATEWAY_ERROR", "the provider's gateway failed"),
    ),
    codes.documented(
        _SERVER,
        codes.unknown("InternalError", "the provider failed inside"),
        codes.unknown("ServiceUnavailable", "the provider failed for the moment"),
    ),
    # Our nonce has 256 bits: a repeated one means that something on the way repeated the request.
    codes.documented(_SMS, codes.unknown("SignatureNonceUsed", "this very request came twice")),
)

ABOUT_ALL: Final = frozenset(
    {
        # All deliveries of a call share the template.
        "isv.SMS_TEMPLATE_ILLEGAL",
        # The call's own form.
        "InvalidVersion",
        "InvalidAction.NotFound",
        "InvalidApi.NotFound",
        "InvalidTimeStamp.Format",
        "MissingPhoneNumbers",
        "MissingPhoneNumberJson",
        "MissingSignName",
        "MissingSignNameJson",
        "MissingTemplateCode",
    }
)
"""Codes of rejections that hold for every delivery of a call."""

ABOUT_ONE: Final = frozenset(
    row.code
    for row in TABLE
    if (row.kind == "rejected" or row.limit is Limit.RECEIVER) and row.code not in ABOUT_ALL
)
"""Codes by which one delivery's number, parameters or signature can refuse a call for many: all others."""


def limit_ms(message: str) -> int | None:
    """Returns how long a number with too many messages waits; None unless the message names the period
    (触发天级流控)."""
    if "天级" in message:
        return _DAY
    return HOUR if "小时级" in message else None
