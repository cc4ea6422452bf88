"""Guards one endpoint: a cap of checks at once, and a circuit breaker.

An endpoint that hangs holds at most `concurrency` threads, and other business types go on. A check that was
not made raises CheckNotMade: it counts as no attempt (reliability: only checks really made count).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Final, Protocol

import structlog

from hongyan_client.lookback.identity import TransactionRef
from lookback.check import Answer, CheckReply
from lookback.checks.errors import CheckFailed, CheckNotMade
from policy.schema import BreakerPolicy
from sending.accounts.circuit_breaker import CallVerdict, CircuitBreaker

log = structlog.get_logger(__name__)
POLICY: Final = BreakerPolicy(window_ms=30_000, min_calls=5, share=0.8, probes=1)
"""Opens after five checks within 30 s, four of them failed."""
_FULL_WAIT_S: Final = 0.5


class CheckQuestion(Protocol):
    """Asks one endpoint once, within its time limit. Called from several threads at once."""

    def ask(self, ref: TransactionRef) -> CheckReply:
        """Returns the answer; UNKNOWN if the business does not know. Raises CheckFailed, CheckNotMade."""
        ...


class GuardedCheck:
    """Implements `lookback.check.Checker` for one endpoint. Safe from any thread."""

    def __init__(
        self,
        question: CheckQuestion,
        concurrency: int,
        policy: BreakerPolicy = POLICY,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._question = question
        self._room = threading.BoundedSemaphore(concurrency)
        self.breaker = CircuitBreaker(policy)
        self._now = now

    def check(self, biz_type: str, biz_id: str, tx_id: str) -> CheckReply:
        """Asks once. A failure is UNKNOWN. Raises CheckNotMade."""
        if not self._room.acquire(blocking=False):
            raise CheckNotMade("the endpoint has its fill of checks", _FULL_WAIT_S)
        try:
            return self._asked(TransactionRef(biz_type, biz_id, tx_id))
        finally:
            self._room.release()

    def _asked(self, ref: TransactionRef) -> CheckReply:
        begun = self._now()
        if not self.breaker.take(begun):
            raise CheckNotMade("the endpoint's breaker is open", self.breaker.wait_s(begun))
        verdict: CallVerdict | None = CallVerdict.FAILED
        try:
            reply = self._question.ask(ref)
            verdict = CallVerdict.WELL
            return reply
        except CheckFailed as exc:
            return CheckReply(Answer.UNKNOWN, str(exc))
        except CheckNotMade as exc:
            log.error("check_refused", biz_type=ref.biz_type, cause=str(exc))
            verdict = None
            raise
        finally:
            self._record(verdict, begun)

    def _record(self, verdict: CallVerdict | None, begun: float) -> None:
        """Tells the breaker how a check ended; None: it was not made."""
        if verdict is None:
            self.breaker.give_back()
        else:
            self.breaker.record(self._now(), verdict, begun_at=begun)
