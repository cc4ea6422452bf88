"""What a person does to deliveries: have them sent again, say that they arrived, or make a second copy.

    again     PARKED, REJECTED, EXPIRED ─▶ RETRY, due now; a pending RETRY is replaced. Recovery sends it
    arrived   PARKED ─▶ SENT
    copied    a notification of its own with `resend_of`, through Kafka; the row stays as it is

Each row is written only as it was read (compare-and-set), so that a person and recovery, or two persons,
never both have it sent. What was done needs no memory of its own: a row that was moved is not picked
again, and a copy's id follows from its job and its delivery, so that making it twice is making it once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from idempotency.payloads import PayloadUnreadable
from idempotency.queries import Kept
from idempotency.recovering import Recovering, operator_retry, operator_sent
from idempotency.recovering_picks import Pick
from message.envelope import VERSION
from message.keys import KEY_LENGTH
from message.states import OPEN, Event, State, after, sources
from message.vocabulary import Lane
from policy.schema import Policy
from tracing.events import Recorder, Stage, TraceEvent

DUTY: Final = "resend"
"""Held by the one job that goes through a selection."""
WHO: Final = "operator"
"""Who stands in the trace."""
_DOUBLE: Final = "an earlier call may have sent it: this may be a second copy"
_RETRIED = sources(Event.OPERATOR_RETRY)


class Verdict(StrEnum):
    """What became of one delivery."""

    RETRIED = "retried"
    SENT = "sent"
    COPIED = "copied"
    REFUSED = "refused"
    """Nothing was done; the reason says why."""
    OVERTAKEN = "overtaken"
    """It was written meanwhile: look at it again."""


class Told(msgspec.Struct, frozen=True):
    """What a person is told of one delivery."""

    delivery_key: str
    message_id: str
    lane: str
    state: str
    """Before."""
    verdict: Verdict
    detail: str = ""
    new_id: str = ""
    """Of a copy."""


class Copy(NamedTuple):
    """A notification of its own, ready for Kafka: its envelope's fields."""

    fields: dict[str, Any]
    told: Told


class Keeping(Protocol):
    """Where payloads are (idempotency/queries.py)."""

    def kept(self, delivery_key: str) -> Kept | None:
        """Payload and receiver, opened."""
        ...


class Operator:
    """Raises LedgerError alone."""

    def __init__(
        self,
        rows: Recovering,
        payloads: Keeping,
        policy: Policy,
        recorder: Recorder,
        now_ms: Callable[[], int],
    ) -> None:
        self._rows = rows
        self._payloads = payloads
        self._policy = policy
        self._recorder = recorder
        self._now_ms = now_ms
        """The database's clock, epoch milliseconds."""

    def again(self, picks: Sequence[Pick], *, dry_run: bool = False) -> list[Told]:
        """Have them sent again, now."""
        told = [refusal(pick) for pick in picks]
        going = [pick for pick, no in zip(picks, told, strict=True) if no is None]
        moved = iter(self._retry(going, dry_run=dry_run))
        return [next(moved) if no is None else no for no in told]

    def arrived(self, pick: Pick) -> Told:
        """A person saw it arrive."""
        if pick.state is not State.PARKED:
            return _told(
                pick, Verdict.REFUSED, "only a parked delivery can be said to have arrived"
            )
        (moved,) = self._rows.move([operator_sent(pick.key, pick.day, pick.version)])
        if not moved:
            return _told(pick, Verdict.OVERTAKEN)
        self._trace([pick], Event.OPERATOR_SENT)
        return _told(pick, Verdict.SENT)

    def copy(self, pick: Pick, job: str) -> Copy | Told:
        """A second copy under an id of its own, which is the same for the same job."""
        if pick.state in OPEN:
            return _told(pick, Verdict.REFUSED, "it is open: the first copy may still be sent")
        try:
            kept = self._payloads.kept(pick.key)
        except PayloadUnreadable as exc:
            return _told(pick, Verdict.REFUSED, f"its payload cannot be opened: {exc}")
        if kept is None:
            return _told(pick, Verdict.OVERTAKEN)
        new_id = copy_id(job, pick.key)
        told = _told(pick, Verdict.COPIED, new_id=new_id)
        return Copy(copied_fields(kept, new_id, pick.message_id, self._now_ms()), told)

    def _retry(self, picks: Sequence[Pick], *, dry_run: bool) -> list[Told]:
        now = self._now_ms()
        ends = [self._new_end(pick, now) for pick in picks]
        moved = [True] * len(picks)
        if picks and not dry_run:
            moves = [
                operator_retry(p.key, p.day, p.version, p.state, expires_at=end)
                for p, end in zip(picks, ends, strict=True)
            ]
            moved = self._rows.move(moves)
            self._trace(
                [p for p, ours in zip(picks, moved, strict=True) if ours], Event.OPERATOR_RETRY
            )
        return [
            _told(pick, Verdict.RETRIED, _remarks(pick, end))
            if ours
            else _told(pick, Verdict.OVERTAKEN)
            for pick, end, ours in zip(picks, ends, moved, strict=True)
        ]

    def _new_end(self, pick: Pick, now: int) -> int | None:
        """A person's word prolongs what is past its time by its lane's TTL, and nothing else."""
        if pick.expires_at > now:
            return None
        return now + self._policy.of(Lane(*pick.lane.split("."))).lifetime_ms(None)

    def _trace(self, picks: Sequence[Pick], event: Event) -> None:
        at = self._now_ms()
        self._recorder.record([_event(pick, event, at) for pick in picks])


def refusal(pick: Pick) -> Told | None:
    """Why it cannot be sent again under its own id; None: it can."""
    if pick.state in _RETRIED:
        return None
    if pick.state in OPEN:
        why = "it is under way: recovery decides what becomes of it"
    elif pick.state is State.DROPPED:
        why = f"it was dropped ({pick.reason}): --new-id makes a copy"
    else:
        why = "it was sent: --new-id makes a second copy"
    return _told(pick, Verdict.REFUSED, why)


def copy_id(job: str, delivery_key: str) -> str:
    """32 hex digits, the same whenever the job is run again."""
    return sha256(f"copy\x1f{job}\x1f{delivery_key}".encode()).hexdigest()[:KEY_LENGTH]


def copied_fields(kept: Kept, new_id: str, message_id: str, now: int) -> dict[str, Any]:
    """The envelope of the copy: as it came, unknown fields and all, for this receiver alone."""
    fields: dict[str, Any] = msgspec.json.decode(kept.payload)
    own = {"v": VERSION, "id": new_id, "receivers": [kept.receiver], "resend_of": message_id}
    return fields | own | {"created_at": now}


def _remarks(pick: Pick, end: int | None) -> str:
    parts = [_DOUBLE] if pick.doubted and pick.state is State.PARKED else []
    if end is not None:
        parts.append("its time was over: it lives once more for its lane's TTL")
    return "; ".join(parts)


def _told(pick: Pick, verdict: Verdict, detail: str = "", *, new_id: str = "") -> Told:
    return Told(pick.key, pick.message_id, pick.lane, pick.state.value, verdict, detail, new_id)


def _event(pick: Pick, event: Event, at: int) -> TraceEvent:
    return TraceEvent(
        at=at,
        stage=Stage.RESOLVED,
        message_id=pick.message_id,
        delivery_key=pick.key,
        biz_id=pick.biz_id,
        lane=pick.lane,
        worker=WHO,
        attempt=pick.attempt,
        state=after(pick.state, event).value,
        reason=WHO,
        detail=event.value,
        policy_version=pick.policy_version,
    )
