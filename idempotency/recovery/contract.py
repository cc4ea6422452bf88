"""What recovery asks of the ledger: rows that are due, rows in doubt, and moves that nobody else made.

Two recoveries, a worker's sweep and a person may want the same row at once. Rows are taken under a lock
that others pass by, and every write names the version (or the token) that it was decided on: whoever
comes second writes nothing and is told so. The clock is the database's.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from idempotency.bounds import is_usable
from idempotency.claims.rows import GIVEN_BACK, RECALLED
from message.delivery import Delivery
from message.keys import KEY_LENGTH
from message.states import Event, State

LIMIT: Final = 100
"""Rows in one batch, unless asked for fewer."""
OPERATOR: Final = "operator"
"""Up to a colon, who and why stand behind it."""
TTL: Final = "ttl_in_retry"
TTL_IN_DOUBT: Final = "ttl_in_doubt"
ATTEMPTS_SPENT: Final = "attempts_spent"
UNREADABLE: Final = "payload_unreadable"
ROW_UNUSABLE: Final = "row_unusable"
RECALLED_IN_DOUBT: Final = "recalled_in_doubt"
QUEUED: Final = "queued"
"""The provider took a task, whose name stands in the row; it is asked whom the task reached."""


class DueQuery(msgspec.Struct, frozen=True):
    """Which rows of a lane to take, and what its policy says of them."""

    lane: str
    attempts: int
    """Provider calls after which a row is parked instead, less those refused for pace alone; an operator's
    retry counts none."""
    ordered: bool = False
    limit: int = LIMIT
    first: bool = False
    """Rows that were never called; else those that were. Many of one kind do not hide the other."""


class DueDelivery(NamedTuple):
    """A row that is ours now: IN_FLIGHT under our token, its attempt counted."""

    delivery: Delivery
    reason: str
    """Why it waited."""
    doubted_since: int | None
    """Epoch milliseconds of the earliest call that may have sent it; None: it surely was not sent."""
    call_digest: str
    """Of that call's body, where the provider dedups by it; else empty."""


class Ended(NamedTuple):
    """A row that was due and will not be sent."""

    key: str
    message_id: str
    lane: str
    state: State
    reason: str
    doubted: bool
    """An earlier call of it may have sent it."""
    biz_id: str | None = None
    attempt: int = 0
    """Of its last call, as are the two below."""
    account: str = ""
    policy_version: str = ""


class TakeResult(NamedTuple):
    """What one look at a lane gave."""

    taken: Sequence[DueDelivery]
    ended: Sequence[Ended]
    postponed: int
    """Rows whose turn in their line has not come; they sleep now."""


class UnknownDelivery(NamedTuple):
    """An UNKNOWN row, ours to ask about until its lease ends."""

    delivery: Delivery
    """With the `account` and `call_key` of the call in doubt."""
    called_at: int
    """Epoch milliseconds of the earliest call in doubt."""
    call_digest: str
    version: int
    reason: str
    since: int
    """When it became doubtful: no call of it was under way on our side any more."""
    now: int
    owner: str = ""
    """Whose call it was."""
    task: str = ""
    """The provider's name for the task that it took; only of reason QUEUED. In other rows the id may be an
    earlier call's."""
    last_called_at: int = 0
    """Epoch milliseconds of the latest call in doubt; 0: there was only one."""
    earlier_accounts: tuple[str, ...] = ()
    """Accounts other than the delivery's that earlier calls in doubt went through."""

    @property
    def last_call(self) -> int:
        """When the latest call in doubt began, epoch milliseconds."""
        return max(self.called_at, self.last_called_at)


class Transition(NamedTuple):
    """One row's next state, decided on what was read under `version`."""

    key: str
    day: int
    version: int
    source: State
    event: Event
    reason: str | None = None
    provider_id: str | None = None
    delay_ms: int = 0
    """From the database's now to the next look; for a move to RETRY or a row that stays in doubt."""
    expires_at: int | None = None
    """A new end of its life; None: as it was."""


class RecordedCall(NamedTuple):
    """What is kept of a call before it is made."""

    key: str
    day: int
    token: int
    account: str
    call_key: str
    call_digest: str | None
    policy_version: str | None = None
    """Under which it is made; None: as it was."""


class DueBacklog(NamedTuple):
    """What waits in one lane; counts stop at a bound, ages are in milliseconds."""

    lane: str
    due: int
    doubted: int
    oldest_due_ms: int
    oldest_doubt_ms: int


class RecoveryStore(Protocol):
    """Every method raises LedgerError and nothing else, and may be repeated as it was."""

    def lanes_with_work(self, lanes: Sequence[str]) -> tuple[list[str], list[str]]:
        """Of these lanes those with a row that is due, and those with one to be asked about."""
        ...

    def take(self, ask: DueQuery, owner: str, token: int) -> TakeResult:
        """Due rows, oldest first, become the owner's. What is past its time ends here; what is behind
        another of its line sleeps until that ends; neither hides rows that may go. A repeat with the same
        token gives the same rows."""
        ...

    def keep(self, calls: Sequence[RecordedCall]) -> list[bool]:
        """Keep account, call key and digest before the calls; False where the token was stale."""
        ...

    def give_back(self, taken: Sequence[DueDelivery], delay_ms: int = 0) -> list[bool]:
        """These were not begun: they are due as they were before, after `delay_ms`. False where the token
        was stale."""
        ...

    def doubts(
        self, lane: str, lease_ms: int, limit: int = LIMIT, *, ended: list[Ended] | None = None
    ) -> list[UnknownDelivery]:
        """Rows in doubt, oldest first, that nobody else asks about for `lease_ms`. What nobody can work
        with is parked, and added to `ended`."""
        ...

    def joined(self, doubt: UnknownDelivery, lease_ms: int) -> list[UnknownDelivery]:
        """The rows that are in doubt for the same call, the doubt's own among them as it stands now, for
        `lease_ms` nobody else's to ask about. What was recalled is not among them."""
        ...

    def ask_again(self, doubt: UnknownDelivery, delay_ms: int) -> bool:
        """Nothing was found out: look again after `delay_ms`."""
        ...

    def move(self, moves: Sequence[Transition]) -> list[bool]:
        """Make the moves; False where the row had been written meanwhile. Raises IllegalTransition."""
        ...

    def wake(self, lane: str, *, ordered: bool) -> int:
        """Make due what sleeps although nothing stands before it; returns the number of rows. Normally
        0: whatever ends a row wakes the next (idempotency/lines.py). Costs a little per ordering key,
        nothing per row. In a lane that keeps no order any more everything wakes, 10,000 rows a call."""
        ...

    def version_of(self, key: str) -> tuple[int, int, State] | None:
        """(day, version, state) of a row, None for an unknown key."""
        ...

    def backlog(self, lanes: Sequence[str]) -> list[DueBacklog]:
        """How much waits in each lane."""
        ...

    def hold(self, duty: str, holder: str, lease_ms: int) -> bool:
        """Take or renew a duty that one holder may have at a time; False: another has it."""
        ...

    def drop(self, duty: str, holder: str) -> None:
        """Give the duty up, if it is the holder's."""
        ...


class DueVerdict(NamedTuple):
    """What becomes of one due row."""

    state: State
    reason: str | None


def judge(row: Any, ask: DueQuery, now: int) -> DueVerdict:
    """What becomes of a due row; RETRY: its turn has not come. Reads attempt, reason, expires_at,
    called_at, `ahead` (an earlier one of its line is open) and `recalled`."""
    if not is_usable(row):
        return DueVerdict(State.PARKED, ROW_UNUSABLE)
    doubted = row.called_at is not None
    if row.expires_at <= now:
        # A call that may have sent it is not made undone by time: a person has to know.
        return DueVerdict(State.PARKED, TTL_IN_DOUBT) if doubted else DueVerdict(State.EXPIRED, TTL)
    if row.recalled:
        return recalled(doubted=doubted)
    if row.reason == GIVEN_BACK:
        return DueVerdict(State.RETRY, row.reason)
    if row.attempt - row.refusals >= ask.attempts and not by_operator(row.reason):
        return DueVerdict(State.PARKED, ATTEMPTS_SPENT)
    if row.ahead:
        return DueVerdict(State.RETRY, row.reason)
    return DueVerdict(State.IN_FLIGHT, row.reason)


def by_operator(reason: str | None) -> bool:
    """Whether a waiting row waits because a person wants it sent."""
    return reason is not None and reason.partition(":")[0] == OPERATOR


def recalled(*, doubted: bool) -> DueVerdict:
    """What becomes of a waiting row that is recalled. It is not sent again; but that it never was cannot
    be said where an earlier call is in doubt, and a person has to know."""
    return (
        DueVerdict(State.PARKED, RECALLED_IN_DOUBT)
        if doubted
        else DueVerdict(State.DROPPED, RECALLED)
    )


def call_key_of(key: str, attempt: int) -> str:
    """The name of a delivery's call that repeats none: the delivery's own key at first, then another
    for each attempt, since a provider may drop what it has seen. 32 hex digits."""
    if attempt <= 1:
        return key
    return sha256(f"{key}\x1f{attempt}".encode()).hexdigest()[:KEY_LENGTH]


def operator_retry(key: str, day: int, version: int, state: State, **fields: Any) -> Transition:
    """A person wants it sent again, now: whatever was pending is replaced.

    `fields` are of Move; `expires_at` where its time is over. Raises nothing; `RecoveryStore.move` does.
    """
    return Transition(key, day, version, state, Event.OPERATOR_RETRY, OPERATOR, **fields)


def operator_sent(key: str, day: int, version: int) -> Transition:
    """A person saw it arrive."""
    return Transition(key, day, version, State.PARKED, Event.OPERATOR_SENT, OPERATOR)
