"""Steps of a transaction by a record, a check's answer, the time or a person. Pure functions.

Each returns a `TransactionStep`: the row afterwards (the same object if nothing changed), and the alert to
write in the same database transaction. Times are epoch milliseconds of the database.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from idempotency.alerts.windows import Raised
from lookback.check import Answer, CheckReply
from lookback.operator import NotResolvable, TxDecision
from lookback.states import TxEvent, TxState, may, next_state
from lookback.transaction import TxRow, TxTerms, new_row, with_body
from message.lookback import CommitRecord, LookbackRecord, PrepareRecord

BUSINESS: Final = "business"
CHECK: Final = "check"
OPERATOR: Final = "operator"
UNRESOLVED_RULE: Final = "lookback_unresolved"
CONFLICT_RULE: Final = "lookback_conflict"
_ERROR_CHARACTERS: Final = 300
LOOK_MS: Final = 600_000
"""Longest time for which a transaction without a check is put off: a newer configuration may have one."""
_BETWEEN: Final = "; "
_E, _S = TxEvent, TxState
_EVENTS: Final = {TxDecision.COMMIT: _E.COMMIT, TxDecision.ROLLBACK: _E.ROLLBACK}
_OPERATOR: Final = {
    TxDecision.COMMIT: _E.OPERATOR_COMMIT,
    TxDecision.ROLLBACK: _E.OPERATOR_ROLLBACK,
}
_CHECK: Final = {TxDecision.COMMIT: _E.CHECK_COMMIT, TxDecision.ROLLBACK: _E.CHECK_ROLLBACK}


class OtherTransaction(Exception):
    """The record's tx_id belongs to another business transaction; the text names it."""


class TransactionStep(NamedTuple):
    """Result of one decision."""

    row: TxRow
    alert: Raised | None = None
    did: str = ""
    """For metrics: a state that was reached, `repeat`, `conflict`, `late` or `unknown`."""


def take_record(
    row: TxRow | None, record: LookbackRecord, terms: TxTerms, now: int
) -> TransactionStep:
    """Applies a record of the topic. Raises OtherTransaction."""
    if row is not None and (row.biz_type, row.biz_id) != (record.biz_type, record.biz_id):
        raise OtherTransaction(
            f"tx_id {row.tx_id} belongs to another business transaction; make a new one for each"
        )
    if isinstance(record, PrepareRecord):
        return _prepare(row, record, terms, now)
    is_commit = isinstance(record, CommitRecord)
    decision = TxDecision.COMMIT if is_commit else TxDecision.ROLLBACK
    if row is None:
        return _early(record, decision, terms, now)
    return _decide(row, decision, _EVENTS[decision], BUSINESS, now)


def _prepare(row: TxRow | None, record: PrepareRecord, terms: TxTerms, now: int) -> TransactionStep:
    if row is None:
        state = next_state(None, _E.PREPARE)
        fresh = new_row(record.biz_type, record.biz_id, record.tx_id, state, now)
        first = terms.immunity_ms if terms.has_check else min(terms.deadline_ms, LOOK_MS)
        return _step(with_body(fresh, record, now), next_at=now + first)
    if row.body_hash is not None and row.body_hash != record.body_hash:
        return _conflict(row, "another body", BUSINESS, now)
    if row.state is _S.UNRESOLVED and not _waits_for_body(row):
        return TransactionStep(row, did="repeat")
    if not may(row.state, _E.PREPARE):
        return TransactionStep(row, did="repeat")
    decision = TxDecision(row.decision or row.early)
    return _decided(with_body(row, record, now), _E.PREPARE, decision, BUSINESS, now)


def _waits_for_body(row: TxRow) -> bool:
    """Whether an unresolved transaction is committed: then its body is missing or damaged."""
    return TxDecision.COMMIT in (row.early, row.decision)


def _early(
    record: LookbackRecord, decision: TxDecision, terms: TxTerms, now: int
) -> TransactionStep:
    state = next_state(None, _EVENTS[decision])
    row = new_row(record.biz_type, record.biz_id, record.tx_id, state, now)
    return _step(replace(row, early=decision.value), next_at=now + terms.grace_ms)


def _decide(row: TxRow, decision: TxDecision, event: TxEvent, by: str, now: int) -> TransactionStep:
    """The first decision wins. The opposite one is a conflict."""
    known = row.decision or row.early
    if known:
        return (
            TransactionStep(row, did="repeat")
            if known == decision
            else _conflict(row, decision, by, now)
        )
    return _decided(row, event, decision, by, now)


def _decided(
    row: TxRow, event: TxEvent, decision: TxDecision, by: str, now: int
) -> TransactionStep:
    state = next_state(row.state, event)
    return _step(
        row,
        state=state,
        decision=decision.value,
        decided_by=row.decided_by or by,
        decided_at=row.decided_at or now,
        lease_token=0,
        reason="",
        next_at=now if state is _S.COMMITTED else None,
    )


def _conflict(row: TxRow, kind: str, by: str, now: int) -> TransactionStep:
    """Records a contradiction, each of its kind once; the decision stays as it is."""
    known, this = row.conflict.split(_BETWEEN) if row.conflict else [], f"{kind} by {by}"
    if this in known:
        return TransactionStep(row, did="repeat")
    alert = Raised(
        CONFLICT_RULE,
        "",
        row.biz_type,
        "transactions got opposite decisions, or two bodies, and the first one holds;"
        " `hongyan lookback show TX` has both",
        1,
    )
    everything = _BETWEEN.join([*known, this])
    marked = replace(row, conflict=everything, conflict_at=row.conflict_at or now)
    return TransactionStep(marked, alert, "conflict")


def take_due(row: TxRow, terms: TxTerms, token: int, lease_ms: int, now: int) -> TransactionStep:
    """Applies the time to a row whose `next_at` is over: a check begins, or it is over without one."""
    if row.state in (_S.EARLY_COMMIT, _S.EARLY_ROLLBACK):
        return _grace_over(row, now)
    age = now - (row.prepared_at or now)
    if age < terms.immunity_ms:
        return TransactionStep(replace(row, next_at=now + terms.immunity_ms - age))
    if not terms.has_check and age < terms.deadline_ms:
        return TransactionStep(replace(row, next_at=now + min(terms.deadline_ms - age, LOOK_MS)))
    if row.checks >= terms.max_checks or (age >= terms.deadline_ms and not _is_owed(row, terms)):
        return _unresolved(row, _E.SPENT, _spent(row, terms, age), now)
    state = next_state(row.state, _E.DUE)
    return _step(row, state=state, lease_token=token, next_at=now + lease_ms, updated_at=now)


def _is_owed(row: TxRow, terms: TxTerms) -> bool:
    """Whether a check must be made though the deadline is over: the service was away until then."""
    return terms.has_check and not row.checks and row.state is _S.PREPARED


def _grace_over(row: TxRow, now: int) -> TransactionStep:
    if row.state is _S.EARLY_ROLLBACK:
        return _decided(row, _E.GRACE_OVER, TxDecision.ROLLBACK, BUSINESS, now)
    reason = "no_body: it was committed and its prepare never came"
    return _unresolved(row, _E.GRACE_OVER, reason, now)


def _spent(row: TxRow, terms: TxTerms, age: int) -> str:
    if row.checks >= terms.max_checks:
        return f"checks_spent: {row.checks} checks brought no answer"
    return f"deadline_over: no decision came within {age // 1_000} s"


def _unresolved(row: TxRow, event: TxEvent, reason: str, now: int) -> TransactionStep:
    code = reason.partition(":")[0]
    alert = Raised(
        UNRESOLVED_RULE,
        "",
        f"{row.biz_type} {code}",
        "transactions wait for a person's decision; see `hongyan lookback unresolved list`",
        1,
    )
    state = next_state(row.state, event)
    step = _step(row, state=state, reason=reason, lease_token=0, next_at=None)
    return step._replace(alert=alert)


def take_reply(
    row: TxRow, held: TxRow, reply: CheckReply, terms: TxTerms, now: int
) -> TransactionStep:
    """Applies a check's answer; `held` is the row as `take_due` leased it. A check that no longer holds
    the row changes nothing but a conflict."""
    decision = _counted(row, reply, terms, asked_at=held.updated_at)
    if row.state is not _S.CHECKING or row.lease_token != held.lease_token:
        if decision and row.decision and row.decision != decision:
            return _conflict(row, decision, CHECK, now)
        return TransactionStep(row, did="late")
    checked = replace(row, checks=row.checks + 1) if reply.made else row
    if decision:
        return _decided(checked, _CHECK[decision], decision, CHECK, now)
    return _no_answer(checked, reply, terms, now)


def _counted(row: TxRow, reply: CheckReply, terms: TxTerms, asked_at: int) -> TxDecision | None:
    """Returns the decision in the answer. A ROLLBACK without a fence counts only if no business
    transaction could still be open when the business was asked, which was not before `asked_at`."""
    if reply.answer is Answer.COMMIT:
        return TxDecision.COMMIT
    if reply.answer is Answer.UNKNOWN:
        return None
    certain_at = (row.prepared_at or asked_at) + terms.longest_transaction_ms
    return TxDecision.ROLLBACK if reply.fenced or asked_at >= certain_at else None


def _no_answer(row: TxRow, reply: CheckReply, terms: TxTerms, now: int) -> TransactionStep:
    age = now - (row.prepared_at or now)
    error = reply.detail or "the answer was UNKNOWN"
    next_at = now + terms.pause_ms(row.checks if reply.made else 1)
    if reply.answer is Answer.ROLLBACK:
        error = "ROLLBACK without a fence, before the longest business transaction was over"
        next_at = max(next_at, now - age + terms.longest_transaction_ms)
    row = replace(row, last_error=error[:_ERROR_CHARACTERS])
    was_asked = reply.made or row.checks > 0  # nothing is parked of which nobody was ever asked
    if row.checks >= terms.max_checks or (age >= terms.deadline_ms and was_asked):
        return _unresolved(row, _E.SPENT, _spent(row, terms, age), now)
    state = next_state(row.state, _E.CHECK_UNKNOWN)
    return _step(row, state=state, lease_token=0, next_at=next_at)._replace(did="unknown")


def take_forwarded(
    row: TxRow, token: int, body_hash: bytes, place: str, now: int
) -> TransactionStep:
    """Marks a message that the broker acknowledged; only its holder may."""
    if row.state is not _S.COMMITTED or row.lease_token != token or row.body_hash != body_hash:
        return TransactionStep(row, did="late")
    state = next_state(row.state, _E.ACKNOWLEDGED)
    changed = {"forwarded_to": place, "forwarded_at": now, "last_error": ""}
    return _step(row, state=state, lease_token=0, next_at=None, **changed)


def take_damaged(row: TxRow, token: int, now: int) -> TransactionStep:
    """Parks a committed message whose stored bytes are not the prepared ones."""
    if row.state is not _S.COMMITTED or row.lease_token != token:
        return TransactionStep(row, did="late")
    reason = "body_damaged: the stored bytes do not have the hash of the prepared ones"
    return _unresolved(row, _E.DAMAGED, reason, now)


def take_not_forwarded(row: TxRow, token: int, error: str, next_at: int) -> TransactionStep:
    """Puts a message back whose forward failed; it goes again, as often as it must."""
    if row.state is not _S.COMMITTED or row.lease_token != token:
        return TransactionStep(row, did="late")
    tried = replace(row, tries=row.tries + 1, last_error=error[:_ERROR_CHARACTERS])
    return _step(tried, lease_token=0, next_at=next_at)._replace(did="not_forwarded")


def take_person(
    row: TxRow, decision: TxDecision, person: str, reason: str, now: int
) -> TransactionStep:
    """Applies a person's decision. Raises NotResolvable."""
    if row.state is not _S.UNRESOLVED:
        raise NotResolvable(f"{row.tx_id} is {row.state}: only unresolved ones can be decided")
    if row.decision:
        raise NotResolvable(
            f"{row.tx_id} was committed and its body is damaged: send the same prepare again"
        )
    if decision is TxDecision.COMMIT and row.body_hash is None:
        raise NotResolvable(
            f"{row.tx_id} has no body to forward: send its prepare, or decide ROLLBACK"
        )
    step = _decided(row, _OPERATOR[decision], decision, OPERATOR, now)
    return step._replace(row=replace(step.row, person=person, why=reason))


def _step(row: TxRow, **changes: Any) -> TransactionStep:
    changed = replace(row, **changes)
    return TransactionStep(changed, did=changed.state.value)
