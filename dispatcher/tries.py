"""Calls that another call followed under the same claim: what the trace shows of each, and what is as
before where the next one may not be made after all.

Used by a live lane (dispatcher/again.py) and by recovery (recovery/calls.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import msgspec
import structlog

from channels.channel import Account, Channel
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome
from tracing.events import Stage, TraceEvent

log = structlog.get_logger(__name__)


class Try(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call that was answered, and not accepted; times in epoch milliseconds."""

    account: str
    attempt: int
    code: str
    detail: str
    started_at: int
    answered_at: int
    call_key: str = ""
    call_digest: str = ""

    @classmethod
    def of(
        cls, delivery: Delivery, answer: AnyOutcome | None, started_at: int, answered_at: int
    ) -> Try:
        """The call that the delivery is on record for."""
        assert answer is not None
        assert not isinstance(answer, Accepted)
        return cls(
            account=delivery.account,
            attempt=delivery.attempt,
            code=answer.code,
            detail=answer.detail,
            started_at=started_at,
            answered_at=answered_at,
            call_key=delivery.call_key,
            call_digest=delivery.call_digest,
        )

    def put_back(self, delivery: Delivery) -> None:
        """The call is the delivery's last after all: no other one was made."""
        delivery.account = self.account
        delivery.call_key, delivery.call_digest = self.call_key, self.call_digest

    def told_by(self, event: TraceEvent) -> TraceEvent:
        """The event, of the same delivery, made to tell of this call."""
        event.stage, event.at, event.state = Stage.ATTEMPTED, self.answered_at, ""
        event.attempt, event.account, event.reason = self.attempt, self.account, self.code
        event.started_at, event.answered_at = self.started_at, self.answered_at
        event.detail = self.detail or None
        return event


class Carried(Protocol):
    """What carries one delivery: a lane's Work, recovery's Resend."""

    @property
    def delivery(self) -> Delivery:
        """The delivery."""
        ...


C = TypeVar("C", bound=Carried)


def fitting(
    some: Sequence[C], first: C, account: Account, channel: Channel, may: Callable[[C], bool]
) -> list[C]:
    """As many as the account takes in one call with the first, in their order: of those that `may`, and
    that its adapter would not refuse. None where the adapter fails over one: nothing was sent, and that
    stands."""
    try:
        key = channel.batch_key(first.delivery)
        return [
            one
            for one in some
            if may(one)
            and not channel.refusal(account, one.delivery)
            and (one is first or channel.batch_key(one.delivery) == key)
        ][: channel.max_batch]
    except Exception:
        log.exception("adapter_failed", provider=channel.provider, step="again")
        return []
