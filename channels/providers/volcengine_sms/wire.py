"""Volcengine SMS on the wire: an account's options, signed calls, answers.

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
from channels.providers.volcengine_sms.signature import signed_fields
from channels.secret import Secret

_QUERY: Final = "Action=SendSms&Version=2020-01-01"
_REGION: Final = "cn-north-1"
_SERVICE: Final = "volcSMS"
_OURS: Final = (("user-agent", "hongyan"), ("accept", "application/json"))


class VolcengineSmsOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of an account."""

    access_key_id: sms.Name
    access_key_secret: Secret
    sms_account: sms.Name
    """The id of the message group (消息组), which signatures and templates belong to."""
    sign_name: str = ""
    """The signature (签名) in front of the text, where a notification names none."""


class VolcengineRefusal(msgspec.Struct):
    """The error of a refused call."""

    Code: str = ""
    Message: str | None = ""


class VolcengineMetadata(msgspec.Struct):
    """The metadata of every answer."""

    Error: VolcengineRefusal | None = None


class VolcengineAnswer(msgspec.Struct):
    """An answer of the service, or of the gateway before it."""

    ResponseMetadata: VolcengineMetadata
    Result: Any = None
    """Parsed apart, so that an unexpected one hides no Error."""

    @property
    def message_ids(self) -> list[str]:
        """One id for each number, in the order of the call; empty without ids."""
        found = self.Result.get("MessageID") if isinstance(self.Result, dict) else None
        ids: list[Any] = found if isinstance(found, list) else []
        return ids if all(isinstance(one, str) and one for one in ids) else []


class VolcenginePrepared(msgspec.Struct, frozen=True):
    """Parts that all requests of one account share."""

    options: VolcengineSmsOptions
    url: httpx.URL
    path: str
    host: str
    extensions: dict[str, Any]


decode = msgspec.json.Decoder(VolcengineAnswer).decode


def prepare(account: Account) -> VolcenginePrepared:
    """Returns the parts that the account's requests share; the signature covers the endpoint's path."""
    url = endpoint_url(account.endpoint)
    path = sms.rooted(url)
    whole = url.copy_with(raw_path=f"{path}?{_QUERY}".encode("ascii"))
    host = url.netloc.decode("ascii")
    return VolcenginePrepared(account.options, whole, path, host, extensions_of(account))


def signed(prepared: VolcenginePrepared, content: Mapping[str, str], now_s: float) -> httpx.Request:
    """Returns the POST of one call."""
    body = msgspec.json.encode(content)
    fields = signed_fields(
        key_id=prepared.options.access_key_id,
        secret=prepared.options.access_key_secret.reveal(),
        region=_REGION,
        service=_SERVICE,
        host=prepared.host,
        path=prepared.path,
        query=_QUERY,
        body=body,
        now_s=now_s,
    )
    return httpx.Request(
        "POST",
        prepared.url,
        headers=[*fields, *_OURS, ("content-length", str(len(body)))],
        stream=httpx.ByteStream(body),
        extensions=dict(prepared.extensions),
    )
