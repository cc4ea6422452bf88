"""One notification to one receiver: the unit of the ledger, of idempotency and of the trace."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec

from message.envelope import Notification, Template
from message.foreign_text import MASK, as_document, may_repeat, private_texts, repeats, shown_name
from message.keys import delivery_key, normalise_receiver

_RECEIVERS: Final = 20
"""Receivers of the notification that are among the private texts."""
_SMALL: Final = 16 * 1_024
"""Bytes of an envelope that is searched as a whole to see whether it may be repeated."""


def private_of(notification: Notification) -> list[str]:
    """Returns the texts of `Delivery.private_texts` before there are deliveries."""
    n = notification
    named = n.template
    params = named.params if named is not None else None
    found = private_texts(n.attributes, n.content, params, n.receivers[:_RECEIVERS])
    if named is not None and shown_name(named.id) == MASK:
        found.append(named.id)  # it is no template's name, and may be anything
    return found


_template_name = lru_cache(1_024)(shown_name)


def template_of(notification: Notification) -> str:
    """Returns the name of its template as it may be shown; empty for inline content."""
    return _template_name(notification.template.id) if notification.template else ""


class Origin(msgspec.Struct, frozen=True, gc=False):
    """The notification's place in Kafka."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class Rendered(msgspec.Struct, frozen=True, gc=False):
    """A notification after its template: template or content, as in the envelope; neither where every
    provider that can send it has a form of its own."""

    template: Template | None = None
    content: dict[str, Any] | None = None
    providers: dict[str, Rendered] = {}
    """The forms of single providers, by name; these forms have none."""

    @property
    def empty(self) -> bool:
        """True where there is nothing to send."""
        return self.template is None and self.content is None

    def of(self, provider: str) -> Rendered:
        """Returns this provider's own form, else the one for all."""
        return self.providers.get(provider, self)


class Delivery(msgspec.Struct, kw_only=True):
    """One notification to one receiver, on its way through a worker.

    `key` to `payload` never change. Until the claim `dispatcher.pipeline.binding.bind` sets `expires_at`
    and `policy_version`. The thread that claims writes `attempt`, `token` and `day` before it hands the
    delivery on; a call that follows at once raises `attempt`
    (dispatcher/pipeline/immediate_retry.py).
    """

    key: str
    receiver: str
    """Normalised by its channel."""
    lane: str
    notification: Notification
    payload: bytes
    """The envelope's bytes as they came, unknown fields and all."""
    expires_at: int
    """Epoch milliseconds; nothing is sent after it."""
    policy_version: str = ""
    origin: Origin | None = None

    attempt: int = 0
    """Provider calls made or being made for this delivery, from 1, across workers."""
    refusals: int = 0
    """Of these, the calls that the provider refused for pace alone: they spend no attempt. Written by
    `sending.attempts.note_refusals`."""
    repeats: int = 0
    """Of these, the calls that followed another at once: they make later waits no longer. Written by
    `sending.attempts.on_record`."""
    unmade: int = 0
    """Calls that the ledger counts under this claim and that were not made. `attempt` leaves them out, and
    the settlement takes them back. Written by `sending.attempts.on_record`."""
    token: int = 0
    """Fencing token of the claim under which this attempt runs."""
    day: int = 0
    """Ledger partition, as days since 1970-01-01 by the database's clock."""
    body_digest: bytes = b""
    """Digest of the payload; `LedgerClaims.screen` sets it, for other claims `ClaimBatch` does."""
    receiver_hash: str = ""
    """Keyed hash of the receiver in hex (message/receiver_hash.py). `ClaimBatch` sets it; empty before the
    claim, and without a key."""
    account: str = ""
    """Account chosen for this attempt; in the ledger before the call."""
    call_key: str = ""
    """Name of this attempt's call for the provider; in the ledger before the call. Kept when an attempt in
    doubt is repeated, new for every other. Empty: the delivery's own key."""
    call_digest: str = ""
    """Digest of the call's body, where the provider dedups by that; in the ledger before the call."""
    rendered: Rendered | None = None
    """The notification after a template of ours; None: it is sent as it was written."""

    def private_texts(self) -> list[str]:
        """Returns the texts that no detail, reason or log line may repeat: receivers, and the values of
        contents and parameters."""
        found = [self.receiver, *private_of(self.notification)]
        if self.rendered is not None:
            made = self.rendered.template
            found += private_texts(self.rendered.content, made.params if made else None)
        return found

    def repeated_in(self, text: str) -> bool:
        """Returns True where the text holds one of the private texts, or a part of it."""
        if self.rendered is None and len(self.payload) <= _SMALL and not self._may_repeat(text):
            return False
        return repeats(text, self.private_texts())

    def _may_repeat(self, text: str) -> bool:
        """Searches the envelope's bytes, then the private parts encoded anew, without escapes. Returns
        False where either surely holds nothing of the text."""
        n = self.notification
        as_written = self.receiver in n.receivers[:_RECEIVERS]
        if as_written and not may_repeat(text, self.payload):
            return False
        params = n.template and (n.template.id, n.template.params)
        private = (self.receiver, n.attributes, n.content, params, n.receivers[:_RECEIVERS])
        try:
            return may_repeat(text, as_document(private))
        except RecursionError:
            return True

    @property
    def spent(self) -> int:
        """Attempts of the lane's budget that are spent: the calls, less those refused for pace alone."""
        return self.attempt - self.refusals

    @property
    def waits(self) -> int:
        """Calls that a wait of the lane's back-off follows: those not refused for pace that no other call
        followed at once."""
        return self.spent - self.repeats

    @property
    def template(self) -> Template | None:
        """The provider's template and its parameters, where the channel works with those; of several forms,
        the one for providers without their own."""
        return self.notification.template if self.rendered is None else self.rendered.template

    @property
    def content(self) -> dict[str, Any] | None:
        """The content, where no provider's template has it; of several forms, as `template`."""
        return self.notification.content if self.rendered is None else self.rendered.content

    def template_for(self, provider: str) -> Template | None:
        """As `template`, for this provider."""
        rendered = self.rendered
        return self.notification.template if rendered is None else rendered.of(provider).template

    def content_for(self, provider: str) -> dict[str, Any] | None:
        """As `content`, for this provider."""
        rendered = self.rendered
        return self.notification.content if rendered is None else rendered.of(provider).content


def deliveries_of(
    notification: Notification,
    payload: bytes,
    *,
    expires_at: int,
    policy_version: str = "",
    origin: Origin | None = None,
) -> list[Delivery]:
    """Returns one delivery per distinct receiver, in the order written."""
    channel, receivers = notification.channel, notification.receivers
    lane = f"{channel}.{notification.kind}"
    if len(receivers) == 1:
        distinct = [normalise_receiver(channel, receivers[0])]
    else:
        distinct = list(dict.fromkeys([normalise_receiver(channel, one) for one in receivers]))
    return [
        Delivery(
            key=delivery_key(notification.id, channel, receiver),
            receiver=receiver,
            lane=lane,
            notification=notification,
            payload=payload,
            expires_at=expires_at,
            policy_version=policy_version,
            origin=origin,
        )
        for receiver in distinct
    ]
