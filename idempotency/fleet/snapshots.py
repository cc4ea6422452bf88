"""Snapshot of a process in its heartbeat row: one bounded JSON text, written with the heartbeat."""

from __future__ import annotations

from typing import Final

import msgspec

MOST_CHARACTERS: Final = 8_000
"""Longest text; further lanes are left out, the idle ones first."""
MOST_NAMES: Final = 20
"""Accounts of one lane that are named."""
MOST_ACCOUNTS: Final = 40
"""Accounts of one process; those with nothing to show are left out first."""


class LaneSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """One lane in one process."""

    in_flight: int = 0
    """Deliveries claimed and not settled."""
    waiting: int = 0
    """Deliveries read and not claimed."""
    lag: int | None = None
    """Records behind the log's end; None: it reads no partition of the lane."""
    partitions: int = 0
    rate: float = 0.0
    """Deliveries settled a second, since the heartbeat before."""
    open: list[str] = []
    """Accounts whose breaker is not closed."""
    paused: bool = False
    """Whether it obeys a pause."""
    oldest: float = 0.0
    """Age of the oldest record whose offset is not committed, seconds."""

    @property
    def idle(self) -> bool:
        """Whether the lane has nothing to show but its partitions."""
        return not (self.in_flight or self.waiting or self.lag or self.open or self.paused)


class AccountSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """One account in one process, over all of its lanes there."""

    breaker: int = 0
    """Its worst breaker: 0 closed, 1 half open, 2 open."""
    rate: float = 0.0
    """Deliveries that its provider took a second, lately."""
    limit: float | None = None
    """Deliveries a second that the fleet may send through it, its own limit or a learnt one; None: any."""
    shut_s: float = 0.0
    """Seconds left of the pause that its provider asked for."""
    token_age_s: int | None = None
    """Seconds since this process got its access token; None: it holds none."""
    token_left_s: int | None = None
    """Seconds until that token ends."""
    paused: bool = False
    """Whether it obeys a person's pause."""
    login_refused: bool = False
    """Whether its provider refused its login lately."""

    @property
    def idle(self) -> bool:
        """Whether there is nothing that a person must see."""
        return not (self.breaker or self.shut_s or self.paused or self.login_refused)


class BacklogSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """Work that waits in a process without lanes, or in the database that it empties."""

    waiting: int = 0
    """Records without an acknowledgement, runs, messages or rows; docs/operations.md says which."""
    oldest_s: float = 0.0
    """Age of the oldest, seconds; 0 where none waits or none is measured."""
    parked: int = 0
    """Waiting for a person."""


class ReceiptSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """Receipts of one account in one receipts process, since its start."""

    taken: int = 0
    """Receipts stored."""
    last_s: int | None = None
    """Seconds since it stored one; None: none yet."""
    lag_s: float | None = None
    """Longest time from event to storage in the last batch, seconds; None: its provider names no times."""
    asked_s: int | None = None
    """Seconds since the provider answered a question for receipts; None: it never did."""


class ProcessSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process. Its version is a column of its own."""

    policy: int = 0
    """Number of the policy version that it follows; 0: the file's."""
    lanes: dict[str, LaneSnapshot] = {}
    left_out: int = 0
    """Lanes that found no place."""
    accounts: dict[str, AccountSnapshot] = {}
    backlog: BacklogSnapshot | None = None
    """None: it serves lanes, or could not measure."""
    templates: int | None = None
    """Number of the templates' version that it follows; 0: the file's; None: it follows none."""
    receipts: dict[str, ReceiptSnapshot] = {}
    """By account, of a receipts process."""


def encoded(snapshot: ProcessSnapshot) -> str:
    """Returns the snapshot as text of at most MOST_CHARACTERS."""
    busy = sorted(snapshot.lanes.items(), key=lambda item: (item[1].idle, item[0]))
    lanes = [(lane, msgspec.structs.replace(one, open=one.open[:MOST_NAMES])) for lane, one in busy]
    of_all = sorted(snapshot.accounts.items(), key=lambda item: (item[1].idle, item[0]))
    accounts = dict(of_all[:MOST_ACCOUNTS])
    if len(msgspec.json.encode(accounts)) > MOST_CHARACTERS // 2:  # long names
        accounts = {}
    whole = msgspec.structs.replace(snapshot, accounts=accounts, receipts=_some(snapshot.receipts))
    for kept in range(len(lanes), -1, -1):
        left_out = len(lanes) - kept
        some = msgspec.structs.replace(whole, lanes=dict(lanes[:kept]), left_out=left_out)
        text = msgspec.json.encode(some).decode()
        if len(text) <= MOST_CHARACTERS:
            return text
    return ""


def _some(receipts: dict[str, ReceiptSnapshot]) -> dict[str, ReceiptSnapshot]:
    """Returns the accounts that find a place in a half of the text."""
    kept = dict(sorted(receipts.items())[:MOST_ACCOUNTS])
    return kept if len(msgspec.json.encode(kept)) <= MOST_CHARACTERS // 2 else {}


def decoded(text: str) -> ProcessSnapshot | None:
    """Returns the snapshot; None if there is none, or one of a version that this one cannot read."""
    try:
        return msgspec.json.decode(text, type=ProcessSnapshot) if text else None
    except msgspec.DecodeError:
        return None
