"""The result of a recall: the part that every provider with errcodes shares.

no answer, or none that can be read       ASK_LATER
errcode 0                                 BACK
a code that says "not now" (NotSent)      ASK_LATER
a documented code that says nothing       ASK_LATER: "busy", an internal error; a recall may be repeated
any other, documented or not              REFUSED, in the provider's words
"""

from __future__ import annotations

from typing import Final

from channels.channel import Answer, Failure, RecallResult, RecallStatus
from channels.judging.error_table import ErrorTable

_OK: Final = "0"


def taken_back(errors: ErrorTable, answer: Answer, code: str, words: str) -> RecallResult:
    """Returns the result. `code` and `words` are the adapter's reading of the answer, or empty."""
    if isinstance(answer, Failure):
        return RecallResult(RecallStatus.ASK_LATER, answer.code)
    if not code:
        return RecallResult(
            RecallStatus.ASK_LATER, f"http_{answer.status_code}: an answer without an errcode"
        )
    if code == _OK:
        return RecallResult(RecallStatus.BACK)
    row = errors.row(code)
    later = row is not None and row.kind in ("not_sent", "unknown")
    taken = RecallStatus.ASK_LATER if later else RecallStatus.REFUSED
    return RecallResult(taken, f"{code}: {words}".rstrip(": "))
