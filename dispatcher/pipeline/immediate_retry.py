"""Immediate retries of a lane's thread after a definite non-send; recovery makes all others.

    the account is the cause      another account, each once
    any other passing cause       the same account, `retry.immediate` times

Never after Unknown. Each retry is on record before it is made, counts among the `attempts`, and the answer
before it is in the trace. A thread is held while no other delivery waits for one, for HELD_S at most:
retries must not hold up fresh deliveries.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from tenacity import (
    Retrying,
    retry_if_result,
    sleep_using_event,
    stop_after_attempt,
    wait_random_exponential,
)

from dispatcher.pipeline.work import Work
from message.delivery import Delivery
from message.outcomes import AnyOutcome, NotSent, is_paced
from sending.accounts.receiver_limits import Delays
from sending.accounts.selector import AccountSelector, may_fail_over
from sending.attempts import fitting, on_record, permitted
from sending.batching import put_on_record
from sending.endings import NotStarted
from sending.lane_routes import Route
from sending.settlement import may_call_again

HELD_S: Final = 1.0
"""Since the first call began; no thread calls the same account again later."""
_FIRST_S: Final = 0.05
_LONGEST_S: Final = 0.4

MakeCall = Callable[[Sequence[Work]], bool]
"""Makes the call and writes the outcomes. Returns whether all of it was accepted."""


def may_work_at_once(outcome: AnyOutcome) -> bool:
    """Returns whether the same call may succeed a moment later: nothing was sent, the account is not
    halted, and the provider named no time or limit to wait for."""
    if not isinstance(outcome, NotSent) or is_paced(outcome):
        return False
    return not outcome.account and outcome.retry_after_ms is None


class ImmediateRetry:
    """Retries of one lane; its threads use it concurrently, each with works of its own."""

    def __init__(
        self,
        call: MakeCall,
        *,
        refusal: Callable[[Work], NotStarted | None],
        reroute: Callable[[Sequence[Delivery]], list[bool]] | None,
        delays: Delays,
        others_wait: Callable[[], bool],
        monotonic: Callable[[], float],
    ) -> None:
        """`refusal` returns why a delivery must not start; `reroute` puts a call on record, None where no
        ledger keeps the lane; `delays` names receivers at their limit, who get no further call."""
        self.repeated = 0
        """Number of deliveries sent again by the same account; unlocked, so a count may be lost."""
        self._call = call
        self._refusal = refusal
        self._reroute = reroute
        self._delays = delays
        self._others_wait = others_wait
        self._monotonic = monotonic
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Ends all retries; a waiting thread gives up its own."""
        self._stopping.set()

    def wanted(self, works: Sequence[Work]) -> bool:
        """Returns whether some works may be retried: then a thread that may wait calls `follow`."""
        at_once = works[0].bound.policy.retry.immediate > 0
        return any(
            may_fail_over(work.delivery, work.answer) or (at_once and may_work_at_once(work.answer))
            for work in works
        )

    def follow(self, works: Sequence[Work], begun_at: float) -> None:
        """Retries a call that was not wholly accepted and began at monotonic `begun_at`. Works that cannot
        be retried keep their outcome."""
        left = self._through_others(works)
        terms = works[0].bound
        if terms.policy.retry.immediate and (left := self._worth_it(left, begun_at)):
            self._through_the_same(left, begun_at, terms.policy.retry.immediate)

    # ---- another account -----------------------------------------------------------------------

    def _through_others(self, works: Sequence[Work]) -> Sequence[Work]:
        """Tries each other account that may take them. Returns the works of the last call; empty if it was
        accepted."""
        tried: list[str] = []
        while True:
            tried.append(works[0].chosen[0].name)
            going = self._elsewhere(works, tried)
            if not going:
                return works
            works = going
            if self._call(works):
                return ()

    def _elsewhere(self, works: Sequence[Work], tried: Sequence[str]) -> list[Work]:
        """Returns the works that go through another account, on record."""
        movable = [work for work in works if may_fail_over(work.delivery, work.answer)]
        first = next((work for work in movable if self._may_call(work)), None)
        if first is None:
            return []
        terms = first.bound
        refuses = terms.refuses(first.delivery)
        other = terms.accounts.failover(first.delivery, first.answer, tried, refuses)
        if other is None:
            return []
        route = terms.routes[other.name]
        return self._admitted(self._fitting(movable, first, route), route, terms.accounts, held=1)

    # ---- the same account ----------------------------------------------------------------------

    def _through_the_same(self, works: Sequence[Work], begun_at: float, times: int) -> None:
        left = works

        def once_more() -> bool:
            """Returns whether another try is worth it."""
            nonlocal left
            going = self._at_once(left)
            if not going or self._call(going):
                return False
            left = self._worth_it(going, begun_at)
            return bool(left)

        pause = wait_random_exponential(multiplier=_FIRST_S, max=_LONGEST_S, min=_FIRST_S / 2)
        self._stopping.wait(_FIRST_S)
        Retrying(
            stop=stop_after_attempt(times),
            wait=pause,
            retry=retry_if_result(bool),
            sleep=sleep_using_event(self._stopping),
            retry_error_callback=lambda _: None,
        )(once_more)

    def _worth_it(self, works: Sequence[Work], begun_at: float) -> list[Work]:
        """Returns the works to retry by the same account; none if others wait for the thread, or after
        HELD_S."""
        if self._stopping.is_set() or self._others_wait():
            return []
        if self._monotonic() - begun_at + _LONGEST_S > HELD_S:
            return []
        return [w for w in works if may_work_at_once(w.answer) and self._may_call(w)]

    def _at_once(self, works: Sequence[Work]) -> list[Work]:
        """Returns the works that go through their account again, on record."""
        first = works[0]
        route, accounts = first.chosen, first.bound.accounts
        if self._stopping.is_set():
            return []
        going = self._admitted(self._fitting(works, first, route), route, accounts, held=0)
        self.repeated += len(going)
        return going

    # ---- both ------------------------------------------------------------------------------------

    def _may_call(self, work: Work) -> bool:
        return may_call_again(work.delivery, work.bound.policy.retry, work.answered_at)

    def _fitting(self, works: Sequence[Work], first: Work, route: Route) -> list[Work]:
        """Returns as many works as the account takes in one call, in their order."""

        def may(work: Work) -> bool:
            return self._may_call(work) and self._refusal(work) is None

        return fitting(works, first, *route, may)

    def _admitted(
        self, works: Sequence[Work], route: Route, accounts: AccountSelector, held: int
    ) -> list[Work]:
        """Returns the works that the account has room for, on record. `held`: permits taken already."""
        allowed = permitted(works, accounts, route.account, held, self._delays)
        going = self._on_record(allowed, route)
        accounts.release(route.account, len(allowed) - len(going))
        return going

    def _on_record(self, works: Sequence[Work], route: Route) -> list[Work]:
        return on_record(
            works,
            route,
            put=put_on_record,
            kept=self._kept,
            may=lambda work: self._refusal(work) is None,
        )

    def _kept(self, works: Sequence[Work]) -> list[bool]:
        """Returns per delivery whether its next call is on record."""
        if self._reroute is not None:
            return self._reroute([work.delivery for work in works])
        for work in works:
            work.delivery.attempt = max(work.delivery.attempt, 1) + 1
        return [True] * len(works)
