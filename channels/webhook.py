"""The `webhook` channel: one JSON POST per delivery to the account's endpoint (design, section 7).

    POST <endpoint>            Idempotency-Key: <delivery key>
    {"id", "biz_id", "receiver", "content" | "template", "attempt"}

    GET <endpoint>/<delivery key>      200 it was sent, 404 it was not, anything else: ask again later

Account options: `token` (sent as `Authorization: Bearer`), `ca_file` (a PEM file of further
authorities). The receiver stands in the body alone, never in a URL, where proxies would log it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import httpx
import msgspec

from channels.channel import Account, Call, Failure, Resolution
from channels.endpoints import below, endpoint_url
from channels.outcomes import for_all, of_failure, refusal
from channels.requests import post_json
from channels.secret import Secret
from message.delivery import Delivery
from message.envelope import Template
from message.outcomes import Accepted, AnyOutcome

_MAX_PROVIDER_ID: Final = 256
_SENT, _UNKNOWN_THERE = 200, 404


class _Body(msgspec.Struct, kw_only=True, omit_defaults=True):
    id: str
    biz_id: str | None
    receiver: str
    content: dict[str, Any] | None = None
    template: Template | None = None
    attempt: int


class _Answered(msgspec.Struct):
    id: str | int = ""


class _Prepared(msgspec.Struct, frozen=True):
    """What all requests of one account share."""

    account: Account
    url: httpx.URL
    headers: list[tuple[bytes, bytes]]
    extensions: dict[str, Any]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Answered)


class WebhookChannel:
    """Safe from many threads: the prepared parts are written whole and never changed."""

    provider: ClassVar[str] = "webhook"
    channel: ClassVar[str] = "webhook"
    max_batch: ClassVar[int] = 1

    def __init__(self) -> None:
        self._prepared: dict[str, _Prepared] = {}

    def request(self, call: Call) -> httpx.Request:
        """The POST of the call's one delivery."""
        (delivery,) = call.deliveries
        prepared = self._for(call.account)
        fields = [*prepared.headers, (b"Idempotency-Key", delivery.key.encode())]
        return post_json(prepared.url, fields, _body(delivery), prepared.extensions)

    def outcomes(self, call: Call, answer: httpx.Response | Failure) -> list[AnyOutcome]:
        """The outcome of the call's one delivery."""
        if isinstance(answer, Failure):
            return for_all(call, of_failure(answer))
        refused = refusal(answer)
        if refused is not None:
            return for_all(call, refused)
        return [Accepted(_provider_id(answer.content) or d.key) for d in call.deliveries]

    def resolve_request(self, account: Account, delivery: Delivery) -> httpx.Request:
        """Ask by the delivery key what became of it."""
        prepared = self._for(account)
        url = below(prepared.url, delivery.key)
        return httpx.Request("GET", url, headers=prepared.headers, extensions=prepared.extensions)

    def resolution(self, answer: httpx.Response | Failure) -> Resolution:
        """200: sent; 404: not; anything else tells nothing."""
        if isinstance(answer, Failure):
            return Resolution.ASK_LATER
        if answer.status_code == _SENT:
            return Resolution.SENT
        if answer.status_code == _UNKNOWN_THERE:
            return Resolution.NOT_SENT
        return Resolution.ASK_LATER

    def _for(self, account: Account) -> _Prepared:
        prepared = self._prepared.get(account.name)
        if prepared is None or prepared.account is not account:
            prepared = self._prepared[account.name] = _prepare(account)
        return prepared


def _prepare(account: Account) -> _Prepared:
    url = endpoint_url(account.endpoint)
    headers = [(b"Host", url.netloc), (b"User-Agent", b"hongyan")]
    token = account.options.get("token")
    if token:
        text = token.reveal() if isinstance(token, Secret) else str(token)
        headers.append((b"Authorization", b"Bearer " + text.encode()))
    ca_file = account.options.get("ca_file")
    return _Prepared(account, url, headers, {"ca_file": ca_file} if ca_file else {})


def _body(delivery: Delivery) -> bytes:
    notification = delivery.notification
    return _encoder.encode(
        _Body(
            id=notification.id,
            biz_id=notification.biz_id,
            receiver=delivery.receiver,
            attempt=delivery.attempt,
            content=notification.content,
            template=notification.template,
        )
    )


def _provider_id(content: bytes) -> str:
    """The answer's JSON `id`, or nothing where there is none that a person could look up."""
    try:
        found = str(_decoder.decode(content).id)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    return found if len(found) <= _MAX_PROVIDER_ID and found.isprintable() else ""
