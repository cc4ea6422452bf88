"""Aliyun SMS on the wire: the fields of an account, signed calls, answers.

Field names of answers are the provider's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import httpx
import msgspec

from channels.channel import Account
from channels.endpoints import endpoint_url
from channels.http_client.request import extensions_of
from channels.providers._common import sms
from channels.providers.aliyun_sms.signature import encoded, signed_fields
from channels.secret import Secret

_VERSION: Final = "2017-05-25"
_OURS: Final = (("user-agent", "hongyan"), ("accept", "application/json"))


class AliyunSmsOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of an account."""

    access_key_id: sms.Name
    access_key_secret: Secret
    sign_name: str = ""
    """The signature (签名) in front of the text, where a notification names none."""
    query_lag_s: sms.Lag = 120
    """How old a call must be before a query that does not list it is believed."""


class AliyunSent(msgspec.Struct):
    """The answer to a send, or an error of any call."""

    Code: str
    Message: str = ""
    BizId: str = ""


class AliyunRow(msgspec.Struct):
    """One message in the query's list."""

    PhoneNum: str = ""
    OutId: str | None = ""
    SendDate: str | None = ""
    Content: str | None = ""
    TemplateCode: str | None = ""


class Rows(msgspec.Struct, frozen=True):
    """A page of the query's list."""

    SmsSendDetailDTO: list[AliyunRow] | None = None


class Details(msgspec.Struct):
    """The answer to QuerySendDetails. `TotalCount` may say 2 over an empty list."""

    Code: str
    TotalCount: str | int | None = None
    SmsSendDetailDTOs: Rows | None = None


class AliyunPrepared(msgspec.Struct, frozen=True):
    """The parts that all requests of one account share."""

    options: AliyunSmsOptions
    url: httpx.URL
    path: str
    host: str
    extensions: dict[str, Any]


decode_sent = msgspec.json.Decoder(AliyunSent).decode
decode_details = msgspec.json.Decoder(Details).decode


def prepare(account: Account) -> AliyunPrepared:
    """Prepares requests of this account; the signature covers the endpoint's own path."""
    url = endpoint_url(account.endpoint)
    host = url.netloc.decode("ascii")
    return AliyunPrepared(account.options, url, sms.rooted(url), host, extensions_of(account))


def signed(
    prepared: AliyunPrepared,
    action: str,
    query: Mapping[str, str],
    form: Mapping[str, str],
    *,
    now_s: float,
    nonce: str,
) -> httpx.Request:
    """Returns the signed POST of one operation; an empty form makes no body."""
    text, body = encoded(query), encoded(form).encode("ascii")
    fields = signed_fields(
        key_id=prepared.options.access_key_id,
        secret=prepared.options.access_key_secret.reveal(),
        host=prepared.host,
        path=prepared.path,
        query=text,
        body=body,
        action=action,
        version=_VERSION,
        now_s=now_s,
        nonce=nonce,
    )
    return httpx.Request(
        "POST",
        prepared.url.copy_with(raw_path=f"{prepared.path}?{text}".encode("ascii")),
        headers=[*fields, *_OURS, ("content-length", str(len(body)))],
        stream=httpx.ByteStream(body),
        extensions=dict(prepared.extensions),
    )
