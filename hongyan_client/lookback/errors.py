"""Errors of the fenced check and of its endpoints. Each text is one sentence that says what to do.

LookBackError
 ├─ TransactionFenced  the check decided before the business did: roll the business transaction back
 ├─ BadIdentity        a business type, business id or transaction id that cannot be used
 ├─ NotSigned          a check's question without a valid signature
 └─ LookupFailed       the business's own function did not answer
"""

from __future__ import annotations


class LookBackError(Exception):
    """Base of the ladder."""


class TransactionFenced(LookBackError):
    """The transaction has a barrier already. Let the error end the business transaction."""


class BadIdentity(LookBackError):
    """A name that cannot be used; the text says why."""


class NotSigned(LookBackError):
    """A question that nobody may be answered; the text says why and holds no secret."""


class LookupFailed(LookBackError):
    """The business's function for a check raised an error: nothing is decided."""
