"""Huawei Cloud SMS on the wire: the fields of an account, signed calls, answers.

    canonical request  method, path and slash, query, signed fields, their names, hex SHA-256 of the body
    string to sign     SDK-HMAC-SHA256, X-Sdk-Date, hex SHA-256 of the canonical request
    Authorization      SDK-HMAC-SHA256 Access=<key>, SignedHeaders=<names>, Signature=<hex HMAC-SHA256>

The clock may differ by 15 minutes.

Sources, read 2026-11-22: https://support.huaweicloud.com/intl/en-us/api-msgsms/sms_05_0002.html (times),
and Huawei's own SDK: huaweicloudsdkcore 3.1.219, signer/signer.py
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlencode

import httpx
import msgspec

from channels.channel import Account
from channels.endpoints import below, endpoint_url
from channels.http_client.request import extensions_of
from channels.providers._common import sms
from channels.secret import Secret

FORM: Final = "application/x-www-form-urlencoded"
_ALGORITHM: Final = "SDK-HMAC-SHA256"
_SIGNED: Final = "content-type;host;x-sdk-date"
_PATH: Final = "sms/batchSendSms/v1"


class HuaweiSmsOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of an account."""

    app_key: sms.Name
    app_secret: Secret
    sender: sms.Name
    """The channel number (通道号) of the signature: what the call's `from` is."""
    sign_name: str = ""
    """The signature (签名), where a notification names none. Only templates that are common to all
    signatures (通用模板) want it in the call."""
    status_callback: Secret | None = None
    """Where Huawei reports to: the address of `hongyan receipts` for this account, `?secret=…` in it, since
    Huawei does not sign. None: nothing is reported, and no receipt proves a call in doubt."""

    def __post_init__(self) -> None:
        """Raises ValueError for a callback that cannot be one."""
        callback = self.status_callback
        if callback is not None and not callback.reveal().startswith(("http://", "https://")):
            raise ValueError("status_callback: must be a full http:// or https:// URL")


class HuaweiStatus(msgspec.Struct, rename="camel"):
    """The status of one number of a call."""

    origin_to: str = ""
    sms_msg_id: str = ""
    status: str = ""


class HuaweiAnswer(msgspec.Struct):
    """An answer of the service, or of the gateway in front of it."""

    code: str = ""
    description: str = ""
    result: list[HuaweiStatus] | None = None
    error_code: str = ""
    error_msg: str = ""


class HuaweiPrepared(msgspec.Struct, frozen=True):
    """The parts that all requests of one account share."""

    options: HuaweiSmsOptions
    url: httpx.URL
    path: str
    host: str
    extensions: dict[str, Any]


decode = msgspec.json.Decoder(HuaweiAnswer).decode


def prepare(account: Account) -> HuaweiPrepared:
    """Prepares requests of this account; the signature covers the endpoint's own path."""
    url = below(endpoint_url(account.endpoint), _PATH)
    path = url.raw_path.partition(b"?")[0].decode("ascii")
    whole = url.copy_with(raw_path=path.encode("ascii"))
    host, extensions = url.netloc.decode("ascii"), extensions_of(account)
    return HuaweiPrepared(account.options, whole, path, host, extensions)


def signed(prepared: HuaweiPrepared, form: Mapping[str, str], now_s: float) -> httpx.Request:
    """Returns the signed POST of one call."""
    body = urlencode(form).encode("ascii")
    date = datetime.fromtimestamp(now_s, UTC).strftime("%Y%m%dT%H%M%SZ")
    options = prepared.options
    shown = authorization(
        key=options.app_key,
        secret=options.app_secret.reveal(),
        host=prepared.host,
        path=prepared.path,
        body=body,
        date=date,
    )
    fields = [
        (b"Host", prepared.host.encode("ascii")),
        (b"User-Agent", b"hongyan"),
        (b"Content-Type", FORM.encode("ascii")),
        (b"X-Sdk-Date", date.encode("ascii")),
        (b"Authorization", shown.encode("ascii")),
        (b"Content-Length", b"%d" % len(body)),
    ]
    stream, extensions = httpx.ByteStream(body), dict(prepared.extensions)
    return httpx.Request("POST", prepared.url, headers=fields, stream=stream, extensions=extensions)


def authorization(*, key: str, secret: str, host: str, path: str, body: bytes, date: str) -> str:
    """Returns the Authorization field of a POST of a form without a query."""
    lines = f"content-type:{FORM}\nhost:{host}\nx-sdk-date:{date}\n"
    slashed = path if path.endswith("/") else f"{path}/"
    canonical = "\n".join(("POST", slashed, "", lines, _SIGNED, sha256(body).hexdigest()))
    to_sign = "\n".join((_ALGORITHM, date, sha256(canonical.encode()).hexdigest()))
    made = hmac.new(secret.encode(), to_sign.encode(), sha256).hexdigest()
    return f"{_ALGORITHM} Access={key}, SignedHeaders={_SIGNED}, Signature={made}"
