"""Celery in this process: a worker whose tasks run in threads, and a beat, beside the recovery they call.

Both run in threads of ours: signals and the drain order are recovery's.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import structlog
from celery.beat import Service
from celery.worker import WorkController, state

from backends.settings import Settings
from recovery.app import celery_app
from recovery.beat import DUTY, scheduler_for
from recovery.loop import WORKERS
from recovery.service import Recovery
from recovery.tasks import Serving

log = structlog.get_logger(__name__)
_OK: Final = 0


class Celery:
    """Implements `recovery.process.Scheduling`."""

    def __init__(self, settings: Settings) -> None:
        """Raises SettingsError without a Redis."""
        self._serving = Serving()
        self._app = celery_app(settings, self._serving)
        self._threads: list[threading.Thread] = []
        self._recovery: Recovery | None = None
        self._beat: Any = None

    def start(self, recovery: Recovery) -> None:
        """See `Scheduling.start`."""
        self._recovery = self._serving.recovery = recovery
        state.should_stop = None
        # The threads of its pool look their tasks up in the default app.
        self._app.set_default()
        worker = WorkController(
            app=self._app,
            pool="threads",
            concurrency=WORKERS,
            without_heartbeat=True,
            without_mingle=True,
            without_gossip=True,
            loglevel="WARNING",
        )
        self._beat = Service(self._app, scheduler_cls=scheduler_for(recovery.hold))
        self._threads = [
            recovery.crew.start("celery-worker", lambda: _serve(worker)),
            recovery.crew.start("celery-beat", self._beat.start),
        ]

    def stop(self) -> None:
        """See `Scheduling.stop`."""
        state.should_stop = _OK
        if self._beat is not None:
            self._beat.stop()
        if self._recovery is not None:
            self._recovery.drop(DUTY)

    def join(self, timeout_s: float) -> None:
        """See `Scheduling.join`."""
        for thread in self._threads:
            thread.join(timeout_s)


def _serve(worker: Any) -> None:
    """Celery's worker ends by itself only when told to; else it was an error that nobody else sees."""
    worker.start()
    if state.should_stop is None:
        raise RuntimeError(f"Celery's worker ended by itself (code {worker.exitcode})")
