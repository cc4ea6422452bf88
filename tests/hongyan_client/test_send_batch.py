"""A batch of sends: its partition is the last part of an end, so that nobody finds half of one."""

from __future__ import annotations

import gc
from typing import Any, cast

import pytest
from msgspec.structs import replace

from hongyan_client.composition import Composition, compose
from hongyan_client.errors import WrongNotification
from hongyan_client.record_report import BufferUse
from hongyan_client.sends.lane_route import LaneRoute
from hongyan_client.sends.pending_send import SendHost, SentNotification
from hongyan_client.sends.send_batch import NotSafe, SendBatch, SendReport
from message.envelope import Notification, encode

ROUTE = LaneRoute("sms.notice", "hongyan.dispatch.sms.notice", 60_000)


class Host:
    """Stands for a core that nobody watches."""

    watched = False


class Message:
    """Stands for librdkafka's report of an acknowledgement."""

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 17

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_800_000_000_000


class Partitions(list[int]):
    """Notes at each partition that is written whether the id is there."""

    def __init__(self, batch: SendBatch) -> None:
        super().__init__()
        self._batch = batch
        self.named: list[bool] = []

    def __setitem__(self, number: Any, partition: Any) -> None:
        self.named.append(isinstance(self._batch.held[number], str))
        super().__setitem__(number, partition)


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
def batch() -> SendBatch:
    made = new_batch()
    made.partitions = cast(Any, Partitions(made))
    return made


def new_batch() -> SendBatch:
    return SendBatch(cast(SendHost, Host()), BufferUse(None))


def added(batch: SendBatch, notification: Notification, route: LaneRoute = ROUTE) -> SendReport:
    return batch.add(route, encode(notification), notification.id, 1)


def acknowledge(report: SendReport) -> None:
    report(None, cast(Any, Message()))


def sent(notification: Notification, *place: int) -> SentNotification:
    return SentNotification(notification.id, ROUTE.topic, *place)


def results(batch: SendBatch) -> tuple[list[SentNotification], list[NotSafe]]:
    found, others = batch.results()
    return list(found), others


def named(batch: SendBatch) -> list[bool]:
    return cast(Partitions, batch.partitions).named


def test_an_acknowledged_send_has_its_id_before_it_has_ended(
    batch: SendBatch, notification: Notification
) -> None:
    report = added(batch, notification)
    acknowledge(report)
    assert results(batch) == ([sent(notification, 3, 17, 1_800_000_000_000)], [])
    assert named(batch) == [True]
    assert ROUTE.acknowledged == 1
    assert (report.use.done, report.use.done_bytes, report.use.failed) == (1, 1, 0)


def test_a_spooled_send_has_its_id_before_it_has_ended(
    batch: SendBatch, notification: Notification
) -> None:
    added(batch, notification)
    batch.end(0, notification.id, sent(notification, -1, -1, 0))
    assert results(batch) == ([sent(notification, -1, -1, 0)], [])
    assert named(batch) == [True]


def test_a_send_that_failed_keeps_its_notification(
    batch: SendBatch, notification: Notification
) -> None:
    added(batch, notification)
    failure = TimeoutError()
    batch.end(0, notification.id, failure)
    assert batch.has_ended()
    assert results(batch) == ([], [(notification, failure)])


def test_a_send_without_an_end_keeps_its_notification(
    batch: SendBatch, notification: Notification
) -> None:
    added(batch, notification)
    assert not batch.has_ended()
    assert results(batch) == ([], [(notification, None)])


@pytest.mark.parametrize("wrong", [object(), "an id", "", None, b"", 0])
def test_what_is_no_notification_comes_back_as_it_was_given(
    batch: SendBatch, notification: Notification, wrong: Any
) -> None:
    acknowledge(added(batch, notification))
    refusal = WrongNotification("bad_id", "no id")
    batch.refuse(wrong, refusal)
    assert batch.has_ended()
    found, others = batch.results()
    assert found == [sent(notification, 3, 17, 1_800_000_000_000)]
    assert others == [(wrong, refusal)]


def test_a_send_with_a_field_of_another_type_comes_back(notification: Notification) -> None:
    batch = new_batch()
    odd = replace(notification, created_at=cast(int, 1.5))
    added(batch, odd)
    assert results(batch) == ([], [(odd, None)])


def test_many_sends_have_each_its_own_place_and_topic(notification: Notification) -> None:
    batch = new_batch()
    other = LaneRoute("sms.promo", "hongyan.dispatch.sms.promo", 60_000)
    routes = [other if number % 700 < 3 else ROUTE for number in range(3_000)]
    for number, route in enumerate(routes):
        batch.add(route, b"", str(number), 1)
    for number in reversed(range(3_000)):
        batch.end(number, str(number), sent(notification, number % 7, -1, 0))
    found, left = batch.results()
    expected = [
        (str(number), route.topic, number % 7, -1, 0) for number, route in enumerate(routes)
    ]
    assert found == expected
    assert found == list(found)
    assert [found[number] for number in range(-3_000, 3_000)] == expected * 2
    assert found[2_990:] == expected[2_990:]
    assert left == []


def test_sends_between_others_that_failed_are_found_in_their_order(
    notification: Notification,
) -> None:
    batch = new_batch()
    reports = [added(batch, replace(notification, id=f"n-{number}")) for number in range(6)]
    for number in (5, 1, 3):
        acknowledge(reports[number])
    found, left = batch.results()
    assert [one.id for one in found] == ["n-1", "n-3", "n-5"]
    assert [one.id for one, _ in left] == ["n-0", "n-2", "n-4"]


def test_a_send_that_ends_after_the_results_were_read_stays_where_it_was(
    notification: Notification,
) -> None:
    batch = new_batch()
    report = added(batch, notification)
    found, others = batch.results()
    acknowledge(report)
    assert (list(found), others) == ([], [(notification, None)])
    assert batch.results()[0] == [sent(notification, 3, 17, 1_800_000_000_000)]


def test_the_garbage_collector_sees_nothing_of_a_send(
    batch: SendBatch, notification: Notification
) -> None:
    report = added(batch, notification)
    assert [gc.is_tracked(one) for one in (batch.held[0], report)] == [False] * 2
