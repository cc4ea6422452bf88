"""`wechatpy` 1.8 judges how WeChat's events are signed and encrypted: by us, and by our simulator."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
import xmltodict
from wechatpy import parse_message
from wechatpy.crypto import WeChatCrypto
from wechatpy.exceptions import InvalidSignatureException
from wechatpy.utils import check_signature

from channels.secret import Secret
from receipts.parsers._wechat_crypto import signature
from receipts.parsers._wechat_events import WechatSigning
from receipts.parsers.wechat_mini import WechatMiniEvents
from receipts.parsers.wechat_official import WechatEvents
from receipts.push import Push, Unauthentic
from simulator.ledger import LedgerRecord
from simulator.receipts.formats import FORMATS
from simulator.receipts.plan import DELIVERED, Planned
from simulator.receipts.receipt_format import ReceiptReport
from simulator.wire import ProtocolContext

TOKEN, APP = "spamtest", "wx2c2769f8efd9abc2"
KEY = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG"
NOW_S = 1_409_735_670
OPTIONS = WechatSigning(Secret(TOKEN), Secret(KEY), APP)
TIMES = {"timestamp": str(NOW_S), "nonce": "1320562132"}
FINISHED = (
    "<xml><ToUserName>gh_1</ToUserName><FromUserName>oia2TjuEGT</FromUserName>"
    "<CreateTime>1395658920</CreateTime><MsgType>event</MsgType>"
    "<Event>TEMPLATESENDJOBFINISH</Event><MsgID>200163836</MsgID><Status>success</Status></xml>"
)
SENT = FINISHED.replace("TEMPLATESENDJOBFINISH", "subscribe_msg_sent_event").replace(
    "<MsgID>200163836</MsgID><Status>success</Status>",
    "<SubscribeMsgSentEvent><List><TemplateId>T</TemplateId><MsgID>200163836</MsgID>"
    "<ErrorCode>0</ErrorCode><ErrorStatus>success</ErrorStatus></List></SubscribeMsgSentEvent>",
)


def pushed(xml: str, app: str = APP) -> Push:
    """As WeChat pushes it, made by the judge."""
    sealed = WeChatCrypto(TOKEN, KEY, app).encrypt_message(xml, TIMES["nonce"], str(NOW_S))
    told = xmltodict.parse(sealed)["xml"]
    query = {
        **TIMES,
        "signature": signature(TOKEN, *TIMES.values()),
        "msg_signature": told["MsgSignature"],
    }
    check_signature(TOKEN, query["signature"], TIMES["timestamp"], TIMES["nonce"])
    body = f"<xml><Encrypt><![CDATA[{told['Encrypt']}]]></Encrypt></xml>"
    return Push("acc", "POST", urlencode(query), {}, body.encode(), NOW_S)


@pytest.mark.parametrize(
    ("parser", "xml"), [(WechatEvents(), FINISHED), (WechatMiniEvents(), SENT)]
)
def test_what_the_judge_encrypts_we_read(parser: Any, xml: str) -> None:
    (receipt,) = parser.parse(pushed(xml), OPTIONS).receipts
    assert (receipt.said, receipt.provider_id) == ("DELIVERED", "200163836")
    with pytest.raises(Unauthentic):
        parser.parse(pushed(xml, app="wx_another"), OPTIONS)


@pytest.mark.parametrize("provider", ["wechat_official", "wechat_mini"])
def test_what_our_simulator_encrypts_the_judge_reads(provider: str) -> None:
    credentials = {provider: {"token": TOKEN, "aes_key": KEY, "app_id": APP}}
    world = ProtocolContext(credentials=credentials, now_ms=lambda: NOW_S * 1_000)
    record = LedgerRecord(
        seq=1,
        at_ms=1,
        key="k",
        path="/",
        id="i",
        receiver="oia2TjuEGT",
        attempt=1,
        digest="",
        accepted=True,
        answer="200",
        provider_id="200163836",
    )
    report = ReceiptReport(record, Planned(0.0, DELIVERED), 1_395_658_920_000)
    push = FORMATS[provider].push("https://ours.example/receipts/a", [report], world)
    query = dict(parse_qsl(urlsplit(push.url).query))
    check_signature(TOKEN, query["signature"], query["timestamp"], query["nonce"])
    crypto = WeChatCrypto(TOKEN, KEY, APP)
    times = (query["timestamp"], query["nonce"])
    opened = crypto.decrypt_message(push.body, query["msg_signature"], *times)
    event = xmltodict.parse(opened)["xml"]
    assert (event["MsgType"], event["FromUserName"]) == ("event", "oia2TjuEGT")
    if provider == "wechat_official":  # the other event is younger than the judge
        assert parse_message(opened).event == "templatesendjobfinish"
    with pytest.raises(InvalidSignatureException):
        crypto.decrypt_message(push.body, "0" * 40, *times)
