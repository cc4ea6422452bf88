"""Handing items of a resend job over: to recovery as RETRY rows, or as copies to Kafka.

`again`: the row's move and the item's fate are one transaction, so a crash leaves both or neither.
`copy`: the item is noted first, then its copy is produced under an id and a time that follow from the
item. A crash in between has the same bytes produced again, which the ledger counts as one delivery.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection

from idempotency.recovery.contract import AlsoWritten, RecoveryStore, Transition
from idempotency.recovery.selection import Pick, Picks
from idempotency.resend_jobs.contract import (
    EXPIRED,
    GONE,
    MOVED,
    RECALLED,
    ItemChange,
    ItemFate,
    JobItem,
    ResendJob,
)
from idempotency.resend_jobs.items import JobItems
from message.envelope import EnvelopeError, decode
from message.keys import delivery_key, normalise_receiver
from message.states import State
from policy.schema import Policy
from recovery.operator_actions import Keeping, MovingRows, Operator
from recovery.operator_results import Copy, OperatorVerdict, copy_id
from recovery.operator_rules import OperatorNote, Verb
from recovery.resend_jobs.telemetry import JobTelemetry
from tracing.events import Recorder

BATCH: Final = 200
"""Items of one transaction."""
MALFORMED: Final = "envelope"
"""Reason of an item whose copy would be no notification; the rest of the reason is the field."""
_REFUSED: Final = "refused"
_UNSENT: Final = frozenset({State.PARKED, State.REJECTED, State.EXPIRED})

Produce = Callable[[Sequence[dict[str, Any]]], set[str]]
"""Produces envelopes. Returns the ids that Kafka acknowledged. Raises KafkaTrouble, SettingsError."""


class HandoverStores(NamedTuple):
    """Stores that handing over reads and writes."""

    rows: RecoveryStore
    items: JobItems
    picks: Picks
    payloads: Keeping
    now_ms: Callable[[], int]


class ItemHandover:
    """For one thread at a time; `adopt` is any thread's. Raises LedgerError."""

    def __init__(
        self,
        stores: HandoverStores,
        policy: Policy,
        recorder: Recorder,
        report: JobTelemetry,
        produce: Produce,
    ) -> None:
        self._stores = stores
        self._policy = policy
        self._recorder = recorder
        self._report = report
        self._produce = produce

    def adopt(self, policy: Policy) -> None:
        """Takes quiet hours and TTLs from this policy from now on."""
        self._policy = policy

    def again(self, job: ResendJob, limit: int) -> int:
        """Has the next items sent under their own keys. Returns the number of items that got a fate."""
        items = self._stores.items.next(job, min(limit, BATCH), ItemFate.PENDING)
        picks, refused = self._standing(job, items)
        self._change(job, ItemFate.PENDING, refused)
        marking = MarkedRows(self._stores.rows, self._stores.items, job, self._report)
        results = self._operator(marking).run(Verb.AGAIN, picks, _note(job))
        late = [
            ItemChange(one.delivery_key, ItemFate.REFUSED, MOVED)
            if one.verdict is OperatorVerdict.OVERTAKEN
            else ItemChange(one.delivery_key, ItemFate.REFUSED, _REFUSED)
            for one in results
            if one.verdict in (OperatorVerdict.OVERTAKEN, OperatorVerdict.REFUSED)
        ]
        self._change(job, ItemFate.PENDING, late)
        return len(items)

    def copies(self, job: ResendJob, limit: int) -> int:
        """Has copies of the next items made; first those that an earlier call noted. Returns the number of
        items that got a fate. Raises KafkaTrouble, SettingsError."""
        left = self._stores.items.next(job, BATCH, ItemFate.APPLYING)
        if left:
            return self._produced(job, left)
        items = self._stores.items.next(job, min(limit, BATCH), ItemFate.PENDING)
        picks, refused = self._standing(job, items)
        self._change(job, ItemFate.PENDING, refused)
        noted = [
            ItemChange(pick.key, ItemFate.APPLYING, new_id=copy_id(job.id, pick.key))
            for pick in picks
        ]
        self._change(job, ItemFate.PENDING, noted)
        keys = {pick.key for pick in picks}
        now_noted = self._stores.items.next(job, BATCH, ItemFate.APPLYING)
        self._produced(job, [item for item in now_noted if item.delivery_key in keys])
        return len(items)

    # ---- parts -------------------------------------------------------------------------------

    def _standing(
        self, job: ResendJob, items: Sequence[JobItem]
    ) -> tuple[list[Pick], list[ItemChange]]:
        """Returns the rows that may still be sent as they were frozen, and the refusals of the others."""
        now = self._stores.now_ms()
        found = {p.key: p for p in self._stores.picks.at([(i.delivery_key, i.day) for i in items])}
        picks, refused = [], []
        for item in items:
            pick = found.get(item.delivery_key)
            why = _refusal(pick, item, job, now)
            if pick is not None and not why:
                picks.append(pick)
            else:
                refused.append(ItemChange(item.delivery_key, ItemFate.REFUSED, why))
        return picks, refused

    def _produced(self, job: ResendJob, items: Sequence[JobItem]) -> int:
        """Produces the copies of noted items, and notes those that Kafka has. A copy with a row in the
        ledger is not produced again."""
        picks = {p.key: p for p in self._stores.picks.at([(i.delivery_key, i.day) for i in items])}
        known = self._stores.picks.known([item.new_id or "" for item in items])
        changes: list[ItemChange] = []
        made: dict[str, tuple[JobItem, dict[str, Any]]] = {}
        for item in items:
            if key := known.get(item.new_id or ""):
                changes.append(_applied(item, key))
                continue
            found = self._copy(job, item, picks.get(item.delivery_key))
            if isinstance(found, ItemChange):
                changes.append(found)
            else:
                made[found["id"]] = item, found
        self._change(job, ItemFate.APPLYING, changes)
        done = self._produce([fields for _, fields in made.values()]) if made else set()
        acknowledged = [
            _applied(made[new_id][0], _key(made[new_id][1])) for new_id in done & set(made)
        ]
        self._change(job, ItemFate.APPLYING, acknowledged)
        return len(changes) + len(acknowledged)

    def _copy(
        self, job: ResendJob, item: JobItem, pick: Pick | None
    ) -> dict[str, Any] | ItemChange:
        """Returns the envelope of a noted item's copy; the item's end if there is none to make."""
        if pick is None or pick.recalled:
            why = GONE if pick is None else RECALLED
            return ItemChange(item.delivery_key, ItemFate.REFUSED, why)
        copy = self._operator(self._stores.rows).copy(pick, job.id)
        if not isinstance(copy, Copy):
            return ItemChange(item.delivery_key, ItemFate.REFUSED, _REFUSED)
        # The same bytes each time: a copy with another body would be a conflict.
        fields: dict[str, Any] = copy.fields | {"created_at": item.applied_at}
        if why := _malformed(fields):
            return ItemChange(item.delivery_key, ItemFate.FAILED, why)
        return fields

    def _operator(self, rows: MovingRows) -> Operator:
        stores = self._stores
        return Operator(rows, stores.payloads, self._policy, self._recorder, stores.now_ms)

    def _change(self, job: ResendJob, source: ItemFate, changes: Sequence[ItemChange]) -> None:
        written = self._stores.items.change(job, source, changes)
        for fate in ItemFate:
            ours = [one for one in changes if one.fate is fate and one.delivery_key in written]
            self._report.items(fate, len(ours))


class MarkedRows:
    """Rows whose moves also mark their items, in the same transaction."""

    def __init__(
        self, rows: RecoveryStore, items: JobItems, job: ResendJob, report: JobTelemetry
    ) -> None:
        self._rows = rows
        self._items = items
        self._job = job
        self._report = report

    def ask_first(self, key: str, day: int, version: int) -> bool:
        """See `RecoveryStore.ask_first`."""
        return self._rows.ask_first(key, day, version)

    def move(self, moves: Sequence[Transition]) -> list[bool]:
        """See `RecoveryStore.move`."""
        number = 0

        def mark(connection: Connection, written: set[str], now: int) -> None:
            nonlocal number
            changes = [ItemChange(key, ItemFate.APPLIED) for key in sorted(written)]
            if changes:
                args = (connection, self._job, ItemFate.PENDING, changes, now)
                number = len(self._items.change_in(*args))

        also: AlsoWritten = mark
        moved = self._rows.move(moves, also)
        self._report.items(ItemFate.APPLIED, number)
        return moved


def _refusal(pick: Pick | None, item: JobItem, job: ResendJob, now: int) -> str:
    """Returns why an item is not handed over; empty if it is. What counts as expired, freezing says too."""
    if pick is None:
        return GONE
    if pick.recalled:
        return RECALLED
    if pick.version != item.row_version:
        return MOVED
    over = pick.state is State.EXPIRED or (pick.state in _UNSENT and pick.expires_at <= now)
    return EXPIRED if over and not job.wanted.expired else ""


def _note(job: ResendJob) -> OperatorNote:
    return OperatorNote(job.started_by or job.author, f"{job.id}: {job.start_reason or job.reason}")


def _malformed(fields: dict[str, Any]) -> str:
    """Returns why these fields are no notification, without its values; empty if they are one. One of them
    would keep the others of its batch from Kafka."""
    try:
        decode(msgspec.json.encode(fields))
    except EnvelopeError as exc:
        return f"{MALFORMED}:{exc.code} at {exc.path}"
    return ""


def _applied(item: JobItem, new_key: str) -> ItemChange:
    return ItemChange(item.delivery_key, ItemFate.APPLIED, "", item.new_id, new_key)


def _key(fields: dict[str, Any]) -> str:
    """Returns the delivery key of a copy, which has one receiver."""
    channel = fields["channel"]
    return delivery_key(fields["id"], channel, normalise_receiver(channel, fields["receivers"][0]))
