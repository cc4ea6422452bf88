"""Turns Celery's and kombu's log records into events like all others.

A record about the broker is not logged, so that an outage causes no flood: recovery logs once that Celery
is silent, with the latest cause (recovery/scheduling/stand_in.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import structlog
from celery.beat import SchedulingError
from celery.worker.consumer.consumer import RestartFreqExceeded
from kombu.exceptions import KombuError

from backends.redis.client import CLIENT_ERRORS
from recovery.activity import Activity

log = structlog.get_logger("celery")
LOGGERS: Final = ("celery", "kombu")
_OF_JOBS: Final = ("celery.app.trace", "celery.task")
"""Loggers of ended jobs, whose errors are not the broker's."""
_OF_BROKER: Final = (*CLIENT_ERRORS, KombuError, SchedulingError, RestartFreqExceeded)
_LONGEST: Final = 300


class CeleryLog(logging.Handler):
    """Takes every record of Celery and kombu. `emit` is thread-safe."""

    def __init__(self, activity: Activity) -> None:
        super().__init__()
        self._activity = activity

    def install(self) -> None:
        """Replaces the handlers of Celery's and kombu's loggers."""
        for name in LOGGERS:
            logger = logging.getLogger(name)
            logger.handlers = [self]
            logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler.emit`."""
        error = None if record.name.startswith(_OF_JOBS) else _broker_error(record)
        if error is not None:
            self._activity.note(one_line(error))
            return
        info = record.exc_info if record.exc_info and record.exc_info[0] else None
        log.log(
            record.levelno, "celery", logger=record.name, text=_first_line(record), exc_info=info
        )


def one_line(error: BaseException) -> str:
    """Returns the innermost error in one line."""
    for inner in _chain(error):
        error = inner
    return f"{type(error).__name__}: {error}".partition("\n")[0][:_LONGEST]


def is_of_broker(error: BaseException) -> bool:
    """Returns whether the broker, or the connection to it, is the cause."""
    return any(isinstance(one, _OF_BROKER) for one in _chain(error))


def _broker_error(record: logging.LogRecord) -> BaseException | None:
    arguments = record.args if isinstance(record.args, tuple) else ()
    candidates = [*arguments, record.exc_info[1] if record.exc_info else None]
    errors = (one for one in candidates if isinstance(one, BaseException))
    return next((error for error in errors if is_of_broker(error)), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yields the error, its cause, and so on; ends where the chain is a circle."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or one.__context__


def _first_line(record: logging.LogRecord) -> str:
    return record.getMessage().strip().partition("\n")[0][:_LONGEST]
