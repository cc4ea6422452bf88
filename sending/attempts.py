"""Calls that another call followed under the same claim: their trace events, and the way back if the next
call may not be made.

Used by a live lane (dispatcher/pipeline/immediate_retry.py) and by recovery (recovery/retry/pool.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from channels.channel import Account, Channel
from channels.engine import adapter_failed
from idempotency.recovery.contract import call_key_of
from message.delivery import Delivery
from message.outcomes import Accepted, end_without_answer, is_paced
from sending.accounts.receiver_limits import Delays
from sending.accounts.selector import AccountSelector
from sending.endings import outcome_of
from tracing.events import Stage, TraceEvent


class PastCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call that was answered and not accepted; times in epoch milliseconds."""

    account: str
    attempt: int
    code: str
    detail: str
    started_at: int
    answered_at: int
    call_key: str = ""
    call_digest: str = ""
    call_end: str = ""
    answer: str = ""

    @classmethod
    def of(cls, one: CallCarrier) -> PastCall:
        """Returns the call that was just answered."""
        delivery, answer = one.delivery, outcome_of(one.end)
        assert answer is not None
        assert not isinstance(answer, Accepted)
        return cls(
            account=delivery.account,
            attempt=delivery.attempt,
            code=answer.code,
            detail=answer.detail,
            started_at=one.started_at,
            answered_at=one.answered_at,
            call_key=delivery.call_key,
            call_digest=delivery.call_digest,
            call_end=end_without_answer(answer),
            answer=answer.answer,
        )

    def put_back(self, delivery: Delivery) -> None:
        """Restores the call as the delivery's last: no other one was made."""
        delivery.account = self.account
        delivery.call_key, delivery.call_digest = self.call_key, self.call_digest

    def as_event(self, event: TraceEvent) -> TraceEvent:
        """Fills in this call on an event of the same delivery, and returns it."""
        event.stage, event.at, event.state = Stage.ATTEMPTED, self.answered_at, ""
        event.attempt, event.account, event.reason = self.attempt, self.account, self.code
        event.started_at, event.answered_at = self.started_at, self.answered_at
        event.detail, event.call_end = self.detail or None, self.call_end
        event.code, event.answer = "" if self.call_end else self.code, self.answer
        return event


def note_refusals(some: Sequence[CallCarrier]) -> None:
    """Counts each refusal for pace alone on its delivery, so that it spends no attempt."""
    for one in some:
        if is_paced(one.end):
            one.delivery.refusals += 1


class CallCarrier(Protocol):
    """Carries one delivery: a lane's Work, recovery's RetryWork."""

    end: Any
    started_at: int
    answered_at: int
    route: Any
    tries: tuple[PastCall, ...]

    @property
    def delivery(self) -> Delivery:
        """The delivery."""
        ...


C = TypeVar("C", bound=CallCarrier)


def fitting(
    some: Sequence[C], first: C, account: Account, channel: Channel, may: Callable[[C], bool]
) -> list[C]:
    """Returns as many as the account takes in one call with `first`, in their order, of those that `may`
    and that its adapter does not refuse. Empty if the adapter raises over one."""
    try:
        key = channel.batch_key(first.delivery)
        return [
            one
            for one in some
            if may(one)
            and not channel.refusal(account, one.delivery)
            and (one is first or channel.batch_key(one.delivery) == key)
        ][: channel.max_batch]
    except Exception as exc:  # any error of an adapter over one message
        adapter_failed(channel, "again", exc)
        return []


def permitted(
    some: Sequence[C], accounts: AccountSelector, account: Account, held: int, delays: Delays
) -> list[C]:
    """Returns as many as may go through the account now, in their order, each with a permit, and counted
    among its receivers' deliveries. `held`: the caller's permits; more are taken, and those too many given
    back."""
    if len(some) < held:
        accounts.release(account, held - len(some))
    going = some[: held + accounts.reacquire(account, len(some) - held)]
    waits = delays([(account.name, one.delivery.receiver) for one in going])
    free = [one for one, delay_ms in zip(going, waits, strict=True) if not delay_ms]
    accounts.release(account, len(going) - len(free))
    return free


def on_record(
    some: Sequence[C],
    route: Any,
    *,
    put: Callable[[Sequence[C], str], None],
    kept: Callable[[Sequence[C]], list[bool]],
    may: Callable[[C], bool],
) -> list[C]:
    """Puts their next joint call on record. Returns those whose call is in the ledger and may begin;
    restores the others, and counts their call as not made where the ledger has it. `put` writes the call on
    their deliveries under its key; `kept` returns for each whether the ledger has it."""
    if not some:
        return []
    first, before = some[0].delivery, [(one.route, PastCall.of(one)) for one in some]
    for one in some:
        one.route = route
    put(some, call_key_of(first.key, max(first.attempt, 1) + 1))
    going = []
    for one, (old, tried), ours in zip(some, before, kept(some), strict=True):
        if ours and may(one):
            one.tries = (*one.tries, tried)
            one.delivery.repeats += 1
            going.append(one)
        else:
            one.route = old
            tried.put_back(one.delivery)
            one.delivery.attempt -= ours
            one.delivery.unmade += ours
    return going
