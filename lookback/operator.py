"""Moves of a person: the list of unresolved transactions, and the decision about one."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec
from sqlalchemy import Connection

from lookback.states import TxState


class TxDecision(StrEnum):
    """A decision about a transaction. It is written once."""

    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"


class TxShown(msgspec.Struct, frozen=True, kw_only=True):
    """One transaction as a person sees it: without its body. Times are epoch milliseconds."""

    tx_id: str
    biz_type: str
    biz_id: str
    state: TxState
    topic: str
    """Empty: no prepare came yet, so there is no body to forward."""
    decision: str
    """COMMIT or ROLLBACK; empty: none yet."""
    decided_by: str
    """business, check or operator; empty: nobody."""
    person: str
    why: str
    """The person's reason."""
    reason: str
    """Why it is unresolved, a code and a sentence."""
    checks: int
    """Checks made."""
    last_error: str
    conflict: str
    """Opposite decisions and other bodies that came later, with their sources; empty: none."""
    has_body: bool
    prepared_at: int | None
    updated_at: int
    forwarded_to: str
    """topic/partition/offset; empty: not forwarded."""


class UnresolvedPage(NamedTuple):
    """A page of the queue, the oldest first."""

    rows: Sequence[TxShown]
    after: str
    """For the next page; empty: this is the last one."""


class NotResolvable(Exception):
    """The decision cannot be written; the text says why, in one sentence."""


class LookbackDesk(Protocol):
    """Implemented by `lookback.store.LookbackStore`. Every method raises LedgerError."""

    def unresolved(
        self, *, biz_type: str = "", after: str = "", limit: int = 100
    ) -> UnresolvedPage:
        """Returns a page of unresolved transactions; with `biz_type` of that one alone."""
        ...

    def find(self, name: str) -> list[TxShown]:
        """Returns the transactions with this tx_id or biz_id, archived ones too, the newest first."""
        ...

    def unresolved_counts(self) -> dict[str, int]:
        """Returns the number of unresolved transactions by biz_type."""
        ...

    def resolve(self, tx_id: str, decision: TxDecision, *, person: str, reason: str) -> TxShown:
        """Decides about an unresolved transaction. Returns it as it is then. Raises NotResolvable."""
        ...

    def resolve_in(
        self,
        connection: Connection,
        tx_id: str,
        decision: TxDecision,
        *,
        person: str,
        reason: str,
    ) -> TxShown:
        """As `resolve`, in the caller's transaction, beside its audit entry."""
        ...
