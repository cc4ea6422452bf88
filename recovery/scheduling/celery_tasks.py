"""Celery's tasks. They carry a lane's name alone: the ledger has the work, so that a lost or doubled task
changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Final

import structlog
from celery import Celery
from kombu.exceptions import OperationalError

from idempotency.ledger import LedgerError
from recovery.activity import Activity
from recovery.service import Recovery

log = structlog.get_logger(__name__)
PREFIX: Final = "hongyan.recovery."
LOOK, RESEND, RESOLVE, WATCH, TIDY, LOST, JOBS = (
    PREFIX + name for name in ("look", "resend", "resolve", "watch", "tidy", "lost", "resend_jobs")
)


class Serving:
    """The recovery of this process; set before Celery's worker starts, then only read."""

    def __init__(self, activity: Activity | None = None) -> None:
        self.recovery: Recovery | None = None
        self.activity = activity or Activity()

    def __call__(self) -> Recovery:
        if self.recovery is None:
            raise RuntimeError("this process serves no recovery: start `hongyan recovery`")
        return self.recovery


def add_tasks(app: Celery, serving: Serving) -> None:
    """Adds the seven tasks to the app."""

    def look() -> None:
        for name, lane in _due_tasks(serving()):
            app.send_task(name, (lane,))

    def resend(lane: str) -> None:
        serving().resend(lane)

    def resolve(lane: str) -> None:
        serving().resolve(lane)

    def watch() -> None:
        """Does nothing: for schedules of older versions. Each recovery measures for itself."""

    def tidy() -> None:
        serving().tidy()

    def lost() -> None:
        serving().enter_lost()

    def resend_jobs() -> None:
        serving().run_jobs()

    tasks: dict[str, Any] = {
        LOOK: look,
        RESEND: resend,
        RESOLVE: resolve,
        WATCH: watch,
        TIDY: tidy,
        LOST: lost,
        JOBS: resend_jobs,
    }
    for name, run in tasks.items():
        app.task(_patient(run, serving.activity), name=name, shared=False)


def _due_tasks(recovery: Recovery) -> Iterator[tuple[str, str]]:
    """Yields the tasks that are due, each with its lane."""
    due, doubted = recovery.look()
    for name, lanes in ((RESEND, due), (RESOLVE, doubted)):
        yield from ((name, lane) for lane in lanes)


def _patient(run: Callable[..., None], activity: Activity) -> Callable[..., None]:
    """Returns the task; it notes an outage of ledger or broker and ends, since the next look follows."""

    @wraps(run)
    def patiently(*args: str) -> None:
        try:
            with activity.job():
                run(*args)
        except LedgerError as exc:
            log.warning("job_failed", job=run.__name__, lanes=args, cause=str(exc))
        except OperationalError as exc:
            activity.note(f"{type(exc).__name__}: {exc}")

    return patiently
