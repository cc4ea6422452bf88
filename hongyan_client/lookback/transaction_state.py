"""The answer of a check: the state of one business transaction."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple


class TransactionState(StrEnum):
    """The business's word on its transaction. UNKNOWN makes the service ask again later."""

    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    UNKNOWN = "UNKNOWN"


class StateReply(NamedTuple):
    """A state with the business id that it is about."""

    state: TransactionState
    biz_id: str
    detail: str = ""
    """Cause of an UNKNOWN, for the service's log: no secret, no person."""
    fenced: bool = False
    """Whether a transaction that comes later aborts. Without it a ROLLBACK counts only after the declared
    longest business transaction."""

    def fields(self) -> dict[str, Any]:
        """Returns the reply as JSON has it."""
        found: dict[str, Any] = {"state": self.state.value, "biz_id": self.biz_id}
        if self.fenced:
            found["fenced"] = True
        return found | {"detail": self.detail} if self.detail else found
