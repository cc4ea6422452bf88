"""Passes librdkafka's log lines on to `logging`: one warning for an outage, one line at its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

log = logging.getLogger("hongyan_client")

_QUIET_S: Final = 30.0
_CALM_S: Final = 35.0
"""librdkafka repeats an unchanged error of one broker every 30 seconds."""
_CONNECTION: Final = frozenset(
    {"_TRANSPORT", "_RESOLVE", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_SSL", "_AUTHENTICATION"}
    | {"FAIL", "REQTMOUT", "TIMEOUT", "BROKERFAIL", "GETPID", "CONNFAIL"}
)
"""Names of errors, and facilities of lines, that an outage repeats."""
_FOR_CONSUMERS: Final = "is a consumer property"
"""In a line on a property that a producer ignores: one set of properties serves both kinds of clients."""


class KafkaLog(logging.Logger):
    """The `logger` of one librdkafka client. The thread that polls the client calls it."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__("hongyan_client.kafka")
        self._monotonic = monotonic
        self._logged_at: dict[str, float] = {}
        self._began: float | None = None  # monotonic seconds; None: no outage
        self._last = 0.0  # of the outage's newest error
        self._all_down = False
        self._acknowledged = 0  # at the outage's newest error
        self._newest = 0

    def log(self, level: int, msg: object, *args: object, **_: Any) -> None:
        """Called by librdkafka as (level, "%s [%s] %s", facility, client, text)."""
        facility = str(args[0]) if args else str(msg)
        text = str(msg) % args if args else str(msg)
        if facility == "CONFWARN" and _FOR_CONSUMERS in text:
            return
        self._pass_on(min(level, logging.WARNING), facility, text)

    def error(self, error: Any) -> None:  # type: ignore[override]
        """Logs an error of no single record, from `error_cb`. Fatal ones are always logged."""
        if error.fatal():
            log.error("kafka: %s: %s", error.name(), error.str())
            return
        self._all_down = self._all_down or error.name() == "_ALL_BROKERS_DOWN"
        self._pass_on(logging.WARNING, error.name(), f"{error.name()}: {error.str()}")

    def acknowledged(self, count: int) -> None:
        """Called after each poll with the acknowledgements so far: the first one after all brokers were
        away ends the outage. While only some are away, it ends once they cause no more errors."""
        self._newest = count
        if self._began is None or count == self._acknowledged:
            return
        now = self._monotonic()
        if self._all_down or now - self._last >= _CALM_S:
            log.info("kafka: it answers again after %.1f s", now - self._began)
            self._began, self._all_down = None, False

    def _pass_on(self, level: int, kind: str, text: str) -> None:
        now = self._monotonic()
        if kind in _CONNECTION:
            is_new = self._began is None or now - self._last >= _CALM_S
            self._last, self._acknowledged = now, self._newest
            if is_new:
                self._began = now
                log.log(level, "kafka: %s; further errors of this outage are not logged", text)
        elif now - self._logged_at.get(kind, float("-inf")) >= _QUIET_S:
            self._logged_at[kind] = now
            log.log(level, "kafka: %s", text)
