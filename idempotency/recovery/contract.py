"""Recovery's contract with the ledger: rows that are due, rows in doubt, and moves under their versions.

Two recoveries, a worker's sweep and a person may want the same row at once. Rows are taken under a lock
that others skip. Every write names the version (or the token) that it was decided on: the second writer
writes nothing and gets False. The clock is the database's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from sqlalchemy import Connection

from idempotency.bounds import is_usable
from idempotency.claims.rows import OWNER_DEAD, RECALLED
from message.delivery import Delivery, Origin
from message.keys import KEY_LENGTH
from message.states import Event, State

LIMIT: Final = 100
"""Rows in one batch, unless asked for fewer."""
OPERATOR: Final = "operator"
"""Reason of a person's moves; the person and the cause may follow a colon."""
TTL: Final = "ttl_in_retry"
TTL_IN_DOUBT: Final = "ttl_in_doubt"
ATTEMPTS_SPENT: Final = "attempts_spent"
JOINT_REFUSAL: Final = "joint_refusal"
"""Reason, with the provider's code behind a colon, of a delivery that goes once more, alone, although its
attempts are spent: a joint call was refused over one unnamed delivery of it."""
UNREADABLE: Final = "payload_unreadable"
ROW_UNUSABLE: Final = "row_unusable"
RECALLED_IN_DOUBT: Final = "recalled_in_doubt"
QUEUED: Final = "queued"
"""The provider took a task, whose name is in the row; recovery asks whom the task reached."""


class DueQuery(msgspec.Struct, frozen=True):
    """The rows of a lane to take, and its policy's terms for them."""

    lane: str
    attempts: int
    """Provider calls after which a row is parked instead, less those refused for pace alone. It binds
    neither an operator's retry nor the call that follows a JOINT_REFUSAL."""
    ordered: bool = False
    limit: int = LIMIT
    first: bool = False
    """True: rows never called. False: rows called before. Many of one kind do not hide the other."""


class DueDelivery(NamedTuple):
    """A row that is ours now: IN_FLIGHT under our token, its attempt counted."""

    delivery: Delivery
    reason: str
    """The reason of its wait."""
    doubted_since: int | None
    """Epoch milliseconds of the earliest call that may have sent it; None: it surely was not sent."""
    call_digest: str
    """Digest of that call's body, where the provider dedups by it; else empty."""


class OwnerDeath(NamedTuple):
    """The death of the process that had a row IN_FLIGHT; times in epoch milliseconds."""

    owner: str
    since: int
    """Time at which the row became UNKNOWN."""
    claimed_at: int
    """Start of the last call in doubt."""


def owner_death_of(row: Any, state: str) -> OwnerDeath | None:
    """Returns the death that a row in `state` tells of; None for any other row. Reads reason, owner,
    updated_at, called_at, last_called_at and created_at."""
    if state != State.UNKNOWN or row.reason != OWNER_DEAD:
        return None
    called_at = max(row.called_at or 0, row.last_called_at or 0) or row.created_at
    return OwnerDeath(row.owner, row.updated_at, called_at)


class RowFacts(NamedTuple):
    """Facts of a notification in its row, for trace events made of the row."""

    template: str = ""
    """Name of its template; empty without one."""
    receiver_hash: str = ""
    """Keyed hash of its receiver, in hex digits; empty without a key."""
    origin: str | None = None
    """Its record in Kafka, as topic/partition/offset; None for a row that has none."""


def row_facts(row: Any) -> RowFacts:
    """Returns the facts of a row. Reads template, receiver_hash, kafka_topic, kafka_partition and
    kafka_offset."""
    place = (row.kafka_topic, row.kafka_partition, row.kafka_offset)
    hashed = bytes(row.receiver_hash).hex() if row.receiver_hash else ""
    return RowFacts(row.template or "", hashed, str(Origin(*place)) if row.kafka_topic else None)


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
    created_at: int = 0
    """Start of the row."""
    death: OwnerDeath | None = None
    """Of the process that made its last call, if the row was in doubt about it."""
    facts: RowFacts = RowFacts()


class TakeResult(NamedTuple):
    """The result of one `take`."""

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
    """Start of the doubt: no call of it was under way on our side any more."""
    now: int
    owner: str = ""
    """The process that made the call."""
    task: str = ""
    """The provider's name for the task that it took; only of reason QUEUED. In other rows the id may be an
    earlier call's."""
    last_called_at: int = 0
    """Epoch milliseconds of the latest call in doubt; 0: there was only one."""
    earlier_accounts: tuple[str, ...] = ()
    """Accounts other than the delivery's that earlier calls in doubt went through."""
    receipt: str | None = None
    """The provider's id in a receipt of the call that waits to be placed, maybe empty; None without one. It
    proves that the call was accepted."""

    @property
    def last_call(self) -> int:
        """Start of the latest call in doubt, epoch milliseconds."""
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
    """The provider's name for the message; None: as it was. Empty: the row has none from now on, since the
    one it had is another call's."""
    delay_ms: int = 0
    """From the database's now to the next look; for a move to RETRY or a row that stays in doubt."""
    expires_at: int | None = None
    """New time of expiry; None: as it was."""


class RecordedCall(NamedTuple):
    """The record of a call, written before it is made."""

    key: str
    day: int
    token: int
    account: str
    call_key: str
    call_digest: str | None
    policy_version: str | None = None
    """The policy of the call; None: as it was."""


class DueBacklog(NamedTuple):
    """Backlog of one lane; counts stop at a bound, ages are in milliseconds."""

    lane: str
    due: int
    doubted: int
    oldest_due_ms: int
    oldest_doubt_ms: int


AlsoWritten = Callable[[Connection, set[str], int], None]
"""Gets the connection, the delivery keys that were moved just now, and the database's time."""


class RecoveryStore(Protocol):
    """Every method raises LedgerError and nothing else, and may be repeated as it was."""

    def lanes_with_work(self, lanes: Sequence[str]) -> tuple[list[str], list[str]]:
        """Returns the lanes with a row that is due, and the lanes with one to ask about."""

    def take(self, ask: DueQuery, owner: str, token: int) -> TakeResult:
        """Takes due rows for the owner, oldest first. A row past its TTL ends here; a row behind another of
        its line sleeps until that one ends. Neither hides rows that may go. A repeat with the same token
        returns the same rows."""

    def keep(self, calls: Sequence[RecordedCall]) -> list[bool]:
        """Records account, call key and digest before the calls. Returns False for a stale token."""

    def give_back(self, taken: Sequence[DueDelivery], delay_ms: int = 0) -> list[bool]:
        """Gives back rows whose calls were not begun: due as before, after `delay_ms`. Returns False for a
        stale token."""

    def doubts(
        self, lane: str, lease_ms: int, limit: int = LIMIT, *, ended: list[Ended] | None = None
    ) -> list[UnknownDelivery]:
        """Leases rows in doubt for `lease_ms` and returns them, oldest first. Parks unusable rows and adds
        them to `ended`."""

    def joined(self, doubt: UnknownDelivery, lease_ms: int) -> list[UnknownDelivery]:
        """Leases the rows in doubt for the same call for `lease_ms`. Returns them as they are now, with the
        doubt's own row and without recalled ones."""

    def ask_again(self, doubt: UnknownDelivery, delay_ms: int) -> bool:
        """Postpones the next question by `delay_ms`. Returns False where the row had been written."""

    def ask_first(self, key: str, day: int, version: int) -> bool:
        """Makes a row in doubt the first about which its provider is asked. Returns False where the row had
        been written or is in no doubt."""

    def move(self, moves: Sequence[Transition], also: AlsoWritten | None = None) -> list[bool]:
        """Makes the moves. Returns False where the row had been written. Raises IllegalTransition. `also`
        writes more in the same transaction."""

    def wake(self, lane: str, *, ordered: bool) -> int:
        """Makes rows due that sleep at the head of their line. Returns their number, normally 0: the end of
        a row wakes the next (idempotency/lines.py). Costs a little per ordering key, nothing per row. In a
        lane that keeps no order any more everything wakes, 10,000 rows a call."""

    def version_of(self, key: str) -> tuple[int, int, State] | None:
        """Returns (day, version, state) of a row; None for an unknown key."""

    def backlog(self, lanes: Sequence[str]) -> list[DueBacklog]:
        """Returns the backlog of each lane."""

    def hold(self, duty: str, holder: str, lease_ms: int) -> bool:
        """Takes or renews a duty. Returns False if another process has it."""

    def drop(self, duty: str, holder: str) -> None:
        """Gives the duty up, if it is the holder's."""


class DueVerdict(NamedTuple):
    """The decision on one due row."""

    state: State
    reason: str | None


def judge(row: Any, ask: DueQuery, now: int) -> DueVerdict:
    """Returns the decision on a due row; RETRY: its turn has not come. Reads version, attempt, refusals,
    reason, expires_at, called_at, `ahead` (an earlier one of its line is open) and `recalled`."""
    if not is_usable(row):
        return DueVerdict(State.PARKED, ROW_UNUSABLE)
    doubted = row.called_at is not None
    if row.expires_at <= now:
        # Expiry does not undo a call that may have sent it: a person has to know.
        return DueVerdict(State.PARKED, TTL_IN_DOUBT) if doubted else DueVerdict(State.EXPIRED, TTL)
    if row.recalled:
        return recalled(doubted=doubted)
    if row.attempt - row.refusals >= ask.attempts and not _goes_once_more(row.reason):
        return DueVerdict(State.PARKED, ATTEMPTS_SPENT)
    if row.ahead:
        return DueVerdict(State.RETRY, row.reason)
    return DueVerdict(State.IN_FLIGHT, row.reason)


def by_operator(reason: str | None) -> bool:
    """Returns True if a row waits because a person wants it sent."""
    return reason is not None and reason.partition(":")[0] == OPERATOR


def _goes_once_more(reason: str | None) -> bool:
    """Returns True if a row is called again although its attempts are spent."""
    return reason is not None and reason.partition(":")[0] in (OPERATOR, JOINT_REFUSAL)


def recalled(*, doubted: bool) -> DueVerdict:
    """Returns the decision on a waiting row that is recalled: it is not sent again. A person has to know
    where an earlier call is in doubt."""
    return (
        DueVerdict(State.PARKED, RECALLED_IN_DOUBT)
        if doubted
        else DueVerdict(State.DROPPED, RECALLED)
    )


def call_key_of(key: str, attempt: int) -> str:
    """Returns the name of a delivery's call that repeats none, 32 hex digits: the delivery's own key at
    first, then another for each attempt. A provider may drop a name that it has seen."""
    if attempt <= 1:
        return key
    return sha256(f"{key}\x1f{attempt}".encode()).hexdigest()[:KEY_LENGTH]
