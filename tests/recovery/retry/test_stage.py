"""One resend, step by step: what is kept before the call, and what each outcome means for a row in doubt.

On a real ledger, with a provider that drops repeats for a while, as several of the real ones do.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import Any, ClassVar

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from channels.bad_content import BadContent
from channels.channel import Account, Call
from channels.engine import Engine
from channels.http_client.failures import withdrawn
from channels.judging.outcomes import of_failure
from channels.providers.null import NullChannel
from idempotency.ledger import LedgerUnavailable
from idempotency.recovery.contract import RecordedCall, Transition
from idempotency.sql_ledger import SqlLedger
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown
from message.states import Event
from message.vocabulary import Lane
from policy.schema import Guarantee, LanePolicy, RetryPolicy
from recovery.alerts import Alerts
from recovery.retry.pace import RetryPace
from recovery.retry.pool import RetryPool, RetryWork
from recovery.retry.retry_lane import RetryLane
from recovery.retry.settler import RetryContext, RetryKind, RetrySettler
from recovery.retry.stage import RetryStage
from recovery.telemetry import RecoveryMetrics, RecoveryTelemetry
from recovery.unknown.resolver import Resolving
from sending.accounts.rate_limiter import RateLimiter
from sending.accounts.selector import AccountSelector
from sending.lane_routes import Route
from sending.runtime.clock import Clock
from sending.runtime.outage import Outage
from sending.settlement import after_call
from tests.harness.operator_moves import operator_retry
from tests.idempotency.making import (
    World,
    claimed,
    claims,
    delivery,
    settle,
    wait_until,
    worker,
)
from tracing.events import NoRecorder, Stage, TraceEvent
from tracing.orders import violations

LANE = "sms.notice"
WINDOW_MS = 60_000
LEASE_ENDS = 123.0


class Deduping(NullChannel):
    """Drops a repeat of the same key for a minute; tells bodies apart by `body`."""

    dedup_window_ms: ClassVar[int] = WINDOW_MS
    takes_anything: ClassVar[bool] = False
    body = "one"

    def fingerprint(self, call: Call) -> str:
        return f"{self.body}:{call.key}"


class Provider(Engine):
    """Answers with what the test wrote down, and remembers account and key of each call."""

    def __init__(self) -> None:
        self.answers: list[AnyOutcome] = []
        self.calls: list[tuple[str, str]] = []
        self.not_after: list[float] = []
        self.counted: Counter[tuple[str, str]] = Counter()
        """Deliveries by account and key."""

    def send(self, channel: Any, call: Call, timeout_s: float) -> list[AnyOutcome]:
        self.calls.append((call.account.name, call.key))
        self.not_after.append(call.not_after)
        self.counted[self.calls[-1]] += len(call.deliveries)
        return [self.answers.pop(0)] * len(call.deliveries)


class Standing(Clock):
    """The world's clock. Its monotonic time runs, but while a test holds it."""

    def __init__(self, world: World) -> None:
        self.held: float | None = None
        super().__init__(lambda: time.monotonic() if self.held is None else self.held)
        self._world = world

    def now_ms(self) -> int:
        return self._world.now


class Told(NoRecorder):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []

    def record(self, events: Sequence[TraceEvent]) -> None:
        self.events += events


class Held:
    """A lease that always holds."""

    term = 1
    valid = True

    def wait_valid(self, term: int, until: Any) -> bool:
        return True

    def ends_at(self, term: int) -> float:
        return LEASE_ENDS


class Line:
    """Taking, calling and settling one after the other, and the resolver beside them."""

    def __init__(
        self,
        world: World,
        guarantee: Guarantee,
        channel: Deduping | None = None,
        burst: int | None = None,
    ) -> None:
        """`burst`: deliveries that may go through account b; None: any number."""
        self.world = world
        self._burst = burst
        self.ledger: SqlLedger = world.open()
        self.ledger.register(worker("r1"))
        self.rows = self.ledger.recovering()
        self.channel, self.provider = channel or Deduping(), Provider()
        self.clock = Standing(world)
        self.finished: SimpleQueue[RetryWork | None] = SimpleQueue()
        self.held: dict[str, int] = {}
        """Receiver, or account, to the milliseconds for which a limit holds deliveries."""
        self.release_per_s = 50.0
        self.told = Told()
        self.metrics, self.alerts = RecoveryMetrics(), Alerts(CollectorRegistry(), 60.0)
        self.report = RecoveryTelemetry(
            self.told,
            self.metrics,
            self.alerts,
            clock=self.clock,
            name="r1",
        )
        self.lane = self._lane(guarantee)
        self.limits = self.lane.accounts
        self.callers, self.releasing = self._pool(1, lazy=False), self._pool(4, lazy=True)
        context = self._context()
        self.settler = RetrySettler(context, self.finished)
        self.resending = RetryStage(
            context,
            self.settler,
            owner="r1",
            lease=Held(),
            render=lambda _: "",
            delays=self._delays,
        )
        self.resolving = Resolving(
            self.rows,
            {LANE: self.lane},
            self.provider,
            render=lambda _: "",
            report=self.report,
            stopping=threading.Event().is_set,
            paused=lambda _: self.callers.paused,
        )
        self.callers.start()

    def _lane(self, guarantee: Guarantee) -> RetryLane:
        """Returns a lane of two accounts. Turns by weight start with a: what goes back to it must do so
        by its name."""
        retry = RetryPolicy(attempts=9, base_ms=1_000, jitter=0)
        policy = LanePolicy(guarantee=guarantee, timeout_ms=1_000, retry=retry)
        made = {name: Route(Account(name, "null", ""), self.channel) for name in ("a", "b")}
        if self._burst is not None:
            limited = Account("b", "null", "", rate_per_s=0.01, burst=self._burst)
            made["b"] = Route(limited, self.channel)
        accounts = [route.account for route in made.values()]
        lane = Lane("sms", "notice")
        rates = RateLimiter(accounts, None, workers=lambda _: 1)
        return RetryLane(lane, "", policy, made, AccountSelector(lane, policy, accounts, rates))

    def _pool(self, threads: int, *, lazy: bool) -> RetryPool:
        return RetryPool(
            self.lane,
            threads,
            self.provider,
            permit=Held(),
            clock=self.clock,
            finished=self.finished,
            reroute=self.ledger.reroute,
            delays=self._delays,
            lazy=lazy,
        )

    def _delays(self, pairs: Sequence[tuple[str, str]]) -> list[int]:
        return [self.held.get(receiver, 0) or self.held.get(name, 0) for name, receiver in pairs]

    def _context(self) -> RetryContext:
        return RetryContext(
            ledger=self.ledger,
            rows=self.rows,
            lanes={LANE: self.lane},
            retries=RetryKind({LANE: self.callers}, RetryPace(lambda _: 50, self.clock)),
            releases=RetryKind(
                {LANE: self.releasing}, RetryPace(lambda _: self.release_per_s, self.clock)
            ),
            report=self.report,
            clock=self.clock,
            outage=Outage(),
        )

    def resend(self, *answers: AnyOutcome) -> None:
        self.provider.answers = list(answers)
        for _ in range(self.resending.run_once(LANE) or 0):
            one = self.finished.get(timeout=10)
            assert one is not None
            self.settler.settle([one])

    def row(self, item: Delivery) -> tuple[str, str | None, int]:
        row = self.ledger.queries().by_key(item.key)
        assert row is not None
        return row.state, row.reason, row.attempt


@pytest.fixture(params=[Guarantee.AT_MOST_ONCE, Guarantee.AT_LEAST_ONCE])
def line(world: World, request: pytest.FixtureRequest) -> Iterator[Line]:
    line = Line(world, request.param)
    yield line
    line.callers.close()
    assert violations(line.told.events) == []


@pytest.fixture
def item(line: Line) -> Delivery:
    """Called once by recovery through account a, answer lost."""
    (one,) = claimed(line.ledger, delivery())
    settle(line.ledger, one, Event.NOT_SENT, reason="http_429")
    line.resend(Unknown("timeout"))
    assert line.row(one) == ("UNKNOWN", "timeout", 2)
    line.world.advance(10)
    return one


def test_what_is_counted_after_the_stop_is_not_taken(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drain may have found nothing unsettled while a look waited for Redis: no thread is left that
    would give the rows back."""
    (one,) = claimed(line.ledger, delivery())
    settle(line.ledger, one, Event.NOT_SENT, reason="http_429")

    def slow() -> int:
        line.callers.stop()
        assert line.callers.unsettled == 0
        line.callers.close()
        return 1

    monkeypatch.setattr(line.limits, "room", slow)
    assert not line.resending.run_once(LANE)
    assert line.row(one) == ("RETRY", "http_429", 1)
    assert line.callers.unsettled == 0


def test_an_end_without_a_call_that_was_fenced_is_told_as_fenced(line: Line) -> None:
    """The row was swept meanwhile: it is in doubt, and nobody is told that it was parked."""
    (one,) = claimed(line.ledger, delivery())
    settle(line.ledger, one, Event.NOT_SENT, reason="http_429")

    def swept(_: Delivery) -> str:
        line.world.rows_changed("UPDATE deliveries SET state = 'UNKNOWN', token = token + 1")
        return "variable_missing: it is"

    line.resending._render = swept
    line.resend()
    assert line.row(one)[0] == "UNKNOWN"
    assert [(e.stage, e.state) for e in line.told.events] == [(Stage.FENCED, "")]
    assert line.alerts._latest == {}


def test_inside_the_window_the_same_call_is_made_through_the_same_account(
    line: Line, item: Delivery
) -> None:
    line.resolving.run_once(LANE)
    assert line.row(item)[:2] == ("RETRY", "replay")
    line.world.advance(2_000)
    line.resend(Accepted("p-1"))
    assert line.row(item) == ("SENT", None, 3)
    first, second = line.provider.calls
    assert first == second == ("a", first[1])


def test_a_repeat_that_was_not_sent_says_nothing_of_the_call_before_it(
    line: Line, item: Delivery
) -> None:
    line.resolving.run_once(LANE)
    line.world.advance(2_000)
    line.resend(NotSent("http_429"))
    assert line.row(item) == ("UNKNOWN", "http_429", 3)


def test_a_repeat_that_is_refused_says_nothing_of_the_call_before_it(
    line: Line, item: Delivery
) -> None:
    line.resolving.run_once(LANE)
    line.world.advance(2_000)
    line.resend(Rejected("not_following"))
    assert line.row(item)[:2] == ("UNKNOWN", "refused_in_doubt:not_following")
    line.resolving.run_once(LANE)
    assert line.row(item)[:2] == ("RETRY", "replay")  # the window is open: whoever has it says so
    line.world.advance(4_000)
    line.resend(Accepted("p-1"))
    assert line.row(item) == ("SENT", None, 4)


def test_what_was_refused_in_doubt_is_parked_once_nothing_can_prove_it(
    line: Line, item: Delivery
) -> None:
    line.resolving.run_once(LANE)
    line.world.advance(2_000)
    line.resend(Rejected("not_following"))
    line.world.advance(WINDOW_MS - 5_000)
    line.resolving.run_once(LANE)
    assert line.row(item)[:2] == ("PARKED", "refused_in_doubt:not_following")


def test_once_the_window_closed_while_it_waited_no_call_is_made(line: Line, item: Delivery) -> None:
    line.resolving.run_once(LANE)
    line.world.advance(WINDOW_MS - 5_000)
    line.resend()
    assert line.row(item)[:2] == ("UNKNOWN", "dedup_window_over")
    assert len(line.provider.calls) == 1


def test_outside_the_window_the_policy_decides(line: Line, item: Delivery) -> None:
    line.world.advance(WINDOW_MS - 6_000)
    line.resolving.run_once(LANE)
    state, reason, _attempt = line.row(item)
    parked = line.resending._context.lanes[LANE].policy.guarantee is Guarantee.AT_MOST_ONCE
    assert (state, reason) == ("PARKED" if parked else "RETRY", "unproven")


def test_another_body_is_no_repeat(line: Line, item: Delivery) -> None:
    line.channel.body = "two"
    line.resolving.run_once(LANE)
    assert line.row(item)[1] == "unproven"


def test_a_body_that_changed_while_it_waited_is_no_repeat(line: Line, item: Delivery) -> None:
    line.resolving.run_once(LANE)
    line.channel.body = "two"
    line.world.advance(2_000)
    line.resend()
    assert line.row(item)[:2] == ("UNKNOWN", "dedup_window_over")
    assert len(line.provider.calls) == 1


class Losing(Deduping):
    """An adapter whose template can lose its form for this provider, as Resend's."""

    lost = ""
    """The key of the delivery that it cannot word any more."""
    refuses = True
    """Whether it refuses that delivery, too."""

    def fingerprint(self, call: Call) -> str:
        if self.lost in {one.key for one in call.deliveries}:
            raise BadContent("no_template: template welcome has nothing for null")
        return super().fingerprint(call)

    def refusal(self, account: Account, delivery: Delivery) -> str:
        return "no_template: nothing for null" if self.refuses and delivery.key == self.lost else ""


@pytest.fixture
def losing(world: World) -> Iterator[Line]:
    line = Line(world, Guarantee.AT_LEAST_ONCE, Losing())
    yield line
    line.callers.close()
    assert violations(line.told.events) == []


def in_doubt(line: Line, count: int) -> list[Delivery]:
    """Called once each through account a, answers lost."""
    made = [delivery(receivers=[f"+861380000{number:04}"]) for number in range(count)]
    for one in made:
        one.account, one.call_key, one.call_digest = "a", one.key, f"one:{one.key}"
    items = claimed(line.ledger, *made)
    for one in items:
        settle(line.ledger, one, Event.UNKNOWN, reason="timeout")
    line.world.advance(1_000)
    return items


@pytest.mark.parametrize(
    ("refuses", "reason"), [(True, "no_template"), (False, "dedup_window_over")]
)
def test_a_repeat_that_its_adapter_cannot_make_any_more_holds_up_no_other_row(
    losing: Line, refuses: bool, reason: str
) -> None:
    (lost,) = in_doubt(losing, 1)
    losing.resolving.run_once(LANE)
    assert losing.row(lost)[:2] == ("RETRY", "replay")
    (other,) = due(losing, "a")
    assert isinstance(losing.channel, Losing)
    losing.channel.lost, losing.channel.refuses = lost.key, refuses
    losing.world.advance(2_000)
    losing.resend(Accepted("p"))
    assert losing.row(lost)[:2] == ("UNKNOWN", reason)
    assert losing.row(other)[0] == "SENT"
    assert len(losing.provider.calls) == 1


@pytest.mark.parametrize("refuses", [True, False])
def test_a_doubt_that_its_adapter_cannot_word_any_more_is_no_repeat_and_hides_no_other(
    losing: Line, refuses: bool
) -> None:
    lost, *others = in_doubt(losing, 3)
    assert isinstance(losing.channel, Losing)
    losing.channel.lost, losing.channel.refuses = lost.key, refuses
    losing.resolving.run_once(LANE)
    assert losing.row(lost)[:2] == ("RETRY", "unproven")
    assert {losing.row(one)[:2] for one in others} == {("RETRY", "replay")}


def test_rows_are_given_back_if_their_taking_fails_unforeseen(line: Line) -> None:
    items = due(line, "a", "b")

    def broken(_: Any) -> list[int]:
        raise KeyError("unforeseen")

    line.resending._delays = broken
    with pytest.raises(KeyError):
        line.resending.run_once(LANE)
    assert {line.row(one) for one in items} == {("RETRY", "x", 1)}
    assert line.callers.unsettled == 0
    line.resending._delays = line._delays
    line.world.advance(10_000)
    line.resend(Accepted("1"), Accepted("2"))
    assert {line.row(one)[0] for one in items} == {"SENT"}


def test_a_call_carries_the_end_of_the_lease_it_is_made_under(line: Line, item: Delivery) -> None:
    assert line.row(item)[0] == "UNKNOWN"
    assert line.provider.not_after == [LEASE_ENDS]


def test_account_and_key_are_in_the_ledger_before_the_call(line: Line) -> None:
    (one,) = claimed(line.ledger, delivery())
    settle(line.ledger, one, Event.NOT_SENT, reason="x")
    seen: list[Any] = []
    inner = line.provider.send

    def looking(channel: Any, call: Call, timeout_s: float) -> list[AnyOutcome]:
        columns = "state, account, call_key, call_digest"
        seen.extend(line.world.rows(f"SELECT {columns} FROM deliveries"))
        return inner(channel, call, timeout_s)

    line.provider.send = looking  # type: ignore[method-assign]
    line.resend(Accepted("p"))
    key = line.provider.calls[0][1]
    assert seen == [("IN_FLIGHT", "a", key, f"one:{key}")]
    assert key != one.key, "a provider may drop what it refused before under the delivery's own key"


def test_a_call_after_a_definite_non_send_has_a_key_of_its_own(line: Line) -> None:
    (one,) = claimed(line.ledger, delivery())
    settle(line.ledger, one, Event.NOT_SENT, reason="x")
    line.resend(NotSent("x"))
    line.world.advance(10_000)
    line.resend(Accepted("p"))
    (_, first), (_, second) = line.provider.calls
    assert len({one.key, first, second}) == 3


def test_a_row_swept_between_the_take_and_the_call_is_not_sent(line: Line) -> None:
    (one,) = claimed(line.ledger, delivery())
    settle(line.ledger, one, Event.NOT_SENT, reason="x")
    keep = line.rows.keep

    def swept(calls: Any) -> list[bool]:
        line.world.advance(10_000)
        line.ledger.sweep()
        return keep(calls)

    line.rows.keep = swept  # type: ignore[method-assign]
    line.resend()
    assert line.row(one)[:2] == ("UNKNOWN", "owner_dead")
    assert line.provider.calls == []
    assert line.callers.unsettled == 0


def test_without_an_account_it_is_parked(line: Line) -> None:
    (one,) = claimed(line.ledger, delivery(account="gone"))
    settle(line.ledger, one, Event.NOT_SENT, reason="x")
    line.resend()
    assert line.row(one)[:2] == ("PARKED", "no_account")


def test_a_template_that_still_fails_parks_it_again_with_its_reason(line: Line) -> None:
    one = delivery()
    line.ledger.claim(claims([one], Event.PARK, reason="variable_missing: code"), "w1")
    (pick,) = line.ledger.picks().named(one.key)
    assert line.rows.move([operator_retry(one.key, pick.day, pick.version, pick.state)]) == [True]
    line.resending._render = lambda _: "variable_type: template 't': code: expected int"
    line.resend()
    assert line.row(one) == ("PARKED", "variable_type: template 't': code: expected int", 0)
    assert line.provider.calls == []
    alerts = {alert.subject: alert.text for alert in line.alerts._latest.values()}
    assert alerts["parked", f"{LANE} variable_type"].endswith("code: expected int")
    ended = {"lane": LANE, "state": "PARKED", "reason": "variable_type"}
    name = "hongyan_recovery_ended_total"
    assert line.metrics.registry.get_sample_value(name, ended) == 1, "no sentence in a label"
    line.world.advance(10)
    (pick,) = line.ledger.picks().named(one.key)
    assert line.rows.move([operator_retry(one.key, pick.day, pick.version, pick.state)]) == [True]
    line.resending._render = lambda _: ""
    line.resend(Accepted("p-1"))
    assert line.row(one) == ("SENT", None, 1), "only a call is an attempt"


def test_a_template_that_fails_takes_no_doubt_away(line: Line, item: Delivery) -> None:
    line.resolving.run_once(LANE)
    line.world.advance(2_000)
    line.resending._render = lambda _: "template_unknown: there is no template 't'"
    line.resend()
    assert line.row(item)[:2] == ("UNKNOWN", "template_unknown: there is no template 't'")
    assert_doubted(line, item)


def test_an_account_that_is_gone_takes_no_doubt_away(line: Line) -> None:
    (one,) = claimed(line.ledger, delivery(account="a"))
    settle(line.ledger, one, Event.NOT_SENT, reason="http_429")
    line.resend(Unknown("timeout"))
    line.world.advance(10)
    (pick,) = line.ledger.picks().named(one.key)
    move = (Event.RESEND_UNPROVEN, "unproven")
    assert line.rows.move([Transition(one.key, pick.day, pick.version, pick.state, *move)]) == [
        True
    ]
    routes: Any = line.lane.routes
    del routes["a"]
    line.resend()
    assert line.row(one)[:2] == ("UNKNOWN", "no_account")
    assert_doubted(line, one)


def test_a_time_that_ends_before_the_call_takes_no_doubt_away(line: Line, item: Delivery) -> None:
    """It was taken in time; then something took long: the database, or the queue of the lane."""
    line.resolving.run_once(LANE)
    line.world.advance(2_000)
    keep = line.rows.keep

    def late(calls: Sequence[RecordedCall]) -> list[bool]:
        kept = keep(calls)
        line.world.advance(60_000)
        return kept

    line.rows.keep = late  # type: ignore[method-assign]
    line.resend()
    assert line.row(item)[:2] == ("UNKNOWN", "ttl_in_doubt")
    assert len(line.provider.calls) == 1
    assert_doubted(line, item)
    line.resolving.run_once(LANE)
    assert line.row(item)[:2] == ("PARKED", "ttl_in_doubt")
    assert_doubted(line, item)


# -- past the horizon --

HORIZON_MS = 10_000


def shorten_horizon(line: Line) -> None:
    retry = msgspec.structs.replace(line.lane.policy.retry, horizon_ms=HORIZON_MS)
    line.lane.policy = msgspec.structs.replace(line.lane.policy, retry=retry)


def test_past_its_horizon_it_is_parked_without_a_call(line: Line) -> None:
    shorten_horizon(line)
    (one,) = claimed(line.ledger, delivery())
    settle(line.ledger, one, Event.NOT_SENT, reason="http_429")
    line.world.advance(HORIZON_MS)
    line.resend()
    assert line.row(one) == ("PARKED", "horizon_over", 1), "only a call is an attempt"
    assert line.provider.calls == []
    assert ("retries_spent", f"{LANE} horizon_over") in line.alerts._latest


def test_a_horizon_that_is_over_takes_no_doubt_away(line: Line, item: Delivery) -> None:
    shorten_horizon(line)
    line.resolving.run_once(LANE)
    assert line.row(item)[:2] == ("RETRY", "replay")
    line.world.advance(HORIZON_MS)
    line.resend()
    assert line.row(item)[:2] == ("UNKNOWN", "horizon_over")
    assert len(line.provider.calls) == 1
    assert_doubted(line, item)
    line.resolving.run_once(LANE)
    assert line.row(item)[:2] == ("PARKED", "horizon_over")
    assert_doubted(line, item)


def test_past_its_horizon_it_goes_if_a_person_wants_it_sent(line: Line) -> None:
    shorten_horizon(line)
    (one,) = claimed(line.ledger, delivery())
    settle(line.ledger, one, Event.NOT_SENT, reason="http_429")
    line.world.advance(HORIZON_MS)
    line.resend()
    (pick,) = line.ledger.picks().named(one.key)
    assert line.rows.move([operator_retry(one.key, pick.day, pick.version, pick.state)]) == [True]
    line.resend(Accepted("p-1"))
    assert line.row(one) == ("SENT", None, 2)


def test_past_its_horizon_a_first_send_goes(line: Line) -> None:
    """Quiet hours, or a receiver's limit, held it for that long."""
    shorten_horizon(line)
    one = delivery()
    line.ledger.claim(claims([one], Event.HOLD, reason="quiet_hours", delay_ms=HORIZON_MS), "w1")
    line.world.advance(HORIZON_MS)
    line.resend(Accepted("p-1"))
    assert line.row(one) == ("SENT", None, 1)


def test_past_its_horizon_it_goes_through_no_other_account(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_horizon(line)
    (one,) = claimed(line.ledger, delivery())
    settle(line.ledger, one, Event.NOT_SENT, reason="http_429")
    send = line.provider.send

    def slowly(*args: Any) -> list[AnyOutcome]:
        line.world.advance(HORIZON_MS)
        return send(*args)

    monkeypatch.setattr(line.provider, "send", slowly)
    line.resend(NotSent("no_balance", account=True))
    assert line.row(one) == ("PARKED", "horizon_over:no_balance", 2)
    assert len(line.provider.calls) == 1


def assert_doubted(line: Line, item: Delivery) -> None:
    (pick,) = line.ledger.picks().named(item.key)
    assert pick.doubted


def test_an_adapter_whose_refusal_a_person_can_mend_parks_it(line: Line) -> None:
    (one,) = claimed(line.ledger, delivery())
    settle(line.ledger, one, Event.NOT_SENT, reason="x")
    line.channel.refusal = lambda *_: "no_template: it has nothing"  # type: ignore[method-assign]
    line.resend()
    assert line.row(one)[:2] == ("PARKED", "no_template: it has nothing")


def test_a_lane_takes_no_more_than_its_threads_and_its_rate_have_room_for(line: Line) -> None:
    items = claimed(line.ledger, *[delivery() for _ in range(9)])
    for one in items:
        settle(line.ledger, one, Event.NOT_SENT, reason="x")
    gate = threading.Event()
    answer = line.provider.send

    def held(channel: Any, call: Call, timeout_s: float) -> list[AnyOutcome]:
        gate.wait(10)
        return answer(channel, call, timeout_s)

    line.provider.answers = [Accepted("p"), Accepted("p")]
    line.provider.send = held  # type: ignore[method-assign]
    assert line.resending.run_once(LANE) == 2, "one in work and one waiting for its one thread"
    assert line.resending.run_once(LANE) is None
    gate.set()
    for _ in range(2):
        done = line.finished.get(timeout=10)
        assert done is not None
        line.settler.settle([done])
    assert line.callers.unsettled == 0


def test_first_sends_and_retries_have_a_rate_and_places_of_their_own(line: Line) -> None:
    held = [delivery() for _ in range(8)]
    line.ledger.claim(claims(held, Event.HOLD, reason="quiet_hours"), "r1")
    retries = claimed(line.ledger, *[delivery() for _ in range(8)])
    for one in retries:
        settle(line.ledger, one, Event.NOT_SENT, reason="x")
    line.release_per_s = 5
    gate = threading.Event()
    line.provider.send = lambda *_: gate.wait(10) and [Accepted("p")]  # type: ignore[assignment]
    try:
        line.clock.held = time.monotonic()  # a busy machine may need a second for two looks
        assert line.resending.run_once(LANE) == 2 + 5, "two places for retries; five a second"
        assert line.resending.run_once(LANE) is None
        line.clock.held = None
        assert (line.callers.unsettled, line.releasing.unsettled) == (2, 5)
        line.release_per_s = 500
        wait_until(lambda: line.resending.run_once(LANE) == 3)  # four at work, four that wait
    finally:
        gate.set()
    for _ in range(10):
        done = line.finished.get(timeout=10)
        assert done is not None
        line.settler.settle([done])
    assert (line.callers.unsettled, line.releasing.unsettled) == (0, 0)


def test_a_look_holds_places_that_are_no_deliveries_in_flight(line: Line) -> None:
    take, shown = line.rows.take, []

    def looked(*query: Any) -> Any:
        pools = (line.callers, line.releasing)
        shown.append(([pool.in_flight for pool in pools], sum(pool.unsettled for pool in pools)))
        return take(*query)

    line.rows.take = looked  # type: ignore[assignment, method-assign]
    assert line.resending.run_once(LANE) == 0
    assert len(shown) == 2, "a look for retries, and one for first sends"
    assert all(flying == [0, 0] for flying, _ in shown)
    assert all(held > 0 for _, held in shown), "a drain waits for a look under way"
    assert (line.callers.unsettled, line.releasing.unsettled) == (0, 0)


def test_what_no_account_may_send_now_is_due_again_later_with_its_attempt(line: Line) -> None:
    (one,) = claimed(line.ledger, delivery())
    settle(line.ledger, one, Event.NOT_SENT, reason="http_429")
    accounts = line.resending._context.lanes[LANE].accounts

    def nobody(delivery: Delivery, refuses: object = None) -> Account | None:
        return None

    accounts.choose = nobody  # type: ignore[method-assign]
    assert line.resending.run_once(LANE) == 0
    assert line.row(one) == ("RETRY", "http_429", 1)
    row = line.ledger.queries().by_key(one.key)
    assert row is not None
    assert row.next_at is not None
    assert row.next_at > line.world.now
    assert line.callers.unsettled == 0


def test_what_no_account_may_send_now_hides_nobody_however_much_it_is(line: Line) -> None:
    shut = claimed(line.ledger, *[delivery(account="a") for _ in range(30)])
    for one in shut:
        settle(line.ledger, one, Event.NOT_SENT, reason="x")
    line.world.advance(10)
    (free,) = claimed(line.ledger, delivery(account="b"))
    settle(line.ledger, free, Event.NOT_SENT, reason="x")
    line.world.advance(10)
    accounts = line.resending._context.lanes[LANE].accounts
    choose = accounts.choose

    def other(delivery: Delivery, refuses: Any = None) -> Account | None:
        return None if delivery.notification.account == "a" else choose(delivery, refuses)

    accounts.choose = other  # type: ignore[method-assign]
    line.resend(Accepted("p"))
    assert line.row(free)[0] == "SENT"
    assert {line.row(one) for one in shut} == {("RETRY", "x", 1)}
    assert line.callers.unsettled == 0


def test_what_waits_for_an_account_that_is_shut_goes_back_without_a_call(line: Line) -> None:
    items = claimed(line.ledger, *[delivery(account="a") for _ in range(2)])
    for one in items:
        settle(line.ledger, one, Event.NOT_SENT, reason="x")
    slower = NotSent("http_429", retry_after_ms=30_000, limit=Limit.ACCOUNT)
    line.resend(slower)
    assert line.provider.calls == [("a", line.provider.calls[0][1])]
    refused, behind = sorted((line.row(one) for one in items), reverse=True, key=lambda row: row[2])
    assert refused == ("RETRY", "http_429", 2)
    assert behind == ("RETRY", "x", 1)
    rows = [line.ledger.queries().by_key(one.key) for one in items]
    assert all(row and row.next_at and row.next_at > line.world.now + 20_000 for row in rows)
    assert line.callers.unsettled == 0


def test_a_paused_lane_takes_nothing_again_and_releases_nothing(line: Line) -> None:
    (again,) = claimed(line.ledger, delivery())
    settle(line.ledger, again, Event.NOT_SENT, reason="x")
    (held,) = claims([delivery()], Event.HOLD, reason="quiet_hours")
    line.ledger.claim([held], "w1")
    before = [line.row(one) for one in (again, held.delivery)]
    for pool in (line.callers, line.releasing):
        pool.pause(True)
    assert line.resending.run_once(LANE) == 0
    assert [line.row(one) for one in (again, held.delivery)] == before
    for pool in (line.callers, line.releasing):
        pool.pause(False)
    line.resend(Accepted("1"), Accepted("2"))
    assert {line.row(one)[0] for one in (again, held.delivery)} == {"SENT"}


def test_what_was_taken_before_its_lane_was_paused_goes_back_without_a_call(line: Line) -> None:
    (one,) = claimed(line.ledger, delivery())
    settle(line.ledger, one, Event.NOT_SENT, reason="x")
    take = line.rows.take

    def pausing(*asked: Any) -> Any:
        line.callers.pause(True)
        return take(*asked)

    line.rows.take = pausing  # type: ignore[method-assign,assignment]
    line.resend()
    assert line.row(one) == ("RETRY", "x", 1)
    assert (line.provider.calls, line.callers.unsettled) == ([], 0)


def test_a_call_that_waits_for_its_token_goes_back_if_its_lane_is_paused_meanwhile(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = due(line, "a")

    def send(_channel: Any, call: Call, _timeout_s: float) -> list[AnyOutcome]:
        line.callers.pause(True)
        assert call.withdrawn is not None
        return [of_failure(withdrawn(call.withdrawn()))]

    monkeypatch.setattr(line.provider, "send", send)
    line.resend()
    assert line.row(one) == ("RETRY", "x", 1)


def test_what_its_provider_could_never_take_is_rejected_without_a_call(line: Line) -> None:
    (one,) = claimed(line.ledger, delivery())
    settle(line.ledger, one, Event.NOT_SENT, reason="x")
    line.channel.refusal = lambda *_: "bad_number: no such country"  # type: ignore[method-assign]
    line.resend()
    assert line.row(one) == ("REJECTED", "bad_number", 1), "only a call is an attempt"
    assert line.provider.calls == []


def test_a_busy_lane_makes_room_for_half_of_what_may_wait_at_once(line: Line) -> None:
    callers = RetryPool(
        line.resending._context.lanes[LANE],
        8,
        line.provider,
        permit=Held(),
        clock=Standing(line.world),
        finished=line.finished,
        reroute=line.ledger.reroute,
        delays=line._delays,
    )
    assert callers.room == 16
    callers.take_up(12)
    assert callers.room == 0, "all eight call, and four wait to"
    callers.take_up(-1)
    assert callers.room == 5


# -- several in a call, another account, a receiver's limit --


class Joining(Deduping):
    """Takes three deliveries of one text, and knows a call by everything that is in it."""

    max_batch: ClassVar[int] = 3

    def batch_key(self, delivery: Delivery) -> Any:
        return str(delivery.content)

    def fingerprint(self, call: Call) -> str:
        return "+".join(sorted(delivery.key for delivery in call.deliveries))


def due(line: Line, *texts: str, named: dict[int, str] | None = None) -> list[Delivery]:
    """Rows that wait, each for a receiver of its own; `named` has accounts that they name, by place."""
    named = named or {}
    items = [
        delivery(text=text, receivers=[f"+861380000{number:04}"], account=named.get(number))
        for number, text in enumerate(texts)
    ]
    made = claimed(line.ledger, *items)
    for one in made:
        settle(line.ledger, one, Event.NOT_SENT, reason="x")
    return made


@pytest.fixture
def joined(world: World) -> Iterator[Line]:
    line = Line(world, Guarantee.AT_LEAST_ONCE, Joining())
    yield line
    line.callers.close()
    assert violations(line.told.events) == []


def one_account(line: Line) -> None:
    """The lane's other one is out of order."""
    other = line.resending._context.lanes[LANE].accounts._regular.pop()
    assert other.account.name == "b"


def test_what_says_the_same_shares_a_call_under_one_key_on_record(joined: Line) -> None:
    items = due(joined, "a", "a", "b", "a", "a")
    one_account(joined)
    joined.resend(*[Accepted("p")] * 3)
    assert sorted(joined.provider.counted.values()) == [1, 1, 3]
    assert {joined.row(item)[0] for item in items} == {"SENT"}
    stored = joined.world.rows("SELECT delivery_key, call_key FROM deliveries")
    keys = dict(stored)
    assert keys[items[0].key] == keys[items[1].key] == keys[items[3].key]
    assert len(set(keys.values())) == 3


def test_a_joint_call_in_doubt_is_repeated_whole(joined: Line) -> None:
    """To the provider a part of it would be another call, and no repeat."""
    items = due(joined, "a", "a")
    one_account(joined)
    joined.resend(Unknown("timeout"))
    joined.world.advance(1_000)
    joined.provider.answers = [Accepted("p")]
    joined.resolving.run_once(LANE)
    assert {joined.row(item)[0] for item in items} == {"SENT"}
    first, second = joined.provider.calls
    assert first == second
    assert joined.provider.counted[first] == 4, "two, twice"


def test_what_an_account_refuses_goes_through_another_at_once(line: Line) -> None:
    (one,) = due(line, "a")
    line.resend(NotSent("no_balance", account=True), Accepted("p"))
    assert line.row(one) == ("SENT", None, 3)
    (first, first_key), (second, second_key) = line.provider.calls
    assert {first, second} == {"a", "b"}
    assert first_key != second_key
    stored = line.world.rows("SELECT account, call_key FROM deliveries")
    assert stored == [(second, second_key)]
    told = [(e.stage, e.attempt, e.account, e.reason) for e in line.told.events]
    assert told == [
        ("taken", 2, first, "x"),
        ("attempted", 2, first, "no_balance"),
        ("settled", 3, second, None),
    ]


def test_no_more_of_a_joint_call_go_through_another_account_than_its_rate_has_room_for(
    world: World,
) -> None:
    line = Line(world, Guarantee.AT_LEAST_ONCE, Joining(), burst=2)
    items = due(line, "a", "a", "a")
    accounts = line.lane.accounts
    accounts._reserve.append(accounts._regular.pop())
    line.resend(NotSent("no_balance", account=True), Accepted("p"))
    line.callers.close()
    assert [line.provider.counted[call] for call in line.provider.calls] == [3, 2]
    assert Counter(line.row(item)[0] for item in items) == {"SENT": 2, "RETRY": 1}


@pytest.mark.parametrize("named", [0, 1])
def test_what_names_its_account_leaves_a_joint_call_to_no_other(joined: Line, named: int) -> None:
    items = due(joined, "a", "a", named={named: "a"})
    accounts = joined.resending._context.lanes[LANE].accounts
    accounts._reserve.append(accounts._regular.pop())
    joined.resend(NotSent("no_balance", account=True), Accepted("p"))
    assert [account for account, _ in joined.provider.calls] == ["a", "b"]
    assert sorted(joined.provider.counted.values()) == [1, 2]
    assert joined.row(items[named])[:2] == ("RETRY", "no_balance")
    assert joined.row(items[1 - named])[0] == "SENT"


def test_the_last_attempt_goes_through_no_other_account(line: Line) -> None:
    routes = line.resending._context.lanes[LANE]
    retry = RetryPolicy(attempts=2)
    routes.policy = msgspec.structs.replace(routes.policy, retry=retry)
    (one,) = due(line, "a")
    line.resend(NotSent("no_balance", account=True))
    assert line.row(one) == ("PARKED", "attempts_spent:no_balance", 2)
    assert len(line.provider.calls) == 1


def test_what_a_joint_refusal_left_without_an_attempt_has_one_call_of_its_own(line: Line) -> None:
    routes = line.resending._context.lanes[LANE]
    routes.policy = msgspec.structs.replace(routes.policy, retry=RetryPolicy(attempts=1))
    made = claimed(line.ledger, delivery(receivers=["+8613800000001"]), delivery())
    joint = NotSent("one_bad", retry_after_ms=0, joint=True)
    for one in made:
        assert line.ledger.settle([after_call(one, joint, line.world.now, routes.policy)]) == [True]
    assert [line.row(one)[:2] for one in made] == [("RETRY", "joint_refusal:one_bad")] * 2
    line.world.advance(1_000)
    line.resend(Accepted("p"), NotSent("bad_number"))
    line.world.advance(60_000)
    line.resend()
    ends = Counter(line.row(one) for one in made)
    assert ends == {("SENT", None, 2): 1, ("PARKED", "attempts_spent:bad_number", 2): 1}


def test_a_repeat_that_is_refused_goes_through_no_other_account(line: Line, item: Delivery) -> None:
    line.resolving.run_once(LANE)
    line.world.advance(2_000)
    line.resend(NotSent("no_balance", account=True))
    assert line.row(item)[0] == "UNKNOWN"
    assert [account for account, _ in line.provider.calls] == ["a", "a"]


def test_what_the_other_account_could_never_send_keeps_its_outcome(line: Line) -> None:
    (one,) = due(line, "a")

    def refusal(account: Account, _: Delivery) -> str:
        return "" if account.name == "a" else "bad_number: not from here"

    line.channel.refusal = refusal  # type: ignore[method-assign, assignment]
    line.resend(NotSent("no_balance", account=True))
    assert line.row(one)[:2] == ("RETRY", "no_balance")
    assert len(line.provider.calls) == 1


def test_while_the_ledger_is_away_nobody_is_sent_elsewhere(line: Line) -> None:
    (one,) = due(line, "a")

    def away(_: Any) -> list[bool]:
        raise LedgerUnavailable("gone")

    line.callers._reroute = away
    line.resend(NotSent("no_balance", account=True))
    ((called, _),) = line.provider.calls
    told = [(e.stage, e.account) for e in line.told.events]
    assert told == [("taken", called), ("settled", called)]
    assert line.row(one)[:2] == ("RETRY", "no_balance")
    assert len(line.provider.calls) == 1


def test_a_receiver_at_its_limit_waits_in_the_ledger_with_its_attempt(line: Line) -> None:
    one, other = due(line, "a", "b")
    line.held[one.receiver] = 30_000
    line.resend(Accepted("p"))
    assert line.row(one) == ("RETRY", "x", 1)
    assert line.row(other)[0] == "SENT"
    row = line.ledger.queries().by_key(one.key)
    assert row is not None
    assert row.next_at == line.world.now + 30_000


def test_a_receiver_at_its_limit_of_the_other_account_keeps_its_outcome(line: Line) -> None:
    (one,) = due(line, "a")
    line.held["b"] = 30_000
    line.resend(NotSent("no_balance", account=True))
    assert line.row(one) == ("RETRY", "no_balance", 2)
    assert [account for account, _ in line.provider.calls] == ["a"]


def test_each_outcome_of_recovery_is_in_its_sums(line: Line, item: Delivery) -> None:
    line.resolving.run_once(LANE)
    line.world.advance(2_000)
    line.resend(Accepted("p-1"))
    assert line.row(item)[0] == "SENT"
    counted = Counter[str]()
    for row in line.metrics.sums.unwritten():
        assert (row.lane, row.account) == (LANE, "a")
        counted[row.outcome] += row.deliveries
        assert bool(row.total) == (row.outcome == "SENT")
    assert counted == {"UNKNOWN": 1, "RETRY": 1, "SENT": 1}
