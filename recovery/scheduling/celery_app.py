"""The Celery app: Redis carries the tasks; there are no results, and Celery retries nothing.

A task that waited longer than a few looks expires: the next look sends the same. So a broker's outage
leaves no flood behind, and a loss of its data costs one look.
https://docs.celeryq.dev/en/stable/userguide/configuration.html
"""

from __future__ import annotations

from typing import Final

from celery import Celery

from backends.settings import Settings, SettingsError
from recovery.lost.job import EVERY_S
from recovery.scheduling.celery_tasks import JOBS, LOOK, LOST, TIDY, Serving, add_tasks
from recovery.scheduling.loop import TIDY_EVERY

STALE_LOOKS: Final = 5
"""Looks after which a waiting task is of no use."""
_LEAST_STALE_S: Final = 10.0
"""With less, every task of a busy machine could expire before it is begun, and nothing would be sent."""
_ANSWER_S: Final = 10.0
"""Longest time for a server's answer; then its connection counts as dead."""


def key_prefix(settings: Settings) -> str:
    """Returns the prefix of all keys that Celery keeps in Redis."""
    return f"{settings.redis.prefix}:celery:"


def celery_app(settings: Settings, serving: Serving, queue: str) -> Celery:
    """Returns the app with its tasks and its schedule, not yet connected; `queue` is that of its lanes
    (celery_names.py). Raises SettingsError without a Redis."""
    if not settings.redis.url:
        raise SettingsError(
            "redis.url is empty, and Celery's tasks travel through Redis: name it, or run"
            " `hongyan recovery --embedded`"
        )
    app = Celery("hongyan.recovery", broker=settings.redis.url, set_as_current=False)
    poll_s = settings.recovery.poll_s
    stale_s = max(STALE_LOOKS * poll_s, _LEAST_STALE_S)
    app.conf.update(
        task_default_queue=queue,
        broker_transport_options={
            "global_keyprefix": key_prefix(settings),
            "socket_timeout": _ANSWER_S,
            "socket_connect_timeout": _ANSWER_S,
            "socket_keepalive": True,
        },
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        task_annotations={"*": {"expires": stale_s}},
        worker_prefetch_multiplier=1,
        worker_send_task_events=False,
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        enable_utc=True,
        timezone="UTC",
        beat_schedule={
            "look": {"task": LOOK, "schedule": poll_s, "options": {"expires": stale_s}},
            "lost": {
                "task": LOST,
                "schedule": max(poll_s, EVERY_S),
                "options": {"expires": stale_s},
            },
            "resend_jobs": {"task": JOBS, "schedule": poll_s, "options": {"expires": stale_s}},
            "tidy": {
                "task": TIDY,
                "schedule": poll_s * TIDY_EVERY,
                "options": {"expires": stale_s},
            },
        },
    )
    add_tasks(app, serving)
    app.finalize()
    return app
