"""Passes librdkafka's log lines on to structlog, without a flood of them while a broker is away."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

import structlog

log = structlog.get_logger("kafka")

_QUIET_S: Final = 30.0
_CHATTER: Final = frozenset({"CONFWARN", "MOCK", "TERMINATE"})
"""A property meant for the other kind of client is no problem of the user's."""


class ClientLog(logging.Logger):
    """The `logger=` of a client. The thread that polls the client calls `log`."""

    def __init__(
        self,
        *,
        quiet: bool = False,
        fatal: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without `fatal`, fatal errors are not logged: the thread that polls the client gets them."""
        super().__init__("kafka")
        self._quiet = quiet
        self._chatter = _CHATTER if fatal else _CHATTER | {"FATAL"}
        self._monotonic = monotonic
        self._said: dict[tuple[str, str], float] = {}

    def log(self, level: int, msg: object, *args: object, **_: Any) -> None:
        """Called by librdkafka as (level, "%s [%s] %s", facility, client, text)."""
        facility, client, text = (str(a) for a in args) if len(args) == 3 else ("", "", str(msg))
        if self._quiet or facility in self._chatter or self._just_said(facility, client):
            return
        # librdkafka tries again by itself; errors that it cannot mend are raised elsewhere.
        level = min(level, logging.WARNING)
        log.log(level, "kafka_client", facility=facility, client=client, text=text)

    def on_error(self, error: Any) -> None:
        """The client's `error_cb`, for errors of no single message."""
        self.log(logging.WARNING, "", error.name(), "", error.str())

    def _just_said(self, facility: str, client: str) -> bool:
        now = self._monotonic()
        last = self._said.get((facility, client))
        if last is not None and now - last < _QUIET_S:
            return True
        self._said[facility, client] = now
        return False
