"""Asks a provider for receipts, again and again: a thread per account.

The provider forgets the receipts of an answer. So they are stored before the next question, however long
the database refuses them. A process that dies loses the receipts of one answer at most: their deliveries
stay SENT.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import structlog

from channels.channel import Failure
from idempotency.ledger import LedgerError
from idempotency.receipts.rules import Receipt
from receipts.metrics import ReceiptMetrics
from receipts.pull_sources import PULLS
from receipts.push import Malformed, Parsed
from receipts.sources import ReceiptSource
from sending.runtime.threads import ThreadGroup

log = structlog.get_logger(__name__)

TIMEOUT_S: Final = 15.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 60.0


class Sends(Protocol):
    """The transport."""

    def send(self, request: Any) -> Any:
        """Returns an answer, or a Failure."""


class Puller:
    """The puller of one account. Its own thread runs `run`; any thread may call `stop`."""

    def __init__(
        self,
        source: ReceiptSource,
        transport: Sends,
        store: Callable[[Sequence[Receipt]], int],
        *,
        every_s: float,
        on_stored: Callable[[], None],
        metrics: ReceiptMetrics,
    ) -> None:
        self._account = source.account
        self._pull = PULLS[source.account.provider]
        self._transport = transport
        self._store = store
        self._every_s = every_s
        self._on_stored = on_stored
        self._metrics = metrics
        self._stop = threading.Event()
        self._failures = 0
        self._thread: threading.Thread | None = None  # `start` writes it

    def start(self, threads: ThreadGroup) -> None:
        """Starts the thread as one of the group."""
        self._thread = threads.start(f"pull-{self._account.name}", self.run)

    def end(self) -> None:
        """Has the questions end; waits for nothing. Idempotent."""
        self._stop.set()

    def stop(self) -> None:
        """Ends the questions. The last answer is stored first, if the database is there. Idempotent."""
        self.end()
        if self._thread is not None:
            self._thread.join()

    def run(self) -> None:
        """Asks until `stop`."""
        while not self._stop.is_set():
            self._stop.wait(self.run_once())

    def run_once(self) -> float:
        """Asks once. Returns the wait before the next question, in seconds."""
        try:
            answer = self._ask()
        except Malformed as exc:
            return self._failed(str(exc))
        except Exception as exc:  # the adapter's, or its answer's: the next question may go better
            log.exception("pull_failed", account=self._account.name)
            return self._failed(type(exc).__name__)
        self._failures = 0
        self._tell_unreadable(answer.unreadable)
        self._keep(answer.receipts)
        self._metrics.answered(self._account.name)
        full = len(answer.receipts) + answer.unreadable >= self._pull.most
        return 0.0 if full else self._every_s

    def _tell_unreadable(self, count: int) -> None:
        """Logs lost receipts: the provider gives them out no more, and their deliveries stay SENT."""
        if count:
            self._metrics.unreadable.labels(self._account.name).inc(count)
            log.error("receipts_unreadable", account=self._account.name, receipts=count)

    def _ask(self) -> Parsed:
        request = self._pull.request(self._account)
        request.extensions["timeout"] = {"total": TIMEOUT_S}
        answer = self._transport.send(request)
        if isinstance(answer, Failure):
            raise Malformed(f"no answer: {answer.code}")
        return self._pull.read(self._account.name, answer.content)

    def _keep(self, receipts: Sequence[Receipt]) -> None:
        """Stores the receipts, and tries again until `stop`: the provider has forgotten them."""
        wait_s = _FIRST_WAIT_S
        while receipts:
            try:
                new = self._store(receipts)
            except LedgerError as exc:
                log.warning("receipts_held", account=self._account.name, cause=str(exc))
            except Exception as exc:  # nobody else has these receipts: no error may lose them
                log.exception("receipts_held", account=self._account.name, cause=type(exc).__name__)
            else:
                self._metrics.stored(receipts, new)
                self._on_stored()
                return
            if self._stop.wait(wait_s):
                log.error("receipts_lost", account=self._account.name, receipts=len(receipts))
                return
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)

    def _failed(self, cause: str) -> float:
        """Logs the first of several failures in a row. Returns the wait, which grows."""
        self._metrics.pulls.labels(self._account.name, "failed").inc()
        if not self._failures:
            log.warning("pull_refused", account=self._account.name, cause=cause)
        self._failures += 1
        wait_s = self._every_s * 2.0 ** min(self._failures, 8)
        return min(wait_s, max(_LONGEST_WAIT_S, self._every_s))


def stop_all(pullers: Sequence[Puller]) -> None:
    """Stops the pullers together: each may wait for an answer of a provider that hangs."""
    for puller in pullers:
        puller.end()
    for puller in pullers:
        puller.stop()
