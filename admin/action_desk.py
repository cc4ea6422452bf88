"""Actions on deliveries for the whole console: opened by the first of them, closed with the process."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from backends.settings import Settings
from idempotency.recalls import Kind
from idempotency.recovery.selection import Pick
from idempotency.sql_ledger import SqlLedger
from recovery.operator_results import OperatorResult
from recovery.operator_rules import OperatorNote
from recovery.recall.factory import RecallMeans, recall_over
from recovery.recall.recall import Recalled
from recovery.resend.desk import DeskParts, ResendDesk, ResendOrders


class ActionDesk:
    """Thread-safe. Every method raises LedgerError, SqlError, PolicyError and SettingsError."""

    def __init__(self, settings: Settings, ledger: SqlLedger, stack: ExitStack) -> None:
        self._settings = settings
        self._ledger = ledger
        self._stack = stack
        self._opening = threading.Lock()
        self._parts: DeskParts | None = None  # written once, under the lock

    def act(self, verb: str, pick: Pick, note: OperatorNote, job: str) -> OperatorResult:
        """Carries out an order about one delivery; `job` names a copy. Raises KafkaTrouble, ResendNotDone
        and EnvelopeError for a copy."""
        orders = ResendOrders(verb, note, job, dry_run=False)
        (result,) = ResendDesk(self._opened(), orders).act([pick])
        return result

    def copy_archived(self, key: str, note: OperatorNote, job: str) -> OperatorResult | None:
        """Copies a delivery that left the ledger; None if the archive has it no more. Raises as `act`."""
        orders = ResendOrders("copy", note, job, dry_run=False)
        parts = self._opened()
        rows = [row for row in parts.archived.find(key) if row.delivery_key == key]
        return next(iter(ResendDesk(parts, orders).act_on_archived(rows)), None)

    def recall(self, message_id: str) -> Recalled:
        """Recalls a message. Waits for no call under way: a repeated recall takes that back."""
        parts = self._opened()
        policy = parts.policy()
        means = RecallMeans(self._ledger, policy, parts.recorder, parts.marks(policy))
        with ExitStack() as stack:
            opened = recall_over(self._settings, means, stack, lambda: False)
            return opened.recalling.run(Kind.MESSAGE, message_id, opened.life_ms)

    def _opened(self) -> DeskParts:
        with self._opening:
            if self._parts is None:
                self._parts = DeskParts(self._settings, self._ledger, self._stack)
            return self._parts
