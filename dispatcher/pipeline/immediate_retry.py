"""What a lane's thread calls once more by itself, after a definite non-send; all else is recovery's.

    the account is why            another account, each once
    the call just did not work    the same account, `retry.immediate` times, while the thread is worth it

Never after Unknown. Each such call is on record before it is made, counts among the `attempts`, and what
was answered before it stands in the trace. A thread is worth holding while no other delivery waits for one,
and no longer than a second: retries are compensation and must not hold up what is fresh.
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
from sending.accounts.selector import may_fail_over
from sending.attempts import fitting, on_record
from sending.batching import put_on_record
from sending.endings import NotStarted
from sending.lane_routes import Route

HELD_S: Final = 1.0
"""From the first call's beginning; later than this no thread calls the same account again."""
_FIRST_S: Final = 0.05
_LONGEST_S: Final = 0.4

MakeCall = Callable[[Sequence[Work]], bool]
"""Makes the call, writes the outcomes; whether all of it was accepted."""


def may_work_at_once(outcome: AnyOutcome) -> bool:
    """Whether the same call may go well a moment later: nothing was sent, and neither is the account
    halted nor did the provider name a time or a limit, which no thread is held for."""
    if not isinstance(outcome, NotSent) or is_paced(outcome):
        return False
    return not outcome.account and outcome.retry_after_ms is None


class ImmediateRetry:
    """One lane's; used by its threads at once, each with works of its own."""

    def __init__(
        self,
        call: MakeCall,
        *,
        refusal: Callable[[Work], NotStarted | None],
        reroute: Callable[[Sequence[Delivery]], list[bool]] | None,
        others_wait: Callable[[], bool],
        monotonic: Callable[[], float],
    ) -> None:
        """`refusal` says why a delivery must not start; `reroute` puts a call on record, None where no
        ledger keeps the lane."""
        self.repeated = 0
        """Deliveries that went through the same account again; a lost count is worth no lock."""
        self._call = call
        self._refusal = refusal
        self._reroute = reroute
        self._others_wait = others_wait
        self._monotonic = monotonic
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Nothing is called again; whoever waits to, leaves it."""
        self._stopping.set()

    def wanted(self, works: Sequence[Work]) -> bool:
        """Whether some of what was answered may be called again: then `follow` is for a thread that may
        wait."""
        at_once = works[0].bound.policy.retry.immediate > 0
        return any(
            may_fail_over(work.answer) or (at_once and may_work_at_once(work.answer))
            for work in works
        )

    def follow(self, works: Sequence[Work], begun_at: float) -> None:
        """A call that was not wholly accepted ended; `begun_at` is when it began, monotonic. What cannot
        be called again keeps its outcome."""
        left = self._through_others(works)
        terms = works[0].bound
        if terms.policy.retry.immediate and (left := self._worth_it(left, begun_at)):
            self._through_the_same(left, begun_at, terms.policy.retry.immediate)

    # ---- another account -----------------------------------------------------------------------

    def _through_others(self, works: Sequence[Work]) -> Sequence[Work]:
        """Through each other account that may take them; what the last one answered for."""
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
        """Those that go through another account, on record."""
        first = next((w for w in works if may_fail_over(w.answer) and self._has_attempts(w)), None)
        if first is None:
            return []
        terms = first.bound
        refuses = terms.refuses(first.delivery)
        other = terms.accounts.failover(first.delivery, first.answer, tried, refuses)
        if other is None:
            return []
        route = terms.routes[other.name]
        refused = [work for work in works if may_fail_over(work.answer)]
        going = self._on_record(self._fitting(refused, first, route), route)
        if not going:
            terms.accounts.release(other)
        return going

    # ---- the same account ----------------------------------------------------------------------

    def _through_the_same(self, works: Sequence[Work], begun_at: float, times: int) -> None:
        left = works

        def once_more() -> bool:
            """Whether it is worth another try."""
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
        """Those that the thread is held for: no other waits for it, and not for long."""
        if self._stopping.is_set() or self._others_wait():
            return []
        if self._monotonic() - begun_at + _LONGEST_S > HELD_S:
            return []
        return [w for w in works if may_work_at_once(w.answer) and self._has_attempts(w)]

    def _at_once(self, works: Sequence[Work]) -> list[Work]:
        """Those that go through their account again, on record."""
        first = works[0]
        route, accounts = first.chosen, first.bound.accounts
        if self._stopping.is_set() or not accounts.reacquire(route[0]):
            return []
        going = self._on_record(self._fitting(works, first, route), route)
        if not going:
            accounts.release(route[0])
        self.repeated += len(going)
        return going

    # ---- both ------------------------------------------------------------------------------------

    def _has_attempts(self, work: Work) -> bool:
        return work.delivery.spent < work.bound.policy.retry.attempts

    def _fitting(self, works: Sequence[Work], first: Work, route: Route) -> list[Work]:
        """As many as the account takes in one call, in their order."""

        def may(work: Work) -> bool:
            return self._has_attempts(work) and self._refusal(work) is None

        return fitting(works, first, *route, may)

    def _on_record(self, works: Sequence[Work], route: Route) -> list[Work]:
        return on_record(
            works,
            route,
            put=put_on_record,
            kept=self._kept,
            may=lambda work: self._refusal(work) is None,
        )

    def _kept(self, works: Sequence[Work]) -> list[bool]:
        """Per delivery, whether its next call is on record."""
        if self._reroute is not None:
            return self._reroute([work.delivery for work in works])
        for work in works:
            work.delivery.attempt = max(work.delivery.attempt, 1) + 1
        return [True] * len(works)
