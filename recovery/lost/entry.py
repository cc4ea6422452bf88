"""The claim of a found delivery. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable

from idempotency.ledger import Claim, Claimed
from idempotency.lost.findings import Decision, Finding, FindingStatus
from message.delivery import Delivery, deliveries_of
from message.envelope import EnvelopeError, decode
from message.ids import new_token
from message.reasons import LOST
from message.states import Event, State
from message.vocabulary import Lane
from policy.schema import LanePolicy, Ordering, Policy
from recovery.lost.rules import origin_of

OTHER_RECORD = "the record at its place is another one by now, and no body was kept"
NOT_SENDABLE = "its body is no notification of its lane, so no worker would have sent it"


def delivery_of(finding: Finding, body: bytes, policy: Policy) -> Delivery | None:
    """Returns the finding's delivery, made of this body; None if the body is another notification's.
    Raises EnvelopeError for one that no worker would have sent."""
    notification = decode(body)
    if f"{notification.channel}.{notification.kind}" != finding.lane:
        if notification.id == finding.message_id:
            raise EnvelopeError("wrong_topic", "$.kind", NOT_SENDABLE)
        return None
    terms = policy.of(notification.lane)
    made = deliveries_of(
        notification,
        body,
        expires_at=_expires_at(finding, notification.created_at, notification.ttl_ms, terms),
        policy_version=policy.version,
        origin=origin_of(finding),
    )
    return next((one for one in made if one.key == finding.subject), None)


def claim_of(delivery: Delivery, now: int) -> Claim:
    """Returns the claim that enters the delivery: to be sent, or as expired."""
    event = Event.TTL_AT_INTAKE if delivery.expires_at <= now else Event.FOUND
    return Claim(delivery, new_token(), event, LOST)


def decision_of(finding: Finding, claim: Claim, answer: Claimed) -> Decision:
    """Returns the decision that follows from the ledger's answer."""
    if not answer.won:
        return known(finding, answer.state.value, begun=finding.is_begun)
    if answer.state is State.DROPPED:
        return Decision(finding.id, FindingStatus.CONTRADICTED, "it is recalled", None)
    if claim.event is Event.TTL_AT_INTAKE:
        why = f"past its time: `hongyan resend {finding.subject}` gives it another"
        return Decision(finding.id, FindingStatus.EXPIRED, why, None)
    return Decision(finding.id, FindingStatus.RESENT, "entered into the ledger", None)


def known(finding: Finding, state: str, *, begun: bool) -> Decision:
    """Returns the decision on a delivery that has a row. An earlier round that began it may have died
    before it noted its own entry."""
    if begun:
        why = f"the ledger has it since recovery began to enter it ({state})"
        status = FindingStatus.EXPIRED if state == State.EXPIRED else FindingStatus.RESENT
        return Decision(finding.id, status, why, None)
    return Decision(finding.id, FindingStatus.CONTRADICTED, f"the ledger has it ({state})", None)


def by_place(pairs: Iterable[tuple[Finding, Delivery]]) -> list[tuple[Finding, Delivery]]:
    """Returns the pairs in the order of their records: lines keep it."""
    return sorted(pairs, key=lambda pair: _place(pair[1]))


def keeps_order(lane: str, policy: Policy) -> bool:
    """Returns whether the lane keeps the order of each ordering key."""
    return policy.of(Lane(*lane.split("."))).ordering is Ordering.KEY


def _expires_at(finding: Finding, created_at: int, ttl_ms: int | None, terms: LanePolicy) -> int:
    """Returns the end of its life: by the policy in force, and no later than by the one of its day."""
    today = created_at + terms.lifetime_ms(ttl_ms)
    return today if finding.expires_at is None else min(today, finding.expires_at)


def _place(delivery: Delivery) -> tuple[str, int, int, int]:
    o = delivery.origin
    at = delivery.notification.created_at
    return ("", 0, 0, at) if o is None else (o.topic, o.partition, o.offset, at)
