"""Tencent Cloud SMS (腾讯云短信, 2021-01-11): SendSms, PullSmsSendStatusByPhoneNumber.

    POST /   X-TC-Action: SendSms   X-TC-Version: 2021-01-11   X-TC-Region   X-TC-Timestamp
    {"PhoneNumberSet":["+86…"],"SmsSdkAppId":"14…","TemplateId":"1110","SignName":"…",
     "TemplateParamSet":["4711"],"SessionContext":"<the call's key>"}
    200 {"Response":{"SendStatusSet":[{"SerialNo","PhoneNumber","Fee","SessionContext","Code":"Ok",
         "Message","IsoCode"}],"RequestId"}}          200 {"Response":{"Error":{"Code","Message"},…}}

The status is always 200: `Response.Error` refuses the whole call, `Code` decides for its number alone. A
call has one text and up to 200 numbers, all of mainland China or none. Parameters have places instead of
names: give them as "1", "2", … without a gap.

`SessionContext` is an echo, not a dedup key: the provider has none. It is empty unless Tencent switched it
on for the application, on request ("默认为空，如需开通请联系": SDK model PullSmsSendStatus,
tencentcloud-sdk-python-sms 3.1.153, read 2026-11-22). PullSmsSendStatusByPhoneNumber resolves an attempt in
doubt (7 days back, 100 rows, 20 calls a second). A row with our SessionContext proves that it was sent,
whatever its status. A row without one may be this attempt's. The rows are delivery reports: a phone that is
off has none until its carrier gives up. No bound is documented; carriers try for up to three days. So an
empty answer is believed only `query_lag_s` (72 hours) after the last call.

Sources: https://cloud.tencent.com/document/api/382/55981 (SendSms)
https://www.tencentcloud.com/document/api/382/40518 (PullSmsSendStatusByPhoneNumber)
https://cloud.tencent.com/document/api/382/59177 (errors)
https://cloud.tencent.com/document/product/213/30654 (TC3; an endpoint with a path signs that path)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from time import time
from typing import Any, ClassVar, Final

import httpx
import msgspec

from channels.base import BaseChannel
from channels.capabilities import Capabilities
from channels.channel import Account, Answer, Attempt, Call, Dialogue, Failure
from channels.judging.error_table import ErrorTable
from channels.judging.foreign_json import decoded
from channels.judging.listing import SKEW_MS, Listing
from channels.judging.outcomes import CONTRADICTION, for_all, of_failure
from channels.providers._common import sms
from channels.providers.tencent_sms import wire
from channels.providers.tencent_sms.errors import TABLE
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome, Unknown

_PROVIDER: Final = "tencent_sms"
_OK: Final = "Ok"
_LIMIT: Final = 100
_REACH_DAYS: Final = 7
_ABOUT_ONE: Final = frozenset(
    {
        "FailedOperation.PhoneNumberInBlacklist",
        "FailedOperation.PhoneNumberParseFail",
        "InvalidParameterValue.IncorrectPhoneNumber",
        "LimitExceeded.AppCountryOrRegionInBlacklist",
        "LimitExceeded.DeliveryFrequencyLimit",
        "LimitExceeded.PhoneNumberDailyLimit",
        "LimitExceeded.PhoneNumberOneHourLimit",
        "LimitExceeded.PhoneNumberSameContentDailyLimit",
        "LimitExceeded.PhoneNumberThirtySecondLimit",
        "UnsupportedOperation.UnsuportedRegion",
        "UnsupportedOperation.UnsupportedRegion",
    }
)
"""Codes about one number or its country. If one ever refuses a whole call, the number is unknown."""


class TencentSms(BaseChannel):
    """Thread-safe: `PerAccount.get` stores the prepared parts whole, and nothing changes them."""

    provider: ClassVar[str] = _PROVIDER
    channel: ClassVar[str] = "sms"
    knows_templates: ClassVar[bool] = True
    takes_contents: ClassVar[bool] = False
    max_batch: ClassVar[int] = 200
    options: ClassVar[type[msgspec.Struct]] = wire.TencentSmsOptions
    endpoint: ClassVar[str] = "https://sms.tencentcloudapi.com"
    counted_by: ClassVar[Sequence[str]] = ("sdk_app_id",)
    errors: ClassVar[ErrorTable] = TABLE
    promises: ClassVar[Capabilities] = Capabilities(
        title="Tencent Cloud SMS (SendSms 2021-01-11)",
        resolve="PullSmsSendStatusByPhoneNumber, matched by SessionContext where Tencent echoes it for "
        "the application; 7 days back; not sent: no report that could be of it, after 72 hours only",
        needs="ask Tencent Cloud (腾讯云短信小助手) to return SessionContext in the delivery reports "
        "of the application: by default it is empty, and then no report proves anything",
        receipts="pushed, or pulled by PullSmsSendStatus, by SerialNo",
        limits="200 numbers a call of one text, all of mainland China or none; 3,000 calls a second",
        source=(
            "https://cloud.tencent.com/document/api/382/55981",
            "https://www.tencentcloud.com/document/api/382/40518",
            "https://cloud.tencent.com/document/api/382/59177",
        ),
    )

    def __init__(self, clock: Callable[[], float] = time) -> None:
        self._clock = clock
        self._accounts = sms.PerAccount(wire.prepare)

    def batch_key(self, delivery: Delivery) -> Hashable:
        """Joins deliveries of one text on one side of the border. A retry goes alone (`sms.refused`)."""
        template = delivery.template_for(_PROVIDER)
        sign = delivery.notification.attributes.get(sms.SIGN_NAME)
        text = msgspec.json.encode([sign, sms.places(delivery, _PROVIDER)])
        home = sms.mainland(delivery.receiver)
        return template.id if template else "", text, home, sms.alone(delivery)

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """Refuses impossible numbers, a missing template or signature at home, names that are no places."""
        sign = sms.sign_of(account.options.sign_name, delivery)
        home = sms.mainland(delivery.receiver)
        return (
            sms.number_refusal(delivery.receiver)
            or sms.template_refusal(delivery, _PROVIDER, sign, needs_sign=home)
            or sms.places_refusal(delivery, _PROVIDER)
        )

    def request(self, call: Call) -> httpx.Request:
        """Returns the SendSms for all numbers of the call."""
        prepared = self._accounts.get(call.account)
        first = call.deliveries[0]
        template = first.template_for(_PROVIDER)
        assert template is not None
        body: dict[str, Any] = {
            "PhoneNumberSet": [one.receiver for one in call.deliveries],
            "SmsSdkAppId": prepared.options.sdk_app_id,
            "TemplateId": template.id,
            "TemplateParamSet": sms.places(first, _PROVIDER),
            "SessionContext": call.key,
        }
        home = sms.mainland(first.receiver)
        if sign := sms.sign_of(prepared.options.sign_name if home else "", first):
            body["SignName"] = sign
        if prepared.options.sender_id and not home:
            body["SenderId"] = prepared.options.sender_id
        return wire.signed(prepared, b"SendSms", body, int(self._clock()))

    def pull(self, account: Account, limit: int = _LIMIT) -> httpx.Request:
        """Returns a request for delivery reports of the account's queue, for jobs that collect receipts.
        The queue deletes what it returns: keep the reports before the next pull."""
        prepared = self._accounts.get(account)
        body = {"Limit": limit, "SmsSdkAppId": prepared.options.sdk_app_id}
        return wire.signed(prepared, b"PullSmsSendStatus", body, int(self._clock()))

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Returns each number's own outcome, or the call's error for all."""
        if isinstance(answer, Failure):
            return for_all(call, of_failure(answer))
        answered = decoded(wire.decode, answer.content)
        if answered is None:
            return sms.unread(call, answer)
        if answered.Response.Error is not None:
            return self._refused(call, answer, answered.Response.Error)
        if not answer.is_success:
            sent = answered.Response.SendStatusSet
            return for_all(call, CONTRADICTION) if sent else sms.unread(call, answer)
        statuses = _by_place(call, answered.Response.SendStatusSet or [])
        return [self._outcome(one) for one in statuses]

    def resolve(self, account: Account, attempt: Attempt) -> Dialogue:
        """Asks for the number's delivery reports since the first call."""
        prepared = self._accounts.get(account)
        listing = Listing(attempt, lag_s=prepared.options.query_lag_s, reach_days=_REACH_DAYS)
        if not listing.decided:
            question = _question(prepared.options.sdk_app_id, attempt)
            answer = yield wire.signed(
                prepared, b"PullSmsSendStatusByPhoneNumber", question, int(self._clock())
            )
            _read_reports(answer, attempt, listing)
        return listing.verdict()

    def _refused(
        self, call: Call, answer: httpx.Response, error: wire.TencentRefusal
    ) -> list[AnyOutcome]:
        wait_ms = sms.wait_of(answer, self._clock())
        return sms.refused(
            self.errors, call, error.Code, error.Message, wait_ms=wait_ms, about_one=_ABOUT_ONE
        )

    def _outcome(self, status: wire.TencentStatus | None) -> AnyOutcome:
        if status is None:
            return Unknown("no_status", "the answer does not speak of this number")
        if status.Code == _OK:
            return Accepted(status.SerialNo)
        return self.errors.outcome(status.Code, sms.shown_message(status.Message))


def _by_place(call: Call, statuses: list[wire.TencentStatus]) -> list[wire.TencentStatus | None]:
    """Returns each delivery's status: by place if the numbers match in order, else by number."""
    numbers = [one.receiver for one in call.deliveries]
    if [one.PhoneNumber for one in statuses] == numbers:
        return list(statuses)
    by_number = {one.PhoneNumber: one for one in statuses}
    return [by_number.get(number) for number in numbers]


def _question(sdk_app_id: str, attempt: Attempt) -> dict[str, str | int]:
    return {
        "BeginTime": (attempt.called_at - SKEW_MS) // 1_000,
        "EndTime": (attempt.now + SKEW_MS) // 1_000,
        "Offset": 0,
        "Limit": _LIMIT,
        "PhoneNumber": attempt.delivery.receiver,
        "SmsSdkAppId": sdk_app_id,
    }


def _read_reports(answer: Answer, attempt: Attempt, listing: Listing) -> None:
    """Adds the one page of reports to the listing."""
    pages = listing.pages()
    if not listing.answered(answer):
        return
    answered = decoded(wire.decode, answer.content)
    response = wire.TencentContent() if answered is None else answered.Response
    reports = response.PullSmsSendStatusSet
    if response.Error is not None or reports is None:
        listing.later(response.Error.Code if response.Error else "unreadable")
        return
    key = attempt.delivery.call_key or attempt.delivery.key
    for one in reports:
        if one.SessionContext == key and one.PhoneNumber == attempt.delivery.receiver:
            listing.sent(one.SerialNo)
        elif one.SessionContext in ("", None, key):
            listing.later("a report that may be of this call: SessionContext is to be switched on")
    if len(reports) >= _LIMIT:
        listing.later(f"more than {_LIMIT} reports")
    pages.page(one.SerialNo for one in reports)
    pages.end()


CHANNELS = (TencentSms(),)
