"""Recoveries that share Celery's tasks."""

from message.vocabulary import LANES
from recovery.scheduling.celery_names import names_of


def test_recoveries_share_tasks_with_those_of_the_same_lanes_alone() -> None:
    every = [lane.name for lane in LANES]
    assert names_of(every) == ("recovery", "beat")
    some = [names_of(every[:2]), names_of(every[2:]), names_of(every[:1]), names_of(every)]
    assert names_of([every[1], every[0]]) == some[0]
    assert len({one.queue for one in some}) == len({one.duty for one in some}) == len(some)
