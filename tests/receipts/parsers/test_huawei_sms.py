"""Huawei's status report as its page has it."""

import pytest

from idempotency.receipts.rules import Receipt, ReceiptState
from receipts.parsers.huawei_sms import HuaweiSmsReports
from receipts.push import Malformed, Parsed, Unauthentic
from tests.receipts.test_parsers import SHARED, push

HUAWEI = (
    "sequence=1&total=1&updateTime=2018-10-31T08%3A43%3A41Z&source=2&extend=0123abcd"
    "&smsMsgId=2ea20735-f856-4376-afbf-570bd70a46ee_11840135&status=DELIVRD&to=%2B8615123456789"
)


def huawei(body: str, query: str = "secret=s3cret") -> Parsed:
    return HuaweiSmsReports().parse(push(body, query), SHARED)


def test_huawei_reports_are_read_as_documented() -> None:
    assert huawei(HUAWEI).receipts == [
        Receipt(
            "acc",
            ReceiptState.DELIVERED,
            "2ea20735-f856-4376-afbf-570bd70a46ee_11840135",
            "0123abcd",
            ("+8615123456789",),
            at=1_540_975_421_000,
        )
    ]
    (failed,) = huawei(HUAWEI.replace("DELIVRD", "MK:0041")).receipts
    assert (failed.said, failed.code) == (ReceiptState.UNDELIVERED, "MK:0041")


def test_a_part_of_a_long_huawei_message_that_arrived_is_not_the_message() -> None:
    part = HUAWEI.replace("total=1", "total=2")
    assert huawei(part).receipts == []
    (last,) = huawei(part.replace("sequence=1", "sequence=2")).receipts
    assert last.said is ReceiptState.DELIVERED
    (lost,) = huawei(part.replace("DELIVRD", "UNDELIV")).receipts
    assert (lost.said, lost.code) == (ReceiptState.UNDELIVERED, "UNDELIV")


@pytest.mark.parametrize("status", ["ACCEPTD", "UNKNOWN"])
def test_a_huawei_report_that_tells_no_end_moves_nothing(status: str) -> None:
    assert huawei(HUAWEI.replace("DELIVRD", status)).receipts == []


def test_a_huawei_report_without_its_secret_or_its_id_is_refused() -> None:
    with pytest.raises(Unauthentic):
        huawei(HUAWEI, "secret=wrong")
    with pytest.raises(Malformed):
        huawei(HUAWEI.replace("smsMsgId", "other"))
    with pytest.raises(Malformed):
        HuaweiSmsReports().parse(push(b"\xff", "secret=s3cret"), SHARED)
