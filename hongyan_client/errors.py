"""Errors of the client. Each text is one sentence that says what to do.

ClientError
 ├─ WrongProperties  the producer's properties or sizes contradict each other or a promise
 ├─ ClientClosed     the client was closed, or the process was forked after it was opened
 ├─ BufferFull       the buffer had no room until the deadline: nothing of the record was sent
 └─ SendFailed       no acknowledgement came; `code` is the broker's or librdkafka's name of the cause
     ├─ NotDelivered    the record is certainly not in Kafka
     └─ SendInDoubt         the record may be in Kafka: send it again with the same id
"""

from __future__ import annotations


class ClientError(Exception):
    """Base of the ladder."""


class WrongProperties(ClientError):
    """A property that no producer may have, or sizes that contradict each other."""


class WrongNotification(ClientError):
    """No worker could send it; nothing was handed to Kafka."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class ClientClosed(ClientError):
    """The client takes nothing any more."""


class BufferFull(ClientError):
    """No room came free until the deadline; the record was not taken."""


class SendFailed(ClientError):
    """Kafka did not acknowledge the record."""

    def __init__(self, text: str, code: str, *, repeatable: bool = True) -> None:
        """`code`: name of the cause in lower case. `repeatable`: another try may succeed."""
        super().__init__(text)
        self.code = code
        self.repeatable = repeatable


class NotDelivered(SendFailed):
    """The record is certainly not in Kafka."""


class SendInDoubt(SendFailed):
    """The record may be in Kafka."""
