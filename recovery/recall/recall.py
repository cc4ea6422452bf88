"""A recall: announces it, cancels deliveries before their send, asks providers to take back sent ones
(docs/recall.md).

It may be repeated at any time: cancelled deliveries stay so, and a delivery taken back is not asked for
again. A call under way the first time may have ended by the second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

import msgspec

from channels.channel import Account, Channel, RecallResult, RecallStatus, SentCall
from idempotency.claims.rows import RECALLED
from idempotency.recalls import Covered, Kind, Recalls, cancelling
from idempotency.recovery.contract import QUEUED, RecoveryStore
from message.states import State
from tracing.events import LANE_RECALL, Recorder, Stage, TraceEvent
from tracing.masks import HashReceiver, mask, no_hash

WORKER: Final = "recall"
"""Worker's name in the trace."""
_TRIES: Final = 3
_SENT: Final = frozenset({State.SENT, State.DELIVERED})
_HOUR_MS: Final = 3_600_000


class RecallVerdict(StrEnum):
    """Result of a recall for one delivery."""

    CANCELLED = "cancelled"
    """It was not sent, and never will be."""
    RECALLED = "recalled"
    """Taken back by its provider."""
    NOT_SENT = "not_sent"
    """It had ended without a send."""
    TOO_LATE = "too_late"
    """It was sent, or may have been."""
    NOT_POSSIBLE = "not_possible"
    """It was sent, and its provider cannot take it back."""
    ASK_AGAIN = "ask_again"
    """Undecided: a repeated recall decides it."""


STOPPED: Final = frozenset(
    {RecallVerdict.CANCELLED, RecallVerdict.RECALLED, RecallVerdict.NOT_SENT}
)
"""Verdicts on deliveries that no receiver has."""
LISTED: Final = 10_000
"""Deliveries that a result lists."""


class RecallOutcome(msgspec.Struct, frozen=True):
    """One delivery with the verdict on it."""

    delivery_key: str
    message_id: str
    lane: str
    receiver: str
    """Masked."""
    state: State
    verdict: RecallVerdict
    why: str


class Recalled(msgspec.Struct, frozen=True):
    """The result of a recall."""

    kind: Kind
    name: str
    made_at: int
    """Epoch milliseconds by the database's clock; it covers a business id's notifications up to then."""
    deliveries: list[RecallOutcome]
    """At most LISTED; of more, first those that are not STOPPED."""
    verdicts: dict[RecallVerdict, int]
    """Number of deliveries by verdict, the unlisted ones too."""

    @property
    def stopped(self) -> bool:
        """Whether no receiver has any of it."""
        return self.verdicts.keys() <= STOPPED

    @property
    def unlisted(self) -> int:
        """Number of deliveries that are not listed."""
        return sum(self.verdicts.values()) - len(self.deliveries)


class _Outcomes:
    """The outcomes of one recall, of which memory keeps LISTED."""

    def __init__(self) -> None:
        self.verdicts: Counter[RecallVerdict] = Counter()
        self.listed: list[RecallOutcome] = []

    def add(self, outcomes: Sequence[RecallOutcome]) -> None:
        self.verdicts.update(one.verdict for one in outcomes)
        self.listed += outcomes
        if len(self.listed) > LISTED:
            self.listed.sort(key=lambda one: one.verdict in STOPPED)
            del self.listed[LISTED:]


class _Asked(NamedTuple):
    """Name and lanes of one recall."""

    kind: Kind
    name: str
    made_at: int
    lanes: frozenset[str] | None = None
    """None: every lane."""

    def covers(self, row: Covered) -> bool:
        """Returns whether the recall is about that row."""
        if self.kind is Kind.BIZ:
            return row.biz_id == self.name and row.created_at <= self.made_at
        return row.message_id == self.name and (self.lanes is None or row.lane in self.lanes)


class TakesBack(Protocol):
    """Runs an adapter's requests for a recall and never raises (channels/engine.py)."""

    def recall(
        self, channel: Channel, account: Account, sent: SentCall, timeout_s: float
    ) -> RecallResult | None:
        """Returns the provider's answer; None if it takes nothing back."""
        ...


class Providers(NamedTuple):
    """The means to take sent messages back."""

    engine: TakesBack
    accounts: Mapping[str, tuple[Account, Channel]]
    faults: Mapping[str, str] = MappingProxyType({})
    """Accounts that cannot be used, as one without its secret, and why."""

    def why_not(self, account: str) -> str:
        """Returns why an account is not among the usable ones."""
        if account in self.faults:
            return f"its account cannot be used here: {self.faults[account]}"
        return "its account is not in the configuration any more"


class Recalling:
    """For one recall at a time; many processes may run the same one."""

    def __init__(
        self,
        recalls: Recalls,
        rows: RecoveryStore,
        providers: Callable[[], Providers],
        recorder: Recorder,
        *,
        timeout_s: float,
        wait: Callable[[], bool],
        give_back: Callable[[Sequence[tuple[str, str]]], None] = lambda _: None,
        hash_receiver: HashReceiver = no_hash,
    ) -> None:
        """`hash_receiver` is `tracing.masks.hasher`'s. `providers` is called once something is to be taken
        back, after the announcement: a recall before the send needs no account.

        `wait` pauses a moment for calls under way; returns False after its time is over. `give_back`
        gets (lane, key) of each cancelled delivery (dispatcher/pipeline/gates.py)."""
        self._recalls = recalls
        self._rows = rows
        self._providers = cache(providers)  # pages of rows share them
        self._recorder = recorder
        self._timeout_s = timeout_s
        self._wait = wait
        self._give_back = give_back
        self._hash_receiver = hash_receiver

    def run(self, kind: Kind, name: str, life_ms: int, *, whole_calls: bool = False) -> Recalled:
        """Recalls it. `whole_calls`: also from other receivers of the same call. Raises LedgerError."""
        made_at = self._recalls.announce(kind, name, life_ms)
        return self._ran(_Asked(kind, name, made_at), whole_calls)

    def run_in_lanes(self, message_id: str, lanes: Collection[str], life_ms: int) -> Recalled:
        """Recalls a message in these lanes alone. Raises LedgerError."""
        made_at = self._recalls.announce_in_lanes(message_id, lanes, life_ms)
        return self._ran(_Asked(Kind.MESSAGE, message_id, made_at, frozenset(lanes)), False)

    def _ran(self, asked: _Asked, whole_calls: bool) -> Recalled:
        """Recalls page by page. A later page's deliveries wait unharmed: the announcement forbids their
        sends."""
        found, last = _Outcomes(), None
        while rows := self._page(asked, last):
            found.add(self._ended([row for row in rows if not _is_sent(row)]))
            found.add(self._taken_back(asked, [row for row in rows if _is_sent(row)], whole_calls))
            last = rows[-1]
        if last is None:
            self._recorder.record(_unread(asked))
        return Recalled(asked.kind, asked.name, asked.made_at, found.listed, dict(found.verdicts))

    def _page(self, asked: _Asked, after: Covered | None) -> list[Covered]:
        """Returns the rows behind `after`, once none of them waits to be sent, nor is being sent."""
        rows = self._rows_of(asked, after)
        self._announced(asked, rows)
        rows = self._cancelled(asked, after, rows)
        while any(row.state is State.IN_FLIGHT for row in rows) and self._wait():
            rows = self._cancelled(asked, after, self._rows_of(asked, after))
        return rows

    def _rows_of(self, asked: _Asked, after: Covered | None) -> list[Covered]:
        if asked.lanes is not None:
            return self._recalls.rows_in_lanes(asked.name, asked.lanes, after)
        return self._recalls.rows(asked.kind, asked.name, asked.made_at, after)

    def _announced(self, asked: _Asked, rows: Sequence[Covered]) -> None:
        """Traces the recall on each delivery that it covers."""
        at, reason = asked.made_at, "" if asked.lanes is None else LANE_RECALL
        self._recorder.record(
            [self._event(at, row, Stage.RECALL_ASKED, row.state, reason) for row in rows]
        )

    def _cancelled(
        self, asked: _Asked, after: Covered | None, rows: list[Covered]
    ) -> list[Covered]:
        """Ends the waiting ones of the page's rows and returns all its rows. Reads them again after each
        try, since other processes may move them."""
        for _ in range(_TRIES):
            waiting = [row for row in rows if row.state is State.RETRY]
            if not waiting:
                break
            moved = self._rows.move([cancelling(row) for row in waiting])
            cancelled = [row for row, ours in zip(waiting, moved, strict=True) if ours]
            self._trace(cancelled)
            self._give_back([(row.lane, row.key) for row in cancelled if not row.doubted])
            rows = self._rows_of(asked, after)
        return rows

    def _ended(self, rows: Sequence[Covered]) -> list[RecallOutcome]:
        return [_told(row, *_without_provider(row)) for row in rows]

    def _taken_back(
        self, asked: _Asked, rows: Sequence[Covered], whole_calls: bool
    ) -> list[RecallOutcome]:
        calls: dict[tuple[str, str], list[Covered]] = {}
        for row in rows:
            calls.setdefault((row.account, row.provider_id or row.key), []).append(row)
        found: list[RecallOutcome] = []
        for call in calls.values():
            found += self._call(asked, call, whole_calls)
        return found

    def _call(
        self, asked: _Asked, mine: Sequence[Covered], whole_calls: bool
    ) -> list[RecallOutcome]:
        """Takes back one provider call; `mine` are its deliveries on this page. A later page finds the
        others that are recalled, as taken back before."""
        first = mine[0]
        if all(row.taken_back for row in mine):
            return [_told(row, RecallVerdict.RECALLED, "taken back before") for row in mine]
        providers = self._providers()
        pair = providers.accounts.get(first.account)
        if pair is None:
            why = providers.why_not(first.account)
            return [_told(row, RecallVerdict.NOT_POSSIBLE, why) for row in mine]
        hindered = _hindrance(first, *pair, self._recalls.now_ms())
        if hindered is not None:
            return [_told(row, *hindered) for row in mine]
        shared = [
            row for row in self._recalls.of_call(first.account, first.provider_id) if _is_sent(row)
        ]
        others = [row for row in shared if not asked.covers(row)]
        if others and not whole_calls:
            why = f"its call reached {len(others)} more; --whole-calls takes it back from them too"
            return [_told(row, RecallVerdict.NOT_POSSIBLE, why) for row in mine]
        return self._ask(providers.engine, mine, shared, others, *pair)

    def _ask(
        self,
        engine: TakesBack,
        mine: Sequence[Covered],
        shared: Sequence[Covered],
        others: Sequence[Covered],
        account: Account,
        channel: Channel,
    ) -> list[RecallOutcome]:
        """Has a call taken back: from `mine`, and from `shared`, of which `others` are not recalled."""
        sent = SentCall(mine[0].provider_id)
        answer = engine.recall(channel, account, sent, self._timeout_s)
        verdict, why = _answered(answer, channel)
        if verdict is not RecallVerdict.RECALLED:
            return [_told(row, verdict, why) for row in mine]
        reached = list({row.key: row for row in (*mine, *shared)}.values())
        self._recalls.keep([row.key for row in reached])
        at = self._recalls.now_ms()
        self._recorder.record(
            [self._event(at, row, Stage.RECALLED, row.state, why) for row in reached]
        )
        along = f"{why}, along with those recalled"
        return [_told(row, verdict, why) for row in mine] + [
            _told(row, verdict, along) for row in others
        ]

    def _trace(self, cancelled: Sequence[Covered]) -> None:
        events, at = [], self._recalls.now_ms()
        for row in cancelled:
            reason = cancelling(row).reason or ""
            dropped = reason == RECALLED
            stage, state = (
                (Stage.DROPPED, State.DROPPED) if dropped else (Stage.SETTLED, State.PARKED)
            )
            events.append(self._event(at, row, stage, state, reason))
        self._recorder.record(events)

    def _event(self, at: int, row: Covered, stage: Stage, state: State, reason: str) -> TraceEvent:
        return TraceEvent(
            at=at,
            stage=stage,
            message_id=row.message_id,
            delivery_key=row.key,
            biz_id=row.biz_id,
            lane=row.lane,
            receiver=_masked(row),
            worker=WORKER,
            attempt=row.attempt,
            state=state.value,
            reason=reason or None,
            account=row.account,
            provider_id=row.provider_id or None,
            policy_version=row.policy_version,
            created_at=row.created_at,
            **row.facts._replace(receiver_hash=self._hashed(row))._asdict(),
        )

    def _hashed(self, row: Covered) -> str:
        channel = row.lane.partition(".")[0]
        return self._hash_receiver(channel, row.receiver) if row.receiver else ""


def _unread(asked: _Asked) -> list[TraceEvent]:
    """Returns the events of a recall that covers no delivery yet. They are told on the name: in each of its
    lanes, if it has some."""
    return [_unread_in(lane, asked) for lane in sorted(asked.lanes or [""])]


def _unread_in(lane: str, asked: _Asked) -> TraceEvent:
    of_message = asked.kind is Kind.MESSAGE
    return TraceEvent(
        at=asked.made_at,
        stage=Stage.RECALL_ASKED,
        message_id=asked.name if of_message else "",
        biz_id=None if of_message else asked.name,
        lane=lane,
        worker=WORKER,
        reason=None if asked.lanes is None else LANE_RECALL,
        detail="nothing of it was read yet",
    )


def _is_sent(row: Covered) -> bool:
    """Returns whether its provider has it: sent, or accepted as a task without a result yet."""
    queued = row.state is State.UNKNOWN and row.reason == QUEUED and bool(row.provider_id)
    return queued or row.state in _SENT


_IN_DOUBT: Final = "an earlier call may have sent it; it will not be sent again"


def _without_provider(row: Covered) -> tuple[RecallVerdict, str]:
    """Returns the verdict on a row that no provider is known to have."""
    reason = row.reason or ""
    if row.state is State.DROPPED:
        if reason == RECALLED:
            return RecallVerdict.CANCELLED, "before the send"
        if row.doubted:
            return RecallVerdict.TOO_LATE, _IN_DOUBT
        return RecallVerdict.NOT_SENT, f"dropped: {reason}"
    if row.state is State.IN_FLIGHT:
        return RecallVerdict.TOO_LATE, "its call is under way; recall again to take it back"
    if row.state is State.UNKNOWN or (row.state is State.PARKED and row.doubted):
        return RecallVerdict.TOO_LATE, _IN_DOUBT
    if row.state is State.RETRY:
        return RecallVerdict.ASK_AGAIN, "somebody else was at it"
    return RecallVerdict.NOT_SENT, f"{row.state.value}: {reason}".rstrip(": ")


def _hindrance(
    row: Covered, account: Account, channel: Channel, now: int
) -> tuple[RecallVerdict, str] | None:
    """Returns why its provider need not be asked; None if it may take it back."""
    window = channel.recall_window_ms
    if not window:
        return RecallVerdict.NOT_POSSIBLE, f"{account.provider} takes nothing back"
    if not row.provider_id:
        return RecallVerdict.NOT_POSSIBLE, "the provider's name for it is not known"
    if now - row.sent_at > window:
        return (
            RecallVerdict.TOO_LATE,
            f"{account.provider} takes back for {window // _HOUR_MS} hours",
        )
    return None


def _answered(answer: RecallResult | None, channel: Channel) -> tuple[RecallVerdict, str]:
    if answer is None:
        return RecallVerdict.NOT_POSSIBLE, f"{channel.provider} cannot take this one back"
    if answer.taken is RecallStatus.BACK:
        return RecallVerdict.RECALLED, f"by {channel.provider}"
    if answer.taken is RecallStatus.REFUSED:
        return RecallVerdict.NOT_POSSIBLE, f"{channel.provider} refused: {answer.detail}"
    return RecallVerdict.ASK_AGAIN, f"{channel.provider} did not say: {answer.detail}"


def _told(row: Covered, verdict: RecallVerdict, why: str) -> RecallOutcome:
    return RecallOutcome(row.key, row.message_id, row.lane, _masked(row), row.state, verdict, why)


def _masked(row: Covered) -> str:
    return mask(row.lane.partition(".")[0], row.receiver) if row.receiver else ""
