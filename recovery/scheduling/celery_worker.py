"""Celery in recovery's process: a worker whose tasks run in threads, and a beat.

Both run in threads of ours: recovery handles signals and the drain order. A part that ends by an error is
started again, and so is a worker that reads no queue. While Celery calls no job, the built-in schedule
calls them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import structlog
from celery.beat import Service
from celery.worker import WorkController, state

from backends.settings import Settings, SettingsError
from recovery.activity import Activity
from recovery.scheduling.celery_app import celery_app, key_prefix
from recovery.scheduling.celery_keys import CeleryKeys
from recovery.scheduling.celery_logs import CeleryLog, is_of_broker, one_line
from recovery.scheduling.celery_names import names_of
from recovery.scheduling.celery_tasks import Serving
from recovery.scheduling.deaf_worker import DeafWorkerWatch
from recovery.scheduling.leader_beat import scheduler_for
from recovery.scheduling.loop import WORKERS
from recovery.scheduling.stand_in import StandIn
from recovery.service import Recovery

log = structlog.get_logger(__name__)
_OK: Final = 0
_AGAIN_S: Final = 2.0
"""Pause before a worker or a beat that ended by an error is started again."""


class Celery:
    """Implements `recovery.process.Scheduling`."""

    def __init__(self, settings: Settings, lanes: Sequence[str]) -> None:
        """`lanes`: names of those that this recovery serves. Raises SettingsError without a Redis."""
        self._names = names_of(lanes)
        self._activity = Activity()
        self._serving = Serving(self._activity)
        self._app = celery_app(settings, self._serving, self._names.queue)
        try:
            self._keys = CeleryKeys(settings.redis, key_prefix(settings), self._names.queue)
        except ValueError as exc:
            raise SettingsError(f"redis.url: {exc}") from exc
        self._threads: list[threading.Thread] = []
        self._recovery: Recovery | None = None
        self._beat: Any = None  # written by `_tick` in the thread "celery-beat"; read by `stop`

    def start(self, recovery: Recovery) -> None:
        """See `Scheduling.start`."""
        self._recovery = self._serving.recovery = recovery
        CeleryLog(self._activity).install()
        state.should_stop = None
        # The threads of the worker's pool look tasks up in the default app.
        self._app.set_default()
        watch = DeafWorkerWatch(self._keys.waiting, self._activity.silent_s, self._end_worker)

        def mend() -> None:
            self._keys.mend()
            watch.look()

        stand_in = StandIn(
            recovery,
            self._activity,
            poll_s=recovery.poll_s,
            stop=recovery.stopping,
            mend=mend,
        )
        self._threads = [
            recovery.thread_group.start(
                "celery-worker", lambda: self._persist("worker", self._work)
            ),
            recovery.thread_group.start("celery-beat", lambda: self._persist("beat", self._tick)),
            recovery.thread_group.start("stand-in", stand_in.run),
        ]

    def stop(self) -> None:
        """See `Scheduling.stop`."""
        state.should_stop = _OK
        if self._beat is not None:
            self._beat.stop()
        if self._recovery is not None:
            self._recovery.drop(self._names.duty)

    def join(self, timeout_s: float) -> None:
        """See `Scheduling.join`."""
        for thread in self._threads:
            thread.join(timeout_s)
        self._keys.close()

    def _persist(self, part: str, run: Callable[[], None]) -> None:
        """Runs this part of Celery until recovery stops, again after each error."""
        assert self._recovery is not None
        stopping = self._recovery.stopping
        while not stopping.is_set():
            self._keys.mend()
            try:
                run()
            except (Exception, SystemExit) as exc:
                self._note_end(part, exc)
            stopping.wait(_AGAIN_S)

    def _note_end(self, part: str, exc: BaseException) -> None:
        """Notes the error, and logs it unless it is the broker's: the stand-in logs such a one once."""
        cause = one_line(exc)
        self._activity.note(cause)
        if not is_of_broker(exc):
            log.error("celery_ended", part=part, cause=cause, again_in_s=_AGAIN_S, exc_info=exc)

    def _work(self) -> None:
        """Runs Celery's worker. Raises RuntimeError if it ended by itself, where Celery raises nothing."""
        worker = WorkController(
            app=self._app,
            pool="threads",
            concurrency=WORKERS,
            without_heartbeat=True,
            without_mingle=True,
            without_gossip=True,
            loglevel="WARNING",
        )
        worker.start()
        if state.should_stop is None:
            raise RuntimeError(f"Celery's worker ended by itself (code {worker.exitcode})")
        assert self._recovery is not None
        # `stopping` is set before `stop` is called. Else `_end_worker` did it, and another worker follows.
        if not self._recovery.stopping.is_set():
            state.should_stop = None

    def _end_worker(self) -> None:
        """Has the worker's loop end; `_persist` starts another one."""
        log.warning(
            "celery_worker_deaf",
            cause="tasks wait in Redis, and its worker reads none",
            what="recovery starts another worker",
        )
        state.should_stop = _OK

    def _tick(self) -> None:
        assert self._recovery is not None
        scheduler = scheduler_for(partial(self._recovery.hold, self._names.duty))
        self._beat = Service(self._app, scheduler_cls=scheduler)
        self._beat.start()
