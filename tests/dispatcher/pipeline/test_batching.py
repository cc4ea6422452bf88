"""Which deliveries share a call, and what is on record of it before it is made."""

from __future__ import annotations

from collections.abc import Hashable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from channels.channel import Account, Call
from channels.registry import PROVIDERS
from dispatcher.kafka.offsets import Offsets
from dispatcher.pipeline.batching import calls_of
from dispatcher.pipeline.binding import refusal_by
from dispatcher.pipeline.work import SEND, Assignment, Drop, KafkaRecord, Refuse, Work
from message.delivery import Delivery, deliveries_of
from sending.lane_routes import Route
from tests.dispatcher.fakes import LANE, NOW_MS, TOPIC, notification

LANES: Any = {LANE.name: SimpleNamespace(most=None)}


class Batching:
    """A channel that takes three deliveries of one text."""

    max_batch = 3
    takes_anything = False
    dedup_window_ms = 1

    def batch_key(self, delivery: Delivery) -> Hashable:
        return delivery.notification.biz_id

    def batch_limit(self, delivery: Delivery) -> int:
        return self.max_batch

    def refusal(self, account: Account, delivery: Delivery) -> str:
        return "no_text: it has none" if delivery.notification.biz_id is None else ""

    def fingerprint(self, call: Call) -> str:
        return "+".join(delivery.key[:2] for delivery in call.deliveries)


def work(number: int, account: str = "a", biz_id: str | None = "x") -> Work:
    one = msgspec.structs.replace(notification(number), receivers=[f"user-{number}"])
    record = KafkaRecord(Assignment(TOPIC, 0, LANE, Offsets()), number, one, b"{}", NOW_MS, None)
    (delivery,) = deliveries_of(one, b"{}", expires_at=NOW_MS + 1)
    delivery.notification = msgspec.structs.replace(one, biz_id=biz_id)
    made = Work(delivery, record)
    adapter: Any = Batching()
    made.route = Route(Account(account, "p", "http://127.0.0.1:9"), adapter)
    return made


def test_deliveries_of_one_account_and_text_share_a_call_up_to_its_limit() -> None:
    works = [work(number) for number in range(5)]
    assert calls_of(works, LANES) == [works[:3], works[3:]]


def test_another_account_or_text_is_another_call() -> None:
    works = [work(0), work(1, account="b"), work(2, biz_id="y"), work(3)]
    assert calls_of(works, LANES) == [[works[0], works[3]], [works[1]], [works[2]]]


def test_the_calls_key_is_its_first_deliverys_and_stands_on_each() -> None:
    works = [work(number) for number in range(3)]
    calls_of(works, LANES)
    assert {w.delivery.call_key for w in works} == {works[0].delivery.key}
    assert {w.delivery.account for w in works} == {"a"}


def test_the_bodys_digest_stands_on_each_where_the_provider_dedups_by_it() -> None:
    works = [work(number) for number in range(2)]
    calls_of(works, LANES)
    (digest,) = {w.delivery.call_digest for w in works}
    assert digest == "+".join(w.delivery.key[:2] for w in works)


def test_a_policy_may_allow_less_than_the_provider() -> None:
    works = [work(number) for number in range(2)]
    lanes: Any = {LANE.name: SimpleNamespace(most=1)}
    assert calls_of(works, lanes) == [[works[0]], [works[1]]]
    assert works[0].delivery.call_key == "", "its own key is its call's"


def test_what_shall_be_dropped_joins_no_call() -> None:
    works = [work(number) for number in range(2)]
    works[0].intent = Drop("template_missing: code")
    assert calls_of(works, LANES) == [[works[0]], [works[1]]]


def test_what_can_never_be_sent_joins_no_call_and_says_why() -> None:
    works = [work(0), work(1, biz_id=None), work(2)]
    assert calls_of(works, LANES) == [[works[0], works[2]], [works[1]]]
    assert works[1].intent == Refuse("no_text: it has none")


class Willing(Batching):
    """Refuses nothing, but is asked."""

    def refusal(self, account: Account, delivery: Delivery) -> str:
        return ""


class Unasked(Batching):
    """Takes every message, so that nobody asks it."""

    max_batch = 1
    takes_anything = True


@pytest.mark.parametrize("other", [Willing(), Unasked()], ids=["asked", "takes_anything"])
def test_the_refusal_of_one_account_does_not_follow_a_work_to_another(other: Any) -> None:
    one = work(0, account="refusing", biz_id=None)
    assert refusal_by(one, *one.chosen)
    one.route = Route(Account("other", "p", "http://127.0.0.1:9"), other)
    assert calls_of([one], LANES) == [[one]]
    assert one.intent is SEND
    assert one.delivery.account == "other"


def test_a_receiver_stands_once_in_a_call() -> None:
    works = [work(0), work(1), work(2)]
    works[1].delivery.receiver = works[0].delivery.receiver
    assert calls_of(works, LANES) == [[works[0]], [works[1], works[2]]]


def test_only_what_refuses_nothing_and_takes_one_a_call_is_not_asked() -> None:
    for provider, channel in PROVIDERS.items():
        if channel.takes_anything:
            assert channel.max_batch == 1, provider
            assert not channel.dedup_window_ms, provider
            assert "refusal" not in vars(type(channel)), provider


class Broken(Batching):
    """Fails over everything."""

    provider = "broken"

    def refusal(self, account: Account, delivery: Delivery) -> str:
        raise KeyError("a field that nobody thought of")


def test_an_adapter_that_fails_over_a_message_refuses_it_and_no_other() -> None:
    works = [work(0), work(1), work(2)]
    broken: Any = Broken()
    works[1].route = Route(works[1].chosen[0], broken)
    assert calls_of(works, LANES) == [[works[0], works[2]], [works[1]]]
    intent = works[1].intent
    assert isinstance(intent, Refuse)
    assert intent.reason.startswith("adapter_error: the broken adapter failed in refusal: KeyError")


class Undigested(Batching):
    """Cannot tell its body's digest."""

    provider = "undigested"

    def fingerprint(self, call: Call) -> str:
        raise ValueError("no body")


def test_a_body_whose_digest_cannot_be_told_is_never_repeated_as_the_same() -> None:
    one = work(0)
    undigested: Any = Undigested()
    one.route = Route(one.chosen[0], undigested)
    assert calls_of([one], LANES) == [[one]]
    assert one.delivery.call_digest == ""
