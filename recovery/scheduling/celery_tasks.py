"""Celery's tasks: each loads, calls, and is done. They carry a lane's name and nothing else: what is to be
done stands in the ledger, so that a lost or doubled task changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
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
LOOK, RESEND, RESOLVE, WATCH, TIDY = (
    PREFIX + name for name in ("look", "resend", "resolve", "watch", "tidy")
)


class Serving:
    """The recovery that this process serves tasks with: set before its worker starts, then only read."""

    def __init__(self, activity: Activity | None = None) -> None:
        self.recovery: Recovery | None = None
        self.activity = activity or Activity()

    def __call__(self) -> Recovery:
        if self.recovery is None:
            raise RuntimeError("this process serves no recovery: start `hongyan recovery`")
        return self.recovery


def add_tasks(app: Celery, serving: Serving) -> None:
    """Give the app its five tasks."""

    def look() -> None:
        due, doubted = serving().look()
        for name, lanes in ((RESEND, due), (RESOLVE, doubted)):
            for lane in lanes:
                app.send_task(name, (lane,))

    def resend(lane: str) -> None:
        serving().resend(lane)

    def resolve(lane: str) -> None:
        serving().resolve(lane)

    def watch() -> None:
        """No schedule calls it any more: each recovery measures for itself."""

    def tidy() -> None:
        serving().tidy()

    tasks: dict[str, Any] = {
        LOOK: look,
        RESEND: resend,
        RESOLVE: resolve,
        WATCH: watch,
        TIDY: tidy,
    }
    for name, run in tasks.items():
        app.task(_patient(run, serving.activity), name=name, shared=False)


def _patient(run: Callable[..., None], activity: Activity) -> Callable[..., None]:
    """While the ledger or the broker is away a task notes it and ends: the next look comes anyway."""

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
