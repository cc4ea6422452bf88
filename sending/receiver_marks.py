"""Marks of deliveries that passed a lane's gates: the fleet's in Redis, and this process's own.

Workers mark. The process that ends a delivery as surely not sent gives its marks back (docs/policy.md,
Gates).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from hashlib import blake2b
from typing import Final

import msgspec

from backends.redis.outage_guard import OutageGuard
from backends.redis.receiver_marks import (
    LocalMarks,
    MarkResult,
    Marks,
    ReceiverMark,
    RedisMarks,
    Returned,
    SendRequest,
)
from backends.settings import Settings, SettingsError
from message.delivery import Delivery
from message.states import Event
from message.vocabulary import LANES
from policy.gates import Scope
from policy.schema import LanePolicy, Policy
from sending.runtime.clock import Clock

_STOPPED: Final = frozenset({MarkResult.REPEAT, MarkResult.ABOVE})
NEVER_SENT: Final = frozenset(
    {Event.REJECTED, Event.REFUSED, Event.TTL, Event.BUDGET_SPENT, Event.PARK}
)
"""Ends of a claimed delivery that surely was not sent, and will not be without a person."""


class GateMarks:
    """Thread-safe; never raises."""

    def __init__(self, policy: Policy, marks: Marks | None, *, clock: Clock) -> None:
        """`marks` are the fleet's; None without Redis."""
        self.alone = 0
        """Number of deliveries judged without the fleet's marks; unlocked, so a count may be lost."""
        self._fleet = marks
        self._own = LocalMarks(clock.monotonic)
        self._patience = OutageGuard(
            "gates", "each worker goes by what it let pass itself", monotonic=clock.monotonic
        )
        self.follow(policy)

    def follow(self, policy: Policy) -> None:
        """Keeps marks for as long as the policy's lanes ask, from now on."""
        self._keeps = {lane.name: gates_ms(policy.of(lane)) for lane in LANES}

    def give_back(self, ended: Sequence[tuple[str, str]]) -> None:
        """Gives back the marks of deliveries (lane, key) that surely were not sent. While Redis is away
        they stay until their windows end."""
        back = [Returned(key, keep) for lane, key in ended if (keep := self._keeps.get(lane, 0))]
        if back:
            self._own.give_back(back)
            if (fleet := self._fleet) is not None:
                self._patience.ask(lambda: fleet.give_back(back))

    def enter(self, batch: Sequence[SendRequest]) -> list[MarkResult]:
        """Marks the deliveries by the fleet's marks and this worker's own, in case Redis lost some. Returns
        one result for each."""
        fleet = self._fleet
        verdicts = None if fleet is None else self._patience.ask(lambda: fleet.enter(batch))
        if verdicts is None:
            self.alone += len(batch)
            return self._own.enter(batch)
        own = iter(self._remembered(_going(batch, verdicts), fleet))
        found = [v if v in _STOPPED else next(own) for v in verdicts]
        forgotten = [
            Returned(passing.mark.member, _keep_ms(passing))
            for passing, verdict, own_verdict in zip(batch, verdicts, found, strict=True)
            if verdict is MarkResult.MARKED and own_verdict in _STOPPED
        ]
        if forgotten:
            self._patience.ask(lambda: fleet.give_back(forgotten) if fleet else None)
        return [f if f in _STOPPED else v for f, v in zip(found, verdicts, strict=True)]

    def _remembered(self, batch: Sequence[SendRequest], fleet: Marks | None) -> list[MarkResult]:
        """Returns the results by this worker's own marks. Where only they stop a delivery, Redis lost marks
        or another process gave them back: asks the fleet once which."""
        found = self._own.enter(batch)
        stopped = [place for place, verdict in enumerate(found) if verdict in _STOPPED]
        if not stopped or fleet is None:
            return found
        makers = self._own.makers([batch[place] for place in stopped])
        answers = self._patience.ask(lambda: fleet.returned(makers)) or [False] * len(makers)
        back = [Returned(m, 0) for m, gone in zip(makers, answers, strict=True) if gone]
        if back:
            self._own.give_back(back)
            again = self._own.enter([batch[place] for place in stopped])
            for place, verdict in zip(stopped, again, strict=True):
                found[place] = verdict
        return found


def gates_ms(policy: LanePolicy) -> int:
    """Returns the longest time of a lane's mark in milliseconds; 0 if it marks nothing."""
    dedup = policy.dedup.window_ms if policy.dedup.holds else 0
    limits = policy.frequency.limits if policy.frequency.holds else ()
    return max([dedup, *(limit.span_ms for limit in limits)])


def _keep_ms(passing: SendRequest) -> int:
    return max(passing.content_ms, passing.keep_ms, 1)


def _going(batch: Sequence[SendRequest], verdicts: Sequence[MarkResult]) -> list[SendRequest]:
    return [p for p, v in zip(batch, verdicts, strict=True) if v not in _STOPPED]


def open_marks(settings: Settings, identity: str, stack: ExitStack) -> Marks | None:
    """Returns the fleet's marks for the ledger of that identity; None without Redis. `stack` closes
    connections.

    Raises SettingsError for a redis.url that cannot be read; a Redis that is away is no error.
    """
    if not settings.redis.url:
        return None
    try:
        marks = RedisMarks(settings.redis, identity)
    except ValueError as exc:
        raise SettingsError(f"redis.url: {exc}") from exc
    stack.callback(marks.close)
    return marks


def mark_of(delivery: Delivery, policy: LanePolicy) -> ReceiverMark:
    """Returns the delivery's marks under its lane's policy: digests, since Redis gets no personal data."""
    lane, receiver = delivery.lane, delivery.receiver
    content = counted = ""
    if policy.dedup.holds and delivery.notification.resend_of is None:
        text = msgspec.json.encode(_said(delivery), order="deterministic")
        content = _name(lane, receiver, text.decode())
    if policy.frequency.holds:
        within = delivery.notification.channel if policy.frequency.scope is Scope.CHANNEL else lane
        counted = _name(within, receiver)
    return ReceiverMark(delivery.key, content, counted)


def _said(delivery: Delivery) -> tuple[object, ...]:
    """Returns the content for all providers: no account is chosen yet."""
    own, rendered = (delivery.template, delivery.content), delivery.rendered
    return (*own, rendered.providers) if rendered is not None and rendered.providers else own


def _name(*parts: str) -> str:
    return blake2b("\x1f".join(parts).encode(), digest_size=16).hexdigest()
