"""Questions about deliveries that were sent and have no receipt: the provider is asked, nothing is sent.

An answer "sent" contradicts the finding. Any other one is left to a person, with the answer as its reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from channels.channel import Attempt, Resolution
from idempotency.lookups import Queries
from idempotency.lost.findings import Decision, Finding, FindingStatus, SilentCall
from idempotency.payload_cipher import PayloadUnreadable
from message.delivery import Delivery
from message.envelope import EnvelopeError, decode
from recovery.retry.retry_lane import RetryLane
from recovery.unknown.resolver import Asking

QUESTIONS: Final = 20
"""Deliveries of one round."""
ROUND_S: Final = 20.0
"""Time after which a round asks no more; the next one goes on."""
_MS: Final = 1_000
_ANSWERS: Final = {
    Resolution.SENT: (FindingStatus.CONTRADICTED, "its provider says that it was sent"),
    Resolution.NOT_SENT: (FindingStatus.ASKED, "its provider says that it was not sent"),
    Resolution.REFUSED: (FindingStatus.ASKED, "its provider says that it refused it"),
    Resolution.ASK_LATER: (FindingStatus.ASKED, "its provider cannot tell"),
}
RECEIPT_CAME = "it is not SENT any more, or its receipt came"
NO_ACCOUNT = "no account of this recovery can be asked"
NO_QUERY = "its provider has no query"
UNREADABLE = "its row cannot be opened"


class SentRows(Protocol):
    """The part of `LostFindings` for sent rows. Every method raises LedgerError."""

    def silent(self, limit: int) -> list[Finding]:
        """Returns silent deliveries whose provider was not asked."""
        ...

    def sent_call(self, delivery_key: str) -> SilentCall | None:
        """Returns the call of a delivery that is SENT; None for any other."""
        ...

    def now_ms(self) -> int:
        """Returns the database's time, epoch milliseconds."""
        ...


class SilentQuestions:
    """For one thread at a time."""

    def __init__(
        self,
        findings: SentRows,
        queries: Queries,
        routes: Mapping[str, RetryLane],
        engine: Asking,
        *,
        stopping: Callable[[], bool],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._findings = findings
        self._queries = queries
        self._routes = routes
        self._engine = engine
        self._stopping = stopping
        self._monotonic = monotonic

    def run_once(self) -> tuple[Sequence[Finding], Sequence[Decision]]:
        """Asks about some silent deliveries. Returns them with their decisions. Raises LedgerError."""
        until = self._monotonic() + ROUND_S
        asked: list[Finding] = []
        decisions = []
        for finding in self._findings.silent(QUESTIONS):
            if self._stopping() or self._monotonic() > until:
                break
            status, why = self._answer(finding)
            asked.append(finding)
            decisions.append(Decision(finding.id, status, why, FindingStatus.ASKED))
        return asked, decisions

    def _answer(self, finding: Finding) -> tuple[FindingStatus, str]:
        call = self._findings.sent_call(finding.subject)
        if call is None:
            return FindingStatus.CONTRADICTED, RECEIPT_CAME
        of_lane = self._routes.get(finding.lane)
        route = of_lane.of(call.account) if of_lane is not None else None
        if of_lane is None or route is None:
            return FindingStatus.ASKED, NO_ACCOUNT
        delivery = self._delivery(finding, call)
        if delivery is None:
            return FindingStatus.ASKED, UNREADABLE
        now, last = self._findings.now_ms(), call.last_called_at
        attempt = Attempt(delivery, call.called_at, now, last_called_at=last)
        timeout_s = of_lane.policy.timeout_ms / _MS
        found = self._engine.resolve(route.channel, route.account, attempt, timeout_s)
        return (FindingStatus.ASKED, NO_QUERY) if found is None else _ANSWERS[found.resolution]

    def _delivery(self, finding: Finding, call: SilentCall) -> Delivery | None:
        try:
            kept = self._queries.kept(finding.subject)
            notification = decode(kept.payload) if kept else None
        except (PayloadUnreadable, EnvelopeError):
            return None
        if kept is None or notification is None:
            return None
        return Delivery(
            key=finding.subject,
            receiver=kept.receiver,
            lane=finding.lane,
            notification=notification,
            payload=kept.payload,
            expires_at=call.expires_at,
            attempt=call.attempt,
            account=call.account,
            call_key=call.call_key,
        )
