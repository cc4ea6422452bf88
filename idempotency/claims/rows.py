"""The rows of claims and settlements; pure, and the same for every database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from idempotency.ledger import Claim, Claimed, Settlement
from idempotency.payload_cipher import PayloadCipher, body_digest
from message import reasons
from message.delivery import template_of
from message.envelope import Notification
from message.receiver_hash import HashReceiver, no_hash, text_hash
from message.states import OPEN, TRANSITIONS, Event, State, after

BEHIND: Final = reasons.BEHIND
GIVEN_BACK: Final = "given_back"
READER_MS: Final = 60_000
"""Time for which a row that was given back is left to the next reader of its Kafka record. Then recovery
sends it: the record may have passed already, by a worker that read it while the row was under way."""
OWNER_DEAD: Final = "owner_dead"
RECALLED: Final = reasons.RECALLED
IN_LANE: Final = "lane"
"""Kind of a recall that covers a message in one lane; see `name_in_lane`."""
SHARED_FROM: Final = 2
"""Receivers from which a notification's payload is stored once beside its rows, not in each of them."""
MAX_TEXT: Final = 500
"""Characters kept of a reason or a provider's id: they come from outside."""

_ENTRY: Final = {event: state for (source, event), state in TRANSITIONS.items() if source is None}
_OUTCOME: Final = {
    event: state for (source, event), state in TRANSITIONS.items() if source is State.IN_FLIGHT
}
_UNSTARTED: Final = frozenset({Event.GIVEN_BACK, Event.SHUT, Event.TTL, Event.PARK, Event.REFUSED})
"""Moves out of IN_FLIGHT before any call was made: they take back the attempt that the claim counted."""
# A settlement may be repeated after a receipt moved its row.
_STILL_OURS: Final = {State.SENT: frozenset({State.SENT, State.DELIVERED, State.UNDELIVERED})}


class ClaimRow(NamedTuple):
    """One row to make, in the order of the ledger's parameters."""

    key: str
    token: int
    state: str
    reason: str | None
    attempt: int
    delay_ms: int | None
    lane: str
    message_id: str
    biz_id: str | None
    ordering_key: str | None
    expires_at: int
    policy_version: str
    resend_of: str | None
    topic: str | None
    partition: int | None
    offset: int | None
    account: str | None
    call_key: str | None
    """None: the delivery's own key."""
    call_digest: str | None
    receiver: bytes
    digest: bytes
    payload: bytes | None
    """None: kept once for all receivers, see `ClaimBatch.shared`."""
    template: str | None
    """Name of the template as it may be shown."""
    receiver_hash: bytes | None
    """Keyed hash of the receiver; None without a key."""
    receiver_text_hash: bytes | None
    """The same without the channel."""
    noted_at: int
    """Creation time of the notification; not stored, but recalls by business id compare it."""


class OutcomeRow(NamedTuple):
    """One outcome to write, in the order of the ledger's parameters."""

    key: str
    day: int
    token: int
    state: str
    reason: str | None
    provider_id: str | None
    account: str | None
    delay_ms: int | None
    unstarted: int
    """Attempts to take back: calls that the ledger counted and that were not made."""
    refusals: int
    repeats: int


class ExistingRow(NamedTuple):
    """A row as the ledger has it now."""

    key: str
    state: str
    token: int
    attempt: int
    day: int
    digest: bytes
    reason: str | None
    provider_id: str | None


class ClaimBatch:
    """The rows that a batch of claims would make, and the payloads that several of them share.

    Raises IllegalTransition for an event that enters nothing.
    """

    def __init__(
        self,
        claims: Iterable[Claim],
        sealer: PayloadCipher,
        hash_receiver: HashReceiver = no_hash,
    ) -> None:
        self.rows: list[ClaimRow] = []
        self.shared: dict[tuple[str, bytes], bytes] = {}
        self._sealer = sealer
        self._hash_receiver = hash_receiver
        # The deliveries of one notification follow one another: its body is digested once.
        self._payload, self._digest = b"", body_digest(b"")
        for claim in claims:
            self._add(claim)

    def _add(self, claim: Claim) -> None:
        delivery, event, reason = claim.delivery, claim.event, claim.reason
        notification, origin = delivery.notification, delivery.origin
        state = _ENTRY.get(event) or after(None, event)
        if delivery.payload is not self._payload:
            self._payload = delivery.payload
            self._digest = delivery.body_digest or body_digest(delivery.payload)
        delivery.body_digest = self._digest
        receiver_hash = self._hash_receiver(notification.channel, delivery.receiver)
        delivery.receiver_hash = receiver_hash
        receiver: bytes = delivery.receiver.encode()
        payload: bytes | None = delivery.payload
        if self._sealer.seals:
            receiver = self._sealer.seal(receiver, notification.id)
        if self._sealer.seals or len(notification.receivers) >= SHARED_FROM:
            payload = self._own_payload(notification)
        self.rows.append(
            ClaimRow(
                delivery.key,
                claim.token,
                state,
                clean(reason) if reason else None,
                1 if event is Event.CLAIM else 0,
                claim.delay_ms if state is State.RETRY else None,
                delivery.lane,
                notification.id,
                notification.biz_id,
                notification.ordering_key,
                delivery.expires_at,
                delivery.policy_version,
                notification.resend_of,
                origin.topic if origin else None,
                origin.partition if origin else None,
                origin.offset if origin else None,
                delivery.account or None,
                delivery.call_key or None,
                delivery.call_digest or None,
                receiver,
                self._digest,
                payload,
                template_of(notification) or None,
                bytes.fromhex(receiver_hash) if receiver_hash else None,
                text_hash(self._hash_receiver, delivery.receiver),
                notification.created_at,
            )
        )

    def _own_payload(self, notification: Notification) -> bytes | None:
        if len(notification.receivers) < SHARED_FROM:
            return self._sealer.seal(self._payload, notification.id)
        name = (notification.id, self._digest)
        if name not in self.shared:
            self.shared[name] = self._sealer.seal(self._payload, notification.id)
        return None


def change(settlement: Settlement) -> OutcomeRow:
    """Returns the row that this settlement writes. Raises IllegalTransition for any other event."""
    delivery, event = settlement.delivery, settlement.event
    state = _OUTCOME.get(event) or after(State.IN_FLIGHT, event)
    given_back = event is Event.GIVEN_BACK
    reason, provider_id = settlement.reason, settlement.provider_id
    return OutcomeRow(
        delivery.key,
        delivery.day,
        delivery.token,
        state,
        GIVEN_BACK if given_back else clean(reason) if reason else None,
        clean(provider_id) if provider_id else None,
        delivery.account or None,
        READER_MS if given_back else settlement.delay_ms if state is State.RETRY else None,
        delivery.unmade + (event in _UNSTARTED),
        delivery.refusals,
        delivery.repeats,
    )


def takes_over(claim: Claim) -> bool:
    """Returns True if this claim may take a row that was given back unstarted."""
    return claim.event is Event.CLAIM


def answer(claim: Claim, row: ExistingRow) -> Claimed:
    """Returns the answer to a claim whose row existed."""
    state = State(row.state)
    return Claimed(
        won=row.token == claim.token and _entered_by(claim, state, row.reason),
        state=state,
        conflict=row.digest != body_digest(claim.delivery.payload),
        attempt=row.attempt,
        day=row.day,
    )


def _entered_by(claim: Claim, state: State, reason: str | None) -> bool:
    """Returns True if the row is still as this claim made it (an earlier try whose reply was lost)."""
    if state is State.IN_FLIGHT:
        return True  # also if the earlier try had another event: nobody else has the token
    if claim.event is Event.CLAIM and state is State.RETRY:
        return reason == BEHIND
    if claim.event is not Event.DROP and state is State.DROPPED:
        return reason == RECALLED
    return state is _ENTRY[claim.event]


def wrote(change: OutcomeRow, row: ExistingRow | None) -> bool:
    """Returns True if the row is as this change leaves it (an earlier try whose reply was lost)."""
    if row is None or row.token != change.token:
        return False
    state, target = State(row.state), State(change.state)
    if state not in _STILL_OURS.get(target, {target}):
        return False
    if state is target and row.reason != change.reason:  # a receipt brings a reason of its own
        return False
    return change.provider_id is None or row.provider_id == change.provider_id


def name_in_lane(lane: str, message_id: str) -> str:
    """Returns the name of a message in a lane, as recalls have it: a lane has no colon."""
    return f"{lane}:{message_id}"


def open_states() -> Sequence[str]:
    """Returns the states that hold up a line, as the partial index spells them."""
    return sorted(OPEN)


def clean(text: str) -> str:
    """Returns text from outside as any database takes it: bounded, Unicode, no control characters."""
    if text.isprintable() and len(text) <= MAX_TEXT:
        return text
    kept = (c if c.isprintable() or c == "\u3000" else "\ufffd" for c in text[:MAX_TEXT])
    return "".join(kept)
