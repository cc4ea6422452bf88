"""Tencent Cloud SMS: every documented error of SendSms 2021-01-11, the common ones of API 3.0 among them.

Most come in `SendStatusSet`, per number; common errors and those of the account come in `Response.Error`.
"""

from __future__ import annotations

from typing import Final

from channels.judging import error_table as codes
from channels.judging.error_table import HOUR, MINUTE, ErrorTable, RowSource
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
    *codes.documented(
        _COMMON,
        codes.account_fault("AuthFailure.InvalidAuthorization", "malformed Authorization", HOUR),
        codes.shut_out("AuthFailure.InvalidSecretId", "no key of this kind", HOUR),
        codes.account_fault("AuthFailure.MFAFailure", "a second factor is wanted", HOUR),
        codes.shut_out("AuthFailure.SecretIdNotFound", "there is no such key", HOUR),
        codes.account_fault("AuthFailure.SignatureExpire", "our clock is 5 minutes off", MINUTE),
        codes.shut_out("AuthFailure.SignatureFailure", "the secret is not the key's", HOUR),
        codes.account_fault("AuthFailure.TokenFailure", "the temporary token is wrong", HOUR),
        codes.shut_out("AuthFailure.UnauthorizedOperation", "the key may not send", HOUR),
        codes.shut_out("UnauthorizedOperation", "the key may not send", HOUR),
        codes.shut_out("IpInBlacklist", "our address is blacklisted", HOUR),
        codes.shut_out("IpNotInWhitelist", "our address is not allowed", HOUR),
    ),
    *codes.documented(
        _SEND,
        codes.shut_out("InternalError.SigVerificationFail", "the signature is wrong", HOUR),
        codes.shut_out("InternalError.SigFieldMissing", "the signature is missing", HOUR),
        codes.account_fault("InternalError.RequestTimeException", "our clock is off", MINUTE),
        codes.shut_out("InvalidParameterValue.SdkAppIdNotExist", "no such SdkAppId", HOUR),
        codes.shut_out("UnauthorizedOperation.RequestIpNotInWhitelist", "our address", HOUR),
        codes.shut_out("UnauthorizedOperation.RequestPermissionDeny", "no permission", HOUR),
        codes.shut_out("UnauthorizedOperation.SdkAppIdIsDisabled", "SdkAppId disabled", HOUR),
        codes.shut_out("UnauthorizedOperation.SmsSdkAppIdVerifyFail", "SdkAppId of another", HOUR),
        codes.account_fault("UnauthorizedOperation.ServiceSuspendDueToArrears", "in arrears", HOUR),
    ),
    # The provider's own misspelling of the row above, in older versions of the document.
    *codes.documented(
        _OLDER,
        codes.account_fault("UnauthorizedOperation.SerivceSuspendDueToArrears", "in arrears", HOUR),
    ),
    *codes.documented(
        _SEND,
        codes.account_fault("FailedOperation.InsufficientBalanceInSmsPackage", "no balance", HOUR),
        codes.paced(
            "LimitExceeded.AppDailyLimit",
            Limit.ACCOUNT,
            "the account's limit of the day",
            HOUR,
            account=True,
        ),
    ),
    *codes.documented(
        _COMMON, codes.account_fault("ResourceInsufficient", "resources are used up", HOUR)
    ),
)

_PACE = (
    *codes.documented(
        _COMMON,
        codes.paced("RequestLimitExceeded", Limit.ACCOUNT, "too many calls", 1_000),
        codes.paced(
            "RequestLimitExceeded.GlobalRegionUinLimitExceeded",
            Limit.ACCOUNT,
            "too many calls",
            1_000,
        ),
        codes.paced(
            "RequestLimitExceeded.IPLimitExceeded",
            Limit.ACCOUNT,
            "too many from our address",
            1_000,
        ),
        codes.paced(
            "RequestLimitExceeded.UinLimitExceeded",
            Limit.ACCOUNT,
            "too many of this account",
            1_000,
        ),
        codes.paced("LimitExceeded", Limit.PART, "a quota is used up", HOUR),
    ),
    # Limits of one country or of all abroad: the account may still send elsewhere.
    *codes.documented(
        _SEND,
        codes.paced(
            "LimitExceeded.AppMainlandChinaDailyLimit",
            Limit.PART,
            "limit of the day, mainland",
            HOUR,
        ),
        codes.paced(
            "LimitExceeded.AppGlobalDailyLimit", Limit.PART, "limit of the day, abroad", HOUR
        ),
        codes.paced(
            "LimitExceeded.AppCountryOrRegionDailyLimit", Limit.PART, "limit of this country", HOUR
        ),
        codes.paced("LimitExceeded.DailyLimit", Limit.PART, "limit of the day, abroad", HOUR),
        codes.paced(
            "LimitExceeded.GlobalSmsSendingRateLimit", Limit.PART, "too fast abroad", MINUTE
        ),
        codes.paced(
            "LimitExceeded.DeliveryFrequencyLimit",
            Limit.RECEIVER,
            "too often to this number",
            MINUTE,
        ),
        codes.paced(
            "LimitExceeded.PhoneNumberThirtySecondLimit",
            Limit.RECEIVER,
            "number: 30 s",
            _HALF_MINUTE,
        ),
        codes.paced(
            "LimitExceeded.PhoneNumberOneHourLimit", Limit.RECEIVER, "number: one hour", HOUR
        ),
        codes.paced("LimitExceeded.PhoneNumberDailyLimit", Limit.RECEIVER, "number: one day", _DAY),
        codes.paced(
            "LimitExceeded.PhoneNumberSameContentDailyLimit",
            Limit.RECEIVER,
            "number: same text",
            _DAY,
        ),
        codes.paced(
            "FailedOperation.MarketingSendTimeConstraint", Limit.PART, "marketing: 8 to 22 h", HOUR
        ),
    ),
)

_MESSAGE = (
    *codes.documented(
        _SEND,
        codes.rejected("FailedOperation.ContainSensitiveWord", "a forbidden word"),
        codes.rejected(
            "FailedOperation.PhoneNumberInBlacklist", "the number asked to be left alone"
        ),
        codes.rejected("FailedOperation.PhoneNumberParseFail", "the number is not E.164"),
        codes.rejected("FailedOperation.SignatureIncorrectOrUnapproved", "no approved signature"),
        codes.rejected("FailedOperation.TemplateIncorrectOrUnapproved", "no approved template"),
        codes.rejected("FailedOperation.TemplateUnapprovedOrNotExist", "no approved template"),
        codes.rejected(
            "FailedOperation.TemplateParamSetNotMatchApprovedTemplate", "parameters do not fit"
        ),
        codes.rejected("InvalidParameterValue.ContentLengthLimit", "the text is too long"),
        codes.rejected("InvalidParameterValue.IncorrectPhoneNumber", "the number is malformed"),
        codes.rejected("InvalidParameterValue.ProhibitedUseUrlInTemplateParameter", "a URL"),
        codes.rejected(
            "InvalidParameterValue.TemplateParameterFormatError", "a code is 0 to 6 digits"
        ),
        codes.rejected(
            "InvalidParameterValue.TemplateParameterLengthLimit", "a parameter is too long"
        ),
        codes.rejected("LimitExceeded.AppCountryOrRegionInBlacklist", "the country is not allowed"),
        codes.rejected(
            "UnauthorizedOperation.IndividualUserMarketingSmsPermissionDeny", "no marketing"
        ),
        codes.rejected(
            "UnsupportedOperation.ChineseMainlandTemplateToGlobalPhone", "template of home"
        ),
        codes.rejected(
            "UnsupportedOperation.GlobalTemplateToChineseMainlandPhone", "template of abroad"
        ),
        codes.rejected("UnsupportedOperation.UnsupportedRegion", "the country is not supported"),
    ),
    *codes.documented(
        _OLDER,
        codes.rejected("UnsupportedOperation.UnsuportedRegion", "the country is not supported"),
    ),
)

_CALL = (
    *codes.documented(
        _COMMON,
        codes.rejected("ActionOffline", "the operation is gone"),
        codes.rejected("DryRunOperation", "it would have been sent"),
        codes.rejected("InvalidAction", "no such operation"),
        codes.rejected("InvalidParameterValue", "a parameter's value is wrong"),
        codes.rejected("InvalidRequest", "the call is malformed"),
        codes.rejected("NoSuchProduct", "no such product"),
        codes.rejected("NoSuchVersion", "no such version of the API"),
        codes.rejected("RequestSizeLimitExceeded", "the call is too large"),
        codes.rejected("UnknownParameter", "a parameter that is not defined"),
        codes.rejected("UnsupportedProtocol", "neither GET nor POST"),
        codes.rejected("UnsupportedRegion", "the service has no such region"),
    ),
    *codes.documented(
        _SEND,
        codes.rejected("FailedOperation.FailResolvePacket", "the call is malformed"),
        codes.rejected("FailedOperation.JsonParseFail", "the call is no JSON"),
        codes.rejected("InternalError.JsonParseFail", "the call's parameters are no JSON"),
        codes.rejected("InternalError.RestApiInterfaceNotExist", "no such operation"),
        codes.rejected("InvalidParameter", "a parameter of the call is malformed"),
        codes.rejected("LimitExceeded.PhoneNumberCountLimit", "more than 200 numbers"),
        codes.rejected("MissingParameter", "a parameter is missing"),
        codes.rejected("MissingParameter.EmptyPhoneNumberSet", "no number"),
        codes.rejected("UnsupportedOperation", "not supported"),
        codes.rejected("UnsupportedOperation.ContainDomesticAndInternationalPhoneNumber", "mixed"),
    ),
)

# The SDK for Go has this code with the point at its end.
_POINTED = codes.documented(_OLDER, codes.rejected("UnsupportedOperation.", "not supported"))

_DOUBT = (
    *codes.documented(
        _COMMON,
        codes.unknown("FailedOperation", "the operation failed"),
        codes.unknown("InternalError", "the provider failed inside"),
        codes.unknown("ResourceUnavailable", "a resource is not available"),
        codes.unknown("ResponseSizeLimitExceeded", "the answer was too large to be given"),
        codes.unknown("ServiceUnavailable", "the service is not available for the moment"),
    ),
    *codes.documented(
        _SEND,
        codes.unknown("InternalError.OtherError", "another error inside"),
        codes.unknown(
            "InternalError.SendAndRecvFail", "timed out between the provider's own parts"
        ),
        codes.unknown("InternalError.Timeout", "timed out inside"),
        codes.unknown("InternalError.UnknownError", "an unknown error inside"),
    ),
)

TABLE: Final = ErrorTable(_ACCOUNT, _PACE, _MESSAGE, _CALL, _POINTED, _DOUBT)
