"""Passes librdkafka's log lines on to `logging`, without a flood of them while a broker is away."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

log = logging.getLogger("hongyan_client")

_QUIET_S: Final = 30.0


class KafkaLog(logging.Logger):
    """The `logger` of one librdkafka client. The thread that polls the client calls it."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__("hongyan_client.kafka")
        self._monotonic = monotonic
        self._logged_at: dict[str, float] = {}

    def log(self, level: int, msg: object, *args: object, **_: Any) -> None:
        """Called by librdkafka as (level, "%s [%s] %s", facility, client, text)."""
        facility = str(args[0]) if args else str(msg)
        self._pass_on(min(level, logging.WARNING), facility, str(msg) % args if args else str(msg))

    def error(self, error: Any) -> None:  # type: ignore[override]
        """Logs an error of no single record, from `error_cb`. Fatal ones are always logged."""
        if error.fatal():
            log.error("kafka: %s: %s", error.name(), error.str())
        else:
            self._pass_on(logging.WARNING, error.name(), f"{error.name()}: {error.str()}")

    def _pass_on(self, level: int, kind: str, text: str) -> None:
        now = self._monotonic()
        if now - self._logged_at.get(kind, float("-inf")) >= _QUIET_S:
            self._logged_at[kind] = now
            log.log(level, "kafka: %s", text)
