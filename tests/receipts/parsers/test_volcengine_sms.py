"""Volcengine's status report as its page has it."""

import json
from typing import Any

import pytest

from idempotency.receipts.rules import Receipt, ReceiptState
from receipts.parsers.volcengine_sms import VolcengineSmsReports
from receipts.push import Malformed, Parsed, Unauthentic
from tests.receipts.test_parsers import SHARED, push

REPORT = {
    "account": "2000000000",
    "sub_account": "1504abcd",
    "signature": "短信服务",
    "mobile": "18800000001",
    "channel_type": "CN_OTP",
    "service_id": "106966940",
    "send_time": 1_669_171_012_444,
    "recv_time": 1_669_171_015_000,
    "template_id": "SPT_0fa7",
    "ext": "123456",
    "message_id": "bde1b10d-19cf-460f-abcd-26231a820000",
    "status_code": "0",
    "description": "success",
    "msg_count": 1,
}


def parsed(*reports: object, query: str = "secret=s3cret") -> Parsed:
    return VolcengineSmsReports().parse(push(json.dumps(reports), query), SHARED)


def one(**changes: Any) -> Receipt:
    (receipt,) = parsed({**REPORT, **changes}).receipts
    return receipt


def test_a_report_is_read_as_documented() -> None:
    assert one() == Receipt(
        "acc",
        ReceiptState.DELIVERED,
        "bde1b10d-19cf-460f-abcd-26231a820000",
        "123456",
        ("+8618800000001", "+18800000001"),
        at=1_669_171_015_000,
    )


@pytest.mark.parametrize("code", ["NE:0105", "CR:0202", "CE:0300", "SY:0500", "UN:0900"])
def test_any_other_status_did_not_arrive(code: str) -> None:
    failed = one(status_code=code)
    assert (failed.said, failed.code) == (ReceiptState.UNDELIVERED, code)


@pytest.mark.parametrize(
    ("mobile", "receivers"),
    [
        ("+8618800000001", ("+8618800000001",)),
        ("85291234567", ("+85291234567",)),
        ("+85291234567", ("+85291234567",)),
        ("188******01", ()),
        ("", ()),
    ],
)
def test_a_number_is_read_in_each_of_its_spellings(mobile: str, receivers: tuple[str, ...]) -> None:
    assert one(mobile=mobile).receivers == receivers


def test_what_is_missing_leaves_one_report_out_and_no_other() -> None:
    odd: list[dict[str, Any]] = [
        {**REPORT, "message_id": ""},
        {**REPORT, "status_code": ""},
        {name: value for name, value in REPORT.items() if name != "status_code"},
    ]
    found = parsed(*odd, REPORT)
    assert len(found.receipts) == 1
    assert found.unreadable == 3
    assert one(ext=None, recv_time=None).call_key == ""


def test_a_push_without_its_secret_or_of_another_form_is_refused() -> None:
    with pytest.raises(Unauthentic):
        parsed(REPORT, query="secret=wrong")
    for body in (b"\xff", b"{}", b"[{}]"):
        with pytest.raises(Malformed):
            VolcengineSmsReports().parse(push(body, "secret=s3cret"), SHARED)
