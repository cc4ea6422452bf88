"""The question to the business about a transaction of which no decision came."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol


class Answer(StrEnum):
    """The business's answer. Anything else than a clear commit or rollback is UNKNOWN."""

    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    UNKNOWN = "UNKNOWN"


class CheckReply(NamedTuple):
    """One answer."""

    answer: Answer
    detail: str = ""
    """Reason for an UNKNOWN, one sentence; no secret, no personal data."""
    fenced: bool = False
    """Whether the check fenced the business: a transaction that is late then aborts. A ROLLBACK without
    a fence counts only after the declared longest business transaction."""
    made: bool = True
    """Whether the business was asked. A check held back by breaker or cap is no attempt."""


class Checker(Protocol):
    """Asks one endpoint. Called from several threads at once."""

    def check(self, biz_type: str, biz_id: str, tx_id: str) -> CheckReply:
        """Asks once, within the endpoint's own time limit. An exception counts as UNKNOWN."""
        ...
