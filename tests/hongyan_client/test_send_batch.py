"""A batch of sends: an end is there before its notification goes, so that nobody finds neither."""

from __future__ import annotations

import gc
from typing import Any, cast

import pytest
from msgspec.structs import replace

from hongyan_client.composition import Composition, compose
from hongyan_client.errors import WrongNotification
from hongyan_client.publisher import Publisher, _Report
from hongyan_client.sends.lane_route import LaneRoute
from hongyan_client.sends.pending_send import SendHost, SentNotification
from hongyan_client.sends.send_batch import LaneSends, SendBatch
from message.envelope import Notification, encode

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


class Bodies(list[Any]):
    """Notes at each body that goes whether its end is there."""

    def __init__(self, batch: SendBatch) -> None:
        super().__init__()
        self._batch = batch
        self.ended: list[bool] = []

    def __setitem__(self, number: Any, body: Any) -> None:
        if body is None:
            self.ended.append(self._batch.has_ended())
        super().__setitem__(number, body)


@pytest.fixture(autouse=True)
def _none_acknowledged() -> None:
    ROUTE.acknowledged = 0


@pytest.fixture
def notification() -> Notification:
    return compose("sms.notice", ["+8613800000001"], content={"text": "x"})


def test_an_empty_ordering_key_and_resend_of_are_composed_as_none() -> None:
    more = Composition(ordering_key="", resend_of="")
    made = compose("sms.notice", ["+8613800000001"], content={"text": "x"}, more=more)
    assert (made.ordering_key, made.resend_of) == (None, None)


@pytest.fixture
def batch(notification: Notification) -> SendBatch:
    made = SendBatch(cast(SendHost, Host()))
    made._bodies = Bodies(made)
    made.begin(notification)
    return made


def checked(batch: SendBatch, notification: Notification) -> LaneSends:
    return batch.lane(0, ROUTE, notification.id, encode(notification))


def sent(notification: Notification, *place: int) -> SentNotification:
    return SentNotification(notification.id, ROUTE.topic, *place)


def ended(batch: SendBatch) -> list[bool]:
    return cast(Bodies, batch._bodies).ended


def test_an_acknowledged_send_has_its_end_before_its_notification_goes(
    batch: SendBatch, notification: Notification
) -> None:
    report = checked(batch, notification).report
    report(0, None, cast(Any, Report()))
    report(0, None, cast(Any, Report()))  # a second one changes nothing
    assert batch.results() == ([sent(notification, 3, 17, 1_800_000_000_000)], [])
    assert ended(batch) == [True]
    assert ROUTE.acknowledged == 1


def test_a_spooled_send_has_its_end_before_its_notification_goes(
    batch: SendBatch, notification: Notification
) -> None:
    checked(batch, notification)
    batch.end(0, sent(notification, -1, -1, 0))
    assert batch.results() == ([sent(notification, -1, -1, 0)], [])
    assert ended(batch) == [True]


def test_a_send_that_failed_keeps_its_notification(
    batch: SendBatch, notification: Notification
) -> None:
    checked(batch, notification)
    failure = TimeoutError()
    batch.end(0, failure)
    assert batch.has_ended()
    assert batch.results() == ([], [(notification, failure)])


def test_a_send_without_an_end_keeps_its_notification(
    batch: SendBatch, notification: Notification
) -> None:
    checked(batch, notification)
    assert not batch.has_ended()
    assert batch.results() == ([], [(notification, None)])


def test_a_refused_send_comes_back_as_it_was_given(batch: SendBatch) -> None:
    wrong = cast(Notification, object())
    refusal = WrongNotification("bad_id", "no id")
    batch.begin(wrong)
    batch.end(1, refusal)
    assert batch.results()[1][1] == (wrong, refusal)


def test_a_send_with_a_field_of_another_type_comes_back(notification: Notification) -> None:
    batch = SendBatch(cast(SendHost, Host()))
    odd = replace(notification, created_at=cast(int, 1.5))
    batch.begin(odd)
    checked(batch, odd)
    assert batch.results() == ([], [(odd, None)])


def test_many_sends_have_each_its_own_place(notification: Notification) -> None:
    batch = SendBatch(cast(SendHost, Host()))
    for number in range(3_000):
        batch.begin(notification)
        batch.lane(number, ROUTE, str(number), b"")
    for number in reversed(range(3_000)):
        batch.end(number, sent(notification, number % 7, -1, 0))
    found, left = batch.results()
    assert [(int(one.id), one.partition) for one in found] == [(n, n % 7) for n in range(3_000)]
    assert left == []


class Ending(list[Any]):
    """Ends each send just after its body was read, as another thread may."""

    batch: SendBatch

    def __getitem__(self, number: Any) -> Any:
        body = super().__getitem__(number)
        if body is not None:
            self.batch.arrive(number, Report())
        return body


def test_a_send_that_ends_while_the_results_are_read_is_in_one_of_them(
    notification: Notification,
) -> None:
    batch = SendBatch(cast(SendHost, Host()))
    batch.begin(notification)
    checked(batch, notification)
    bodies = Ending(batch._bodies)
    bodies.batch, batch._bodies = batch, bodies
    assert batch.results() == ([], [(notification, None)])
    assert batch.results()[0] == [sent(notification, 3, 17, 1_800_000_000_000)]


def test_the_garbage_collector_sees_nothing_of_a_send(
    batch: SendBatch, notification: Notification
) -> None:
    lane = checked(batch, notification)
    kept = [one[0] for one in (batch._bodies, batch._ids, batch._topics, batch._partitions)]
    report = _Report(cast(Publisher, None), lane.report, 0, 1, 0)
    assert [gc.is_tracked(one) for one in (*kept, report)] == [False] * 5
