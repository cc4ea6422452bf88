"""What a lane's policy lets pass before the claim: quiet hours, a cap per receiver, no content twice.

    quiet hours      decided here, by the clock: the delivery waits in the ledger, or is dropped
    cap and dedup    asked of Redis, once for a whole batch; without it, or while it is away, of what this
                     worker let pass itself: less is dropped than should be, never more

A lane without gates is not asked about. What is marked as passing and surely not sent is given back
(docs/policy.md, Gates).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from hashlib import blake2b
from typing import Final

import msgspec

from backends.redis.outage_guard import Patience
from backends.redis.receiver_marks import (
    LocalMarks,
    Mark,
    Marks,
    Passing,
    RedisMarks,
    Returned,
    Verdict,
)
from backends.redis.receiver_windows import Window
from backends.settings import Settings, SettingsError
from dispatcher.pipeline.work import Work
from message.delivery import Delivery
from message.outcomes import NotSent, Rejected
from message.reasons import (
    CONFLICT,
    DUPLICATE,
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
from policy.schema import LanePolicy, Policy
from sending.accounts.rate_limiter import Gauge
from sending.runtime.clock import Clock

_DROPS: Final = {Verdict.REPEAT: DUPLICATE_CONTENT, Verdict.ABOVE: FREQUENCY_CAP}
NEVER_SENT: Final = frozenset({Event.REJECTED, Event.TTL, Event.BUDGET_SPENT})
"""Ends of a claimed delivery under which surely nothing went, and nothing will by itself."""


class Gating:
    """Thread-safe; never raises."""

    def __init__(self, policy: Policy, marks: Marks | None, *, clock: Clock) -> None:
        """`marks` are the fleet's, None where there is no Redis."""
        self._fleet = marks
        self._clock = clock
        self._own = LocalMarks(clock.monotonic)
        self._patience = Patience(
            "gates", "each worker goes by what it let pass itself", monotonic=clock.monotonic
        )
        self._alone = 0
        """Deliveries judged without the fleet's marks; a lost count is worth no lock."""
        self._dropped = Counter(dict.fromkeys(GATE_REASONS, 0))
        self._held = 0
        self.follow(policy)

    def follow(self, policy: Policy) -> None:
        """Count receivers for as long as any lane of their channel asks, from now on."""
        spans: dict[str, int] = {}
        for lane in LANES:
            of_lane = policy.of(lane).frequency
            if of_lane.holds and of_lane.scope is Scope.CHANNEL:
                longest = max(limit.span_ms for limit in of_lane.limits)
                spans[lane.channel] = max(spans.get(lane.channel, 0), longest)
        self._spans = spans
        self._keeps = {lane.name: gates_ms(policy.of(lane)) for lane in LANES}

    def judge(self, works: Iterable[Work]) -> None:
        """Write on each delivery whether it waits or ends at its claim; at most one question."""
        gated = [work for work in works if work.bound.gated and work.drop is None]
        if not gated:
            return
        self._keep_quiet(gated)
        asked = [work for work in gated if work.drop is None and self._counts(work)]
        if asked:
            passing = [self._passing(work) for work in asked]
            for work, verdict in zip(asked, self._enter(passing), strict=True):
                work.marked = verdict is Verdict.MARKED
                work.drop = _DROPS.get(verdict)
        for work in gated:
            if work.drop is not None:
                work.hold_ms, work.hold_reason = 0, ""
                self._dropped[code_of(work.drop)] += 1
            self._held += work.hold_ms > 0

    def unclaimed(self, works: Iterable[Work]) -> None:
        """These ended at their claim: what was marked for one that will not go is given back."""
        ended = [w.delivery for w in works if w.marked and not _waits(w)]
        self.give_back([(one.lane, one.key) for one in ended])

    def settled(self, works: Iterable[Work], events: Iterable[Event | None]) -> None:
        """These ended so; None where no ledger says how."""
        self.give_back(
            [
                (work.delivery.lane, work.delivery.key)
                for work, event in zip(works, events, strict=True)
                if work.terms is not None and work.terms.gated and never_sent(work, event)
            ]
        )

    def give_back(self, ended: Sequence[tuple[str, str]]) -> None:
        """These deliveries (lane, key) were surely not sent, and will not be by themselves. While Redis is
        away their marks stay until their windows end."""
        back = [Returned(key, keep) for lane, key in ended if (keep := self._keeps.get(lane, 0))]
        if back:
            self._own.give_back(back)
            if (fleet := self._fleet) is not None:
                self._patience.ask(lambda: fleet.give_back(back))

    def gauges(self) -> Iterator[Gauge]:
        """What `/metrics` shows."""
        text = "Deliveries judged without the fleet's marks."
        yield "gates_alone", text, {}, self._alone
        yield "gates_held", "Deliveries that wait for the end of quiet hours.", {}, self._held
        for reason, count in list(self._dropped.items()):
            yield "gates_dropped", "Deliveries that a gate dropped.", {"reason": reason}, count

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
                work.drop = QUIET_HOURS
            else:
                work.hold_ms, work.hold_reason = wait_ms, QUIET_HOURS

    def _counts(self, work: Work) -> bool:
        """Whether it is one to be marked: it will go, if nothing else happens."""
        policy = work.bound.policy
        lives = self._clock.now_ms() + work.hold_ms < work.delivery.expires_at
        return lives and (policy.frequency.holds or policy.dedup.holds)

    def _passing(self, work: Work) -> Passing:
        policy = work.bound.policy
        windows = [Window(limit.most, limit.span_ms) for limit in policy.frequency.limits]
        own = max((window.span_ms for window in windows), default=0)
        shared = policy.frequency.scope is Scope.CHANNEL
        span = self._spans.get(work.delivery.notification.channel, 0) if shared else 0
        mark = mark_of(work.delivery, policy)
        return Passing(mark, policy.dedup.window_ms, windows, max(own, span), work.hold_ms)

    def _enter(self, batch: Sequence[Passing]) -> list[Verdict]:
        """By the fleet's marks; what this worker let pass before counts even if Redis forgot it."""
        fleet = self._fleet
        verdicts = None if fleet is None else self._patience.ask(lambda: fleet.enter(batch))
        if verdicts is None:
            self._alone += len(batch)
            return self._own.enter(batch)
        own = iter(self._remembered(_going(batch, verdicts), fleet))
        found = [v if v in _DROPS else next(own) for v in verdicts]
        forgotten = [
            Returned(passing.mark.member, _keep_ms(passing))
            for passing, verdict, own_verdict in zip(batch, verdicts, found, strict=True)
            if verdict is Verdict.MARKED and own_verdict in _DROPS
        ]
        if forgotten:
            self._patience.ask(lambda: fleet.give_back(forgotten) if fleet else None)
        return [f if f in _DROPS else v for f, v in zip(found, verdicts, strict=True)]

    def _remembered(self, batch: Sequence[Passing], fleet: Marks | None) -> list[Verdict]:
        """What this worker's own marks say. Where they stop what the fleet's let pass, either Redis forgot
        or another process gave marks back: the fleet is asked which, once."""
        found = self._own.enter(batch)
        stopped = [place for place, verdict in enumerate(found) if verdict in _DROPS]
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
    """How long a mark of the lane may hold; 0: it marks nothing."""
    dedup = policy.dedup.window_ms if policy.dedup.holds else 0
    limits = policy.frequency.limits if policy.frequency.holds else ()
    return max([dedup, *(limit.span_ms for limit in limits)])


def _keep_ms(passing: Passing) -> int:
    return max(passing.content_ms, passing.keep_ms, 1)


def _going(batch: Sequence[Passing], verdicts: Sequence[Verdict]) -> list[Passing]:
    return [p for p, v in zip(batch, verdicts, strict=True) if v not in _DROPS]


def open_gating(
    settings: Settings, policy: Policy, identity: str, clock: Clock, stack: ExitStack
) -> Gating:
    """The gates of a worker on the ledger of that identity; `stack` closes connections.

    Raises SettingsError for a redis.url that cannot be read; a Redis that is away is no error.
    """
    if not settings.redis.url:
        return Gating(policy, None, clock=clock)
    try:
        marks = RedisMarks(settings.redis, identity)
    except ValueError as exc:
        raise SettingsError(f"redis.url: {exc}") from exc
    stack.callback(marks.close)
    return Gating(policy, marks, clock=clock)


def mark_of(delivery: Delivery, policy: LanePolicy) -> Mark:
    """Where a delivery is marked under its lane's policy. Receivers are people, and contents theirs: Redis
    gets to see digests."""
    lane, receiver = delivery.lane, delivery.receiver
    content = counted = ""
    if policy.dedup.holds and delivery.notification.resend_of is None:
        said = msgspec.json.encode(_said(delivery), order="deterministic")
        content = _name(lane, receiver, said.decode())
    if policy.frequency.holds:
        within = delivery.notification.channel if policy.frequency.scope is Scope.CHANNEL else lane
        counted = _name(within, receiver)
    return Mark(delivery.key, content, counted)


def _said(delivery: Delivery) -> tuple[object, ...]:
    """What is said, by whichever provider: no account is chosen yet."""
    said = (delivery.template, delivery.content)
    rendered = delivery.rendered
    return (*said, rendered.providers) if rendered is not None and rendered.providers else said


def never_sent(work: Work, event: Event | None) -> bool:
    """Whether a delivery ended so that it surely was not sent and nobody will send it by itself."""
    if event is not None:
        return event in NEVER_SENT
    return work.event in NEVER_SENT or isinstance(work.outcome, Rejected | NotSent)


def _waits(work: Work) -> bool:
    """Whether the ledger holds it, as this very claim entered it."""
    return work.standing is State.RETRY and work.reason not in (DUPLICATE, CONFLICT)


def _name(*parts: str) -> str:
    return blake2b("\x1f".join(parts).encode(), digest_size=16).hexdigest()
