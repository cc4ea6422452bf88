"""The moments of one delivery, from its ledger row and its events; tracing/stories.py collects both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tracing.events import Stage, TraceEvent

_OWNER_DEAD: Final = "owner_dead"
_OPEN: Final = frozenset({"IN_FLIGHT", "UNKNOWN"})
_BEGINNINGS: Final = frozenset({Stage.HELD, Stage.BEHIND, Stage.FOUND, Stage.PARKED, Stage.EXPIRED})
"""Stages that enter a row without a claim. They have attempt 0 then; a later end has its attempt."""
_CLAIMS: Final = frozenset({Stage.CLAIMED, Stage.TAKEN})
_ORDER: Final = {
    stage: place for place, stage in enumerate(Stage, -list(Stage).index(Stage.CLAIMED))
} | {Stage.ACCEPTED: -3}
"""Of moments in the same millisecond; a mark has the place of its stage, or one before it."""


class LedgerRow(msgspec.Struct, kw_only=True):
    """One row of `hongyan_deliveries`."""

    delivery_key: str
    message_id: str
    biz_id: str | None
    lane: str
    state: str
    reason: str | None
    attempt: int
    owner: str
    provider_id: str | None
    created_at: int
    updated_at: int
    next_at: int | None
    expires_at: int
    policy_version: str
    resend_of: str | None
    account: str | None = None


class RebuiltDelivery(msgspec.Struct, kw_only=True):
    """One row of the warehouse's table `deliveries`, as far as a story needs it."""

    delivery_key: str
    message_id: str
    biz_id: str | None = None
    lane: str = ""
    template: str = ""
    receiver: str = ""
    receiver_hash: str = ""
    origin: str | None = None
    resend_of: str | None = None
    created_at: int = 0
    appended_at: int = 0
    state: str = ""
    missing: list[str] = []
    timeline: list[TraceEvent] = []


class Moment(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One thing that happened; `at` is epoch milliseconds."""

    at: int
    what: str
    worker: str = ""
    attempt: int = 0
    state: str = ""
    reason: str | None = None
    detail: str | None = None
    answer: str = ""
    """The provider's answer to a call that it did not accept, masked."""
    account: str = ""
    provider_id: str | None = None
    origin: str | None = None
    policy_version: str = ""
    took_ms: int = 0
    """Duration of a call, on the moment of its end."""


class DeliveryStory(msgspec.Struct, kw_only=True):
    """One receiver's part. `row` None: the lane keeps no ledger, or nobody has the row any more."""

    delivery_key: str
    receiver: str
    row: LedgerRow | None
    moments: list[Moment]
    sources: list[str] = []
    """Where its parts are: `ledger`, `trace`, the archive's table or file, `rebuilt`."""
    template: str = ""
    state: str = ""
    """By the rebuilt trace, where there is no row."""
    missing: list[str] = []
    """Stages that must have been and are not in the rebuilt trace, as `STAGE:CAUSE`."""
    rebuilt_until: int | None = None
    """Epoch milliseconds by the broker up to which the rebuilt part was read; None without that part."""


class Story(msgspec.Struct, kw_only=True):
    """One message's whole history."""

    message_id: str
    biz_id: str | None
    lane: str
    deliveries: list[DeliveryStory]
    copy_of: str | None = None
    """The message of which a person had this copy sent."""
    copies: list[str] = []
    """Messages that are copies of this one, oldest first."""


def with_row(traced: list[Moment], row: LedgerRow | None) -> list[Moment]:
    """Adds moments that only the row has: a claim without a later event, and its worker's death."""
    if row is None or not row.attempt:
        return traced
    known = [*traced, *_claim(traced, row)]
    lost = row.state == "UNKNOWN" and row.reason == _OWNER_DEAD
    if lost and not _tells(traced, row, _OWNER_DEAD):
        known.append(
            Moment(
                at=row.updated_at,
                what=_OWNER_DEAD,
                worker=row.owner,
                attempt=row.attempt,
                state=row.state,
                detail="no outcome of its call was recorded",
                account=row.account or "",
            )
        )
    return sorted(known, key=lambda moment: moment.at)


def _claim(traced: Sequence[Moment], row: LedgerRow) -> list[Moment]:
    """Returns the claim that no event has."""
    entered = any(not moment.attempt and moment.what in _BEGINNINGS for moment in traced)
    if (entered or row.attempt > 1) and row.state in _OPEN and not _tells(traced, row):
        return [_claimed(row.updated_at, row.attempt, row.owner)]
    if entered or any(moment.attempt <= 1 and moment.what in _CLAIMS for moment in traced):
        return []
    # The row does not have the owner of an attempt before its last.
    return [_claimed(row.created_at, 1, row.owner if row.attempt == 1 else "")]


def _claimed(at: int, attempt: int, worker: str) -> Moment:
    return Moment(at=at, what="claimed", worker=worker, attempt=attempt, state="IN_FLIGHT")


def _tells(traced: Sequence[Moment], row: LedgerRow, what: str = "") -> bool:
    """Returns True if a moment (of that kind) is of the row's last attempt."""
    return any(m.attempt == row.attempt and (not what or m.what == what) for m in traced)


def moments(events: Sequence[TraceEvent]) -> list[Moment]:
    """Returns every moment in order; an event carries the marks of earlier moments."""
    found: list[tuple[int, int, Moment]] = []
    marked: set[tuple[object, ...]] = set()
    created = min((e.created_at for e in events if e.created_at), default=0)
    if created:
        found.append((created, -4, Moment(at=created, what="created")))
    for event in events:
        for mark in _marks(event):
            # Several events may carry the same mark.
            identity = msgspec.structs.astuple(mark[2])
            if identity not in marked:
                marked.add(identity)
                found.append(mark)
        found.append((event.at, _ORDER[event.stage], _moment(event)))
    found.sort(key=lambda entry: entry[:2])
    return [moment for _, _, moment in found]


def _marks(event: TraceEvent) -> list[tuple[int, int, Moment]]:
    """Returns the earlier moments on an event: read, claimed, and the provider call's two ends."""
    worker, attempt = event.worker, event.attempt
    marks = []
    if event.received_at:
        at = event.received_at
        marks.append((at, -2, Moment(at=at, what="received", worker=worker, origin=event.origin)))
    if event.claimed_at:
        at = event.claimed_at
        claimed = Moment(at=at, what="claimed", worker=worker, attempt=attempt, state="IN_FLIGHT")
        marks.append((at, 0, claimed))
    if event.started_at:
        at, account = event.started_at, event.account
        called = Moment(at=at, what="called", worker=worker, attempt=attempt, account=account)
        marks.append((at, 1, called))
    if event.answered_at:
        at, what = event.answered_at, event.call_end or "answered"
        took_ms = at - event.started_at if event.started_at else 0
        ended = Moment(at=at, what=what, worker=worker, attempt=attempt, took_ms=took_ms)
        marks.append((at, 1, ended))
    return marks


def _moment(event: TraceEvent) -> Moment:
    return Moment(
        at=event.at,
        what=event.stage.value,
        worker=event.worker,
        attempt=event.attempt,
        state=event.state,
        reason=event.reason,
        detail=event.detail,
        answer=event.answer,
        account=event.account,
        provider_id=event.provider_id,
        origin=event.origin,
        policy_version=event.policy_version,
    )
