"""Errors of transactional messages. Each text is one sentence that says what to do.

LookBackError
 ├─ TransactionFenced  the check decided before the business did: roll the business transaction back
 ├─ BadIdentity        a name, or a message, that no record may carry
 ├─ NotSigned          a check's question without a valid signature
 └─ LookupFailed       the business's own function did not answer
hongyan_client.errors.ClientError
 └─ PrepareLate        Kafka did not acknowledge a prepare in time: do not begin the transaction
"""

from __future__ import annotations

from hongyan_client.errors import ClientError


class LookBackError(Exception):
    """Base of the ladder."""


class TransactionFenced(LookBackError):
    """The transaction has a barrier already. Let the error end the business transaction."""


class BadIdentity(LookBackError):
    """A name or a message that cannot be used; the text says why."""


class NotSigned(LookBackError):
    """A question that nobody may be answered; the text says why and holds no secret."""


class LookupFailed(LookBackError):
    """The business's function for a check raised an error: nothing is decided."""


class PrepareLate(ClientError):
    """The message may be in Kafka. Without a transaction its check says ROLLBACK."""
