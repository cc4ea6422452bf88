"""Tencent Cloud SMS: every documented error of SendSms 2021-01-11, the common ones of API 3.0 among them.

Most stand in `SendStatusSet`, per number; the common ones and those of the account in `Response.Error`.
"""

from __future__ import annotations

from typing import Final

from channels.judging.error_table import (
    HOUR,
    MINUTE,
    ErrorTable,
    Row,
    Source,
    documented,
    paced,
    shut_out,
)
from message.outcomes import Limit

_DAY: Final = 24 * HOUR
_HALF_MINUTE: Final = MINUTE // 2

_SEND: Final = Source(
    "https://cloud.tencent.com/document/api/382/59177",
    "2026-11-22",
    copy="errorcodes.py of tencentcloud-sdk-python-sms 3.1.153 (PyPI), and the page in part",
)
_COMMON: Final = Source(
    "https://cloud.tencent.com/document/api/382/52075",
    "2026-11-22",
    copy="the page in part; the rest in lists that public clients made of it",
)
_OLDER: Final = Source(
    "https://github.com/TencentCloud/tencentcloud-sdk-go",
    "2026-11-22",
    copy="tencentcloud/sms/v20210111/errors.go at commit 016bc0d",
)

_ACCOUNT = (
    *documented(
        _COMMON,
        Row("AuthFailure.InvalidAuthorization", "not_sent", "malformed Authorization", HOUR, True),
        shut_out("AuthFailure.InvalidSecretId", "no key of this kind", HOUR),
        Row("AuthFailure.MFAFailure", "not_sent", "a second factor is wanted", HOUR, True),
        shut_out("AuthFailure.SecretIdNotFound", "there is no such key", HOUR),
        Row("AuthFailure.SignatureExpire", "not_sent", "our clock is 5 minutes off", MINUTE, True),
        shut_out("AuthFailure.SignatureFailure", "the secret is not the key's", HOUR),
        Row("AuthFailure.TokenFailure", "not_sent", "the temporary token is wrong", HOUR, True),
        shut_out("AuthFailure.UnauthorizedOperation", "the key may not send", HOUR),
        shut_out("UnauthorizedOperation", "the key may not send", HOUR),
        shut_out("IpInBlacklist", "our address is blacklisted", HOUR),
        shut_out("IpNotInWhitelist", "our address is not allowed", HOUR),
    ),
    *documented(
        _SEND,
        shut_out("InternalError.SigVerificationFail", "the signature is wrong", HOUR),
        shut_out("InternalError.SigFieldMissing", "the signature is missing", HOUR),
        Row("InternalError.RequestTimeException", "not_sent", "our clock is off", MINUTE, True),
        shut_out("InvalidParameterValue.SdkAppIdNotExist", "no such SdkAppId", HOUR),
        shut_out("UnauthorizedOperation.RequestIpNotInWhitelist", "our address", HOUR),
        shut_out("UnauthorizedOperation.RequestPermissionDeny", "no permission", HOUR),
        shut_out("UnauthorizedOperation.SdkAppIdIsDisabled", "SdkAppId disabled", HOUR),
        shut_out("UnauthorizedOperation.SmsSdkAppIdVerifyFail", "SdkAppId of another", HOUR),
        Row(
            "UnauthorizedOperation.ServiceSuspendDueToArrears", "not_sent", "in arrears", HOUR, True
        ),
    ),
    # The provider's own misspelling of the row above, in older versions of the document.
    *documented(
        _OLDER,
        Row(
            "UnauthorizedOperation.SerivceSuspendDueToArrears", "not_sent", "in arrears", HOUR, True
        ),
    ),
    *documented(
        _SEND,
        Row(
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
        _COMMON, Row("ResourceInsufficient", "not_sent", "resources are used up", HOUR, True)
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
    # Of one country or of all abroad: the account may go on to send at home.
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
        Row("FailedOperation.ContainSensitiveWord", "rejected", "a forbidden word"),
        Row(
            "FailedOperation.PhoneNumberInBlacklist",
            "rejected",
            "the number asked to be left alone",
        ),
        Row("FailedOperation.PhoneNumberParseFail", "rejected", "the number is not E.164"),
        Row("FailedOperation.SignatureIncorrectOrUnapproved", "rejected", "no approved signature"),
        Row("FailedOperation.TemplateIncorrectOrUnapproved", "rejected", "no approved template"),
        Row("FailedOperation.TemplateUnapprovedOrNotExist", "rejected", "no approved template"),
        Row(
            "FailedOperation.TemplateParamSetNotMatchApprovedTemplate",
            "rejected",
            "parameters do not fit",
        ),
        Row("InvalidParameterValue.ContentLengthLimit", "rejected", "the text is too long"),
        Row("InvalidParameterValue.IncorrectPhoneNumber", "rejected", "the number is malformed"),
        Row("InvalidParameterValue.ProhibitedUseUrlInTemplateParameter", "rejected", "a URL"),
        Row(
            "InvalidParameterValue.TemplateParameterFormatError",
            "rejected",
            "a code is 0 to 6 digits",
        ),
        Row(
            "InvalidParameterValue.TemplateParameterLengthLimit",
            "rejected",
            "a parameter is too long",
        ),
        Row(
            "LimitExceeded.AppCountryOrRegionInBlacklist", "rejected", "the country is not allowed"
        ),
        Row(
            "UnauthorizedOperation.IndividualUserMarketingSmsPermissionDeny",
            "rejected",
            "no marketing",
        ),
        Row(
            "UnsupportedOperation.ChineseMainlandTemplateToGlobalPhone",
            "rejected",
            "template of home",
        ),
        Row(
            "UnsupportedOperation.GlobalTemplateToChineseMainlandPhone",
            "rejected",
            "template of abroad",
        ),
        Row("UnsupportedOperation.UnsupportedRegion", "rejected", "the country is not supported"),
    ),
    *documented(
        _OLDER,
        Row("UnsupportedOperation.UnsuportedRegion", "rejected", "the country is not supported"),
    ),
)

_CALL = (
    *documented(
        _COMMON,
        Row("ActionOffline", "rejected", "the operation is gone"),
        Row("DryRunOperation", "rejected", "it would have been sent"),
        Row("InvalidAction", "rejected", "no such operation"),
        Row("InvalidParameterValue", "rejected", "a parameter's value is wrong"),
        Row("InvalidRequest", "rejected", "the call is malformed"),
        Row("NoSuchProduct", "rejected", "no such product"),
        Row("NoSuchVersion", "rejected", "no such version of the API"),
        Row("RequestSizeLimitExceeded", "rejected", "the call is too large"),
        Row("UnknownParameter", "rejected", "a parameter that is not defined"),
        Row("UnsupportedProtocol", "rejected", "neither GET nor POST"),
        Row("UnsupportedRegion", "rejected", "the service has no such region"),
    ),
    *documented(
        _SEND,
        Row("FailedOperation.FailResolvePacket", "rejected", "the call is malformed"),
        Row("FailedOperation.JsonParseFail", "rejected", "the call is no JSON"),
        Row("InternalError.JsonParseFail", "rejected", "the call's parameters are no JSON"),
        Row("InternalError.RestApiInterfaceNotExist", "rejected", "no such operation"),
        Row("InvalidParameter", "rejected", "a parameter of the call is malformed"),
        Row("LimitExceeded.PhoneNumberCountLimit", "rejected", "more than 200 numbers"),
        Row("MissingParameter", "rejected", "a parameter is missing"),
        Row("MissingParameter.EmptyPhoneNumberSet", "rejected", "no number"),
        Row("UnsupportedOperation", "rejected", "not supported"),
        Row("UnsupportedOperation.ContainDomesticAndInternationalPhoneNumber", "rejected", "mixed"),
    ),
)

# As the SDK for Go has it, with the point at its end.
_POINTED = documented(_OLDER, Row("UnsupportedOperation.", "rejected", "not supported"))

_DOUBT = (
    *documented(
        _COMMON,
        Row("FailedOperation", "unknown", "the operation failed"),
        Row("InternalError", "unknown", "the provider failed inside"),
        Row("ResourceUnavailable", "unknown", "a resource is not available"),
        Row("ResponseSizeLimitExceeded", "unknown", "the answer was too large to be given"),
        Row("ServiceUnavailable", "unknown", "the service is not available for the moment"),
    ),
    *documented(
        _SEND,
        Row("InternalError.OtherError", "unknown", "another error inside"),
        Row(
            "InternalError.SendAndRecvFail", "unknown", "timed out between the provider's own parts"
        ),
        Row("InternalError.Timeout", "unknown", "timed out inside"),
        Row("InternalError.UnknownError", "unknown", "an unknown error inside"),
    ),
)

TABLE: Final = ErrorTable((*_ACCOUNT, *_PACE, *_MESSAGE, *_CALL, *_POINTED, *_DOUBT))
