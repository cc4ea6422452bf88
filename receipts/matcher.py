"""The loop that finds the deliveries of receipts: of new ones at once, of others when they are due."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from idempotency.ledger import LedgerError
from idempotency.receipts.rules import ApplyResult, ReceiptVerdict
from idempotency.receipts.store import Receipts
from idempotency.recovery.contract import owner_death_of, row_facts
from message.states import State
from receipts.metrics import ReceiptMetrics
from sending.runtime.threads import ThreadGroup
from tracing.events import Recorder, Stage, TraceEvent, owner_death
from tracing.masks import HashReceiver, mask, no_hash

log = structlog.get_logger(__name__)

_FORGET_S: Final = 3_600.0
_MOST: Final = 10_000
_DAY_MS: Final = 86_400_000
_STAGES: Final = {
    ApplyResult.APPLIED: Stage.RECEIPT,
    ApplyResult.CONTRADICTED: Stage.RECEIPT_CONTRADICTED,
}


class Matcher:
    """Its own thread runs `run`; any thread may call `wake` and `stop`."""

    def __init__(
        self,
        receipts: Receipts,
        recorder: Recorder,
        metrics: ReceiptMetrics,
        *,
        every_s: float,
        keep_days: int,
        monotonic: Callable[[], float] = time.monotonic,
        worker: str = "",
        hash_receiver: HashReceiver = no_hash,
    ) -> None:
        """`worker` names this process in the trace; `hash_receiver` is `tracing.masks.hasher`'s."""
        self.beat = monotonic()
        """Time of the loop's last pass, written by `run_once` and `_pass`; for the health page."""
        self.away = ""
        """Why the database cannot be used; empty: it can. Written by `run_once`."""
        self._receipts = receipts
        self._recorder = recorder
        self._metrics = metrics
        self._every_s = every_s
        self._keep_ms = keep_days * _DAY_MS
        self._monotonic = monotonic
        self._worker = worker
        self._hash_receiver = hash_receiver
        self._forget_at = monotonic()
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None  # `start` writes it

    def start(self, threads: ThreadGroup) -> None:
        """Starts the thread as one of the group."""
        self._thread = threads.start("matcher", self.run)

    def wake(self) -> None:
        """Starts a pass at once: there are new receipts."""
        self._wake.set()

    def stop(self) -> None:
        """Ends after the pass under way: waiting receipts are in the database. Idempotent."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def waiting(self) -> float:
        """Returns how many receipts wait for their delivery; -1 where the database does not answer."""
        try:
            return self._receipts.waiting(_MOST)
        except LedgerError:
            return -1.0

    def run(self) -> None:
        """Runs passes until `stop`."""
        while not self._stopping:
            self._wake.clear()
            self.run_once()
            if not self._stopping:
                self._wake.wait(self._every_s)

    def run_once(self) -> None:
        """Places receipts that are due, and forgets old ones. After an error they stay as they are."""
        try:
            while any((self._pass(), self._forget())) and not self._stopping:
                pass
        except LedgerError as exc:
            if not self.away:
                log.warning("receipts_wait", cause=str(exc))
            self.away = str(exc)
        else:
            self.away = ""
        self.beat = self._monotonic()

    def _pass(self) -> bool:
        """Places one batch. Returns True if more may be due."""
        done = self._receipts.match()
        self.beat = self._monotonic()
        self._metrics.judged(done.verdicts)
        self._recorder.record([event for v in done.verdicts for event in self._events(v)])
        _tell(done.verdicts)
        return done.more

    def _forget(self) -> bool:
        """Forgets a batch of old receipts, if it is time. Returns True if more may be old: a pass comes
        between two batches, so that millions of old receipts hold up no new one."""
        if self._monotonic() < self._forget_at:
            return False
        gone, never = self._receipts.forget(self._keep_ms)
        self._metrics.forgotten.labels("yes").inc(gone - never)
        self._metrics.forgotten.labels("no").inc(never)
        if not gone:
            self._forget_at = self._monotonic() + _FORGET_S
        return bool(gone)

    def _events(self, verdict: ReceiptVerdict) -> list[TraceEvent]:
        """Returns the events of one receipt: its own, after that of a death on which it decides. None for a
        repeat or for a receipt that waits."""
        row, receipt, applied = verdict.row, verdict.receipt, verdict.applied
        if row is None or applied is None or applied not in _STAGES:
            return []
        channel, receiver = row.lane.partition(".")[0], verdict.receiver
        hashed = self._hash_receiver(channel, receiver) if receiver else ""
        event = TraceEvent(
            at=receipt.received_at,
            stage=_STAGES[applied],
            message_id=row.message_id,
            delivery_key=row.key,
            biz_id=row.biz_id,
            lane=row.lane,
            receiver=mask(channel, receiver) if receiver else "",
            worker=self._worker,
            attempt=row.attempt,
            state=(verdict.state or State(row.state)).value,
            reason=receipt.code,
            code=receipt.code or "",
            detail=f"the provider says {receipt.said.lower()}",
            account=receipt.account,
            provider_id=receipt.provider_id or None,
            policy_version=row.policy_version,
            created_at=row.created_at,
            **row_facts(row)._replace(receiver_hash=hashed)._asdict(),
        )
        death = owner_death_of(row, row.state) if verdict.moves else None
        return [owner_death(event, **death._asdict()), event] if death else [event]


def _tell(verdicts: Sequence[ReceiptVerdict]) -> None:
    """Logs contradictions, for a person to look at the provider; the trace has each case."""
    contradicted = [v for v in verdicts if v.applied is ApplyResult.CONTRADICTED]
    if contradicted:
        first = contradicted[0]
        log.warning(
            "receipts_contradict",
            receipts=len(contradicted),
            account=first.receipt.account,
            delivery=first.row.key if first.row else "",
        )
