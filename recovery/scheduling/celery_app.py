"""The Celery app: Redis carries the tasks, nothing keeps results, nothing is retried by Celery itself.

A task that waited longer than a few looks expires: the next look says the same. So a broker that was
away leaves no flood behind, and one that forgets everything costs one look.
https://docs.celeryq.dev/en/stable/userguide/configuration.html
"""

from __future__ import annotations

from typing import Final

from celery import Celery

from backends.settings import Settings, SettingsError
from recovery.scheduling.celery_tasks import LOOK, TIDY, Serving, add_tasks
from recovery.scheduling.loop import TIDY_EVERY

QUEUE: Final = "recovery"
STALE_LOOKS: Final = 5
"""Looks after which a waiting task is of no use."""
_LEAST_STALE_S: Final = 10.0
"""A machine that is too busy to begin a task within this needs no more of them; were it less, every look
could expire before it is begun, and nothing would ever be sent."""
_ANSWER_S: Final = 10.0
"""How long a server may take to answer before its connection counts as dead."""


def key_prefix(settings: Settings) -> str:
    """What the names of all keys begin with that Celery keeps in Redis."""
    return f"{settings.redis.prefix}:celery:"


def celery_app(settings: Settings, serving: Serving) -> Celery:
    """The app with its tasks and its schedule. Connects to nothing yet; raises SettingsError where there
    is no Redis."""
    if not settings.redis.url:
        raise SettingsError(
            "redis.url is empty, and Celery's tasks travel through Redis: name it, or run"
            " `hongyan recovery --embedded`"
        )
    app = Celery("hongyan.recovery", broker=settings.redis.url, set_as_current=False)
    poll_s = settings.recovery.poll_s
    stale_s = max(STALE_LOOKS * poll_s, _LEAST_STALE_S)
    app.conf.update(
        task_default_queue=QUEUE,
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
