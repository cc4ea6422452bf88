"""Judges librdkafka's errors: is the record certainly not in Kafka, and may another try succeed?

librdkafka repeats by itself until the delivery timeout. The Python client does not tell whether an earlier
try reached the broker. So a timeout is in doubt, and so is a record that `close` took back. Only the errors
below prove that the record is not in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hongyan_client.errors import NotDelivered, SendFailed, SendInDoubt
from message.kafka_errors import is_fatal

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_REFUSED: Final = frozenset({"MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "TOPIC_EXCEPTION"})
"""The record or its topic's name is at fault: no try can succeed."""
_NOT_YET: Final = frozenset(
    {"_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_OR_PART"}
    | {"TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"}
)
"""No such topic, or no right to write to it: a person can mend it."""
_OF_ALL_TOPICS: Final = "cluster_authorization_failed"
"""Of the above, the code that says as much of every other record."""
TAKEN_BACK: Final = frozenset({"purge_queue", "purge_inflight"})
"""Codes of records that `Publisher.close` or `take_back` ended."""
_ADVICE: Final = {
    "MSG_SIZE_TOO_LARGE": "make the message smaller",
    "TOPIC_EXCEPTION": "correct the topic's name",
    "_UNKNOWN_TOPIC": "run `hongyan topics apply`",
    "UNKNOWN_TOPIC_OR_PART": "run `hongyan topics apply`",
    "_UNKNOWN_PARTITION": "run `hongyan topics apply`",
    "TOPIC_AUTHORIZATION_FAILED": "grant the producer WRITE on the topic",
    "CLUSTER_AUTHORIZATION_FAILED": "grant the producer IDEMPOTENT_WRITE",
}
_AGAIN: Final = "send it again with the same id"


def failure_of(error: KafkaError, topic: str) -> SendFailed:
    """Returns the error of one record."""
    name = error.name()
    advice = _ADVICE.get(name, _AGAIN)
    text = f"Kafka did not acknowledge the record for {topic} ({error.str()}); {advice}"
    code = name.lower().lstrip("_")
    if name in _REFUSED:
        return NotDelivered(text, code, repeatable=False)
    if name in _NOT_YET:
        return NotDelivered(text, code)
    return SendInDoubt(text, code)


def is_of_one_topic(failure: SendFailed) -> bool:
    """Returns whether the failure is about the record or its topic. Any other may be Kafka's as a whole: no
    answer, no connection, no right to write at all."""
    return isinstance(failure, NotDelivered) and failure.code != _OF_ALL_TOPICS


def refusal(exc: Exception) -> NotDelivered | None:
    """Returns the error of a record that librdkafka did not take; None where its queue is full, and after a
    fatal error, when a new producer takes it."""
    if isinstance(exc, BufferError):
        return None
    error: Any = exc.args[0] if exc.args else exc
    if not hasattr(error, "name"):
        text = f"the record has parts of a wrong type ({exc}); key, value and headers are bytes"
        return NotDelivered(text, "wrong_type", repeatable=False)
    if is_fatal(error):
        return None
    failed = failure_of(error, "its topic")
    return NotDelivered(str(failed), failed.code, repeatable=failed.repeatable)
