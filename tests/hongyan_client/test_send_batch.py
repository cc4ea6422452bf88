"""A batch of sends: an end is there before its notification goes, so that nobody finds neither."""

from __future__ import annotations

from typing import Any, cast

import pytest

from hongyan_client.composition import compose
from hongyan_client.sends.lane_route import LaneRoute
from hongyan_client.sends.pending_send import SendHost, SentNotification
from hongyan_client.sends.send_batch import SendBatch
from message.envelope import Notification

ROUTE = LaneRoute("sms.notice", "hongyan.dispatch.sms.notice", 60_000)


class Host:
    """Stands for a core that nobody watches."""

    watched = False


class Report:
    """Stands for librdkafka's report of an acknowledgement."""

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 17

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_800_000_000_000


class Ends(list[Any]):
    """Notes at each end whether the batch still has the notification."""

    def __init__(self, batch: SendBatch) -> None:
        super().__init__([None])
        self._batch = batch
        self.had: list[bool] = []

    def __setitem__(self, number: Any, end: Any) -> None:
        self.had.append(self._batch.notifications[number] is not None)
        super().__setitem__(number, end)


@pytest.fixture
def notification() -> Notification:
    return compose("sms.notice", ["+8613800000001"], content={"text": "x"})


@pytest.fixture
def batch(notification: Notification) -> SendBatch:
    made = SendBatch(cast(SendHost, Host()))
    made.notifications.append(notification)
    made.ends = Ends(made)
    return made


def test_an_acknowledged_send_has_its_end_before_its_notification_goes(
    batch: SendBatch, notification: Notification
) -> None:
    batch.lane(ROUTE).report(0, None, cast(Any, Report()))
    assert batch.ends == [SentNotification(notification.id, ROUTE.topic, 3, 17, 1_800_000_000_000)]
    assert batch.notifications == [None]
    assert cast(Ends, batch.ends).had == [True]


def test_a_spooled_send_has_its_end_before_its_notification_goes(
    batch: SendBatch, notification: Notification
) -> None:
    batch.end(0, SentNotification(notification.id, ROUTE.topic, -1, -1, 0))
    assert batch.notifications == [None]
    assert cast(Ends, batch.ends).had == [True]


def test_a_send_that_failed_keeps_its_notification(
    batch: SendBatch, notification: Notification
) -> None:
    failure = TimeoutError()
    batch.end(0, failure)
    assert batch.ends == [failure]
    assert batch.notifications == [notification]
