"""Resources of a person's resend, and its actions on a batch of deliveries."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import msgspec

from backends.redis.receiver_marks import Marks
from backends.settings import Settings
from idempotency.archive.lookup import ArchivedDeliveries, ArchivedRow
from idempotency.payload_cipher import PayloadUnreadable
from idempotency.recovery.selection import Pick, Picks
from idempotency.sql_ledger import SqlLedger, open_ledger
from policy.active import in_force
from policy.schema import Policy
from policy.versions import Versions
from recovery.operator_actions import WHO, Operator
from recovery.operator_results import (
    Copy,
    OperatorResult,
    OperatorVerdict,
    archived_result,
    result_of,
)
from recovery.operator_rules import OperatorNote, Verb
from recovery.resend.copies import CopyProducer
from recovery.resend.errors import ResendNotDone
from sending.accepted_trace import AcceptedTrace
from sending.receiver_marks import GateMarks, open_marks
from sending.runtime.clock import Clock
from tracing import open_recorder
from tracing.events import Recorder
from tracing.masks import hasher


class ResendOrders(NamedTuple):
    """One order: the action, its note and its job."""

    verb: str
    """A `Verb`, `copy` or `ask`."""
    note: OperatorNote
    job: str
    dry_run: bool


class DeskParts:
    """Resources of a person's actions on one ledger; `stack` closes them. A process may keep them: actions
    are safe from many threads."""

    def __init__(self, settings: Settings, ledger: SqlLedger, stack: ExitStack) -> None:
        """Raises SettingsError; a Kafka or Redis that is away is no error."""
        self.settings = settings
        self.ledger = ledger
        self.recorder: Recorder = open_recorder(
            settings, f"{WHO}-{socket.gethostname()}-{os.getpid()}"
        )
        stack.callback(self.recorder.close)
        accepted = AcceptedTrace(self.recorder, WHO, hasher(settings.outcomes.hash_key))
        self._copies = CopyProducer(settings.kafka, accepted.sent)
        self._copying = threading.Lock()
        self._marks: Marks | None = open_marks(settings, ledger.identity(), stack)
        self.picks: Picks = ledger.picks()
        self.archived: ArchivedDeliveries = ledger.archived(
            settings.recovery.archive_dir, settings.base
        )

    def policy(self) -> Policy:
        """Returns the policy in force now. Raises PolicyError, SqlError."""
        policy = in_force(self.settings, Versions(self.ledger.database)).policy
        self.ledger.announced.follow(policy.announced)
        return policy

    def marks(self, policy: Policy) -> GateMarks:
        """Returns the gates' marks under the policy."""
        return GateMarks(policy, self._marks, clock=Clock())

    def operator(self) -> Operator:
        """Returns a person's actions under the policy in force now. Raises PolicyError, SqlError."""
        policy = self.policy()
        return Operator(
            *(self.ledger.recovering(), self.ledger.queries(), policy, self.recorder),
            now_ms=self.ledger.now_ms,
            look=self.picks.named,
            give_back=self.marks(policy).give_back,
        )

    def produce(self, copies: Sequence[dict[str, Any]]) -> set[str]:
        """Produces copies, one thread at a time. See CopyProducer.produce."""
        with self._copying:
            return self._copies.produce(copies)


def open_desk(settings: Settings, stack: ExitStack, orders: ResendOrders) -> ResendDesk:
    """Opens a ledger and a desk over it; `stack` closes both. Raises SettingsError, LedgerError, SqlError,
    PolicyError."""
    ledger = open_ledger(settings)
    stack.callback(ledger.close)
    return ResendDesk(DeskParts(settings, ledger, stack), orders)


class ResendDesk:
    """Carries out one order."""

    def __init__(self, parts: DeskParts, orders: ResendOrders) -> None:
        """Raises PolicyError, SqlError."""
        self.parts = parts
        self.orders = orders
        self.ledger: SqlLedger = parts.ledger
        self.picks: Picks = parts.picks
        self.archived: ArchivedDeliveries = parts.archived
        self.operator: Operator = parts.operator()

    def act(self, picks: Sequence[Pick], *, selected: bool = False) -> list[OperatorResult]:
        """Applies the order; `selected`: the deliveries were found by state, not named."""
        orders = self.orders
        if orders.verb == "copy":
            return _copied(self, [self._copy(pick, selected=selected) for pick in picks])
        if orders.verb == "ask":
            return self.operator.ask(picks, dry_run=orders.dry_run)
        verb: Verb = Verb(orders.verb)
        return self.operator.run(verb, picks, orders.note, dry_run=orders.dry_run)

    def _copy(self, pick: Pick, *, selected: bool) -> Copy | OperatorResult:
        if selected and pick.recalled:
            why = "it was recalled: give its ID to have it copied all the same"
            return result_of(pick, OperatorVerdict.REFUSED, why)
        return self.operator.copy(pick, self.orders.job)

    def act_on_archived(self, rows: Sequence[ArchivedRow]) -> list[OperatorResult]:
        """Copies deliveries that left the ledger with their day; refuses any other order."""
        if self.orders.verb == "copy":
            return _copied(self, [self._archived_copy(row) for row in rows])
        why = "it left the ledger with its day, and lies in {}: --new-id makes a copy"
        return [
            archived_result(row, OperatorVerdict.REFUSED, why.format(row.where)) for row in rows
        ]

    def _archived_copy(self, row: ArchivedRow) -> Copy | OperatorResult:
        try:
            kept = self.archived.kept(row)
        except PayloadUnreadable as exc:
            return archived_result(
                row, OperatorVerdict.REFUSED, f"its payload cannot be opened: {exc}"
            )
        return self.operator.copy_archived(row, kept, self.orders.job)


def _copied(desk: ResendDesk, made: Sequence[Copy | OperatorResult]) -> list[OperatorResult]:
    """Produces the copies and returns the results. Raises ResendNotDone without Kafka's
    acknowledgements."""
    copies = [one for one in made if isinstance(one, Copy)]
    known = desk.picks.known([copy.result.new_id for copy in copies])
    fresh: list[dict[str, Any]] = [c.fields for c in copies if c.result.new_id not in known]
    if fresh and not desk.orders.dry_run:
        done = desk.parts.produce(fresh)
        if not done.issuperset(fields["id"] for fields in fresh):
            raise ResendNotDone(
                "Kafka did not acknowledge every copy: run it again with --job "
                f"{desk.orders.job}, which doubles nothing"
            )
    results = [one.result if isinstance(one, Copy) else one for one in made]
    return [
        msgspec.structs.replace(one, verdict=OperatorVerdict.COPIED_BEFORE)
        if one.new_id in known
        else one
        for one in results
    ]
