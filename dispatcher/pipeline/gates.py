"""A lane's gates before the claim: quiet hours, a cap per receiver, no content twice.

    quiet hours      decided by the clock: the delivery waits in the ledger, or is dropped
    cap and dedup    asked of Redis, once per batch; without Redis, of this worker's own marks: fewer
                     deliveries are dropped than should be, never more

A lane without gates is skipped. The mark of a delivery that surely was not sent is given back
(docs/policy.md, Gates).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Final

from backends.metrics import worker_families
from backends.metrics.readings import Reading
from backends.redis.receiver_marks import MarkResult, Marks, SendRequest
from backends.redis.receiver_windows import Window
from backends.settings import Settings
from dispatcher.pipeline.work import ENDS_AT_CLAIM, Drop, EndedAtClaim, Hold, Work
from message.outcomes import NotSent, Rejected
from message.reasons import (
    DUPLICATE_CONTENT,
    FREQUENCY_CAP,
    GATE_REASONS,
    QUIET_HOURS,
    code_of,
)
from message.states import Event, State
from message.vocabulary import LANES
from policy.gates import QuietAction, Scope
from policy.quiet_hours import quiet_ms
from policy.schema import Policy
from sending.endings import NotStarted
from sending.receiver_marks import NEVER_SENT, GateMarks, mark_of, open_marks
from sending.runtime.clock import Clock

_DROPS: Final = {MarkResult.REPEAT: DUPLICATE_CONTENT, MarkResult.ABOVE: FREQUENCY_CAP}


class SendGates:
    """Thread-safe; never raises."""

    def __init__(self, policy: Policy, marks: Marks | None, *, clock: Clock) -> None:
        """`marks` are the fleet's; None without Redis."""
        self._clock = clock
        self.marks = GateMarks(policy, marks, clock=clock)
        self._dropped = Counter(dict.fromkeys(GATE_REASONS, 0))
        self._held = 0
        self.follow(policy)

    def follow(self, policy: Policy) -> None:
        """Applies the policy. A channel's receivers count for the longest span that one of its lanes asks
        for."""
        spans: dict[str, int] = {}
        for lane in LANES:
            of_lane = policy.of(lane).frequency
            if of_lane.holds and of_lane.scope is Scope.CHANNEL:
                longest = max(limit.span_ms for limit in of_lane.limits)
                spans[lane.channel] = max(spans.get(lane.channel, 0), longest)
        self._spans = spans
        self.marks.follow(policy)

    def judge(self, works: Iterable[Work]) -> None:
        """Writes on each delivery whether it waits or ends at its claim; asks Redis at most once."""
        gated = [w for w in works if w.bound.gated and type(w.intent) not in ENDS_AT_CLAIM]
        if not gated:
            return
        self._keep_quiet(gated)
        asked = [work for work in gated if self._counts(work)]
        if asked:
            passing = [self._passing(work) for work in asked]
            for work, verdict in zip(asked, self.marks.enter(passing), strict=True):
                work.marked = verdict is MarkResult.MARKED
                if verdict in _DROPS:
                    work.intent = Drop(_DROPS[verdict])
        self._count(gated)

    def judge_again(self, works: Iterable[Work]) -> None:
        """Looks for quiet hours again: they may have begun while the claim waited for the ledger. The marks
        of cap and dedup stay."""
        gated = [w for w in works if w.bound.gated and type(w.intent) not in ENDS_AT_CLAIM]
        before = [type(work.intent) for work in gated]
        self._keep_quiet(gated)
        self._count(w for w, old in zip(gated, before, strict=True) if type(w.intent) is not old)

    def unclaimed(self, works: Iterable[Work]) -> None:
        """Gives back the marks of deliveries that ended at their claim."""
        ended = [w.delivery for w in works if w.marked and not _waits(w)]
        self.marks.give_back([(one.lane, one.key) for one in ended])

    def settled(self, works: Iterable[Work], events: Iterable[Event | None]) -> None:
        """Gives back the marks of unsent deliveries. An event is None where no ledger has it."""
        self.marks.give_back(
            [
                (work.delivery.lane, work.delivery.key)
                for work, event in zip(works, events, strict=True)
                if work.terms is not None and work.terms.gated and never_sent(work, event)
            ]
        )

    def readings(self) -> Iterator[Reading]:
        """Yields what `/metrics` shows."""
        yield Reading(worker_families.GATES_ALONE, {}, self.marks.alone)
        yield Reading(worker_families.GATES_HELD, {}, self._held)
        for reason, count in list(self._dropped.items()):
            yield Reading(worker_families.GATES_DROPPED, {"reason": reason}, count)

    # ---- deciding ----------------------------------------------------------------------------

    def _keep_quiet(self, works: Sequence[Work]) -> None:
        now = self._clock.now_ms()
        waits: dict[int, int] = {}
        for work in works:
            terms = work.bound
            if id(terms) not in waits:
                waits[id(terms)] = quiet_ms(terms.policy.quiet_hours, now)
            if not (wait_ms := waits[id(terms)]):
                continue
            if terms.policy.quiet_hours.action is QuietAction.DROP:
                work.intent = Drop(QUIET_HOURS)
            else:
                work.intent = Hold(now + wait_ms, QUIET_HOURS)

    def _count(self, works: Iterable[Work]) -> None:
        for work in works:
            if isinstance(work.intent, Drop):
                self._dropped[code_of(work.intent.reason)] += 1
            self._held += type(work.intent) is Hold

    def _counts(self, work: Work) -> bool:
        """Returns whether cap or dedup must mark the delivery: it will go if they let it pass."""
        if type(work.intent) is Drop:
            return False
        policy = work.bound.policy
        now = self._clock.now_ms()
        lives = now + _wait_ms(work, now) < work.delivery.expires_at
        return lives and (policy.frequency.holds or policy.dedup.holds)

    def _passing(self, work: Work) -> SendRequest:
        policy = work.bound.policy
        windows = [Window(limit.most, limit.span_ms) for limit in policy.frequency.limits]
        own = max((window.span_ms for window in windows), default=0)
        shared = policy.frequency.scope is Scope.CHANNEL
        span = self._spans.get(work.delivery.notification.channel, 0) if shared else 0
        mark = mark_of(work.delivery, policy)
        wait_ms = _wait_ms(work, self._clock.now_ms())
        return SendRequest(mark, policy.dedup.window_ms, windows, max(own, span), wait_ms)


def open_gating(
    settings: Settings, policy: Policy, identity: str, clock: Clock, stack: ExitStack
) -> SendGates:
    """Returns the gates of a worker on the ledger of that identity. Raises as `open_marks`."""
    return SendGates(policy, open_marks(settings, identity, stack), clock=clock)


def never_sent(work: Work, event: Event | None) -> bool:
    """Returns whether a delivery surely was not sent and will not be sent without a person."""
    if event is not None:
        return event in NEVER_SENT
    if isinstance(work.end, NotStarted):
        return work.end.event in NEVER_SENT
    return isinstance(work.end, Rejected | NotSent)


def _waits(work: Work) -> bool:
    """Returns whether the delivery waits in the ledger after this claim."""
    if isinstance(work.end, NotStarted):  # an earlier try of the claim entered it to be sent
        return True
    return isinstance(work.end, EndedAtClaim) and work.end.state is State.RETRY


def _wait_ms(work: Work, now: int) -> int:
    return work.intent.wait_ms(now) if isinstance(work.intent, Hold) else 0
