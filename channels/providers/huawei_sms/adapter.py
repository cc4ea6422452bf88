"""Huawei Cloud SMS (消息&短信): batchSendSms, one approved template to up to 500 numbers.

    POST <endpoint>/sms/batchSendSms/v1         a form: from, to, templateId, templateParas, signature,
                                                statusCallback, extend
    200  {"code": "000000", "description": "Success", "result": [
             {"originTo": "+86…", "createTime": "…", "from": "…", "smsMsgId": "…_…", "status": "000000"}]}
    200  {"code": "E000510", …, "result": [{…, "status": "E200028"}]}      each number has a status
    400  {"code": "E000101", "description": "…"}
    4xx  {"error_code": "APIGW.0301", "error_msg": "…"}                the gateway before it

`template` is Huawei's; its parameters have places, "1", "2", …, as Tencent's. `extend` is the call's key,
and status reports repeat it. So a receipt proves a call in doubt, if the account has a `status_callback`.
There is no idempotency and no query. A number gets one text at most twice in 59 seconds and five times in
59 minutes.

Sources, read 2026-11-22: https://support.huaweicloud.com/intl/en-us/msgsms_faq/sms_faq_0173.html (E200028),
and Huawei's SDK huaweicloudsdksmsapi 3.1.219 (Python, v1/smsapi_client.py, the form).
No page names the gateway of APIGW.* as this service's, and no call to Huawei has proved a row.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from time import time
from typing import ClassVar, Final

import httpx
import msgspec

from channels.base import BaseChannel
from channels.capabilities import Capabilities
from channels.channel import Account, Answer, Call, Failure
from channels.judging import error_table as codes
from channels.judging.error_table import HOUR, MINUTE, ErrorTable, RowSource
from channels.judging.foreign_json import decoded
from channels.judging.outcomes import CONTRADICTION, for_all, of_failure
from channels.providers._common import sms
from channels.providers.huawei_sms import wire
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome, Limit, Unknown

_PROVIDER: Final = "huawei_sms"
_OK: Final = "000000"

_CODES: Final = RowSource(
    "https://support.huaweicloud.com/api-msgsms/sms_05_0050.html",
    "2026-11-22",
    copy="the page in part; the rest in excerpts at huaweicloud.com/s and in a public client's list",
)
_STATUS: Final = RowSource(
    "https://github.com/huaweicloud/huaweicloud-sdk-go-v3",
    "2026-11-22",
    copy="SmsDetailResponse, which quotes sms_05_0050.html",
)
_APIGW: Final = RowSource(
    "https://support.huaweicloud.com/intl/en-us/devg-apisign/api-sign-errorcode.html",
    "2026-11-22",
    copy="the page in part; the rest in a copy of it in a public repository",
)

TABLE: Final = ErrorTable(
    codes.documented(
        _CODES,
        codes.rejected("E000000", "the form cannot be read: most often templateParas"),
        codes.shut_out("E00000*", "the Authorization field is not as it must be", HOUR),
        codes.shut_out("E00002*", "the X-WSSE field is not as it must be", HOUR),
        codes.rejected("E000040", "another content type is wanted"),
        codes.shut_out("E000045", "the signature in Authorization is refused", HOUR),
        codes.shut_out("E00010*", "app_key or app_secret is refused", HOUR),
        codes.shut_out("E00011*", "the account is inactive or frozen, or the clock is wrong", HOUR),
        codes.rejected("E000503", "a parameter is malformed"),
        codes.unknown("E000510", "sending failed; the number's status, which is missing, says why"),
        codes.shut_out("E000620", "our address is not on the list", HOUR),
    ),
    codes.unproved(
        "a public client lists it; no page of Huawei's that was read has it",
        codes.account_fault("E000623", "the account's share of messages is used up", HOUR),
    ),
    codes.documented(
        _STATUS,
        codes.paced(
            "E200015", Limit.ACCOUNT, "too many messages wait at the provider", 10 * MINUTE
        ),
        codes.rejected("E200028", "a parameter does not fit the template's variable"),
        codes.rejected("E200029", "the template is of another type"),
        codes.rejected("E200030", "the template is not active"),
        codes.rejected("E200031", "the call does not fit the protocol"),
        codes.rejected("E200033", "the template's type is wrong"),
        codes.rejected("E200041", "the number stands twice in the call"),
    ),
    codes.documented(
        _APIGW,
        codes.account_fault("APIGW.0101", "no such API: the endpoint is wrong", HOUR),
        codes.paced("APIGW.0308", Limit.ACCOUNT, "more calls than allowed", MINUTE),
        codes.shut_out("APIGW.03*", "the gateway refuses key, signature or time", HOUR),
    ),
)


class HuaweiSms(BaseChannel):
    """Thread-safe: `PerAccount.get` stores the prepared parts whole, and nothing changes them."""

    provider: ClassVar[str] = _PROVIDER
    channel: ClassVar[str] = "sms"
    knows_templates: ClassVar[bool] = True
    takes_contents: ClassVar[bool] = False
    max_batch: ClassVar[int] = 500
    options: ClassVar[type[msgspec.Struct]] = wire.HuaweiSmsOptions
    endpoint: ClassVar[str] = "https://smsapi.cn-north-4.myhuaweicloud.com"
    counted_by: ClassVar[Sequence[str]] = ("app_key",)
    errors: ClassVar[ErrorTable] = TABLE
    promises: ClassVar[Capabilities] = Capabilities(
        title="Huawei Cloud SMS (batchSendSms)",
        needs="a receipt proves a call in doubt: set `status_callback` to the account's address at "
        "`hongyan receipts`",
        receipts="pushed to `status_callback`, by smsMsgId and the call's key",
        limits="500 numbers a call of one text; of one text 2 in 59 seconds and 5 in 59 minutes a number",
        source=(
            "https://support.huaweicloud.com/api-msgsms/sms_05_0001.html",
            "https://support.huaweicloud.com/intl/en-us/api-msgsms/sms_05_0050.html",
        ),
    )

    def __init__(self, clock: Callable[[], float] = time) -> None:
        self._clock = clock
        self._accounts = sms.PerAccount(wire.prepare)

    def batch_key(self, delivery: Delivery) -> Hashable:
        """Joins deliveries of one text. A retry goes alone."""
        template = delivery.template_for(_PROVIDER)
        sign = delivery.notification.attributes.get(sms.SIGN_NAME)
        text = msgspec.json.encode([sign, sms.places(delivery, _PROVIDER)])
        return template.id if template else "", text, sms.alone(delivery)

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """Refuses impossible numbers, a missing template, parameters without places."""
        sign = sms.sign_of(account.options.sign_name, delivery)
        return (
            sms.number_refusal(delivery.receiver)
            or sms.template_refusal(delivery, _PROVIDER, sign, needs_sign=False)
            or sms.places_refusal(delivery, _PROVIDER)
        )

    def request(self, call: Call) -> httpx.Request:
        """Returns the batchSendSms for all numbers of the call."""
        prepared = self._accounts.get(call.account)
        options, first = prepared.options, call.deliveries[0]
        template = first.template_for(_PROVIDER)
        assert template is not None
        form = {
            "from": options.sender,
            "to": ",".join(one.receiver for one in call.deliveries),
            "templateId": template.id,
            "extend": call.key,
        }
        if places := sms.places(first, _PROVIDER):
            form["templateParas"] = msgspec.json.encode(places).decode()
        if sign := sms.sign_of(options.sign_name, first):
            form["signature"] = sign
        if options.status_callback:
            form["statusCallback"] = options.status_callback.reveal()
        return wire.signed(prepared, form, self._clock())

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Returns outcomes by each number's status; without statuses, the call's code counts for all."""
        if isinstance(answer, Failure):
            return for_all(call, of_failure(answer))
        reply = decoded(wire.decode, answer.content)
        code = (reply.code or reply.error_code) if reply is not None else ""
        if reply is None or not code:
            return sms.unread(call, answer)
        if not answer.is_success:
            if code == _OK:
                return for_all(call, CONTRADICTION)
            return self._refused(call, answer, code, reply)
        if not reply.result:
            if code == _OK:
                return for_all(call, Unknown("no_status", "the answer speaks of no number"))
            return self._refused(call, answer, code, reply)
        by_number = {one.origin_to: one for one in reply.result}
        return [self._outcome(by_number.get(one.receiver)) for one in call.deliveries]

    def _refused(
        self, call: Call, answer: httpx.Response, code: str, reply: wire.HuaweiAnswer
    ) -> list[AnyOutcome]:
        wait_ms = sms.wait_of(answer, self._clock())
        words, status = reply.description or reply.error_msg, answer.status_code
        return sms.refused(self.errors, call, code, words, wait_ms=wait_ms, status=status)

    def _outcome(self, status: wire.HuaweiStatus | None) -> AnyOutcome:
        if status is None or not status.status:
            return Unknown("no_status", "the answer does not speak of this number")
        if status.status != _OK:
            return self.errors.outcome(status.status)
        if not status.sms_msg_id:
            return Unknown("no_status", "accepted, without the message's id")
        return Accepted(status.sms_msg_id)


CHANNELS = (HuaweiSms(),)
