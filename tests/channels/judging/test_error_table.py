"""Error tables: the most exact row wins; each adapter's row names its document, or why none proves it."""

import re
from datetime import UTC, date, datetime
from urllib.parse import urlsplit

import pytest

from channels.judging.error_table import (
    HOUR,
    ErrorRow,
    ErrorTable,
    RowSource,
    documented,
    rejected,
    unproved,
)
from channels.registry import PROVIDERS
from message.outcomes import AnyOutcome, Limit, NotSent, Rejected, Unknown

WRITTEN = date(2026, 11, 21)
"""The first day of this code: no page was read for it before."""
PAGE = RowSource("https://example.com/errors", "2026-11-22")


def flaws(row: ErrorRow) -> list[str]:
    """What a row lacks so that a reader could look its code up."""
    if row.source is None:
        return (
            [] if len(row.unproved.split()) > 3 else ["no source, and no reason why none proves it"]
        )
    found = ["both a source and a reason why none proves it"] if row.unproved else []
    address = urlsplit(row.source.url)
    if address.scheme not in ("https", "http") or "." not in address.netloc:
        found.append(f"{row.source.url!r} is no address of a document")
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", row.source.read):
        return [*found, f"{row.source.read!r} is no date of reading"]
    if not WRITTEN <= date.fromisoformat(row.source.read) <= datetime.now(UTC).date():
        found.append(f"read on {row.source.read}, which cannot be")
    return found


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
def test_each_row_names_its_document_with_the_day_of_reading_or_why_none_proves_it(
    provider: str,
) -> None:
    found = {row.code: flaws(row) for row in PROVIDERS[provider].errors}
    assert {code: said for code, said in found.items() if said} == {}


@pytest.mark.parametrize(
    "row",
    [
        ErrorRow("1", "rejected", "no source at all"),
        *unproved("memory", ErrorRow("1", "rejected", "a reason that says nothing")),
        ErrorRow("1", "rejected", "both", source=PAGE, unproved="no page that was read has it"),
        *documented(PAGE._replace(url="the docs"), ErrorRow("1", "rejected", "no address")),
        *documented(PAGE._replace(read="yesterday"), ErrorRow("1", "rejected", "no date")),
        *documented(PAGE._replace(read="2019-01-01"), ErrorRow("1", "rejected", "before the code")),
        *documented(
            PAGE._replace(read="2126-01-01"), ErrorRow("1", "rejected", "in a hundred years")
        ),
    ],
    ids=lambda row: row.meaning,
)
def test_a_row_without_a_proof_is_found(row: ErrorRow) -> None:
    assert flaws(row)


def test_a_group_of_rows_shares_its_document() -> None:
    rows = documented(PAGE, ErrorRow("1", "rejected", "one"), ErrorRow("2", "unknown", "two"))
    assert [(row.code, row.source, row.unproved) for row in rows] == [
        ("1", PAGE, ""),
        ("2", PAGE, ""),
    ]


def test_the_most_exact_row_wins() -> None:
    table = ErrorTable(
        (
            ErrorRow("E1*", "rejected", "any"),
            ErrorRow("E12*", "unknown", "nearer"),
            ErrorRow("E123", "not_sent", "it"),
        )
    )
    found = [table.row(code) for code in ("E1", "E19", "E129", "E123", "E2")]
    assert [row and row.meaning for row in found] == ["any", "any", "nearer", "it", None]


def test_a_code_stands_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        ErrorTable((ErrorRow("1", "rejected", "one"), ErrorRow("1", "unknown", "two")))


@pytest.mark.parametrize(
    ("status", "limit"), [(401, Limit.LOGIN), (402, None), (403, None), (407, None)]
)
def test_a_code_without_a_row_refuses_the_account_under_a_status_about_it(
    status: int, limit: Limit | None
) -> None:
    found = ErrorTable().outcome("new", status=status)
    detail = "a code that the provider does not document"
    assert found == NotSent("new", detail, HOUR, account=True, limit=limit)
    later = ErrorTable().outcome("new", "soon", 7_000, status=status)
    assert later == NotSent("new", "soon", 7_000, account=True, limit=limit)


def test_a_row_goes_before_such_a_status() -> None:
    found = ErrorTable([rejected("1", "the text is forbidden")]).outcome("1", status=403)
    assert found == Rejected("1", "the text is forbidden")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, Rejected), (404, Rejected), (422, Rejected), (408, NotSent), (429, NotSent)],
)
def test_a_code_without_a_row_is_about_the_message_under_any_other_status(
    status: int, kind: type[NotSent | Rejected]
) -> None:
    found = ErrorTable().outcome("new", status=status)
    assert isinstance(found, kind)
    assert not found.account


REFUSED_LOGINS = {
    "twilio": ("10001", "20003", "20005", "20006", "20008", "20403", "20404", "70051"),
    "resend": ("missing_api_key", "invalid_api_key", "restricted_api_key", "suspended_api_key"),
    "smtp": ("525", "530", "534", "535", "538"),
    "fcm": ("PERMISSION_DENIED",),
    "aliyun_sms": (
        "isv.ACCOUNT_NOT_EXISTS",
        "SignatureDoesNotMatch",
        "InvalidAccessKeyId.NotFound",
        "InvalidAccessKeySecret",
        "ActionUnauthorized",
        "Forbidden.NotSupportRAM",
        "NoPermission",
    ),
    "tencent_sms": (
        "AuthFailure.SignatureFailure",
        "InvalidParameterValue.SdkAppIdNotExist",
        "UnauthorizedOperation.SmsSdkAppIdVerifyFail",
    ),
}


@pytest.mark.parametrize(
    ("provider", "code"), [(name, code) for name, codes in REFUSED_LOGINS.items() for code in codes]
)
def test_a_refused_login_is_the_accounts_and_spends_no_attempt(provider: str, code: str) -> None:
    outcome = PROVIDERS[provider].errors.outcome(code)
    assert isinstance(outcome, NotSent)
    assert (outcome.account, outcome.limit) == (True, Limit.LOGIN)
    assert outcome.retry_after_ms


REFUSED_ACCOUNTS = (
    *("InsufficientBalance", "IllegalTimestamp", "InvalidSignatureMethod"),
    *("Forbidden.UserVerification", "Forbidden.NotTrustSourceIp"),
)


@pytest.mark.parametrize("code", REFUSED_ACCOUNTS)
def test_aliyuns_gateway_refuses_the_account_with_400_too(code: str) -> None:
    outcome = PROVIDERS["aliyun_sms"].errors.outcome(code, status=400)
    assert isinstance(outcome, NotSent)
    assert (outcome.account, outcome.limit) == (True, None)


@pytest.mark.parametrize("code", ["Throttling.UserFlow", "ThrottlingUser"])
def test_every_throttling_of_aliyuns_gateway_only_paces(code: str) -> None:
    outcome = PROVIDERS["aliyun_sms"].errors.outcome(code, status=400)
    assert isinstance(outcome, NotSent)
    assert (outcome.account, outcome.limit) == (False, Limit.ACCOUNT)


@pytest.mark.parametrize("provider", sorted(set(PROVIDERS) - {"null", "webhook"}))
def test_every_provider_can_say_that_it_refuses_the_login(provider: str) -> None:
    adapter = PROVIDERS[provider]
    assert adapter.tokens is not None or any(row.limit is Limit.LOGIN for row in adapter.errors)


JUDGED = [
    # The sender is refused, not the message: another account may send it.
    *(("twilio", code, 400, NotSent) for code in ("21267", "21607", "21657", "21702", "21709")),
    ("tencent_sms", "FailedOperation.PhoneNumberParseFail", 200, Rejected),
    ("tencent_sms", "UnsupportedOperation.", 200, Rejected),
    ("huawei_sms", "E000045", 401, NotSent),
    ("huawei_sms", "APIGW.0101", 404, NotSent),
    ("wechat_official", "45109", 200, NotSent),
    # Feishu answers its limits with status 400, which would refuse for good.
    ("feishu", "11233", 400, NotSent),
    ("feishu", "11247", 400, NotSent),
    ("resend", "invalid_permission", 403, NotSent),
    ("resend", "missing_required_parameter", 422, Rejected),
    ("resend", "service_unavailable", 503, Unknown),
    # C3, C4, C9: definite refusals of a message that halted the account or were read as Unknown.
    ("dingtalk_robot", "310000.keywords", 200, Rejected),
    ("wechat_official", "40013", 200, Rejected),
    ("wechat_official", "40165", 200, Rejected),
    ("feishu", "99992402", 400, Rejected),
    ("feishu", "9499", 200, Rejected),
    ("feishu", "230101", 200, Rejected),
    ("dingtalk", "1", 200, Rejected),
    ("dingtalk", "15.isv.whatever", 200, Rejected),
    ("dingtalk", "40", 200, Rejected),
    ("dingtalk", "41", 200, Rejected),
    # B9: a token that is not registered, and a key of Apple's that is refused.
    ("fcm", "NOT_FOUND", 404, Rejected),
    ("fcm", "APNS_AUTH_ERROR", 401, NotSent),
    # "Busy, try again later" proves nothing, as an internal error does not.
    *((name, "-1", 200, Unknown) for name in ("wechat_official", "wechat_mini")),
    *((name, "-1", 200, Unknown) for name in ("wecom", "wecom_robot")),
    *((name, "-1", 200, Unknown) for name in ("dingtalk", "dingtalk_robot")),
    # B14: a mailbox that is full, or a message that is too large.
    ("smtp", "552", 0, Rejected),
]


@pytest.mark.parametrize(("provider", "code", "status", "kind"), JUDGED)
def test_a_code_is_judged_as_its_document_says(
    provider: str, code: str, status: int, kind: type[AnyOutcome]
) -> None:
    outcome = PROVIDERS[provider].errors.outcome(code, status=status)
    assert type(outcome) is kind
    assert PROVIDERS[provider].errors.row(code) is not None
    if isinstance(outcome, Rejected):
        assert not outcome.account
