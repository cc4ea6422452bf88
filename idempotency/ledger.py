"""The ledger's contract: one row per delivery, unique on its key, batched, fenced by token.

Everything here is batched: one statement claims, one settles, however many deliveries. The clock is
the database's. An implementation maps what its driver raises to the ladder below, once.

    LedgerError
     ├─ LedgerUnavailable   the database cannot be reached or went away: nothing is decided, try again
     ├─ LedgerRefused       the server is there and does not let us in: look at database.url
     └─ LedgerOutdated      its schema is not this version's: run `hongyan db upgrade`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from message.delivery import Delivery
from message.states import Event, State


class LedgerError(Exception):
    """Base of the ladder."""


class LedgerUnavailable(LedgerError):
    """The database is away. The statement may or may not have been committed: repeat it as it was."""


class LedgerRefused(LedgerError):
    """The login, the password or the database's name is wrong. Told at the start alone: later, a server
    that refuses may be one that is being restored."""


class LedgerOutdated(LedgerError):
    """The schema is missing or of another version."""


class Claim(msgspec.Struct, gc=False):
    """One delivery to be entered into the ledger, in the state that intake decided.

    `event` is CLAIM for what shall be sent, or TTL_AT_INTAKE, DROP, HOLD, BEHIND for what shall not.
    `delay_ms` from the database's now gives `next_at` of a row that waits.
    """

    delivery: Delivery
    token: int
    """Fresh per claim, kept when the same claim is repeated: so a repeat finds its own row and wins."""
    event: Event = Event.CLAIM
    reason: str | None = None
    delay_ms: int = 0


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """What the ledger answered to one claim.

    `won`: the row is ours under our token (newly made, or made by an earlier try of this very
    claim). Otherwise the row was there: `state` is what it stands in now, `conflict` whether it was
    made from other bytes. `state` of a won CLAIM can be RETRY: an earlier delivery of its ordering
    key is open (reason `behind`), so it is the ledger's to release, not ours to send. It is DROPPED
    where the notification is recalled.
    """

    won: bool
    state: State
    conflict: bool = False
    attempt: int = 1
    day: int = 0


class Settlement(msgspec.Struct, gc=False):
    """One outcome to be recorded: `event` moves the row that `delivery.token` still owns.

    `delay_ms` from the database's now gives `next_at` where the row goes to RETRY.
    """

    delivery: Delivery
    event: Event
    reason: str | None = None
    provider_id: str | None = None
    delay_ms: int = 0


class Lease(msgspec.Struct, frozen=True):
    """One worker's heartbeat row as it was last written; `epoch` fences an older life of the same id."""

    worker_id: str
    epoch: int
    now_ms: int
    """The database's clock at the heartbeat, epoch milliseconds."""


WORKER: Final = "worker"
RECOVERY: Final = "recovery"
"""Kinds of processes that have a heartbeat."""
IDLE: Final = "IDLE"
"""The state of a process that lives and sends nothing."""


class WorkerInfo(msgspec.Struct, frozen=True):
    """What a worker says of itself in `hongyan_workers`."""

    id: str
    host: str
    pid: int
    lanes: list[str]
    threads: int
    lease_ms: int
    kind: str = WORKER
    program: str = ""
    """The program's version; empty: not told."""


class Ledger(Protocol):
    """The truth about deliveries. Every method raises LedgerError and nothing else."""

    def identity(self) -> str:
        """A random name given to this database once: pre-filter keys carry it, so that marks made
        for another or an emptied database never hit."""
        ...

    def claim(self, claims: Sequence[Claim], owner: str, *, ordered: bool = False) -> list[Claimed]:
        """Enter the claims, durably, in one statement; answers in the order given.

        Repeating a call whose reply was lost gives the same answers. With `ordered`, a CLAIM whose
        ordering key has an earlier open row in the same lane enters as RETRY, reason `behind`.
        """
        ...

    def settle(
        self, settlements: Sequence[Settlement], ordered: frozenset[str] = frozenset()
    ) -> list[bool]:
        """Record outcomes, durably, in one statement; False where the token was stale (fenced).

        Repeating a call whose reply was lost gives True again for what the first one wrote. In the
        lanes `ordered`, whatever follows an outcome that ends its row is due at once.
        """
        ...

    def settle_and_claim(
        self,
        settlements: Sequence[Settlement],
        claims: Sequence[Claim],
        owner: str,
        ordered: frozenset[str] = frozenset(),
    ) -> tuple[list[bool], list[Claimed]]:
        """Record outcomes, then enter claims that are not `ordered`, durably, in one statement where the
        database can: the claims take the places that the outcomes free, and at no time are more rows
        IN_FLIGHT than before or after. Repeatable as `settle` and `claim` are."""
        ...

    def reroute(self, deliveries: Sequence[Delivery]) -> list[bool]:
        """Put another account and call on record, durably, in one statement, and count the attempt: a
        definite non-send is followed by a call elsewhere under the same claim. False where the token is
        stale; `delivery.attempt` is brought up where it is True. Not repeatable: after LedgerUnavailable
        make no call."""
        ...

    def register(self, worker: WorkerInfo) -> Lease:
        """Enter the worker under a new epoch; rows an earlier life of the same id left IN_FLIGHT
        become UNKNOWN. Raises WorkerNameTaken while another live process holds the id."""
        ...

    def heartbeat(self, lease: Lease, state: str = "RUNNING") -> Lease | None:
        """Renew, however late; None when the life was swept, or a newer epoch took the id: stop
        sending, register again."""
        ...

    def retire(self, lease: Lease) -> None:
        """The worker is gone for good; its rows still IN_FLIGHT become UNKNOWN."""
        ...

    def sweep(self) -> list[tuple[str, int]]:
        """Turn the IN_FLIGHT rows of every worker whose heartbeat lapsed into UNKNOWN, in one
        statement; returns (worker id, rows) for each. Safe from many workers at once."""
        ...

    def live_lanes(self) -> list[frozenset[str]]:
        """The lanes of each worker and recovery whose heartbeat has not lapsed."""
        ...

    def sending_lanes(self) -> list[frozenset[str]]:
        """As `live_lanes`, without those that told they are IDLE, but with those registered by this
        process: they share an account's rate where nothing else can be shared."""
        ...

    def now_ms(self) -> int:
        """The database's clock, epoch milliseconds."""
        ...

    def close(self) -> None:
        """Give back connections; idempotent."""
        ...


class WorkerNameTaken(LedgerError):
    """Another live process is registered under this worker id; the text says host, pid and age."""
