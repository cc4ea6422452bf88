"""Volcengine SMS (火山引擎短信): SendSms 2020-01-01, one approved template to up to 200 numbers.

    POST /?Action=SendSms&Version=2020-01-01    X-Date   X-Content-Sha256   Authorization
    {"SmsAccount":"77da1acf","Sign":"…","TemplateID":"ST_…","TemplateParam":"{\\"code\\":\\"4711\\"}",
     "PhoneNumbers":"+86…,+86…","Tag":"<the call's key>"}
    200  {"ResponseMetadata": {"RequestId": …}, "Result": {"MessageID": ["…", "…"]}}
    200  {"ResponseMetadata": {…, "Error": {"CodeN": …, "Code": "RE:0004", "Message": "…"}}, …}
    4xx  {"ResponseMetadata": {…, "Error": {"Code": "SignatureDoesNotMatch", …}}}    the gateway before it

Each number has a message id, in the order of the call. `Error` alone decides: no page gives the status of
`RE:…`, and public clients report 200 with a MessageID beside the Error. If there are fewer ids than
numbers, all of them are in doubt: the answer does not say which number is missing. In a call for many, some
refusals of single numbers come as receipts. Such a number is SENT, then UNDELIVERED.

There is no idempotency. `Tag` is the call's key, and a receipt gives it back as `ext`: a receipt alone
proves a call in doubt. The query, GetSmsSendDetails (2021-01-11), proves neither "sent" nor "not sent".
Its rows have no `Tag`, and the MessageID was in the answer that was lost. No page documents its delay or
how far it goes back. So the adapter does not ask it, and the lane's policy decides.

Sources, read 2026-11-22: https://www.volcengine.com/docs/6361/67380 (SendSms, in part),
https://www.volcengine.com/docs/6361/1205061 (service, region, content type),
https://www.volcengine.com/docs/6361/66716 (the operations; the query is not among them),
and Volcengine's SDKs: volc-sdk-golang, service/sms/model.go (request, answer, the query's rows), volcengine
1.0.229 (PyPI), sms/SmsService.py
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
from channels.judging.error_table import ErrorTable
from channels.judging.foreign_json import decoded
from channels.judging.outcomes import CONTRADICTION, for_all, of_failure
from channels.providers._common import sms
from channels.providers.volcengine_sms import wire
from channels.providers.volcengine_sms.errors import ABOUT_ONE, TABLE
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome, Unknown

_PROVIDER: Final = "volcengine_sms"


class VolcengineSms(BaseChannel):
    """Safe from many threads: the prepared parts are written whole and never changed."""

    provider: ClassVar[str] = _PROVIDER
    channel: ClassVar[str] = "sms"
    knows_templates: ClassVar[bool] = True
    takes_contents: ClassVar[bool] = False
    max_batch: ClassVar[int] = 200
    options: ClassVar[type[msgspec.Struct]] = wire.VolcengineSmsOptions
    endpoint: ClassVar[str] = "https://sms.volcengineapi.com"
    counted_by: ClassVar[Sequence[str]] = ("access_key_id",)
    errors: ClassVar[ErrorTable] = TABLE
    promises: ClassVar[Capabilities] = Capabilities(
        title="Volcengine SMS (SendSms 2020-01-01)",
        needs="a receipt proves a call in doubt: name the account's address at `hongyan receipts` in the "
        "console (回执配置)",
        receipts="pushed to the address that the console names, by message_id and the call's key",
        limits="200 numbers a call of one text; no page documents a rate of SendSms; the console limits "
        "how often a number is sent to (频控管理), and the excess comes back as CR:0202 in a receipt",
        source=(
            "https://www.volcengine.com/docs/6361/67380",
            "https://www.volcengine.com/docs/6361/173288",
            "https://www.volcengine.com/docs/6361/171584",
        ),
    )

    def __init__(self, clock: Callable[[], float] = time) -> None:
        self._clock = clock
        self._accounts = sms.PerAccount(wire.prepare)

    def batch_key(self, delivery: Delivery) -> Hashable:
        """Returns a key of text and side of the border. A retry goes alone (`sms.refused`)."""
        template = delivery.template_for(_PROVIDER)
        sign = delivery.notification.attributes.get(sms.SIGN_NAME)
        params = sorted(sms.texts(template.params).items()) if template else []
        text = msgspec.json.encode([sign, params])
        home = sms.mainland(delivery.receiver)
        return template.id if template else "", text, home, sms.alone(delivery)

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """Returns why it cannot be sent: number, template, parameters or signature. Empty if it can."""
        sign = sms.sign_of(account.options.sign_name, delivery)
        return sms.number_refusal(delivery.receiver) or sms.template_refusal(
            delivery, _PROVIDER, sign, needs_sign=True
        )

    def request(self, call: Call) -> httpx.Request:
        """Returns the SendSms of all the call's numbers."""
        prepared = self._accounts.get(call.account)
        options, first = prepared.options, call.deliveries[0]
        template = first.template_for(_PROVIDER)
        assert template is not None
        content = {
            "SmsAccount": options.sms_account,
            "Sign": sms.sign_of(options.sign_name, first),
            "TemplateID": template.id,
            "PhoneNumbers": ",".join(one.receiver for one in call.deliveries),
            "Tag": call.key,
        }
        if template.params:
            content["TemplateParam"] = msgspec.json.encode(sms.texts(template.params)).decode()
        return wire.signed(prepared, content, self._clock())

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Returns one outcome per number: an Error holds for all, else each has its own message id."""
        if isinstance(answer, Failure):
            return for_all(call, of_failure(answer))
        answered = decoded(wire.decode, answer.content)
        if answered is None:
            return sms.unread(call, answer)
        error = answered.ResponseMetadata.Error
        if error is not None:
            return self._refused(call, answer, error)
        ids = answered.message_ids
        if not answer.is_success:
            return for_all(call, CONTRADICTION) if ids else sms.unread(call, answer)
        if len(ids) != len(call.deliveries):
            return for_all(call, Unknown("no_status", "the answer has not an id for each number"))
        return [Accepted(one) for one in ids]

    def _refused(
        self, call: Call, answer: httpx.Response, error: wire.VolcengineRefusal
    ) -> list[AnyOutcome]:
        if not error.Code:
            return sms.unread(call, answer)
        return sms.refused(
            self.errors,
            call,
            error.Code,
            error.Message or "",
            wait_ms=sms.wait_of(answer, self._clock()),
            about_one=ABOUT_ONE,
            status=answer.status_code,
        )


CHANNELS = (VolcengineSms(),)
