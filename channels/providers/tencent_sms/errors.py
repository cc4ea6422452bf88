"""Tencent Cloud SMS: every documented error of SendSms 2021-01-11, the common ones of API 3.0 among them.

Most come in `SendStatusSet`, per number; common errors and those of the account come in `Response.Error`.
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

_DAY: Final = 24 * HOUR
_HALF_MINUTE: Final = MINUTE // 2

_SEND: Final = RowSource(
    "https://cloud.tencent.com/document/api/382/59177",
    "2026-11-22",
    copy="errorcodes.py of tencentcloud-sdk-python-sms 3.1.153 (PyPI), and the page in part",
)
_COMMON: Final = RowSource(
    "https://cloud.tencent.com/document/api/382/52075",
    "2026-11-22",
    copy="the page in part; the rest in lists that public clients made of it",
)
_OLDER: Final = RowSource(
    "https://github.com/TencentCloud/tencentcloud-sdk-go",
    "2026-11-22",
    copy="tencentcloud/sms/v20210111/errors.go at commit 016bc0d",
)

_ACCOUNT = (
    *documented(
        _COMMON,
        ErrorRow(
            "AuthFailure.InvalidAuthorization", "not_sent", "malformed Authorization", HOUR, True
        ),
        shut_out("AuthFailure.InvalidSecretId", "no key of this kind", HOUR),
        ErrorRow("AuthFailure.MFAFailure", "not_sent", "a second factor is wanted", HOUR, True),
        shut_out("AuthFailure.SecretIdNotFound", "there is no such key", HOUR),
        ErrorRow(
            "AuthFailure.SignatureExpire", "not_sent", "our clock is 5 minutes off", MINUTE, True
        ),
        shut_out("AuthFailure.SignatureFailure", "the secret is not the key's", HOUR),
        ErrorRow(
            "AuthFailure.TokenFailure", "not_sent", "the temporary token is wrong", HOUR, True
        ),
        shut_out("AuthFailure.UnauthorizedOperation", "the key may not send", HOUR),
        shut_out("UnauthorizedOperation", "the key may not send", HOUR),
        shut_out("IpInBlacklist", "our address is blacklisted", HOUR),
        shut_out("IpNotInWhitelist", "our address is not allowed", HOUR),
    ),
    *documented(
        _SEND,
        shut_out("InternalError.SigVerificationFail", "the signature is wrong", HOUR),
        shut_out("InternalError.SigFieldMissing", "the signature is missing", HOUR),
        ErrorRow(
            "InternalError.RequestTimeException", "not_sent", "our clock is off", MINUTE, True
        ),
        shut_out("InvalidParameterValue.SdkAppIdNotExist", "no such SdkAppId", HOUR),
        shut_out("UnauthorizedOperation.RequestIpNotInWhitelist", "our address", HOUR),
        shut_out("UnauthorizedOperation.RequestPermissionDeny", "no permission", HOUR),
        shut_out("UnauthorizedOperation.SdkAppIdIsDisabled", "SdkAppId disabled", HOUR),
        shut_out("UnauthorizedOperation.SmsSdkAppIdVerifyFail", "SdkAppId of another", HOUR),
        ErrorRow(
            "UnauthorizedOperation.ServiceSuspendDueToArrears", "not_sent", "in arrears", HOUR, True
        ),
    ),
    # The provider's own misspelling of the row above, in older versions of the document.
    *documented(
        _OLDER,
        ErrorRow(
            "UnauthorizedOperation.SerivceSuspendDueToArrears", "not_sent", "in arrears", HOUR, True
        ),
    ),
    *documented(
        _SEND,
        ErrorRow(
            "FailedOperation.InsufficientBalanceInSmsPackage", "not_sent", "no balance", HOUR, True
        ),
        paced(
            "LimitExceeded.AppDailyLimit",
            Limit.ACCOUNT,
            "the account's limit of the day",
            HOUR,
            account=True,
        ),
    ),
    *documented(
        _COMMON, ErrorRow("ResourceInsufficient", "not_sent", "resources are used up", HOUR, True)
    ),
)

_PACE = (
    *documented(
        _COMMON,
        paced("RequestLimitExceeded", Limit.ACCOUNT, "too many calls", 1_000),
        paced(
            "RequestLimitExceeded.GlobalRegionUinLimitExceeded",
            Limit.ACCOUNT,
            "too many calls",
            1_000,
        ),
        paced(
            "RequestLimitExceeded.IPLimitExceeded",
            Limit.ACCOUNT,
            "too many from our address",
            1_000,
        ),
        paced(
            "RequestLimitExceeded.UinLimitExceeded",
            Limit.ACCOUNT,
            "too many of this account",
            1_000,
        ),
        paced("LimitExceeded", Limit.PART, "a quota is used up", HOUR),
    ),
    # Limits of one country or of all abroad: the account may still send elsewhere.
    *documented(
        _SEND,
        paced(
            "LimitExceeded.AppMainlandChinaDailyLimit",
            Limit.PART,
            "limit of the day, mainland",
            HOUR,
        ),
        paced("LimitExceeded.AppGlobalDailyLimit", Limit.PART, "limit of the day, abroad", HOUR),
        paced(
            "LimitExceeded.AppCountryOrRegionDailyLimit", Limit.PART, "limit of this country", HOUR
        ),
        paced("LimitExceeded.DailyLimit", Limit.PART, "limit of the day, abroad", HOUR),
        paced("LimitExceeded.GlobalSmsSendingRateLimit", Limit.PART, "too fast abroad", MINUTE),
        paced(
            "LimitExceeded.DeliveryFrequencyLimit",
            Limit.RECEIVER,
            "too often to this number",
            MINUTE,
        ),
        paced(
            "LimitExceeded.PhoneNumberThirtySecondLimit",
            Limit.RECEIVER,
            "number: 30 s",
            _HALF_MINUTE,
        ),
        paced("LimitExceeded.PhoneNumberOneHourLimit", Limit.RECEIVER, "number: one hour", HOUR),
        paced("LimitExceeded.PhoneNumberDailyLimit", Limit.RECEIVER, "number: one day", _DAY),
        paced(
            "LimitExceeded.PhoneNumberSameContentDailyLimit",
            Limit.RECEIVER,
            "number: same text",
            _DAY,
        ),
        paced(
            "FailedOperation.MarketingSendTimeConstraint", Limit.PART, "marketing: 8 to 22 h", HOUR
        ),
    ),
)

_MESSAGE = (
    *documented(
        _SEND,
        ErrorRow("FailedOperation.ContainSensitiveWord", "rejected", "a forbidden word"),
        ErrorRow(
            "FailedOperation.PhoneNumberInBlacklist",
            "rejected",
            "the number asked to be left alone",
        ),
        ErrorRow("FailedOperation.PhoneNumberParseFail", "rejected", "the number is not E.164"),
        ErrorRow(
            "FailedOperation.SignatureIncorrectOrUnapproved", "rejected", "no approved signature"
        ),
        ErrorRow(
            "FailedOperation.TemplateIncorrectOrUnapproved", "rejected", "no approved template"
        ),
        ErrorRow(
            "FailedOperation.TemplateUnapprovedOrNotExist", "rejected", "no approved template"
        ),
        ErrorRow(
            "FailedOperation.TemplateParamSetNotMatchApprovedTemplate",
            "rejected",
            "parameters do not fit",
        ),
        ErrorRow("InvalidParameterValue.ContentLengthLimit", "rejected", "the text is too long"),
        ErrorRow(
            "InvalidParameterValue.IncorrectPhoneNumber", "rejected", "the number is malformed"
        ),
        ErrorRow("InvalidParameterValue.ProhibitedUseUrlInTemplateParameter", "rejected", "a URL"),
        ErrorRow(
            "InvalidParameterValue.TemplateParameterFormatError",
            "rejected",
            "a code is 0 to 6 digits",
        ),
        ErrorRow(
            "InvalidParameterValue.TemplateParameterLengthLimit",
            "rejected",
            "a parameter is too long",
        ),
        ErrorRow(
            "LimitExceeded.AppCountryOrRegionInBlacklist", "rejected", "the country is not allowed"
        ),
        ErrorRow(
            "UnauthorizedOperation.IndividualUserMarketingSmsPermissionDeny",
            "rejected",
            "no marketing",
        ),
        ErrorRow(
            "UnsupportedOperation.ChineseMainlandTemplateToGlobalPhone",
            "rejected",
            "template of home",
        ),
        ErrorRow(
            "UnsupportedOperation.GlobalTemplateToChineseMainlandPhone",
            "rejected",
            "template of abroad",
        ),
        ErrorRow(
            "UnsupportedOperation.UnsupportedRegion", "rejected", "the country is not supported"
        ),
    ),
    *documented(
        _OLDER,
        ErrorRow(
            "UnsupportedOperation.UnsuportedRegion", "rejected", "the country is not supported"
        ),
    ),
)

_CALL = (
    *documented(
        _COMMON,
        ErrorRow("ActionOffline", "rejected", "the operation is gone"),
        ErrorRow("DryRunOperation", "rejected", "it would have been sent"),
        ErrorRow("InvalidAction", "rejected", "no such operation"),
        ErrorRow("InvalidParameterValue", "rejected", "a parameter's value is wrong"),
        ErrorRow("InvalidRequest", "rejected", "the call is malformed"),
        ErrorRow("NoSuchProduct", "rejected", "no such product"),
        ErrorRow("NoSuchVersion", "rejected", "no such version of the API"),
        ErrorRow("RequestSizeLimitExceeded", "rejected", "the call is too large"),
        ErrorRow("UnknownParameter", "rejected", "a parameter that is not defined"),
        ErrorRow("UnsupportedProtocol", "rejected", "neither GET nor POST"),
        ErrorRow("UnsupportedRegion", "rejected", "the service has no such region"),
    ),
    *documented(
        _SEND,
        ErrorRow("FailedOperation.FailResolvePacket", "rejected", "the call is malformed"),
        ErrorRow("FailedOperation.JsonParseFail", "rejected", "the call is no JSON"),
        ErrorRow("InternalError.JsonParseFail", "rejected", "the call's parameters are no JSON"),
        ErrorRow("InternalError.RestApiInterfaceNotExist", "rejected", "no such operation"),
        ErrorRow("InvalidParameter", "rejected", "a parameter of the call is malformed"),
        ErrorRow("LimitExceeded.PhoneNumberCountLimit", "rejected", "more than 200 numbers"),
        ErrorRow("MissingParameter", "rejected", "a parameter is missing"),
        ErrorRow("MissingParameter.EmptyPhoneNumberSet", "rejected", "no number"),
        ErrorRow("UnsupportedOperation", "rejected", "not supported"),
        ErrorRow(
            "UnsupportedOperation.ContainDomesticAndInternationalPhoneNumber", "rejected", "mixed"
        ),
    ),
)

# The SDK for Go has this code with the point at its end.
_POINTED = documented(_OLDER, ErrorRow("UnsupportedOperation.", "rejected", "not supported"))

_DOUBT = (
    *documented(
        _COMMON,
        ErrorRow("FailedOperation", "unknown", "the operation failed"),
        ErrorRow("InternalError", "unknown", "the provider failed inside"),
        ErrorRow("ResourceUnavailable", "unknown", "a resource is not available"),
        ErrorRow("ResponseSizeLimitExceeded", "unknown", "the answer was too large to be given"),
        ErrorRow("ServiceUnavailable", "unknown", "the service is not available for the moment"),
    ),
    *documented(
        _SEND,
        ErrorRow("InternalError.OtherError", "unknown", "another error inside"),
        ErrorRow(
            "InternalError.SendAndRecvFail", "unknown", "timed out between the provider's own parts"
        ),
        ErrorRow("InternalError.Timeout", "unknown", "timed out inside"),
        ErrorRow("InternalError.UnknownError", "unknown", "an unknown error inside"),
    ),
)

TABLE: Final = ErrorTable((*_ACCOUNT, *_PACE, *_MESSAGE, *_CALL, *_POINTED, *_DOUBT))
