"""Tencent Cloud SMS on the wire: the fields of an account, signed calls, answers.

Field names of answers are the provider's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import httpx
import msgspec

from channels.channel import Account
from channels.endpoints import endpoint_url
from channels.http_client.request import extensions_of, fields_of
from channels.providers._common import sms
from channels.providers.tencent_sms.signature import JSON, authorization
from channels.secret import Secret

_VERSION: Final = b"2021-01-11"
_LAG_S: Final = 72 * 3_600
_SERVICE: Final = "sms"


class TencentSmsOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of an account."""

    secret_id: sms.Name
    secret_key: Secret
    sdk_app_id: str
    sign_name: str = ""
    """The signature (签名) in front of the text to mainland numbers, where a notification names none. It is
    registered for the mainland and not sent abroad."""
    sender_id: str = ""
    """For numbers outside mainland China, where one was registered."""
    region: sms.Name = "ap-guangzhou"
    query_lag_s: sms.Lag = _LAG_S
    """How old a call must be before a query that does not list it is believed."""


class TencentRefusal(msgspec.Struct):
    """The refusal of a whole call."""

    Code: str = ""
    Message: str = ""


class TencentStatus(msgspec.Struct):
    """The status of one number of a call."""

    PhoneNumber: str = ""
    Code: str = ""
    Message: str = ""
    SerialNo: str = ""


class TencentReport(msgspec.Struct):
    """A delivery report."""

    PhoneNumber: str = ""
    SerialNo: str = ""
    SessionContext: str | None = ""


class TencentContent(msgspec.Struct):
    """The content of an answer; one field is set."""

    Error: TencentRefusal | None = None
    SendStatusSet: list[TencentStatus] | None = None
    PullSmsSendStatusSet: list[TencentReport] | None = None


class TencentAnswer(msgspec.Struct):
    """The frame of every answer."""

    Response: TencentContent


class TencentPrepared(msgspec.Struct, frozen=True):
    """The parts that all requests of one account share."""

    options: TencentSmsOptions
    url: httpx.URL
    path: str
    host: str
    fields: list[tuple[bytes, bytes]]
    extensions: dict[str, Any]


decode = msgspec.json.Decoder(TencentAnswer).decode
_encoder = msgspec.json.Encoder()


def prepare(account: Account) -> TencentPrepared:
    """Prepares requests of this account; the signature covers the endpoint's own path."""
    url = endpoint_url(account.endpoint)
    path, options = sms.rooted(url), account.options
    fields = [
        *fields_of(url),
        (b"Content-Type", JSON.encode()),
        (b"X-TC-Version", _VERSION),
        (b"X-TC-Region", options.region.encode()),
    ]
    extensions = extensions_of(account)
    whole = url.copy_with(raw_path=path.encode("ascii"))
    return TencentPrepared(options, whole, path, url.netloc.decode("ascii"), fields, extensions)


def signed(
    prepared: TencentPrepared, action: bytes, content: Mapping[str, Any], now_s: int
) -> httpx.Request:
    """Returns the signed POST of one operation."""
    body = _encoder.encode(content)
    shown = authorization(
        secret_id=prepared.options.secret_id,
        secret=prepared.options.secret_key.reveal(),
        service=_SERVICE,
        host=prepared.host,
        path=prepared.path,
        body=body,
        now_s=now_s,
    )
    fields = [
        *prepared.fields,
        (b"X-TC-Action", action),
        (b"X-TC-Timestamp", b"%d" % now_s),
        (b"Authorization", shown.encode("ascii")),
        (b"Content-Length", b"%d" % len(body)),
    ]
    stream, extensions = httpx.ByteStream(body), dict(prepared.extensions)
    return httpx.Request("POST", prepared.url, headers=fields, stream=stream, extensions=extensions)
