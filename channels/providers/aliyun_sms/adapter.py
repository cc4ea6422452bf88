"""Aliyun SMS (阿里云短信, dysmsapi 2017-05-25): SendSms, SendBatchSms, QuerySendDetails.

    POST /?OutId=…&PhoneNumbers=…&SignName=…&TemplateCode=…&TemplateParam={"code":"4711"}
         x-acs-action: SendSms       one text for up to 1,000 numbers; everything in the query
         x-acs-action: SendBatchSms  parameters and signature per number, up to 100; JSON lists in a form
    200 {"Code":"OK","BizId":"9006197469364984^0","Message":"OK","RequestId":"…"}

`OutId` is the call's key. It is an echo, not a dedup key: the provider has none. A BizId names the whole
call; receipts name a number by BizId or OutId and the number. A refused call sent nothing to anybody.
Mainland numbers go without +86, others without the plus. The two never share a template, and so no call.
A +1 number with an area code from 300 on is refused. SendSms takes a mobile number with +, +86, 0086, 86 or
nothing before it as a mainland one, so both spellings of `+13125550123` name somebody else. Older pages put
00 before a country's code; the page of today does not (read 2026-11-28).

QuerySendDetails resolves an attempt in doubt: number and day (UTC+8), 50 a page, 30 days back. A row with
our OutId, whatever its status, proves that it was sent. The row has no BizId, so the result has no provider
id. "Not sent" needs every day from the first call to the last, each with as many rows as its TotalCount: a
count of 2 over an empty list was seen (aliyun/alibabacloud-java-sdk#42, read 2026-11-22). A row of that
time without an OutId may be this attempt's. No lag of the query is documented. Public code waits some
seconds, and calls for many may be delayed. So a list without the attempt is believed `query_lag_s` (120)
after the last call.

Deliveries of a notification for several receivers join a call of one text, up to 1,000 (`batch_limit`).
Others join by template, up to 100, and use SendSms only if they happen to be equal. A verification code
goes alone by SendSms: joint calls may be delayed (document of SendBatchSms, read 2026-11-22).

Sources: https://help.aliyun.com/document_detail/55284.html (SendSms)
https://help.aliyun.com/document_detail/66041.html (SendBatchSms; its JSON lists go in a form, as in
the maker's own SDK) https://help.aliyun.com/document_detail/419277.html (QuerySendDetails)
https://help.aliyun.com/zh/sms/developer-reference/api-error-codes (errors)
https://help.aliyun.com/zh/sdk/product-overview/v3-request-structure-and-signature (ACS3)
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from time import time
from types import MappingProxyType
from typing import ClassVar, Final

import httpx
import msgspec

from channels.base import BaseChannel
from channels.capabilities import Capabilities
from channels.channel import Account, Answer, Attempt, Call, Dialogue, Failure
from channels.judging.error_table import ErrorTable
from channels.judging.foreign_json import decoded
from channels.judging.listing import SKEW_MS, Listing, Pages
from channels.judging.outcomes import CONTRADICTION, for_all, of_failure
from channels.providers._common import sms
from channels.providers.aliyun_sms import errors, wire
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome

_PROVIDER: Final = "aliyun_sms"
_OK: Final = "OK"
_CODE: Final = "verification"
_EACH: Final = 100
_EQUAL: Final = 1_000
_PAGE: Final = 50
_MAX_PAGES: Final = 20
"""Pages of one day and number; rows behind them cannot be asked for."""
_REACH_DAYS: Final = 30
_CHINA: Final = timezone(timedelta(hours=8))
_DAY_MS: Final = 86_400_000
_DOMESTIC = re.compile(r"\+1[3-9][0-9]{9}", re.ASCII)
"""A number of North America that the provider reads as a mobile one of mainland China."""
_AMBIGUOUS: Final = (
    "ambiguous_number: Aliyun reads this +1 number as a mainland one; use another provider"
)
_json = msgspec.json.Encoder(order="deterministic")


class AliyunSms(BaseChannel):
    """Thread-safe: `PerAccount.get` stores the prepared parts whole, and nothing changes them."""

    provider: ClassVar[str] = _PROVIDER
    channel: ClassVar[str] = "sms"
    knows_templates: ClassVar[bool] = True
    takes_contents: ClassVar[bool] = False
    max_batch: ClassVar[int] = _EACH
    options: ClassVar[type[msgspec.Struct]] = wire.AliyunSmsOptions
    endpoint: ClassVar[str] = "https://dysmsapi.aliyuncs.com"
    counted_by: ClassVar[Sequence[str]] = ("access_key_id",)
    errors: ClassVar[ErrorTable] = errors.TABLE
    promises: ClassVar[Capabilities] = Capabilities(
        title="Aliyun SMS (SendSms, SendBatchSms 2017-05-25)",
        resolve="QuerySendDetails by number and day, matched by OutId; 30 days back; not sent: every "
        "day since the first call listed in full, `query_lag_s` after the last",
        needs="the RAM user's right to `dysms:QuerySendDetails`; nothing else",
        receipts="pushed (SmsReport) by BizId, OutId and number",
        limits="1,000 numbers a call of one text, 100 with parameters of their own, 1 of a code; "
        "codes 1 a minute, 5 an hour, 10 a day for each number; no +1 number with an area code from 300 "
        "on: it would be read as a mainland one",
        source=(
            "https://help.aliyun.com/document_detail/55284.html",
            "https://help.aliyun.com/document_detail/66041.html",
            "https://help.aliyun.com/document_detail/419277.html",
            "https://help.aliyun.com/zh/sms/developer-reference/api-error-codes",
        ),
    )

    def __init__(
        self, clock: Callable[[], float] = time, nonce: Callable[[], str] = secrets.token_hex
    ) -> None:
        self._clock = clock
        self._nonce = nonce
        self._accounts = sms.PerAccount(wire.prepare)

    def batch_key(self, delivery: Delivery) -> Hashable:
        """Joins by template and country; a notification to several also by text. A retry and a verification
        code go alone."""
        if delivery.notification.kind == _CODE:
            return delivery.key
        template = delivery.template_for(_PROVIDER)
        text = _text(delivery) if _to_several(delivery) else ""
        home = sms.mainland(delivery.receiver)
        return template.id if template else "", text, home, sms.alone(delivery)

    def batch_limit(self, delivery: Delivery) -> int:
        """Returns 1 for a verification code, 1,000 for deliveries of one text, else 100."""
        if delivery.notification.kind == _CODE:
            return 1
        return _EQUAL if _to_several(delivery) else _EACH

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """Refuses numbers that are impossible or would be read as another's, a missing template or
        signature, parameters that are no texts."""
        sign = sms.sign_of(account.options.sign_name, delivery)
        return _number_refusal(delivery.receiver) or sms.template_refusal(
            delivery, _PROVIDER, sign, needs_sign=True
        )

    def request(self, call: Call) -> httpx.Request:
        """Returns a SendSms if all deliveries are equal, else a SendBatchSms."""
        prepared = self._accounts.get(call.account)
        template = call.deliveries[0].template_for(_PROVIDER)
        assert template is not None
        query = {"OutId": call.key, "TemplateCode": template.id}
        signs = [sms.sign_of(prepared.options.sign_name, one) for one in call.deliveries]
        params = [_params(one) for one in call.deliveries]
        numbers = [_wired(one.receiver) for one in call.deliveries]
        if len(set(signs)) == 1 and all(one == params[0] for one in params):
            query |= {"PhoneNumbers": ",".join(numbers), "SignName": signs[0]}
            if params[0]:
                query["TemplateParam"] = _written(params[0])
            return self._signed(prepared, "SendSms", query)
        form = {"PhoneNumberJson": _written(numbers), "SignNameJson": _written(signs)}
        form["TemplateParamJson"] = _written(params)
        return self._signed(prepared, "SendBatchSms", query, form)

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Returns one outcome for all numbers: the provider takes a call whole or not at all."""
        if isinstance(answer, Failure):
            return for_all(call, of_failure(answer))
        sent = decoded(wire.decode_sent, answer.content)
        if sent is None:
            return sms.unread(call, answer)
        if sent.Code == _OK:
            return for_all(call, Accepted(sent.BizId) if answer.is_success else CONTRADICTION)
        wait_ms = sms.wait_of(answer, self._clock())
        if sent.Code == errors.BUSINESS_LIMIT and wait_ms is None:
            wait_ms = errors.limit_ms(sent.Message)
        return sms.refused(
            self.errors,
            call,
            sent.Code,
            sent.Message,
            wait_ms=wait_ms,
            about_one=errors.ABOUT_ONE,
            status=answer.status_code,
        )

    def resolve(self, account: Account, attempt: Attempt) -> Dialogue:
        """Asks for the number's messages of each day on which a call may have been made."""
        prepared = self._accounts.get(account)
        listing = Listing(attempt, lag_s=prepared.options.query_lag_s, reach_days=_REACH_DAYS)
        number = _wired(attempt.delivery.receiver)
        for day in _days(attempt):
            pages = listing.pages()
            for page in range(1, _MAX_PAGES + 1):
                if listing.decided:
                    return listing.verdict()
                question = _question(number, day, page)
                answer = yield self._signed(prepared, "QuerySendDetails", question)
                rows = _read_page(answer, attempt, listing, pages)
                if not rows or not pages.missing:
                    pages.end()
                    break
        return listing.verdict()

    def _signed(
        self,
        prepared: wire.AliyunPrepared,
        action: str,
        query: Mapping[str, str],
        form: Mapping[str, str] = MappingProxyType({}),
    ) -> httpx.Request:
        now_s, nonce = self._clock(), self._nonce()
        return wire.signed(prepared, action, query, form, now_s=now_s, nonce=nonce)


def _to_several(delivery: Delivery) -> bool:
    return len(delivery.notification.receivers) > 1


def _text(delivery: Delivery) -> str:
    """Returns signature and parameters: if equal, two deliveries of one template are the same SMS."""
    sign = delivery.notification.attributes.get(sms.SIGN_NAME)
    return _written([sign, _params(delivery)])


def _params(delivery: Delivery) -> dict[str, str]:
    template = delivery.template_for(_PROVIDER)
    return sms.texts(template.params) if template else {}


def _number_refusal(receiver: str) -> str:
    if _DOMESTIC.fullmatch(receiver):
        return _AMBIGUOUS
    return sms.number_refusal(receiver)


def _wired(receiver: str) -> str:
    """Returns a mainland number without its country code, any other without its plus."""
    return receiver[len(sms.MAINLAND) :] if sms.mainland(receiver) else receiver.lstrip("+")


def _written(value: object) -> str:
    return _json.encode(value).decode()


def _question(number: str, day: str, page: int) -> dict[str, str]:
    return {
        "CurrentPage": str(page),
        "PageSize": str(_PAGE),
        "PhoneNumber": number,
        "SendDate": day,
    }


def _days(attempt: Attempt) -> list[str]:
    """Returns the provider's days on which a call can have been made, with those next to midnight."""
    first, latest = attempt.called_at - SKEW_MS, min(attempt.last_call + SKEW_MS, attempt.now)
    at = [*range(first, latest, _DAY_MS), max(first, latest)]
    return list(dict.fromkeys(_day(ms) for ms in at))


def _day(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).astimezone(_CHINA).strftime("%Y%m%d")


def _read_page(answer: Answer, attempt: Attempt, listing: Listing, pages: Pages) -> int:
    """Adds one page to the listing. Returns its number of rows; 0 if it cannot be read."""
    if not listing.answered(answer):
        return 0
    details = decoded(wire.decode_details, answer.content)
    total = None if details is None else _total(details)
    if details is None or details.Code != _OK or total is None:
        listing.later(details.Code if details and details.Code != _OK else "unreadable")
        return 0
    found = (details.SmsSendDetailDTOs or wire.Rows()).SmsSendDetailDTO or []
    key = attempt.delivery.call_key or attempt.delivery.key
    for row in found:
        if row.OutId == key and _fits(row.PhoneNum, _wired(attempt.delivery.receiver)):
            listing.sent(detail="QuerySendDetails lists its OutId")
        elif row.OutId == key:
            listing.later("the call's OutId is listed with another number")
        elif not row.OutId and _made_ms(row) >= listing.since:
            listing.later("a message to this number has no OutId; it may be this one")
    pages.page(((row.OutId, row.SendDate, row.TemplateCode, row.Content) for row in found), total)
    return len(found)


def _fits(shown: str, number: str) -> bool:
    """Returns whether a listed number may be this one; some of its digits may be masked."""
    pairs = zip(reversed(shown), reversed(number), strict=False)
    return len(shown) >= len(number) and all(a in (b, "*") for a, b in pairs)


def _total(details: wire.Details) -> int | None:
    """Returns TotalCount, which comes as a text or a number; None if it is neither."""
    text = str(details.TotalCount)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _made_ms(row: wire.AliyunRow) -> float:
    """Returns when the row was sent, epoch milliseconds. An unreadable date may be ours: infinity."""
    try:
        local = datetime.strptime(row.SendDate or "", "%Y-%m-%d %H:%M:%S").replace(tzinfo=_CHINA)
    except ValueError:
        return float("inf")
    return local.timestamp() * 1_000


CHANNELS = (AliyunSms(),)
