"""The `webhook` channel: one JSON POST per delivery to the account's endpoint (design, section 7).

    POST <endpoint>            Idempotency-Key: <delivery key>
    {"id", "biz_id", "receiver", "content" | "template", "attempt"}

    GET <endpoint>/<delivery key>      200 it was sent, 404 it was not, anything else: ask again later

Account option: `token` (sent as `Authorization: Bearer`). The receiver stands in the body alone,
never in a URL, where proxies would log it.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

import httpx
import msgspec

from channels.base import BaseChannel
from channels.channel import Account, Answer, Attempt, Call, Dialogue, Failure, Resolution, Resolved
from channels.endpoints import below, endpoint_url
from channels.outcomes import for_all, of_failure, refusal
from channels.promises import Promises
from channels.reach import EVERYBODY, Reach
from channels.requests import post_json
from channels.secret import Secret
from message.delivery import Delivery
from message.envelope import Template
from message.foreign_text import repeats
from message.outcomes import Accepted, AnyOutcome

_PROVIDER: Final = "webhook"
_MAX_PROVIDER_ID: Final = 256
_SENT, _UNKNOWN_THERE = 200, 404


class WebhookOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an account may say."""

    token: Secret | None = None


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
_OPAQUE: Final = re.compile(r"[0-9a-fA-F-]{20,64}")
"""Such as a UUID or the delivery's own key: too long for a number, and no word."""


class WebhookChannel(BaseChannel):
    """Safe from many threads: the prepared parts are written whole and never changed."""

    provider: ClassVar[str] = _PROVIDER
    channel: ClassVar[str] = "webhook"
    knows_templates: ClassVar[bool] = True
    options: ClassVar[type[msgspec.Struct]] = WebhookOptions
    reach: ClassVar[Reach] = EVERYBODY
    takes_anything: ClassVar[bool] = True
    promises: ClassVar[Promises] = Promises(
        title="Webhook (our own protocol)",
        idempotency="`Idempotency-Key: <delivery key>`, where the receiving system honours it",
        resolve="`GET <endpoint>/<delivery key>`: 200 sent, 404 not",
        limits="one receiver a call",
        source=("README.md",),
    )

    def __init__(self) -> None:
        self._prepared: dict[str, _Prepared] = {}

    def request(self, call: Call) -> httpx.Request:
        """The POST of the call's one delivery."""
        (delivery,) = call.deliveries
        prepared = self._for(call.account)
        fields = [*prepared.headers, (b"Idempotency-Key", delivery.key.encode())]
        return post_json(prepared.url, fields, _body(delivery), prepared.extensions)

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """The outcome of the call's one delivery."""
        if isinstance(answer, Failure):
            return for_all(call, of_failure(answer))
        refused = refusal(answer, own_protocol=True)
        if refused is not None:
            return for_all(call, refused)
        return [Accepted(_provider_id(answer.content, d) or d.key) for d in call.deliveries]

    def resolve(self, account: Account, attempt: Attempt) -> Dialogue:
        """Ask by the delivery key: 200 it was sent, 404 it was not, anything else tells nothing."""
        prepared = self._for(account)
        url = below(prepared.url, attempt.delivery.key)
        answer = yield httpx.Request(
            "GET", url, headers=prepared.headers, extensions=dict(prepared.extensions)
        )
        return _resolved(answer, attempt.delivery)

    def _for(self, account: Account) -> _Prepared:
        prepared = self._prepared.get(account.name)
        if prepared is None or prepared.account is not account:
            prepared = self._prepared[account.name] = _prepare(account)
        return prepared


def _prepare(account: Account) -> _Prepared:
    url = endpoint_url(account.endpoint)
    headers = [(b"Host", url.netloc), (b"User-Agent", b"hongyan")]
    options: WebhookOptions = account.options or WebhookOptions()
    if options.token:
        headers.append((b"Authorization", b"Bearer " + options.token.reveal().encode()))
    return _Prepared(account, url, headers, {"ca_file": account.ca_file} if account.ca_file else {})


def _resolved(answer: Answer, delivery: Delivery) -> Resolved:
    if isinstance(answer, Failure):
        return Resolved(Resolution.ASK_LATER, detail=answer.code)
    if answer.status_code == _SENT:
        return Resolved(Resolution.SENT, _provider_id(answer.content, delivery))
    if answer.status_code == _UNKNOWN_THERE:
        return Resolved(Resolution.NOT_SENT)
    return Resolved(Resolution.ASK_LATER, detail=f"http_{answer.status_code}")


def _body(delivery: Delivery) -> bytes:
    notification = delivery.notification
    return _encoder.encode(
        _Body(
            id=notification.id,
            biz_id=notification.biz_id,
            receiver=delivery.receiver,
            attempt=delivery.attempt,
            content=delivery.content_for(_PROVIDER),
            template=delivery.template_for(_PROVIDER),
        )
    )


def _provider_id(content: bytes, delivery: Delivery) -> str:
    """The answer's JSON `id`, or nothing where there is none that a person could look up, or one that
    repeats a receiver or the content: an id is shown as it is."""
    try:
        found = str(_decoder.decode(content).id)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    if _OPAQUE.fullmatch(found):
        return found
    if len(found) > _MAX_PROVIDER_ID or not found.isprintable():
        return ""
    return "" if repeats(found, delivery.private_texts()) else found
