"""Celery's tasks: each loads, calls, and is done. They carry a lane's name and nothing else: what is to be
done stands in the ledger, so that a lost or doubled task changes nothing.
"""

from __future__ import annotations

from typing import Any, Final

from celery import Celery

from recovery.service import Recovery

PREFIX: Final = "hongyan.recovery."
LOOK, RESEND, RESOLVE, WATCH, TIDY = (
    PREFIX + name for name in ("look", "resend", "resolve", "watch", "tidy")
)


class Serving:
    """The recovery that this process serves tasks with: set before its worker starts, then only read."""

    def __init__(self) -> None:
        self.recovery: Recovery | None = None

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
        serving().watch()

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
        app.task(run, name=name, shared=False)
