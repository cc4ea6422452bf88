"""The ledger's contract: one row per delivery, unique by its key and fenced by a token.

One statement claims or settles a whole batch. The clock is the database's. An implementation maps its
driver's errors to the ladder below, once.

    LedgerError
     ├─ LedgerUnavailable   the database cannot be reached or went away: nothing is decided, try again
     ├─ LedgerRefused       the server answers and refuses the login: look at database.url
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
    """The database is away. The statement may have been committed or not: repeat it as it was."""


class LedgerRefused(LedgerError):
    """The login, the password or the database's name is wrong. Raised at the start alone: later, a server
    under restore may refuse, too."""


class LedgerOutdated(LedgerError):
    """The schema is missing or of another version."""


class Claim(msgspec.Struct, gc=False):
    """One delivery to enter into the ledger, in the state that intake decided.

    `event` is CLAIM for a delivery to send, else TTL_AT_INTAKE, DROP, PARK, HOLD or BEHIND; FOUND for one
    that was lost and is to be sent. A row that waits has its `next_at` at `delay_ms` after the database's
    now.
    """

    delivery: Delivery
    token: int
    """Fresh per claim and the same in its repeats, so that a repeat wins its own row."""
    event: Event = Event.CLAIM
    reason: str | None = None
    delay_ms: int = 0


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """The ledger's answer to one claim.

    `won`: the row is ours under our token; this claim or an earlier try of it made it or took it over.
    Otherwise the row existed: `state` is its state now, and `conflict` is True if it has other bytes.
    A won CLAIM has state RETRY if an earlier delivery of its ordering key is open (reason `behind`): the
    ledger releases it later. It, a HOLD or a PARK has state DROPPED if the notification is recalled.
    """

    won: bool
    state: State
    conflict: bool = False
    attempt: int = 1
    day: int = 0


class Settlement(msgspec.Struct, gc=False):
    """One outcome to record: `event` moves the row that `delivery.token` still owns.

    A row that goes to RETRY has its `next_at` at `delay_ms` after the database's now.
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
RECEIPTS: Final = "receipts"
"""Kinds of processes with a heartbeat; further ones have the names of `/metrics`."""
IDLE: Final = "IDLE"
"""The state of a process that lives and sends nothing."""


class WorkerInfo(msgspec.Struct, frozen=True):
    """A worker's entry in `hongyan_workers`."""

    id: str
    host: str
    pid: int
    lanes: list[str]
    threads: int
    lease_ms: int
    kind: str = WORKER
    program: str = ""
    """The program's version; empty where unknown."""


class Ledger(Protocol):
    """The truth about deliveries. Every method raises LedgerError and nothing else."""

    def identity(self) -> str:
        """Returns the random name given to this database once. Pre-filter keys carry it, so that marks of
        another or an emptied database never hit."""

    def claim(self, claims: Sequence[Claim], owner: str, *, ordered: bool = False) -> list[Claimed]:
        """Enters the claims, durably, in one statement. Returns the answers in the order given.

        A repeat of a call whose reply was lost returns the same answers. A repeat may have another event,
        since time goes on: a row that an earlier try made IN_FLIGHT is won, and stays so. With `ordered`, a
        CLAIM behind an earlier open row of its ordering key and lane enters as RETRY, reason `behind`.
        """

    def settle(
        self, settlements: Sequence[Settlement], ordered: frozenset[str] = frozenset()
    ) -> list[bool]:
        """Records outcomes durably. Returns False where the token was stale (fenced).

        A repeat of a call whose reply was lost returns True again for rows that the first one wrote. In the
        lanes `ordered`, an outcome that ends its row makes the next row of its line due at once.
        """

    def settle_and_claim(
        self,
        settlements: Sequence[Settlement],
        claims: Sequence[Claim],
        owner: str,
        ordered: frozenset[str] = frozenset(),
    ) -> tuple[list[bool], list[Claimed]]:
        """Records outcomes, then enters claims that are not `ordered`, durably, in one statement where the
        database can. The claims take the places that the outcomes free: at no time are more rows IN_FLIGHT
        than before or after. Repeatable as `settle` and `claim` are."""

    def reroute(self, deliveries: Sequence[Delivery]) -> list[bool]:
        """Puts another account and call on record, durably, in one statement, and counts the attempt: after
        a definite non-send the same claim is called elsewhere. Returns False where the token is stale, and
        sets `delivery.attempt` where True. Not repeatable: after LedgerUnavailable make no call."""

    def register(self, worker: WorkerInfo) -> Lease:
        """Enters the worker under a new epoch. Rows that an earlier life of the same id left IN_FLIGHT
        become UNKNOWN. Raises WorkerNameTaken while another live process holds the id."""

    def heartbeat(self, lease: Lease, state: str = "RUNNING", snapshot: str = "") -> Lease | None:
        """Renews the lease, however late. Returns None if the life was swept or a newer epoch took the id:
        stop sending, register again. `snapshot` is shown to people (idempotency/fleet/snapshots.py)."""

    def retire(self, lease: Lease) -> None:
        """Ends the worker's life; its rows still IN_FLIGHT become UNKNOWN."""

    def sweep(self) -> list[tuple[str, int]]:
        """Turns the IN_FLIGHT rows of every worker whose heartbeat lapsed into UNKNOWN, in one transaction.
        Returns (worker id, rows) for each. Safe from many workers at once."""

    def live_lanes(self) -> list[frozenset[str]]:
        """Returns the lanes of each worker and recovery whose heartbeat has not lapsed."""

    def sending_lanes(self) -> list[frozenset[str]]:
        """As `live_lanes`, without IDLE processes but with those registered by this process: they divide
        an account's rate while Redis is away."""

    def now_ms(self) -> int:
        """Returns the database's clock, epoch milliseconds."""

    def close(self) -> None:
        """Closes the connections; idempotent."""


class WorkerNameTaken(LedgerError):
    """Another live process is registered under this worker id; the text names host, pid and age."""
