"""Gates before the claim: what waits, what is dropped, what is given back; with Redis and without."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from backends.metrics import worker_families
from backends.metrics.families import Family
from backends.redis.client import RedisAway
from backends.redis.receiver_marks import (
    LocalMarks,
    MarkResult,
    ReceiverMark,
    Returned,
    SendRequest,
)
from dispatcher.kafka.offsets import Offsets
from dispatcher.pipeline.gates import SendGates, never_sent
from dispatcher.pipeline.lane_config import LaneConfig
from dispatcher.pipeline.work import (
    AlreadyKnown,
    Assignment,
    Drop,
    End,
    EndedAtClaim,
    Hold,
    KafkaRecord,
    Work,
)
from message.delivery import Delivery, Rendered, deliveries_of
from message.envelope import Template
from message.outcomes import Accepted, NotSent, Rejected, Unknown
from message.states import Event, State
from policy.gates import ContentDedup, CountLimit, FrequencyCap, QuietAction, QuietHours, Scope
from policy.schema import LanePolicy, Policy
from sending.receiver_marks import mark_of
from sending.runtime.clock import Clock
from tests.dispatcher.fakes import LANE, NOW_MS, TOPIC, notification

HOUR_MS = 3_600_000
NIGHT_MS = int(datetime(2026, 9, 21, 23, tzinfo=UTC).timestamp() * 1_000)
QUIET = QuietHours(windows=["22:00-08:00"], zone="UTC")
ONE_AN_HOUR = FrequencyCap(limits=[CountLimit(most=1, span_ms=HOUR_MS)])
DEDUP = ContentDedup(window_ms=60_000)


class Fleet:
    """The fleet's marks, that can be away or forget; remembers what it was asked."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.away = False
        self.asked: list[Sequence[SendRequest]] = []
        self.questions: list[list[str]] = []
        self.given_back: list[Returned] = []
        self.flush()

    def flush(self) -> None:
        self.marks = LocalMarks(lambda: self._bench.ms / 1_000)

    def enter(self, batch: Sequence[SendRequest]) -> list[MarkResult]:
        self.asked.append(batch)
        if self.away:
            raise RedisAway("connection refused")
        return self.marks.enter(batch)

    def give_back(self, batch: Sequence[Returned]) -> None:
        if self.away:
            raise RedisAway("connection refused")
        self.given_back += batch
        self.marks.give_back(batch)

    def returned(self, members: Sequence[str]) -> list[bool]:
        self.questions.append(list(members))
        return self.marks.returned(members)


class Bench:
    """One worker's gates; time is moved by hand."""

    def __init__(self, *, shared: bool = True, **gates: Any) -> None:
        self.ms = NIGHT_MS
        clock = Clock(lambda: self.ms / 1_000, lambda: self.ms / 1_000)
        self.policy = LanePolicy(**gates)
        contract: Any = None
        self.terms = LaneConfig("v1", self.policy, {}, contract)
        self.fleet = Fleet(self)
        whole = Policy(lanes={LANE.name: self.policy})
        self.gates = SendGates(whole, self.fleet if shared else None, clock=clock)
        self._number = 0

    def work(self, receiver: str = "li", text: str = "hello", **changes: Any) -> Work:
        self._number += 1
        one = msgspec.structs.replace(
            notification(self._number), receivers=[receiver], content={"text": text}, **changes
        )
        record = KafkaRecord(Assignment(TOPIC, 0, LANE, Offsets()), 0, one, b"{}", NOW_MS, None)
        (delivery,) = deliveries_of(one, b"{}", expires_at=self.ms + 24 * HOUR_MS)
        return Work(delivery, record, terms=self.terms)

    def judge(self, *works: Work) -> list[str | None]:
        self.gates.judge(works)
        return [getattr(work.intent, "reason", None) for work in works]

    def shown(self, family: Family, **labels: str) -> float:
        found = [r.value for r in self.gates.readings() if r[:2] == (family, labels)]
        return sum(found)


def test_a_lane_without_gates_is_not_asked_about() -> None:
    bench = Bench()
    assert bench.judge(*[bench.work() for _ in range(3)]) == [None] * 3
    assert bench.fleet.asked == []


def test_in_quiet_hours_a_delivery_waits_until_they_end() -> None:
    bench = Bench(quiet_hours=QUIET)
    work = bench.work()
    assert bench.judge(work) == ["quiet_hours"]
    assert work.intent == Hold(bench.ms + 9 * HOUR_MS, "quiet_hours")
    assert bench.shown(worker_families.GATES_HELD) == 1
    bench.ms += 9 * HOUR_MS
    assert bench.judge(bench.work()) == [None]


@pytest.mark.parametrize("action", QuietAction)
def test_quiet_hours_that_began_while_the_claim_waited_hold(action: QuietAction) -> None:
    quiet = msgspec.structs.replace(QUIET, action=action)
    bench = Bench(quiet_hours=quiet, frequency=ONE_AN_HOUR)
    bench.ms -= 2 * HOUR_MS
    going, again = bench.work(), bench.work()
    assert bench.judge(going, again) == [None, "frequency_cap"]
    bench.ms += 2 * HOUR_MS
    bench.gates.judge_again([going, again])
    held = Hold(bench.ms + 9 * HOUR_MS, "quiet_hours")
    assert going.intent == (held if action is QuietAction.HOLD else Drop("quiet_hours"))
    assert again.intent == Drop("frequency_cap"), "it ends at its claim as before"
    assert len(bench.fleet.asked) == 1, "Redis is not asked again: it would find the first mark"
    bench.ms += HOUR_MS
    bench.gates.judge_again([going, again])
    dropped = bench.shown(worker_families.GATES_DROPPED, reason="quiet_hours")
    assert dropped + bench.shown(worker_families.GATES_HELD) == 1, "counted once"


def test_a_hold_keeps_its_end_while_the_claim_waits() -> None:
    bench = Bench(quiet_hours=QUIET)
    work = bench.work()
    bench.judge(work)
    held = work.intent
    bench.ms += 10 * HOUR_MS
    bench.gates.judge_again([work])
    assert work.intent == held
    assert isinstance(held, Hold)
    assert held.wait_ms(bench.ms) == 0, "the ledger makes it due at once"


def test_in_quiet_hours_it_is_dropped_where_the_policy_says_so() -> None:
    quiet = msgspec.structs.replace(QUIET, action=QuietAction.DROP)
    bench = Bench(quiet_hours=quiet, frequency=ONE_AN_HOUR)
    work = bench.work()
    assert bench.judge(work) == ["quiet_hours"]
    assert (work.intent, bench.fleet.asked) == (Drop("quiet_hours"), [])
    assert bench.shown(worker_families.GATES_DROPPED, reason="quiet_hours") == 1


def test_a_batch_is_one_question_and_says_nothing_in_plain_text() -> None:
    bench = Bench(frequency=ONE_AN_HOUR, dedup=DEDUP)
    works = [bench.work("li"), bench.work("li", "other"), bench.work("wang"), bench.work("wang")]
    assert bench.judge(*works) == [None, "frequency_cap", None, "duplicate_content"]
    (batch,) = bench.fleet.asked
    shown = repr([passing.mark for passing in batch])
    assert not any(word in shown for word in ("li'", "wang", "hello"))


def test_the_same_delivery_read_again_passes_and_counts_once() -> None:
    bench = Bench(frequency=ONE_AN_HOUR, dedup=DEDUP)
    work = bench.work()
    again = Work(work.delivery, work.record, terms=bench.terms)
    assert bench.judge(work) == bench.judge(again) == [None]
    assert (work.marked, again.marked) == (True, False)


def test_what_the_template_made_is_what_is_compared() -> None:
    bench = Bench(dedup=DEDUP)
    one, two = bench.work(text="{{ a }}"), bench.work(text="{{ a }}")
    one.delivery.rendered = Rendered(content={"text": "1"})
    two.delivery.rendered = Rendered(content={"text": "2"})
    assert bench.judge(one, two) == [None, None]


def test_forms_for_single_providers_are_compared_too() -> None:
    bench = Bench(dedup=DEDUP)
    works = [bench.work() for _ in range(3)]
    for work, code in zip(works, ("1", "2", "1"), strict=True):
        form = Rendered(template=Template("SMS_1", {"code": code}))
        work.delivery.rendered = Rendered(providers={"aliyun_sms": form})
    assert bench.judge(*works) == [None, None, "duplicate_content"]


def test_a_template_without_forms_is_marked_as_it_ever_was() -> None:
    bench = Bench(dedup=DEDUP)
    plain, made = bench.work(text="1"), bench.work(text="{{ a }}")
    made.delivery.rendered = Rendered(content={"text": "1"})
    marks = [mark_of(work.delivery, bench.policy).content for work in (plain, made)]
    assert marks == ["dd6fc39c33b12db0ac0b7bef55aacb1b"] * 2, "Redis knows it by this name"


def test_a_deliberate_second_copy_is_no_repeat() -> None:
    bench = Bench(dedup=DEDUP)
    assert bench.judge(bench.work(), bench.work(resend_of="n-1")) == [None, None]


def test_what_is_held_counts_when_it_may_go() -> None:
    bench = Bench(quiet_hours=QUIET, frequency=ONE_AN_HOUR)
    assert bench.judge(bench.work(), bench.work()) == ["quiet_hours", "frequency_cap"]
    bench.ms += 9 * HOUR_MS
    assert bench.judge(bench.work()) == ["frequency_cap"], "the held one goes now"
    bench.ms += HOUR_MS
    assert bench.judge(bench.work()) == [None]


def test_one_whose_time_ends_before_is_not_counted() -> None:
    bench = Bench(quiet_hours=QUIET, frequency=ONE_AN_HOUR)
    work = bench.work()
    work.delivery.expires_at = bench.ms + HOUR_MS
    assert bench.judge(work) == ["quiet_hours"]
    assert bench.fleet.asked == []


def test_lanes_of_a_channel_count_together_where_they_say_so() -> None:
    bench = Bench(frequency=msgspec.structs.replace(ONE_AN_HOUR, scope=Scope.CHANNEL))
    other = bench.work()
    other.delivery.lane = "webhook.marketing"
    assert bench.judge(bench.work(), other) == [None, "frequency_cap"]


# -- given back --


@pytest.mark.parametrize(
    ("event", "again"),
    [
        (Event.REJECTED, True),
        (Event.REFUSED, True),
        (Event.TTL, True),
        (Event.BUDGET_SPENT, True),
        (Event.PARK, True),
        (Event.NOT_SENT, False),
        (Event.UNKNOWN, False),
        (Event.ACCEPTED, False),
        (Event.GIVEN_BACK, False),
    ],
)
def test_only_what_surely_was_not_sent_and_will_not_be_gives_its_place_back(
    event: Event, again: bool
) -> None:
    bench = Bench(frequency=ONE_AN_HOUR, dedup=DEDUP)
    work = bench.work()
    bench.judge(work)
    bench.gates.settled([work], [event])
    assert (bench.judge(bench.work()) == [None]) is again


def test_without_a_ledger_the_outcome_itself_decides() -> None:
    bench = Bench(dedup=DEDUP)
    work = bench.work()
    for outcome, never in ((Rejected("no"), True), (NotSent("busy"), True), (Unknown("?"), False)):
        work.end = outcome
        assert never_sent(work, None) is never
    work.end = Accepted("1")
    assert not never_sent(work, None)


@pytest.mark.parametrize(
    ("end", "back"),
    [
        (AlreadyKnown(State.SENT, "duplicate"), True),
        (AlreadyKnown(State.RETRY, "duplicate"), True),
        (EndedAtClaim(State.EXPIRED, "ttl_at_intake"), True),
        (EndedAtClaim(State.RETRY, "quiet_hours"), False),
        (EndedAtClaim(State.RETRY, "behind"), False),
    ],
)
def test_a_claim_that_was_not_won_gives_back_what_it_had_just_marked(end: End, back: bool) -> None:
    bench = Bench(dedup=DEDUP)
    work = bench.work()
    bench.judge(work)
    work.end = end
    bench.gates.unclaimed([work])
    assert bool(bench.fleet.given_back) is back


def test_a_claim_that_was_not_won_leaves_the_mark_that_was_there_before() -> None:
    bench = Bench(dedup=DEDUP)
    work = bench.work()
    bench.judge(work)
    again = Work(work.delivery, work.record, terms=bench.terms)
    bench.judge(again)
    again.end = AlreadyKnown(State.SENT, "duplicate")
    bench.gates.unclaimed([again])
    assert bench.judge(bench.work()) == ["duplicate_content"]


# -- without Redis --


def test_without_redis_a_worker_goes_by_what_it_let_pass_itself_and_counts() -> None:
    bench = Bench(shared=False, dedup=DEDUP)
    assert bench.judge(bench.work(), bench.work()) == [None, "duplicate_content"]
    assert bench.shown(worker_families.GATES_ALONE) == 2


def test_an_outage_forgets_nothing_that_this_worker_let_pass() -> None:
    bench = Bench(dedup=DEDUP)
    assert bench.judge(bench.work()) == [None]
    bench.fleet.away = True
    assert bench.judge(bench.work(), bench.work("wang")) == ["duplicate_content", None]
    assert bench.shown(worker_families.GATES_ALONE) == 2


def test_a_redis_that_forgot_marks_nothing_that_is_dropped() -> None:
    bench = Bench(dedup=DEDUP)
    bench.judge(bench.work())
    bench.fleet.flush()
    repeat = bench.work()
    assert bench.judge(repeat) == ["duplicate_content"]
    assert [one.member for one in bench.fleet.given_back] == [repeat.delivery.key]


@pytest.mark.parametrize("gates", [{"dedup": DEDUP}, {"frequency": ONE_AN_HOUR}])
def test_what_another_process_gave_back_is_forgotten_here_too(gates: dict[str, Any]) -> None:
    bench = Bench(**gates)
    first = bench.work()
    assert bench.judge(first) == [None]
    bench.fleet.marks.give_back([Returned(first.delivery.key, HOUR_MS)])
    second = bench.work()
    assert bench.judge(second) == [None], "by Redis it may go, and Redis did not merely forget"
    assert second.marked
    assert bench.fleet.questions == [[first.delivery.key]]
    assert len(set(bench.judge(bench.work()))) == 1, "the second one's mark holds"
    assert bench.judge(bench.work()) != [None]


def test_while_redis_is_away_a_mark_stays_until_its_window_ends() -> None:
    bench = Bench(dedup=DEDUP)
    work = bench.work()
    bench.judge(work)
    bench.fleet.away = True
    bench.gates.marks.give_back([(work.delivery.lane, work.delivery.key)])
    bench.fleet.away = False
    bench.ms += 2_000
    assert bench.judge(bench.work()) == ["duplicate_content"]
    bench.ms += DEDUP.window_ms
    assert bench.judge(bench.work()) == [None]


def test_a_lane_without_gates_asks_redis_nothing_when_its_deliveries_end() -> None:
    bench = Bench()
    work = bench.work()
    bench.gates.marks.give_back([(work.delivery.lane, work.delivery.key)])
    assert bench.fleet.given_back == []


def test_a_mark_is_given_back_by_the_delivery_whatever_the_policy_says_by_then() -> None:
    bench = Bench(dedup=DEDUP)
    work = bench.work()
    bench.judge(work)
    work.delivery.rendered = Rendered(content={"text": "the template was changed"})
    bench.gates.marks.give_back([(work.delivery.lane, work.delivery.key)])
    assert bench.judge(bench.work()) == [None]


def test_a_mark_names_the_delivery_and_no_gate_leaves_none() -> None:
    delivery: Delivery = Bench().work().delivery
    assert mark_of(delivery, LanePolicy()) == ReceiverMark(delivery.key, "", "")
