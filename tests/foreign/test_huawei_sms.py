"""Huawei Cloud's own SDK judges our form and signature (`huaweicloudsdkcore`, `huaweicloudsdksmsapi`,
both 3.1.219).

The SDK's `Signer` signs our very request: same key, time, fields and body. By itself it leaves a form's
body out of the signature (`X-Sdk-Content-Sha256: UNSIGNED-PAYLOAD`). Here it is told not to, as the
signature is documented. The SDK's model says which fields the form of batchSendSms has.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

import httpx
import msgspec
import pytest
from huaweicloudsdkcore.auth.credentials import BasicCredentials
from huaweicloudsdkcore.sdk_request import SdkRequest
from huaweicloudsdkcore.signer.signer import Signer
from huaweicloudsdksmsapi.v1 import BatchSendSmsRequestBody, SmsID
from huaweicloudsdksmsapi.v1.region.smsapi_region import SMSApiRegion

from channels.channel import Call
from channels.providers.huawei_sms import wire
from channels.providers.huawei_sms.adapter import HuaweiSms
from message.envelope import Template
from tests.channels.providers.chats import KEY, account_of, deliveries

NOW = 1_714_000_000.0
TABLE = {
    "provider": "huawei_sms",
    "app_key": "c8RWg3ggEcyd4D3p94bf3Y7x1Ile",
    "app_secret": "q4Ii87BhST9vcs8wvrzN80SfD7Al",
    "sender": "8823040504797",
    "sign_name": "华为云短信测试",
    "status_callback": "https://notify.example.com/receipts/huawei?secret=s3cret",
}


class WholeSigner(Signer):  # type: ignore[misc]  # the SDK has no types
    """Signs the body too."""

    @classmethod
    def _process_content_header(cls, request: Any) -> None:
        """Nothing is left out."""


def request_of(endpoint: str, params: dict[str, Any]) -> httpx.Request:
    """Ours."""
    account = account_of(TABLE, endpoint)
    receivers = ["+8615123456789", "+8615234567890"]
    made = deliveries("sms", receivers, template=Template("8ff55eac1d0b478a", params))
    return HuaweiSms(lambda: NOW).request(Call(account, made))


@pytest.mark.parametrize(
    "endpoint",
    ["https://smsapi.cn-north-4.myhuaweicloud.com", "https://proxy.example:8443/huawei/"],
)
@pytest.mark.parametrize("params", [{}, {"1": "369751"}, {"1": "3 & 4", "2": "人民公园正门"}])
def test_the_signature_is_what_huaweis_sdk_makes_of_the_same_request(
    endpoint: str, params: dict[str, Any]
) -> None:
    ours = request_of(endpoint, params)
    fields = {name: ours.headers[name] for name in ("Content-Type", "Host", "X-Sdk-Date")}
    theirs = SdkRequest(
        method="POST",
        schema="https",
        host=ours.headers["Host"],
        resource_path=ours.url.path,
        query_params=[],
        header_params=fields,
        body=ours.read(),
    )
    WholeSigner(BasicCredentials(TABLE["app_key"], TABLE["app_secret"])).sign(theirs)
    assert theirs.header_params["Authorization"] == ours.headers["Authorization"]


def test_a_changed_body_has_another_signature() -> None:
    one, other = (request_of("https://h.example", {"1": text}) for text in ("1", "2"))
    assert one.headers["Authorization"] != other.headers["Authorization"]


def test_the_forms_fields_are_those_of_huaweis_sdk() -> None:
    form = parse_qs(request_of("https://h.example", {"1": "369751"}).read().decode())
    assert set(form) == set(BatchSendSmsRequestBody.attribute_map.values())
    assert form["to"] == ["+8615123456789,+8615234567890"]
    assert form["templateParas"] == ['["369751"]']
    assert form["extend"] == [KEY]


def test_the_default_endpoint_is_a_region_of_huaweis_sdk() -> None:
    assert HuaweiSms.endpoint in SMSApiRegion.CN_NORTH_4.endpoints


def test_the_answers_fields_are_those_of_huaweis_sdk() -> None:
    known = set(SmsID.attribute_map.values())
    assert {field.encode_name for field in msgspec.structs.fields(wire.HuaweiStatus)} <= known
