"""WeChat's events, signed with `credentials`: `wechat_official.token` and, to encrypt,
`wechat_official.aes_key` with `app_id`.
"""

from __future__ import annotations

import hashlib
import os
from base64 import b64decode, b64encode
from collections.abc import Sequence
from secrets import token_hex
from urllib.parse import urlencode, urlsplit

from simulator.receipts.plan import DELIVERED
from simulator.receipts.receipt_format import XML, Pushed, ReceiptReport
from simulator.wire import ProtocolContext


class WechatOfficialReceiptFormat:
    """TEMPLATESENDJOBFINISH."""

    steps, batch = False, 1
    protocol = "wechat_official"

    def xml(self, report: ReceiptReport) -> str:
        """The event in the clear."""
        return _event(report)

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
        return Pushed(f"{url}{mark}{urlencode(query)}", [XML], xml.encode())


def _event(report: ReceiptReport) -> str:
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
    from cryptography.hazmat.primitives.ciphers import Cipher  # who does not encrypt needs it not
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CBC

    secret = b64decode(f"{key}=")
    plain = os.urandom(16) + len(message).to_bytes(4, "big") + message + app_id.encode()
    fill = 32 - len(plain) % 32
    encryptor = Cipher(AES(secret), CBC(secret[:16])).encryptor()
    return b64encode(encryptor.update(plain + bytes([fill]) * fill) + encryptor.finalize()).decode()


def _sha1(*parts: str) -> str:
    return hashlib.sha1("".join(sorted(parts)).encode(), usedforsecurity=False).hexdigest()


FORMATS = {"wechat_official": WechatOfficialReceiptFormat()}
