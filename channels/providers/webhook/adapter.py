"""The `webhook` channel: one JSON POST per delivery to the account's endpoint (design, section 7).

    POST <endpoint>            Idempotency-Key: <delivery key>
    {"id", "biz_id", "receiver", "content" | "template", "attempt"}

    GET <endpoint>/<delivery key>      only with `status_query` in the account
    200 {"state":"sent"}   404 {"state":"not_sent"}   anything else: ask again later

A status without the state proves nothing: a router answers 404 for an unknown path, a catch-all 200. "Not
sent" is believed `query_lag_s` (5) after the last call.

Account options: `token` (sent as `Authorization: Bearer`), `signing_secret` and `other_signing_secret`
(Standard Webhooks: channels/providers/webhook/signature.py). The receiver is in the body, never in a URL:
proxies log URLs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from time import time
from typing import Annotated, Any, ClassVar, Final, Literal

import httpx
import msgspec

from channels.accounts.reach import EVERYBODY, Reach
from channels.base import BaseChannel
from channels.capabilities import Capabilities
from channels.channel import (
    Account,
    Answer,
    Attempt,
    Call,
    Dialogue,
    Failure,
    Resolution,
    ResolveResult,
)
from channels.endpoints import below, endpoint_url
from channels.http_client.request import extensions_of, fields_of, post_json
from channels.judging.foreign_json import UNREADABLE
from channels.judging.listing import not_sent
from channels.judging.outcomes import for_all, of_failure, refusal
from channels.providers.webhook.signature import signed_fields, signing_key
from channels.secret import Secret
from message.delivery import Delivery
from message.envelope import Template
from message.outcomes import Accepted, AnyOutcome

_PROVIDER: Final = "webhook"
_MAX_PROVIDER_ID: Final = 256
_STATES: Final = {(200, "sent"), (404, "not_sent")}
"""Statuses with the state that belongs to each."""


class WebhookOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of an account."""

    token: Secret | None = None
    signing_secret: Secret | None = None
    other_signing_secret: Secret | None = None
    """While keys are exchanged: each call carries a signature of each."""
    status_query: bool = False
    """The endpoint answers the status query as documented: `hongyan accounts test --resolve` proves it."""
    query_lag_s: Annotated[int, msgspec.Meta(ge=0, le=86_400)] = 5
    """How old a call must be before "not_sent" is believed."""

    def __post_init__(self) -> None:
        for secret in (self.signing_secret, self.other_signing_secret):
            if secret is not None:
                signing_key(secret)


class _Body(msgspec.Struct, kw_only=True, omit_defaults=True):
    id: str
    biz_id: str | None
    receiver: str
    content: dict[str, Any] | None = None
    template: Template | None = None
    attempt: int


class _Answered(msgspec.Struct):
    id: str | int = ""


class _Status(msgspec.Struct):
    state: Literal["sent", "not_sent"]


class _Prepared(msgspec.Struct, frozen=True):
    """The parts that all requests of one account share."""

    account: Account
    url: httpx.URL
    headers: list[tuple[bytes, bytes]]
    extensions: dict[str, Any]
    keys: tuple[bytes, ...]
    """Signing keys; without any, calls are not signed."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Answered)
_status = msgspec.json.Decoder(_Status)
_OPAQUE: Final = re.compile(r"[0-9a-fA-F-]{20,64}")
"""An id such as a UUID or the delivery's own key: too long for a phone number, and no word."""


class WebhookChannel(BaseChannel):
    """Thread-safe: `_for` stores each account's prepared parts whole, and nothing changes them."""

    provider: ClassVar[str] = _PROVIDER
    channel: ClassVar[str] = "webhook"
    knows_templates: ClassVar[bool] = True
    options: ClassVar[type[msgspec.Struct]] = WebhookOptions
    reach: ClassVar[Reach] = EVERYBODY
    takes_anything: ClassVar[bool] = True
    promises: ClassVar[Capabilities] = Capabilities(
        title="Webhook (our own protocol)",
        idempotency="`Idempotency-Key: <delivery key>`, where the receiving system honours it",
        resolve="with `status_query` in the account, `GET <endpoint>/<delivery key>`: 200 with "
        '`{"state":"sent"}`, 404 with `{"state":"not_sent"}` and `query_lag_s` after the last call',
        needs="an endpoint that answers the query with its state, and `status_query = true` here",
        limits="one receiver a call",
        source=("README.md",),
    )

    def __init__(self, clock: Callable[[], float] = time) -> None:
        self._clock = clock
        self._prepared: dict[str, _Prepared] = {}

    def request(self, call: Call) -> httpx.Request:
        """Returns the POST of the call's one delivery."""
        (delivery,) = call.deliveries
        prepared = self._for(call.account)
        key, body = delivery.key.encode(), _body(delivery)
        fields = [*prepared.headers, (b"Idempotency-Key", key)]
        if prepared.keys:
            fields += signed_fields(prepared.keys, key, int(self._clock()), body)
        return post_json(prepared.url, fields, body, prepared.extensions)

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Returns the outcome of the call's one delivery."""
        if isinstance(answer, Failure):
            return for_all(call, of_failure(answer))
        refused = refusal(answer, own_protocol=True)
        if refused is not None:
            return for_all(call, refused)
        return [Accepted(_provider_id(answer.content, d) or d.key) for d in call.deliveries]

    def resolve(self, account: Account, attempt: Attempt) -> Dialogue | None:
        """Returns a query by the delivery key; None unless the account has `status_query`."""
        options: WebhookOptions = account.options or WebhookOptions()
        return self._asked(account, options, attempt) if options.status_query else None

    def _asked(self, account: Account, options: WebhookOptions, attempt: Attempt) -> Dialogue:
        prepared = self._for(account)
        url = below(prepared.url, attempt.delivery.key)
        answer = yield httpx.Request(
            "GET", url, headers=prepared.headers, extensions=dict(prepared.extensions)
        )
        return _resolved(answer, attempt, options.query_lag_s)

    def _for(self, account: Account) -> _Prepared:
        """Returns the prepared parts of an equal account: each lane has an object of its own."""
        prepared = self._prepared.get(account.name)
        if prepared is None or prepared.account != account:
            prepared = self._prepared[account.name] = _prepare(account)
        return prepared


def _prepare(account: Account) -> _Prepared:
    url = endpoint_url(account.endpoint)
    headers = fields_of(url)
    options: WebhookOptions = account.options or WebhookOptions()
    if options.token:
        headers.append((b"Authorization", b"Bearer " + options.token.reveal().encode()))
    secrets = (options.signing_secret, options.other_signing_secret)
    keys = tuple(signing_key(secret) for secret in secrets if secret is not None)
    return _Prepared(account, url, headers, extensions_of(account), keys)


def _resolved(answer: Answer, attempt: Attempt, lag_s: int) -> ResolveResult:
    if isinstance(answer, Failure):
        return ResolveResult(Resolution.ASK_LATER, detail=answer.code)
    state = _state(answer)
    if (answer.status_code, state) not in _STATES:
        return ResolveResult(
            Resolution.ASK_LATER, detail=f"http_{answer.status_code} without its state"
        )
    if state == "sent":
        return ResolveResult(Resolution.SENT, _provider_id(answer.content, attempt.delivery))
    return not_sent(attempt, lag_s, "the endpoint says not_sent")


def _state(answer: httpx.Response) -> str:
    """Returns the state in the answer's JSON; empty if it has none."""
    try:
        return _status.decode(answer.content).state
    except UNREADABLE:
        return ""


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
    """Returns the `id` of the answer's JSON. Empty if it is missing, too long, not printable, or repeats a
    receiver or the content: ids are shown unmasked."""
    try:
        found = str(_decoder.decode(content).id)
    except UNREADABLE:
        return ""
    if _OPAQUE.fullmatch(found):
        return found
    if len(found) > _MAX_PROVIDER_ID or not found.isprintable():
        return ""
    return "" if delivery.repeated_in(found) else found
