"""Which accounts a template leaves out, in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from channels.channel import Account
from channels.template_support import TEMPLATE_SUPPORT, gaps, unsendable
from message.vocabulary import Lane
from policy.templates.loading import load
from policy.templates.templates import DeclaredTemplate

ALI, TEN = Account("ali", "aliyun_sms", ""), Account("ten", "tencent_sms", "")
TW, MAIL = Account("tw", "twilio", ""), Account("mail", "smtp", "")
NULL = Account("off", "null", "")
CODES, NEWS = Lane("sms", "verification"), Lane("sms", "marketing")
FILE = """
[templates.forms]
channel = "sms"
providers.aliyun_sms = { template_id = "SMS_1" }
providers.tencent_sms = { template_id = "1" }
[templates.mixed]
channel = "sms"
text = "x"
providers.aliyun_sms = { template_id = "SMS_1" }
[templates.plain]
channel = "sms"
text = "x"
[templates.theirs]
channel = "sms"
template_id = "1"
"""


def template(folder: Path, name: str) -> DeclaredTemplate:
    (folder / "templates.toml").write_text(FILE)
    return load(folder / "templates.toml", TEMPLATE_SUPPORT).named(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("forms", ["nothing for tw (twilio): it goes through ali, ten alone"]),
        ("mixed", ["nothing for ten (tencent_sms): it goes through ali, tw alone"]),
        ("plain", ["nothing for ali (aliyun_sms), ten (tencent_sms): what goes there is refused"]),
        ("theirs", []),
    ],
)
def test_accounts_of_a_lane_that_are_left_out_are_named(
    tmp_path: Path, name: str, expected: list[str]
) -> None:
    found = gaps([template(tmp_path, name)], {CODES: [ALI, TEN, TW], Lane("email", "notice"): []})
    assert [gap.says for gap in found] == expected


def test_lanes_with_the_same_gap_are_told_of_once(tmp_path: Path) -> None:
    one = template(tmp_path, "forms")
    lanes = {CODES: [ALI, TW], NEWS: [ALI, TW], Lane("sms", "notice"): [TW]}
    assert list(map(str, gaps([one], lanes))) == [
        "forms: sms.verification, sms.marketing: nothing for tw (twilio): it goes through ali alone",
        "forms: sms.notice: nothing for tw (twilio), and there is no other account",
    ]


def test_what_no_account_of_its_channel_could_send_is_said(tmp_path: Path) -> None:
    forms = template(tmp_path, "forms")
    assert unsendable(forms, [TW, MAIL]) == "no account could send it: nothing for tw (twilio)"
    assert unsendable(forms, [TW, ALI]) == ""
    assert unsendable(forms, [TW, NULL]) == "", "it takes anything"
    assert unsendable(forms, [MAIL]) == "", "this process has no account of the channel"
