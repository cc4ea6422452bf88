"""Errors of librdkafka, as the platform and the client both read them."""

from __future__ import annotations

from typing import Final, Protocol

_FATAL: Final = "_FATAL"
"""Code of a polled message, and of a producer's refusal, after a fatal error."""


class ReportedError(Protocol):
    """The part of `confluent_kafka.KafkaError` that is read here."""

    def fatal(self) -> bool:
        """Returns whether librdkafka reports it as fatal."""
        ...

    def name(self) -> str:
        """Returns the code's name."""
        ...


def is_fatal(error: ReportedError) -> bool:
    """Returns whether the client cannot go on. An error of a poll, a report or `produce` shows it by its
    code alone: even then its `fatal()` is False."""
    return error.fatal() or error.name() == _FATAL
