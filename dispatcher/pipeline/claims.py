"""Claim strategies: the ledger decides for most lanes, Redis for `best_effort` ones.

A strategy divides a batch of deliveries into those to send and those that ended. Either takes a fixed
number of round trips per batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from dispatcher.pipeline.work import AlreadyKnown, Drop, EndedAtClaim, Hold, Park, Work
from idempotency.ledger import Claim, Claimed, Ledger, LedgerUnavailable, Settlement
from idempotency.payload_cipher import body_digest
from idempotency.prefilter import Prefilter
from message.ids import new_token
from message.reasons import (
    BEHIND,
    CONFLICT,
    DUPLICATE,
    DUPLICATE_PREFILTER,
    RECALLED,
    TTL_AT_INTAKE,
)
from message.states import Event, State
from sending.endings import NotStarted
from sending.runtime.clock import Clock
from sending.runtime.outage import Outage

_NOT_TO_SEND: Final = frozenset({Event.DROP, Event.HOLD})


class ClaimCounter(Protocol):
    """Counters of a strategy (dispatcher/metrics.py)."""

    def claimed(self, batch: int, seconds: float) -> None:
        """Counts one claim statement."""
        ...

    def prefilter_hits(self, hits: int) -> None:
        """Counts deliveries that Redis knew to be settled."""
        ...


class ClaimStrategy(Protocol):
    """Divides batches of works; the ended ones carry their `end`."""

    def screen(self, works: Sequence[Work]) -> tuple[list[Work], list[Work]]:
        """Returns (worth claiming, ended); called by `ExpandStage.run_once`. Never raises."""
        ...

    def admit(self, works: Sequence[Work]) -> tuple[list[Work], list[Work]]:
        """Returns (to send, ended); called by `Intake.admit`. Raises LedgerUnavailable only when the worker
        stops."""
        ...


class LedgerClaims:
    """Asks Redis in one round trip, then claims in one statement: durable before anything is sent."""

    def __init__(
        self,
        ledger: Ledger,
        prefilter: Prefilter,
        *,
        owner: str,
        outage: Outage,
        clock: Clock,
        count: ClaimCounter,
        term: Callable[[], int],
        lease_holds: Callable[[], bool] = lambda: True,
        judge_again: Callable[[Sequence[Work]], None] = lambda _: None,
        ordered: frozenset[str] = frozenset(),
    ) -> None:
        """`lease_holds` is asked before each claim: a claim of a worker that slept past its lease would be
        in doubt at once. `judge_again` is asked before each further try of a claim: its intents were right
        before the ledger was away (`SendGates.judge_again`)."""
        self._ledger = ledger
        self._prefilter = prefilter
        self._owner = owner
        self._outage = outage
        self._clock = clock
        self._count = count
        self._term = term
        self._lease_holds = lease_holds
        self._judge_again = judge_again
        self._ordered = ordered

    def screen(self, works: Sequence[Work]) -> tuple[list[Work], list[Work]]:
        marks = self._prefilter.lookup([work.delivery.key for work in works])
        unknown: list[Work] = []
        ended: list[Work] = []
        payload, digest = b"", body_digest(b"")
        for work, mark in zip(works, marks, strict=True):
            delivery = work.delivery
            if delivery.payload is not payload:  # those of one notification follow one another
                payload, digest = delivery.payload, body_digest(delivery.payload)
            delivery.body_digest = digest  # here and not at the claim, which lanes wait for
            if mark is None:
                unknown.append(work)
            else:
                same = mark == digest
                work.end = AlreadyKnown(None, DUPLICATE_PREFILTER if same else CONFLICT)
                ended.append(work)
        if ended:
            self._count.prefilter_hits(len(ended))
        return unknown, ended

    def admit(self, works: Sequence[Work]) -> tuple[list[Work], list[Work]]:
        to_send: list[Work] = []
        ended: list[Work] = []
        for ordered in (False, True):
            part = [w for w in works if (w.delivery.lane in self._ordered) is ordered]
            if part:
                self._claim(part, ordered, to_send, ended)
        return to_send, ended

    def _claim(
        self, works: list[Work], ordered: bool, to_send: list[Work], ended: list[Work]
    ) -> None:
        tries = _ClaimTries(works, self._clock, self._judge_again)
        begun = self._clock.monotonic()

        def enter() -> list[Claimed]:
            claims = tries.next()
            if not self._lease_holds():
                raise LedgerUnavailable("the lease lapsed; claims wait until it is renewed")
            term = self._term()  # read for each try: an outage between two may end a term
            for work in works:
                work.term = term
            return self._ledger.claim(claims, self._owner, ordered=ordered)

        answers = self._outage.until_available("intake", enter)
        self._count.claimed(len(works), self._clock.monotonic() - begun)
        _divide(works, tries.claims, answers, to_send, ended)

    def rides(self, lane: str) -> bool:
        """Returns whether the lane's claims may join a settlement; claims that lock their lines may not."""
        return lane not in self._ordered

    def settle_and_claim(
        self, settlements: Sequence[Settlement], works: list[Work]
    ) -> tuple[list[bool], tuple[list[Work], list[Work]] | None]:
        """Records the outcomes and claims the works, of lanes for which `rides` holds, in one round trip.
        Returns per outcome whether it was written, and as `admit`; None if the lease lapsed and nothing was
        claimed. Raises LedgerUnavailable only when the worker stops."""
        tries = _ClaimTries(works, self._clock, self._judge_again)
        begun = self._clock.monotonic()

        def enter() -> tuple[list[bool], list[Claimed] | None]:
            claims = tries.next()
            if not self._lease_holds():
                return self._ledger.settle(settlements, self._ordered), None
            term = self._term()
            for work in works:
                work.term = term
            return self._ledger.settle_and_claim(settlements, claims, self._owner, self._ordered)

        written, answers = self._outage.until_available("settle", enter)
        if answers is None:
            return written, None
        self._count.claimed(len(works), self._clock.monotonic() - begun)
        to_send: list[Work] = []
        ended: list[Work] = []
        _divide(works, tries.claims, answers, to_send, ended)
        return written, (to_send, ended)


class _ClaimTries:
    """The claims of some works under one token, made anew for each try: while the ledger is away time goes
    on."""

    def __init__(
        self, works: Sequence[Work], clock: Clock, judge_again: Callable[[Sequence[Work]], None]
    ) -> None:
        self.claims: list[Claim] = []
        """The claims of the last try."""
        self._works = works
        self._clock = clock
        self._judge_again = judge_again
        self._token = new_token()

    def next(self) -> list[Claim]:
        """Returns the claims of the next try."""
        if self.claims:
            self._judge_again(self._works)
        now = self._clock.now_ms()
        self.claims = [_claim_of(work, self._token, now) for work in self._works]
        return self.claims


def _divide(
    works: Sequence[Work],
    claims: Sequence[Claim],
    answers: Sequence[Claimed],
    to_send: list[Work],
    ended: list[Work],
) -> None:
    """Divides the works by the ledger's answers."""
    for work, claim, answer in zip(works, claims, answers, strict=True):
        if answer.won and answer.state is State.IN_FLIGHT:
            delivery = work.delivery
            delivery.token, delivery.attempt, delivery.day = claim.token, answer.attempt, answer.day
            if claim.event in _NOT_TO_SEND:  # an earlier try entered it, whose reply was lost
                work.end = NotStarted(Event.SHUT, claim.reason or "", claim.delay_ms)
        else:
            _end(work, claim, answer)
        (to_send if work.end is None else ended).append(work)


class BestEffortClaims:
    """SET NX and nothing else: the lane's policy accepts duplicates and losses."""

    def __init__(self, prefilter: Prefilter, clock: Clock) -> None:
        self._prefilter = prefilter
        self._clock = clock

    def screen(self, works: Sequence[Work]) -> tuple[list[Work], list[Work]]:
        return list(works), []

    def admit(self, works: Sequence[Work]) -> tuple[list[Work], list[Work]]:
        now = self._clock.now_ms()
        firsts = self._prefilter.first([work.delivery.key for work in works])
        to_send: list[Work] = []
        ended: list[Work] = []
        for work, first in zip(works, firsts, strict=True):
            work.delivery.attempt = 1
            if not first:
                work.end = AlreadyKnown(State.SENT, DUPLICATE_PREFILTER)
            elif now >= work.delivery.expires_at:
                work.end = EndedAtClaim(State.EXPIRED, TTL_AT_INTAKE)
            elif isinstance(work.intent, Drop | Park | Hold):  # nothing keeps it for later
                work.end = EndedAtClaim(State.DROPPED, work.intent.reason)
            (to_send if work.end is None else ended).append(work)
        return to_send, ended


def _claim_of(work: Work, token: int, now: int) -> Claim:
    if now >= work.delivery.expires_at:
        return Claim(work.delivery, token, Event.TTL_AT_INTAKE, TTL_AT_INTAKE)
    intent = work.intent
    if type(intent) is Drop:
        return Claim(work.delivery, token, Event.DROP, intent.reason)
    if type(intent) is Park:
        return Claim(work.delivery, token, Event.PARK, intent.reason)
    if type(intent) is Hold:
        return Claim(work.delivery, token, Event.HOLD, intent.reason, intent.wait_ms(now))
    return Claim(work.delivery, token)


def _end(work: Work, claim: Claim, answer: Claimed) -> None:
    if answer.conflict:
        work.end = AlreadyKnown(answer.state, CONFLICT)
    elif not answer.won:
        work.end = AlreadyKnown(answer.state, DUPLICATE)
    elif answer.state is State.DROPPED and claim.event is not Event.DROP:
        work.end = EndedAtClaim(answer.state, RECALLED)
    else:
        work.end = EndedAtClaim(answer.state, claim.reason or BEHIND)
