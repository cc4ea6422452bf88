"""A delivery without a receipt: its provider is asked, and nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from channels.channel import Resolution, ResolveResult
from message.delivery import Delivery
from message.states import Event
from policy.schema import Guarantee
from recovery.lost.silence import QUESTIONS, SilentQuestions
from tests.idempotency.making import World, claimed, delivery, settle
from tests.recovery.lost.lostfield import LostField
from tests.recovery.retry.test_stage import Line


class Answering:
    """A provider with one answer."""

    def __init__(self) -> None:
        self.answer: ResolveResult | None = ResolveResult(Resolution.SENT)
        self.attempts: list[Any] = []

    def send(self, _channel: Any, call: Any, _timeout_s: float) -> Any:
        raise AssertionError(f"nothing is to be sent: {call}")

    def resolve(
        self, _channel: Any, account: Any, attempt: Any, _timeout_s: float, _asked: Any = None
    ) -> ResolveResult | None:
        self.attempts.append((account.name, attempt))
        return self.answer


@pytest.fixture
def line(world: World) -> Iterator[Line]:
    line = Line(world, Guarantee.AT_LEAST_ONCE)
    yield line
    line.callers.close()


@pytest.fixture
def field(line: Line) -> LostField:
    return LostField(line.world)


def questions(line: Line, field: LostField, provider: Answering) -> SilentQuestions:
    return SilentQuestions(
        field.findings,
        field.ledger.queries(),
        line.resolving._routes,
        provider,
        stopping=lambda: False,
        monotonic=lambda: 0.0,
    )


def sent(field: LostField) -> Delivery:
    (item,) = claimed(field.ledger, delivery())
    item.account = "a"
    settle(field.ledger, item, Event.ACCEPTED, provider_id="p1")
    return item


@pytest.mark.parametrize(
    ("resolution", "status"),
    [
        (Resolution.SENT, "CONTRADICTED"),
        (Resolution.NOT_SENT, "ASKED"),
        (Resolution.ASK_LATER, "ASKED"),
        (Resolution.REFUSED, "ASKED"),
        (None, "ASKED"),
    ],
)
def test_the_provider_is_asked_once_about_the_call_that_sent_it(
    line: Line, field: LostField, resolution: Resolution | None, status: str
) -> None:
    item = sent(field)
    number = field.found(item, "silent")
    provider = Answering()
    provider.answer = None if resolution is None else ResolveResult(resolution)
    for _ in range(2):
        field.run(silence=questions(line, field, provider))
        field.later()
    assert field.status(number)[0] == status
    assert field.status(number)[1]
    ((account, attempt),) = provider.attempts
    assert (account, attempt.delivery.key, attempt.delivery.receiver) == (
        "a",
        item.key,
        item.receiver,
    )
    assert attempt.called_at == line.world.rows("SELECT called_at FROM deliveries")[0][0]
    assert field.row(item) == ("SENT", None)


def test_the_provider_is_asked_about_the_last_call_too(line: Line, field: LostField) -> None:
    """Its days would else end before the call that it accepted: "not sent" would be no proof."""
    item = sent(field)
    field.found(item, "silent")
    field.world.rows_changed("UPDATE deliveries SET last_called_at = called_at + 86400000")
    provider = Answering()
    field.run(silence=questions(line, field, provider))
    ((_account, attempt),) = provider.attempts
    assert attempt.last_call == attempt.called_at + 86_400_000


def test_a_receipt_that_came_meanwhile_contradicts_it(line: Line, field: LostField) -> None:
    item = sent(field)
    number = field.found(item, "silent")
    field.world.rows_changed("UPDATE deliveries SET state = 'DELIVERED'")
    provider = Answering()
    field.run(silence=questions(line, field, provider))
    assert field.status(number)[0] == "CONTRADICTED"
    assert provider.attempts == []


def test_an_account_that_is_gone_is_told(line: Line, field: LostField) -> None:
    item = sent(field)
    number = field.found(item, "silent")
    field.world.rows_changed("UPDATE deliveries SET account = 'gone'")
    field.run(silence=questions(line, field, Answering()))
    assert field.status(number) == ("ASKED", "no account of this recovery can be asked")


def test_a_round_asks_a_few(line: Line, field: LostField) -> None:
    for _ in range(QUESTIONS + 2):
        field.found(sent(field), "silent")
    provider = Answering()
    job = field.job(silence=questions(line, field, provider))
    job.run_once()
    assert len(provider.attempts) == QUESTIONS
    field.later()
    job.run_once()
    assert len(provider.attempts) == QUESTIONS + 2
