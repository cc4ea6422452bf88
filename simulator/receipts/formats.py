"""Receipts in the words of each provider, signed as it signs; one format per protocol.

Aliyun, Tencent and Huawei sign nothing: their secret is in the callback's URL. The others sign with
`credentials`: `twilio.auth_token`, `resend.signing_secret`, `wechat_official.token` and, to encrypt,
`wechat_official.aes_key` with `app_id`. Sources: see receipts/parsers/.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlencode, urlsplit

from simulator.ledger import Record
from simulator.protocols._sms import CHINA_MS
from simulator.receipts.plan import DELIVERED, SENT, Planned
from simulator.wire import ID, SECRET, ProtocolContext

SIGNING_SECRET: Final = "whsec_" + b64encode(SECRET.encode()).decode()
"""Resend's, if the credentials name none."""
_FORM: Final = ("Content-Type", "application/x-www-form-urlencoded")
_JSON: Final = ("Content-Type", "application/json")
_XML: Final = ("Content-Type", "text/xml")


class ReceiptReport(NamedTuple):
    """One receipt on its way."""

    record: Record
    planned: Planned
    at_ms: int


class Pushed(NamedTuple):
    """One request with receipts."""

    url: str
    fields: Sequence[tuple[str, str]]
    body: bytes


class Format(Protocol):
    """One provider's format."""

    steps: bool
    """Whether it reports `sent` too."""
    batch: int
    """Receipts in one push."""

    def push(self, url: str, reports: Sequence[ReceiptReport], world: ProtocolContext) -> Pushed:
        """Returns the request that carries the reports."""
        ...


class AliyunSmsReceiptFormat:
    """SmsReport."""

    steps, batch = False, 100

    def push(self, url: str, reports: Sequence[ReceiptReport], world: ProtocolContext) -> Pushed:
        return Pushed(url, [_JSON], json.dumps([_aliyun(one) for one in reports]).encode())


class TencentSmsReceiptFormat:
    """The delivery status callback."""

    steps, batch = False, 100

    def push(self, url: str, reports: Sequence[ReceiptReport], world: ProtocolContext) -> Pushed:
        return Pushed(url, [_JSON], json.dumps([_tencent(one) for one in reports]).encode())


class HuaweiSmsReceiptFormat:
    """The status report: to the address that the call named, else to the account's."""

    steps, batch = False, 1

    def push(self, url: str, reports: Sequence[ReceiptReport], world: ProtocolContext) -> Pushed:
        (report,) = reports
        good, name = report.planned.status == DELIVERED, report.record.provider_id
        at = datetime.fromtimestamp(report.at_ms / 1_000, UTC)
        form = {
            "smsMsgId": name,
            "total": "1",
            "sequence": "1",
            "status": "DELIVRD" if good else report.planned.code,
            "source": "2",
            "updateTime": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "orgCode": "",
            "extend": report.record.id,
            "to": report.record.receiver,
        }
        url = world.callbacks.get(name, url)
        return Pushed(url, [_FORM], urlencode(form).encode())


class GetuiReceiptFormat:
    """The receipt: one JSON object a line, each signed."""

    steps, batch = False, 100

    def push(self, url: str, reports: Sequence[ReceiptReport], world: ProtocolContext) -> Pushed:
        lines = [json.dumps(_getui(report, world)) for report in reports]
        return Pushed(url, [("Content-Type", "text/plain")], "\n".join(lines).encode())


class TwilioReceiptFormat:
    """StatusCallback: to the address that the message named, query and all, else to the account's."""

    steps, batch = True, 1

    def push(self, url: str, reports: Sequence[ReceiptReport], world: ProtocolContext) -> Pushed:
        (report,) = reports
        sid = report.record.provider_id
        url = world.callbacks.get(sid, url)
        form = {
            "AccountSid": world.credential("twilio", "account_sid", "AC" + "0" * 32),
            "ApiVersion": "2010-04-01",
            "MessageSid": sid,
            "MessageStatus": report.planned.status,
            "SmsSid": sid,
            "SmsStatus": report.planned.status,
            "To": report.record.receiver,
        }
        if report.planned.code:
            form["ErrorCode"] = report.planned.code
        signed = url + "".join(name + form[name] for name in sorted(form))
        key = world.credential("twilio", "auth_token").encode()
        made = b64encode(hmac.new(key, signed.encode(), hashlib.sha1).digest()).decode()
        return Pushed(url, [_FORM, ("X-Twilio-Signature", made)], urlencode(form).encode())


class ResendReceiptFormat:
    """Webhooks, signed as Svix does."""

    steps, batch = True, 1

    def push(self, url: str, reports: Sequence[ReceiptReport], world: ProtocolContext) -> Pushed:
        (report,) = reports
        body = json.dumps(_resend(report)).encode()
        key = world.credential("resend", "signing_secret", SIGNING_SECRET)
        message_id, now = f"msg_{token_hex(12)}", str(world.now_ms() // 1_000)
        signed = f"{message_id}.{now}.".encode() + body
        made = hmac.new(b64decode(key.removeprefix("whsec_")), signed, hashlib.sha256).digest()
        fields = [
            _JSON,
            ("svix-id", message_id),
            ("svix-timestamp", now),
            ("svix-signature", f"v1,{b64encode(made).decode()}"),
        ]
        return Pushed(url, fields, body)


class WechatOfficialReceiptFormat:
    """TEMPLATESENDJOBFINISH."""

    steps, batch = False, 1
    protocol = "wechat_official"

    def xml(self, report: ReceiptReport) -> str:
        """Returns the event in the clear."""
        return _wechat(report)

    def push(self, url: str, reports: Sequence[ReceiptReport], world: ProtocolContext) -> Pushed:
        (report,) = reports
        token = world.credential(self.protocol, "token")
        now, nonce = str(world.now_ms() // 1_000), token_hex(5)
        query = {"signature": _sha1(token, now, nonce), "timestamp": now, "nonce": nonce}
        xml = self.xml(report)
        if key := world.credential(self.protocol, "aes_key", ""):
            app_id = world.credential(self.protocol, "app_id", "")
            sealed = _encrypted(xml.encode(), key, app_id)
            query |= {"encrypt_type": "aes", "msg_signature": _sha1(token, now, nonce, sealed)}
            xml = f"<xml><Encrypt><![CDATA[{sealed}]]></Encrypt></xml>"
        mark = "&" if urlsplit(url).query else "?"
        return Pushed(f"{url}{mark}{urlencode(query)}", [_XML], xml.encode())


class WechatMiniReceiptFormat(WechatOfficialReceiptFormat):
    """subscribe_msg_sent_event."""

    protocol = "wechat_mini"

    def xml(self, report: ReceiptReport) -> str:
        """Returns the event in the clear."""
        good = report.planned.status == DELIVERED
        status = "success" if good else f"failed:{report.planned.code}"
        return (
            "<xml><ToUserName><![CDATA[gh_simulator]]></ToUserName>"
            f"<FromUserName><![CDATA[{report.record.receiver}]]></FromUserName>"
            f"<CreateTime>{report.at_ms // 1_000}</CreateTime>"
            "<MsgType><![CDATA[event]]></MsgType>"
            "<Event><![CDATA[subscribe_msg_sent_event]]></Event>"
            "<SubscribeMsgSentEvent><List><TemplateId><![CDATA[T]]></TemplateId>"
            f"<MsgID>{report.record.provider_id}</MsgID>"
            f"<ErrorCode>{0 if good else 20_003}</ErrorCode>"
            f"<ErrorStatus><![CDATA[{status}]]></ErrorStatus></List></SubscribeMsgSentEvent></xml>"
        )


FORMATS: Final[Mapping[str, Format]] = {
    "aliyun_sms": AliyunSmsReceiptFormat(),
    "tencent_sms": TencentSmsReceiptFormat(),
    "huawei_sms": HuaweiSmsReceiptFormat(),
    "getui": GetuiReceiptFormat(),
    "twilio": TwilioReceiptFormat(),
    "resend": ResendReceiptFormat(),
    "wechat_mini": WechatMiniReceiptFormat(),
    "wechat_official": WechatOfficialReceiptFormat(),
}


def _aliyun(report: ReceiptReport) -> dict[str, Any]:
    good = report.planned.status == DELIVERED
    return {
        "phone_number": report.record.receiver.removeprefix("+86").lstrip("+"),
        "send_time": _china(report.record.at_ms),
        "report_time": _china(report.at_ms),
        "success": good,
        "err_code": "DELIVERED" if good else report.planned.code,
        "err_msg": "用户接收成功" if good else "simulated",
        "sms_size": "1",
        "biz_id": report.record.provider_id,
        "out_id": report.record.id,
    }


def _getui(report: ReceiptReport, world: ProtocolContext) -> dict[str, Any]:
    app, cid = world.credential("getui", "app_id", ID), report.record.receiver
    task, name = report.record.provider_id, f"{report.record.seq:032x}"
    secret = world.credential("getui", "master_secret")
    text = f"{app}{cid}{task}{name}{secret}"
    good = report.planned.status == DELIVERED
    return {
        "appid": app,
        "cid": cid,
        "taskid": task,
        "msgid": name,
        "code": "200" if good else report.planned.code,
        "desc": "success" if good else "simulated",
        "sign": hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(),
    }


def _tencent(report: ReceiptReport) -> dict[str, Any]:
    good, number = report.planned.status == DELIVERED, report.record.receiver
    nation = "86" if number.startswith("+86") else ""
    return {
        "user_receive_time": _china(report.at_ms),
        "nationcode": nation,
        "mobile": number.removeprefix(f"+{nation}"),
        "report_status": "SUCCESS" if good else "FAIL",
        "errmsg": "DELIVRD" if good else report.planned.code,
        "description": "用户短信送达成功" if good else "simulated",
        "sid": report.record.provider_id,
    }


def _resend(report: ReceiptReport) -> dict[str, Any]:
    status = report.planned.status
    kind = status if status in (SENT, DELIVERED) else "bounced"
    at = datetime.fromtimestamp(report.at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    data: dict[str, Any] = {
        "created_at": at,
        "email_id": report.record.provider_id,
        "to": [report.record.receiver],
    }
    if kind == "bounced":
        data["bounce"] = {"type": report.planned.code, "subType": "General", "message": "simulated"}
    return {"type": f"email.{kind}", "created_at": at.replace("+00:00", "Z"), "data": data}


def _wechat(report: ReceiptReport) -> str:
    good = report.planned.status == DELIVERED
    return (
        "<xml><ToUserName><![CDATA[gh_simulator]]></ToUserName>"
        f"<FromUserName><![CDATA[{report.record.receiver}]]></FromUserName>"
        f"<CreateTime>{report.at_ms // 1_000}</CreateTime><MsgType><![CDATA[event]]></MsgType>"
        "<Event><![CDATA[TEMPLATESENDJOBFINISH]]></Event>"
        f"<MsgID>{report.record.provider_id}</MsgID>"
        f"<Status><![CDATA[{'success' if good else f'failed:{report.planned.code}'}]]></Status></xml>"
    )


def _encrypted(message: bytes, key: str, app_id: str) -> str:
    from cryptography.hazmat.primitives.ciphers import Cipher  # loaded only to encrypt
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CBC

    secret = b64decode(f"{key}=")
    plain = os.urandom(16) + len(message).to_bytes(4, "big") + message + app_id.encode()
    fill = 32 - len(plain) % 32
    encryptor = Cipher(AES(secret), CBC(secret[:16])).encryptor()
    return b64encode(encryptor.update(plain + bytes([fill]) * fill) + encryptor.finalize()).decode()


def _sha1(*parts: str) -> str:
    return hashlib.sha1("".join(sorted(parts)).encode(), usedforsecurity=False).hexdigest()


def _china(at_ms: int) -> str:
    return datetime.fromtimestamp((at_ms + CHINA_MS) // 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
