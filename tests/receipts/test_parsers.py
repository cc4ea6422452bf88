"""Parsers against the providers' published examples, and against those who are not the provider."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from channels.secret import Secret
from idempotency.receipts.rules import Receipt, ReceiptState
from receipts.parsers import PARSERS
from receipts.parsers._wechat_crypto import signature as wechat_signature
from receipts.parsers._wechat_events import WechatSigning
from receipts.parsers.aliyun_sms import AliyunSmsReports
from receipts.parsers.getui import GetuiReceipts, GetuiSigning
from receipts.parsers.huawei_sms import HuaweiSmsReports
from receipts.parsers.resend import ResendSigning, ResendWebhooks
from receipts.parsers.resend import signature as svix_signature
from receipts.parsers.tencent_sms import TencentSmsStatuses, pulled
from receipts.parsers.twilio import TwilioCallbacks, TwilioSigning
from receipts.parsers.twilio import signature as twilio_signature
from receipts.parsers.wechat_mini import WechatMiniEvents
from receipts.parsers.wechat_official import WechatEvents
from receipts.push import Malformed, Parsed, Push, SharedSecret, Unauthentic

NOW = 1_714_000_000
SHARED = SharedSecret(Secret("s3cret"))


def push(
    body: bytes | str = b"",
    query: str = "",
    fields: Mapping[str, str] | None = None,
    method: str = "POST",
    now_s: float = NOW,
) -> Push:
    data = body.encode() if isinstance(body, str) else body
    return Push("acc", method, query, fields or {}, data, now_s)


ALIYUN = {
    "phone_number": "13900000001",
    "send_time": "2017-01-01 00:00:00",
    "report_time": "2017-01-01 08:00:01",
    "success": True,
    "err_code": "DELIVERED",
    "err_msg": "用户接收成功",
    "sms_size": "1",
    "biz_id": "12345",
    "out_id": "67890",
}


def aliyun(*reports: Mapping[str, Any], query: str = "secret=s3cret") -> Parsed:
    return AliyunSmsReports().parse(push(json.dumps(reports), query), SHARED)


def test_aliyun_reports_are_read_as_documented() -> None:
    failed = ALIYUN | {"success": False, "err_code": "MK:0001", "phone_number": "85212345678"}
    parsed = aliyun(ALIYUN, failed)
    assert json.loads(parsed.answer) == {"code": 0, "msg": "接收成功"}
    assert parsed.receipts == [
        Receipt(
            account="acc",
            said=ReceiptState.DELIVERED,
            provider_id="12345",
            call_key="67890",
            receivers=("+8613900000001", "+13900000001"),
            at=1_483_228_801_000,
        ),
        Receipt(
            account="acc",
            said=ReceiptState.UNDELIVERED,
            provider_id="12345",
            call_key="67890",
            receivers=("+85212345678",),
            code="MK:0001",
            at=1_483_228_801_000,
        ),
    ]


@pytest.mark.parametrize("query", ["", "secret=", "secret=wrong", "Secret=s3cret", "x=s3cret"])
def test_a_push_without_the_shared_secret_is_refused(query: str) -> None:
    with pytest.raises(Unauthentic):
        aliyun(ALIYUN, query=query)
    with pytest.raises(Unauthentic):
        TencentSmsStatuses().parse(push("[]", query), SHARED)


def test_the_shared_secret_may_come_in_a_field_that_a_proxy_adds() -> None:
    fields = {"x-hongyan-secret": "s3cret"}
    assert AliyunSmsReports().parse(push("[]", fields=fields), SHARED).receipts == []


@pytest.mark.parametrize("body", ["", "{}", "nonsense", "[1", b"\xff\xfe", '"text"'])
def test_what_is_no_list_is_malformed(body: str | bytes) -> None:
    for parser in (AliyunSmsReports(), TencentSmsStatuses()):
        with pytest.raises(Malformed, match="JSON list"):
            parser.parse(push(body, "secret=s3cret"), SHARED)


def test_one_unreadable_entry_costs_the_others_nothing() -> None:
    parsed = aliyun(ALIYUN, {"phone_number": 1}, ALIYUN | {"biz_id": "2", "a_new_field": [1]})
    assert [one.provider_id for one in parsed.receipts] == ["12345", "2"]
    assert parsed.unreadable == 1
    with pytest.raises(Malformed, match="none of the 2 entries"):
        aliyun({}, {"phone_number": 1})


TENCENT = {
    "user_receive_time": "2015-10-17 08:03:04",
    "nationcode": "86",
    "mobile": "13800000001",
    "report_status": "SUCCESS",
    "errmsg": "DELIVRD",
    "description": "用户短信送达成功",
    "sid": "2019:-1",
}


@pytest.mark.parametrize("time", ["0001-01-01 00:00:00", "", "soon"])
def test_a_report_with_a_time_that_is_none_is_read(time: str) -> None:
    (receipt,) = aliyun({**ALIYUN, "report_time": time}).receipts
    assert (receipt.said, receipt.at) == (ReceiptState.DELIVERED, 0)


def test_tencent_statuses_are_read_as_documented() -> None:
    body = json.dumps([TENCENT, TENCENT | {"report_status": "FAIL", "errmsg": "MK:0010"}])
    parsed = TencentSmsStatuses().parse(push(body, "secret=s3cret"), SHARED)
    assert json.loads(parsed.answer) == {"result": 0, "errmsg": "OK"}
    one, other = parsed.receipts
    assert (one.said, one.provider_id, one.receivers) == (
        ReceiptState.DELIVERED,
        "2019:-1",
        ("+8613800000001",),
    )
    assert one.at == 1_445_040_184_000
    assert (other.said, other.code) == (ReceiptState.UNDELIVERED, "MK:0010")


def test_a_status_that_is_not_documented_moves_nothing() -> None:
    body = json.dumps([TENCENT | {"report_status": "PERHAPS"}])
    with pytest.raises(Malformed):
        TencentSmsStatuses().parse(push(body, "secret=s3cret"), SHARED)


def test_tencent_reports_are_pulled_with_the_calls_key() -> None:
    report = {
        "UserReceiveTime": 1620734188,
        "CountryCode": "86",
        "SubscriberNumber": "13800000001",
        "PhoneNumber": "+8613800000001",
        "SerialNo": "13:358879834416207341888",
        "ReportStatus": "SUCCESS",
        "Description": "DELIVRD",
        "SessionContext": "c" * 32,
    }
    body = {"Response": {"PullSmsSendStatusSet": [report], "RequestId": "r"}}
    (receipt,) = pulled("acc", json.dumps(body).encode()).receipts
    assert receipt.call_key == "c" * 32
    assert (receipt.said, receipt.at) == (ReceiptState.DELIVERED, 1_620_734_188_000)
    error = {"Response": {"Error": {"Code": "FailedOperation.ForbidAddMarketing", "Message": ""}}}
    with pytest.raises(Malformed, match="ForbidAddMarketing"):
        pulled("acc", json.dumps(error).encode())


# https://www.twilio.com/docs/usage/security#validating-requests, and twilio-python's own test.
TWILIO_CALL = {
    "CallSid": "CA1234567890ABCDE",
    "Caller": "+14158675310",
    "Digits": "1234",
    "From": "+14158675310",
    "To": "+18005551212",
}


def test_twilios_signature_is_that_of_its_published_examples() -> None:
    url = "https://example.com/myapp.php?foo=1&bar=2"
    assert twilio_signature("12345", url, TWILIO_CALL.items()) == "L/OH5YylLD5NRKLltdqwSvS0BnU="
    older = TWILIO_CALL | {"Caller": "+14158675309", "From": "+14158675309"}
    url = "https://mycompany.com/myapp.php?foo=1&bar=2"
    assert twilio_signature("12345", url, older.items()) == "RSOYDt4T1cUTdK1PDd93/VVr8B8="


TWILIO = TwilioSigning(Secret("12345"), "https://example.com/receipts/acc")


def twilio(form: Mapping[str, str], query: str = "", signed_query: str = "") -> Parsed:
    url = TWILIO.public_url + (f"?{signed_query}" if signed_query else "")
    signed = {"x-twilio-signature": twilio_signature("12345", url, form.items())}
    return TwilioCallbacks().parse(push(urlencode(form), query, signed), TWILIO)


def test_twilio_callbacks_are_read_as_documented() -> None:
    form = {"MessageSid": "SM1", "MessageStatus": "delivered", "To": "+14155550100", "New": ""}
    (receipt,) = twilio(form).receipts
    assert receipt == Receipt("acc", ReceiptState.DELIVERED, "SM1", receivers=("+14155550100",))
    (failed,) = twilio(form | {"MessageStatus": "undelivered", "ErrorCode": "30003"}).receipts
    assert (failed.said, failed.code) == (ReceiptState.UNDELIVERED, "30003")
    (sent,) = twilio(form | {"MessageStatus": "sent"}).receipts
    assert sent.said is ReceiptState.SENT
    assert not twilio(form | {"MessageStatus": "queued"}).receipts


def test_twilio_signs_the_query_and_every_parameter() -> None:
    form = {"MessageSid": "SM1", "MessageStatus": "delivered"}
    assert twilio(form, "a=1&b=%20", "a=1&b=%20").receipts
    with pytest.raises(Unauthentic):
        twilio(form, "a=2", "a=1")
    signed = {"x-twilio-signature": twilio_signature("12345", TWILIO.public_url, form.items())}
    with pytest.raises(Unauthentic):
        TwilioCallbacks().parse(push(urlencode(form | {"ErrorCode": "1"}), "", signed), TWILIO)
    with pytest.raises(Unauthentic):
        TwilioCallbacks().parse(push(urlencode(form)), TWILIO)


def test_a_signed_query_names_the_call() -> None:
    form = {"MessageSid": "SM1", "MessageStatus": "sent", "To": "+14155550100"}
    query = f"tenant=7&hongyan_call={'c' * 32}"
    (receipt,) = twilio(form, query, query).receipts
    assert (receipt.provider_id, receipt.call_key) == ("SM1", "c" * 32)
    with pytest.raises(Unauthentic):
        twilio(form, f"hongyan_call={'d' * 32}", query)


@pytest.mark.parametrize(
    "form", ["&".join(["a="] * 201), "a=" + "%41" * 21_845], ids=["fields", "bytes"]
)
def test_a_form_beyond_its_bounds_is_not_read(form: str) -> None:
    """Its fields are read and sorted before its signature can be checked."""
    stranger = push(form, fields={"x-twilio-signature": "wrong"})
    with pytest.raises(Malformed, match="200 fields"):
        TwilioCallbacks().parse(stranger, TWILIO)
    with pytest.raises(Malformed, match="200 fields"):
        HuaweiSmsReports().parse(push(form, "secret=s3cret"), SHARED)


def test_a_query_beyond_its_bounds_is_not_read() -> None:
    with pytest.raises(Malformed, match="200 parameters"):
        aliyun(ALIYUN, query="a=&" * 200 + "secret=s3cret")


@pytest.mark.parametrize("to", ["+1415555XXXX", "+1415555****", ""])
def test_a_redacted_number_names_nobody(to: str) -> None:
    form = {"MessageSid": "SM1", "MessageStatus": "sent", "To": to}
    assert [one.receivers for one in twilio(form).receipts] == [()]


@pytest.mark.parametrize("url", ["", "example.com/x", "https://example.com/x?a=1"])
def test_a_public_url_that_twilio_could_not_have_signed_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="public_url"):
        TwilioSigning(Secret("12345"), url)


def test_a_twilio_callback_without_an_id_is_malformed() -> None:
    with pytest.raises(Malformed, match="MessageSid"):
        twilio({"MessageStatus": "delivered"})


# The worked example of https://docs.svix.com/receiving/verifying-payloads/how-manual.
SVIX_SECRET = Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
SVIX_ID, SVIX_TIME = "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330"


def test_svix_signature_is_that_of_its_published_example() -> None:
    made = svix_signature(SVIX_SECRET, SVIX_ID, SVIX_TIME, b'{"test": 2432232314}')
    assert made == "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


RESEND = ResendSigning(SVIX_SECRET)


def resend(event: Mapping[str, Any], *, late_s: float = 0, prefix: str = "v1,") -> Parsed:
    body = json.dumps(event).encode()
    made = svix_signature(SVIX_SECRET, SVIX_ID, SVIX_TIME, body)
    fields = {
        "svix-id": SVIX_ID,
        "svix-timestamp": SVIX_TIME,
        "svix-signature": f"v1,AAAA {prefix}{made}",
    }
    return ResendWebhooks().parse(push(body, fields=fields, now_s=int(SVIX_TIME) + late_s), RESEND)


def event(kind: str, **data: Any) -> dict[str, Any]:
    told = {"email_id": "56761188", "to": ["Ann <ann@Example.com>"], "subject": "x"} | data
    return {"type": kind, "created_at": "2024-02-22T23:41:12.126Z", "data": told}


def test_resend_events_are_read_as_documented() -> None:
    (receipt,) = resend(event("email.delivered")).receipts
    assert receipt == Receipt(
        "acc",
        ReceiptState.DELIVERED,
        "56761188",
        receivers=("ann@example.com",),
        at=1_708_645_272_126,
    )
    bounced = event("email.bounced", bounce={"type": "Permanent", "subType": "Suppressed"})
    (receipt,) = resend(bounced).receipts
    assert (receipt.said, receipt.code) == (ReceiptState.UNDELIVERED, "bounced:Permanent")
    (receipt,) = resend(event("email.delivered", to=["a@example.com", "b@example.com"])).receipts
    assert receipt.receivers == ()


@pytest.mark.parametrize("kind", ["email.delivery_delayed", "contact.created", "email.new"])
def test_resend_events_that_prove_nothing_are_received_and_forgotten(kind: str) -> None:
    assert resend({"type": kind, "data": {"id": 1}}).receipts == ()


def test_resend_refuses_other_versions_other_times_and_other_bodies() -> None:
    for wrong in ({"prefix": "v2,"}, {"late_s": 301}, {"late_s": -301}):
        with pytest.raises(Unauthentic):
            resend(event("email.delivered"), **wrong)
    with pytest.raises(Unauthentic):
        ResendWebhooks().parse(push("{}"), RESEND)
    with pytest.raises(Malformed):
        resend({"type": "email.delivered", "data": {}})
    with pytest.raises(Malformed):
        resend({"type": "email.delivered", "data": {"email_id": ""}})


def test_a_signing_secret_that_is_none_is_refused_without_showing_it() -> None:
    with pytest.raises(ValueError, match="whsec_") as caught:
        ResendSigning(Secret("whsec_!!!"))
    assert "!!!" not in str(caught.value)


# The example that WeChat ships with its own library (WXBizMsgCrypt).
WECHAT_KEY = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG"
WECHAT_APP = "wx2c2769f8efd9abc2"
WECHAT_QUERY = {"timestamp": "1409735669", "nonce": "1320562132"}
WECHAT_MSG_SIGNATURE = "5d197aaffba7e9b25a30732f161a50dee96bd5fa"
ENCRYPTED = (
    "hyzAe4OzmOMbd6TvGdIOO6uBmdJoD0Fk53REIHvxYtJlE2B655HuD0m8KUePWB3+LrPXo87wzQ1QLvbeUgmBM4x6F8PG"
    "HQHFVAFmOD2LdJF9FrXpbUAh0B5GIItb52sn896wVsMSHGuPE328HnRGBcrS7C41IzDWyWNlZkyyXwon8T332jisa+h6"
    "tEDYsVticbSnyU8dKOIbgU6ux5VTjg3yt+WGzjlpKn6NPhRjpA912xMezR4kw6KWwMrCVKSVCZciVGCgavjIQ6X8tCOp"
    "3yZbGpy0VxpAe+77TszTfRd5RJSVO/HTnifJpXgCSUdUue1v6h0EIBYYI1BD1DlD+C0CR8e6OewpusjZ4uBl9FyJvnhv"
    "Ql+q5rv1ixrcpCumEPo5MJSgM9ehVsNPfUM669WuMyVWQLCzpu9GhglF2PE="
)
WECHAT = WechatSigning(Secret("spamtest"))
WECHAT_SEALED = WechatSigning(Secret("spamtest"), Secret(WECHAT_KEY), WECHAT_APP)
FINISHED = (
    "<xml><ToUserName><![CDATA[gh_7f083739789a]]></ToUserName>"
    "<FromUserName><![CDATA[oia2TjuEGTNoeX76QEjQNrcURxG8]]></FromUserName>"
    "<CreateTime>1395658920</CreateTime><MsgType><![CDATA[event]]></MsgType>"
    "<Event><![CDATA[TEMPLATESENDJOBFINISH]]></Event>"
    "<MsgID>200163836</MsgID><Status><![CDATA[{}]]></Status></xml>"
)


def wechat(
    body: str, options: WechatSigning = WECHAT, method: str = "POST", **changed: str
) -> Parsed:
    signed = wechat_signature("spamtest", *WECHAT_QUERY.values())
    query = {"signature": signed, **WECHAT_QUERY, **changed}
    return WechatEvents().parse(
        push(body, urlencode(query), method=method, now_s=1_409_735_670), options
    )


def test_wechat_events_are_read_as_documented() -> None:
    parsed = wechat(FINISHED.format("success"))
    assert parsed.answer == b"success"
    (receipt,) = parsed.receipts
    assert receipt == Receipt(
        "acc",
        ReceiptState.DELIVERED,
        "200163836",
        receivers=("oia2TjuEGTNoeX76QEjQNrcURxG8",),
        at=1_395_658_920_000,
    )
    (blocked,) = wechat(FINISHED.format("failed:user block")).receipts
    assert (blocked.said, blocked.code) == (ReceiptState.UNDELIVERED, "user block")


def test_wechat_tries_an_address_out_and_is_answered_its_echo() -> None:
    assert wechat("", method="GET", echostr="4711").answer == b"4711"
    with pytest.raises(Unauthentic):
        wechat("", method="GET", echostr="4711", signature="0" * 40)


def test_other_events_of_a_wechat_account_are_received_and_forgotten() -> None:
    parsed = wechat("<xml><MsgType>text</MsgType><Content>hello</Content></xml>")
    assert (parsed.receipts, parsed.answer) == ([], b"success")


def test_wechats_own_example_is_verified_and_decrypted() -> None:
    body = f"<xml><Encrypt><![CDATA[{ENCRYPTED}]]></Encrypt></xml>"
    parsed = wechat(body, WECHAT_SEALED, msg_signature=WECHAT_MSG_SIGNATURE)
    assert parsed.receipts == []  # it is a text of a user's
    with pytest.raises(Unauthentic, match="msg_signature"):
        wechat(body, WECHAT_SEALED, msg_signature="0" * 40)
    other = WechatSigning(Secret("spamtest"), Secret(WECHAT_KEY), "wx-another")
    with pytest.raises(Unauthentic, match="another app"):
        wechat(body, other, msg_signature=WECHAT_MSG_SIGNATURE)


def test_with_a_key_wechat_events_in_the_clear_are_refused() -> None:
    with pytest.raises(Unauthentic):
        wechat(FINISHED.format("success"), WECHAT_SEALED)


@pytest.mark.parametrize(
    "body", ["", "text", "<xml>", '<!DOCTYPE x [<!ENTITY a "b">]><xml>&a;</xml>']
)
def test_what_is_no_plain_xml_is_malformed(body: str) -> None:
    with pytest.raises(Malformed):
        wechat(body)


SENT_EVENT = (
    "<xml><ToUserName><![CDATA[gh_123456789abc]]></ToUserName>"
    "<FromUserName><![CDATA[otFpruAK8D-E6EfStSYonYSBZ8_4]]></FromUserName>"
    "<CreateTime>1610969468</CreateTime><MsgType><![CDATA[event]]></MsgType>"
    "<Event><![CDATA[subscribe_msg_sent_event]]></Event>"
    "<SubscribeMsgSentEvent><List>"
    "<TemplateId><![CDATA[VRR0UEO9VJOLs0MHlU0OilqX6MVFDwH3_3gz3Oc0NIc]]></TemplateId>"
    "<MsgID>1700827132819554304</MsgID><ErrorCode>{}</ErrorCode>"
    "<ErrorStatus><![CDATA[{}]]></ErrorStatus></List></SubscribeMsgSentEvent></xml>"
)
OPENID = "otFpruAK8D-E6EfStSYonYSBZ8_4"


def mini(body: str, options: WechatSigning = WECHAT) -> Parsed:
    signed = wechat_signature("spamtest", *WECHAT_QUERY.values())
    query = urlencode({"signature": signed, **WECHAT_QUERY})
    return WechatMiniEvents().parse(push(body, query, now_s=1_409_735_670), options)


def sent_event(**entries: Any) -> str:
    told = {"FromUserName": OPENID, "Event": "subscribe_msg_sent_event", "CreateTime": 1610969468}
    return json.dumps({**told, **entries})


ENTRY = {"TemplateId": "T", "MsgID": "1700827132819554304", "ErrorCode": "0"}


@pytest.mark.parametrize(
    "body",
    [
        SENT_EVENT.format("0", "success"),
        sent_event(List={**ENTRY, "ErrorStatus": "success"}),
        sent_event(List=[{**ENTRY, "ErrorStatus": "success"}]),
        sent_event(SubscribeMsgSentEvent=[{**ENTRY, "ErrorStatus": "success"}]),
        sent_event(SubscribeMsgSentEvent={"List": [{**ENTRY, "MsgID": 1700827132819554304}]}),
    ],
)
def test_a_mini_programs_message_that_was_shown_is_delivered(body: str) -> None:
    parsed = mini(body)
    assert parsed.answer == b"success"
    assert list(parsed.receipts) == [
        Receipt(
            "acc",
            ReceiptState.DELIVERED,
            "1700827132819554304",
            receivers=(OPENID,),
            at=1_610_969_468_000,
        )
    ]


def test_a_mini_programs_message_that_was_not_shown_says_why() -> None:
    (blocked,) = mini(SENT_EVENT.format("20003", "failed: user block")).receipts
    assert (blocked.said, blocked.code) == (ReceiptState.UNDELIVERED, "20003: failed: user block")
    two = [{**ENTRY, "ErrorStatus": "success"}, {**ENTRY, "MsgID": "2", "ErrorCode": "43101"}]
    assert [r.said for r in mini(sent_event(List=two)).receipts] == [
        ReceiptState.DELIVERED,
        ReceiptState.UNDELIVERED,
    ]


@pytest.mark.parametrize(
    "body", ["{", "[]", '{"Event":7}', sent_event(), sent_event(List=[]), sent_event(List=[{}])]
)
def test_what_a_mini_program_does_not_document_is_refused_or_forgotten(body: str) -> None:
    try:
        assert mini(body).receipts == []
    except Malformed:
        return
    assert "subscribe_msg_sent_event" not in body


def test_other_events_of_a_mini_program_are_received_and_forgotten() -> None:
    assert mini(SENT_EVENT.replace("sent_event", "popup_event")).receipts == []
    with pytest.raises(Unauthentic):
        mini(SENT_EVENT.format("0", "success"), WECHAT_SEALED)


def test_a_wechat_signature_of_another_hour_is_refused() -> None:
    old = {"timestamp": "1409730000", "nonce": "1"}
    signed = wechat_signature("spamtest", *old.values())
    with pytest.raises(Unauthentic, match="clocks"):
        wechat(FINISHED.format("success"), WECHAT, "POST", signature=signed, **old)


def test_every_parser_is_of_a_provider_there_is() -> None:
    from channels.registry import PROVIDERS

    assert set(PARSERS) <= set(PROVIDERS)


def test_every_parser_is_in_the_document() -> None:
    page = (Path(__file__).parents[2] / "docs" / "receipts.md").read_text("utf-8")
    for name in PARSERS:
        assert f"\n| {name} | " in page, f"docs/receipts.md does not describe {name}"


GETUI = GetuiSigning(Secret("ms"))
GETUI_SIGN = "31bd73aa11664ad992e8a3b664fe6562"
"""printf 'app''cid''RASS_1''m1''ms' | md5sum"""
GETUI_LINE = {
    "appid": "app",
    "cid": "cid",
    "taskid": "RASS_1",
    "msgid": "m1",
    "code": "200",
    "desc": "success",
    "sign": GETUI_SIGN,
}


def getui(*lines: Mapping[str, Any] | str) -> Parsed:
    body = "\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines)
    return GetuiReceipts().parse(push(body), GETUI)


def test_getui_receipts_are_read_line_by_line() -> None:
    arrived, refused = getui(GETUI_LINE, {**GETUI_LINE, "code": 402}).receipts
    assert arrived == Receipt("acc", ReceiptState.DELIVERED, "RASS_1")
    assert (refused.said, refused.code) == (ReceiptState.UNDELIVERED, "402")


def test_a_getui_line_that_cannot_be_read_is_counted_and_left_out() -> None:
    parsed = getui("{", GETUI_LINE, '{"cid": 1}', {**GETUI_LINE, "taskid": ""})
    assert (len(parsed.receipts), parsed.unreadable) == (1, 3)
    for body in ("", "[]", "not json"):
        with pytest.raises(Malformed):
            getui(body)


@pytest.mark.parametrize("field", ["appid", "cid", "taskid", "msgid", "sign"])
def test_a_getui_line_that_was_changed_refuses_the_push(field: str) -> None:
    with pytest.raises(Unauthentic):
        getui(GETUI_LINE, {**GETUI_LINE, field: "other"})
