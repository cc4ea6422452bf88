"""A person's actions on deliveries: send again, decide a doubt, discard, copy (recovery/operator_rules.py
has the rules).

Each row is written by compare-and-set, so that a person and recovery, or two persons, never both have it
sent. No record of a job is needed: a moved row is not picked again. A copy's id follows from its job and
its delivery, so a repeated job makes no second copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from idempotency.archive.lookup import ArchivedRow
from idempotency.lookups import KeptRow
from idempotency.payload_cipher import PayloadUnreadable
from idempotency.recovery.contract import Transition
from idempotency.recovery.selection import Pick
from message.states import OPEN, Event, State, after
from message.vocabulary import Lane
from policy.quiet_hours import quiet_ms
from policy.schema import LanePolicy, Policy
from recovery.operator_results import (
    Copy,
    NoEnvelope,
    OperatorResult,
    OperatorVerdict,
    archived_result,
    copied_fields,
    copy_id,
    result_of,
)
from recovery.operator_rules import (
    DOUBLE,
    NOT_IN_DOUBT,
    SENDS,
    OperatorNote,
    Verb,
    event_of,
    held_text,
    refusal,
)
from tracing.events import Recorder, Stage, TraceEvent, owner_death

DUTY: Final = "resend"
"""Duty of the one job that goes through a selection."""
WHO: Final = "operator"
"""Worker's name in the trace."""
QUIET_HOURS: Final = "quiet_hours"
_LOOKS: Final = 3
"""Reads of a row in doubt: recovery writes a new version each time it asks."""


class MovingRows(Protocol):
    """The part of `RecoveryStore` that moves rows. Every method raises LedgerError."""

    def move(self, moves: Sequence[Transition]) -> list[bool]:
        """Makes the moves. Returns False where the row had been written."""
        ...

    def ask_first(self, key: str, day: int, version: int) -> bool:
        """Makes a row in doubt the first about which its provider is asked."""
        ...


class Keeping(Protocol):
    """The store of payloads (idempotency/lookups.py)."""

    def kept(self, delivery_key: str) -> KeptRow | None:
        """Returns payload and receiver, decrypted; None without the row."""
        ...


class _Plan(NamedTuple):
    """The move for one delivery, and its result once the move is made."""

    pick: Pick
    move: Transition
    result: OperatorResult


class Operator:
    """Performs a person's actions; raises LedgerError alone."""

    def __init__(
        self,
        rows: MovingRows,
        payloads: Keeping,
        policy: Policy,
        recorder: Recorder,
        now_ms: Callable[[], int],
        *,
        look: Callable[[str], Sequence[Pick]] = lambda _: (),
        give_back: Callable[[Sequence[tuple[str, str]]], None] = lambda _: None,
    ) -> None:
        """`policy`: the one in force. `look` is `Picks.named`. `give_back` gets (lane, key) of each
        discarded delivery that surely was not sent (dispatcher/pipeline/gates.py)."""
        self._rows = rows
        self._payloads = payloads
        self._policy = policy
        self._recorder = recorder
        self._now_ms = now_ms
        """The database's clock, epoch milliseconds."""
        self._look = look
        self._give_back = give_back

    def run(
        self,
        verb: Verb,
        picks: Sequence[Pick],
        note: OperatorNote = OperatorNote(),  # noqa: B008 - frozen
        *,
        dry_run: bool = False,
    ) -> list[OperatorResult]:
        """Applies the verb to each pick. Returns the results in their order."""
        now = self._now_ms()
        planned = [self._planned(verb, pick, note, now) for pick in picks]
        plans = [one for one in planned if isinstance(one, _Plan)]
        done = iter([one.result for one in plans] if dry_run else self._made(verb, plans, note))
        return [one if isinstance(one, OperatorResult) else next(done) for one in planned]

    def ask(self, picks: Sequence[Pick], *, dry_run: bool = False) -> list[OperatorResult]:
        """Has recovery ask the providers about these deliveries next. An answer decides as any other one
        does. Returns the results in their order."""
        return [self._asked(pick, dry_run=dry_run) for pick in picks]

    def _asked(self, pick: Pick, *, dry_run: bool) -> OperatorResult:
        now: Pick | None = pick
        for _ in range(_LOOKS):
            if now is None or now.state is not State.UNKNOWN:
                break
            if dry_run or self._rows.ask_first(now.key, now.day, now.version):
                return result_of(pick, OperatorVerdict.ASKED)
            now = next((one for one in self._look(pick.key) if one.key == pick.key), None)
        if pick.state is not State.UNKNOWN:
            return result_of(pick, OperatorVerdict.REFUSED, NOT_IN_DOUBT)
        return result_of(pick, OperatorVerdict.OVERTAKEN)

    def copy(self, pick: Pick, job: str) -> Copy | OperatorResult:
        """Returns a copy under an id of its own, the same for the same job; a result if it is refused."""
        if pick.state in OPEN:
            return result_of(
                pick, OperatorVerdict.REFUSED, "it is open: the first copy may still be sent"
            )
        try:
            kept = self._payloads.kept(pick.key)
        except PayloadUnreadable as exc:
            return result_of(pick, OperatorVerdict.REFUSED, f"its payload cannot be opened: {exc}")
        if kept is None:
            return result_of(pick, OperatorVerdict.OVERTAKEN)
        return self._copied(
            kept, result_of(pick, OperatorVerdict.COPIED, self._holds(pick.lane)), job
        )

    def copy_archived(self, row: ArchivedRow, kept: KeptRow, job: str) -> Copy | OperatorResult:
        """Returns a copy of a delivery that left the ledger with its day; a result if it is refused."""
        return self._copied(
            kept, archived_result(row, OperatorVerdict.COPIED, self._holds(row.lane)), job
        )

    def _copied(self, kept: KeptRow, result: OperatorResult, job: str) -> Copy | OperatorResult:
        new_id = copy_id(job, result.delivery_key)
        try:
            fields = copied_fields(kept, new_id, result.message_id, self._now_ms())
        except NoEnvelope as exc:
            refused = OperatorVerdict.REFUSED
            return msgspec.structs.replace(result, verdict=refused, detail=str(exc))
        return Copy(fields, msgspec.structs.replace(result, new_id=new_id))

    # ---- planning ----------------------------------------------------------------------------

    def _planned(
        self, verb: Verb, pick: Pick, note: OperatorNote, now: int
    ) -> _Plan | OperatorResult:
        why = refusal(verb, pick)
        if why:
            return result_of(pick, OperatorVerdict.REFUSED, why)
        event, reason = event_of(verb, pick), note.reason(verb)
        if verb not in SENDS:
            move = Transition(pick.key, pick.day, pick.version, pick.state, event, reason)
            verdict = OperatorVerdict.SENT if verb is Verb.ARRIVED else OperatorVerdict.DISCARDED
            return _Plan(pick, move, result_of(pick, verdict))
        policy = self._lane_policy(pick.lane)
        wait_ms = quiet_ms(policy.quiet_hours, now)
        held = held_text(now + wait_ms, policy.quiet_hours.zone) if wait_ms else ""
        if held and _waits_for_it(pick, now + wait_ms):
            return result_of(pick, OperatorVerdict.HELD, held)
        end = _new_end(pick, now + wait_ms, policy)
        move = Transition(
            *(pick.key, pick.day, pick.version, pick.state, event, reason),
            delay_ms=wait_ms,
            expires_at=end,
        )
        verdict = OperatorVerdict.HELD if held else OperatorVerdict.RETRIED
        return _Plan(pick, move, result_of(pick, verdict, _remarks(verb, pick, end, held)))

    def _lane_policy(self, lane: str) -> LanePolicy:
        return self._policy.of(Lane(*lane.split(".")))

    def _holds(self, lane: str) -> str:
        """Returns until when a worker would hold a copy that comes now; empty if it would not."""
        quiet, now = self._lane_policy(lane).quiet_hours, self._now_ms()
        wait_ms = quiet_ms(quiet, now)
        return held_text(now + wait_ms, quiet.zone) if wait_ms else ""

    # ---- doing -------------------------------------------------------------------------------

    def _made(self, verb: Verb, plans: Sequence[_Plan], note: OperatorNote) -> list[OperatorResult]:
        if not plans:
            return []
        moved = self._rows.move([plan.move for plan in plans])
        moved = [ours or self._moved_later(plan) for plan, ours in zip(plans, moved, strict=True)]
        done = [plan for plan, ours in zip(plans, moved, strict=True) if ours]
        self._trace(done, note)
        if verb is Verb.DISCARD:
            unsent = [plan.pick for plan in done if not plan.pick.doubted]
            self._give_back([(pick.lane, pick.key) for pick in unsent])
        return [
            plan.result if ours else result_of(plan.pick, OperatorVerdict.OVERTAKEN)
            for plan, ours in zip(plans, moved, strict=True)
        ]

    def _moved_later(self, plan: _Plan) -> bool:
        """Moves a row in doubt whose version changed because recovery asked about it. Returns False unless
        it is in the same doubt, with no call since it was picked."""
        pick = plan.pick
        if pick.state is not State.UNKNOWN:
            return False
        for _ in range(_LOOKS):
            now = next((one for one in self._look(pick.key) if one.key == pick.key), None)
            if now is None or _doubt(now) != _doubt(pick):
                return False
            (ours,) = self._rows.move([plan.move._replace(version=now.version)])
            if ours:
                return True
        return False

    def _trace(self, plans: Sequence[_Plan], note: OperatorNote) -> None:
        at = self._now_ms()
        self._recorder.record([event for plan in plans for event in _events(plan, note, at)])


def _waits_for_it(pick: Pick, until: int) -> bool:
    """Returns whether it is held already, and expires after the quiet hours."""
    return pick.state is State.RETRY and pick.reason == QUIET_HOURS and pick.expires_at > until


def _new_end(pick: Pick, goes_at: int, policy: LanePolicy) -> int | None:
    """Returns the new expiry of a delivery past its time, by its lane's TTL; None for any other."""
    return None if pick.expires_at > goes_at else goes_at + policy.lifetime_ms(None)


def _remarks(verb: Verb, pick: Pick, end: int | None, held: str) -> str:
    parts = [held] if held else []
    if pick.doubted and verb in (Verb.AGAIN, Verb.ACCEPT_RISK):
        parts.append(DOUBLE)
    if end is not None:
        parts.append("its time was over: it lives once more for its lane's TTL")
    return "; ".join(parts)


def _doubt(pick: Pick) -> tuple[State, int, int]:
    return pick.state, pick.attempt, pick.updated_at


def _events(plan: _Plan, note: OperatorNote, at: int) -> list[TraceEvent]:
    """Returns the event of the move, after that of the death on which it decides."""
    pick, event = plan.pick, plan.move.event
    stage = Stage.DROPPED if event is Event.OPERATOR_DISCARD else Stage.RESOLVED
    remark = str(note)
    moved = TraceEvent(
        at=at,
        stage=stage,
        message_id=pick.message_id,
        delivery_key=pick.key,
        biz_id=pick.biz_id,
        lane=pick.lane,
        worker=WHO,
        attempt=pick.attempt,
        state=after(pick.state, event).value,
        reason=WHO,
        detail=f"{event.value} ({remark})" if remark else event.value,
        account=pick.account or "",
        policy_version=pick.policy_version,
        created_at=pick.created_at,
        **pick.facts._asdict(),
    )
    return [owner_death(moved, **pick.death._asdict()), moved] if pick.death else [moved]
