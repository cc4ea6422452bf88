"""The wait of `hongyan send --wait`: when it asks, whom it asks for, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hongyan.enqueue import AddressedDelivery, EnqueuedNotification
from hongyan.submission.outcome_wait import LedgerNeeded, OutcomeWait
from idempotency.ledger import LedgerError
from idempotency.lookups import LIMIT, FoundRow
from message.envelope import EnvelopeError
from message.states import OPEN, SETTLED
from policy.loading import parse
from tests.harness.notifications import notification


def row(key: str, state: str) -> FoundRow:
    texts = (key, "m1", None, "sms", "notice", "sms.notice", state, "code", 1, "w1", "p1")
    return FoundRow(*texts, 0, 0, None, 0, "v1", None, "main")


class Ledger:
    """Answers from a script: each question moves it on by one step."""

    def __init__(self, *steps: dict[str, str] | None) -> None:
        self.steps = list(steps)
        self.asked: list[list[str]] = []
        self.now = 0.0
        self.pauses: list[float] = []

    def find(self, keys: Sequence[str]) -> list[FoundRow]:
        self.asked.append(list(keys))
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if step is None:
            raise LedgerError("gone for lunch")
        return [row(key, step[key]) for key in keys if key in step]

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def wait(self, *keys: str, timeout_s: float = 60.0) -> OutcomeWait:
        wait = OutcomeWait(self.find, keys, monotonic=lambda: self.now, sleep=self.sleep)
        wait.run(timeout_s)
        return wait


@pytest.mark.parametrize("state", sorted(SETTLED))
def test_a_settled_delivery_ends_the_wait_at_the_first_question(state: str) -> None:
    ledger = Ledger({"a": state})
    assert ledger.wait("a").rows["a"].state == state
    assert (ledger.asked, ledger.pauses) == ([["a"]], [])


@pytest.mark.parametrize("state", sorted(OPEN))
def test_an_open_delivery_is_asked_for_until_it_ends(state: str) -> None:
    ledger = Ledger({}, {"a": state}, {"a": state}, {"a": "SENT"})
    assert ledger.wait("a").rows["a"].state == "SENT"
    assert len(ledger.asked) == 4


def test_only_those_still_open_are_asked_for_again() -> None:
    ledger = Ledger({"a": "SENT", "b": "RETRY"}, {"b": "REJECTED"})
    ledger.wait("a", "b")
    assert ledger.asked == [["a", "b"], ["b"]]


def test_many_are_asked_for_in_turns_one_query_at_a_time() -> None:
    keys = [str(number) for number in range(LIMIT + 500)]
    ledger = Ledger({}, {}, dict.fromkeys(keys, "SENT"))
    ledger.wait(*keys)
    assert [len(asked) for asked in ledger.asked] == [LIMIT, LIMIT, LIMIT, 500]
    assert ledger.asked[0] == keys[:LIMIT]
    assert ledger.asked[1][:500] == keys[LIMIT:], "those not asked for yet come first"


def test_the_wait_ends_with_its_time_and_pauses_stay_short() -> None:
    ledger = Ledger({})
    wait = ledger.wait("a", timeout_s=30.0)
    assert wait.rows == {}
    assert ledger.now == pytest.approx(30.0)
    assert max(ledger.pauses) <= 1.0
    assert len(ledger.asked) < 50


def test_a_ledger_that_is_away_for_a_while_costs_nothing() -> None:
    ledger = Ledger(None, None, {"a": "SENT"})
    wait = ledger.wait("a")
    assert wait.rows["a"].state == "SENT"
    assert wait.failure == ""


def test_a_ledger_that_stays_away_is_reported() -> None:
    wait = Ledger(None).wait("a", timeout_s=2.0)
    assert wait.failure == "gone for lunch"


def test_the_ends_name_each_delivery_in_the_order_sent() -> None:
    names = [AddressedDelivery(key, f"mask-{key}") for key in "ab"]
    sent = EnqueuedNotification("m1", "t", 0, 0, "sms.notice", names)
    ends = Ledger({"b": "SENT"}, {"b": "SENT"}).wait("a", "b", timeout_s=1.0).ends([sent])
    assert [(e.delivery_key, e.receiver, e.state) for e in ends] == [
        ("a", "mask-a", None),
        ("b", "mask-b", "SENT"),
    ]
    assert [(e.arrived, e.ended) for e in ends] == [(False, False), (True, True)]


def test_a_lane_without_a_ledger_cannot_be_waited_for() -> None:
    text = b'[lanes."sms.notice"]\nguarantee = "best_effort"\n'
    check = LedgerNeeded(parse("policy.toml", text, version="v1"))
    check(notification("sms.marketing"))
    with pytest.raises(EnvelopeError, match="send without --wait") as caught:
        check(notification("sms.notice"))
    assert caught.value.code == "no_ledger"
