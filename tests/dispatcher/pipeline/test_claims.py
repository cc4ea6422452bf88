"""Claims of deliveries that are known already, and claims with an outage between two tries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from backends.metrics import worker_families
from dispatcher.metrics import Metrics
from dispatcher.pipeline.claims import LedgerClaims
from dispatcher.pipeline.settle import settlement_of
from dispatcher.pipeline.telemetry import WorkerTelemetry
from dispatcher.pipeline.work import Work
from hongyan.commands.trace import _details
from idempotency.ledger import Claim, Claimed, LedgerUnavailable, Settlement
from idempotency.payload_cipher import body_digest
from message.states import Event, State
from policy.gates import QuietAction
from sending.endings import NotStarted
from sending.runtime.clock import Clock
from sending.runtime.outage import Outage
from tests.dispatcher.pipeline.test_gates import HOUR_MS, ONE_AN_HOUR, QUIET, Bench
from tests.dispatcher.pipeline.test_telemetry import Kept
from tracing.events import Stage
from tracing.spans import SpanMaker
from tracing.timeline import moments


def screened(work: Work, marks: Mapping[str, bytes]) -> tuple[list[Work], list[Work]]:
    """Looks a delivery up in Redis, which has these marks."""

    def lookup(keys: Sequence[str]) -> list[bytes | None]:
        return [marks.get(key) for key in keys]

    any_: Any = None
    prefilter: Any = SimpleNamespace(lookup=lookup)
    gate = LedgerClaims(
        any_, prefilter, owner="w", outage=any_, clock=Clock(), count=Metrics(), term=lambda: 1
    )
    return gate.screen([work])


@pytest.mark.parametrize(
    ("body", "stage", "reason"),
    [(b"{}", Stage.DUPLICATE, "duplicate_prefilter"), (b"{ }", Stage.CONFLICT, "conflict")],
)
def test_a_delivery_that_redis_knows_is_reported_without_a_state(
    body: bytes, stage: Stage, reason: str
) -> None:
    """It may have been rejected: a mark says that it is settled, and not how."""
    work, kept, metrics = Bench().work(), Kept(), Metrics()
    worth, ended = screened(work, {work.delivery.key: body_digest(body)})
    assert (worth, ended) == ([], [work])
    WorkerTelemetry(kept, metrics, clock=Clock(), worker="w").ended(ended)
    (event,) = kept.events
    assert (event.stage, event.state, event.reason) == (stage, "", reason)
    (moment,) = (one for one in moments(kept.events) if one.what == stage)
    assert _details(moment, "w", "v1").plain == reason
    (span,) = SpanMaker("worker", 1.0).spans_of(kept.events)
    assert span.attributes is not None
    assert "hongyan.state" not in span.attributes
    labels = {"lane": work.delivery.lane, "by": "redis"}
    assert metrics.registry.get_sample_value("hongyan_duplicates_total", labels) == 1


class AwayOnce:
    """A ledger that is away at the first try; then hours have passed. It may have entered that try."""

    def __init__(self, bench: Bench, hours: float, *, entered: bool = False) -> None:
        self._bench, self._hours, self._entered = bench, hours, entered
        self.tries: list[list[tuple[Event, str | None, int]]] = []

    def claim(self, claims: Sequence[Claim], _owner: str, **_: Any) -> list[Claimed]:
        self.tries.append([(one.event, one.reason, one.delay_ms) for one in claims])
        if len(self.tries) == 1:
            self._bench.ms += int(self._hours * HOUR_MS)
            raise LedgerUnavailable("away")
        states = {Event.CLAIM: State.IN_FLIGHT, Event.HOLD: State.RETRY, Event.DROP: State.DROPPED}
        if self._entered:
            return [Claimed(True, State.IN_FLIGHT, attempt=1, day=7)] * len(claims)
        return [Claimed(True, states.get(one.event, State.EXPIRED)) for one in claims]

    def settle_and_claim(
        self, _settlements: Sequence[Settlement], claims: Sequence[Claim], owner: str, *_: Any
    ) -> tuple[list[bool], list[Claimed]]:
        return [True], self.claim(claims, owner)


@pytest.fixture(params=["claim", "settle_and_claim"])
def after_outage(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Claims works over an outage. Returns the tries, the works to send and those that ended."""
    monkeypatch.setattr(Outage, "_sleep", lambda *_: None)

    def claimed(bench: Bench, hours: float, *works: Work, **how: Any) -> Any:
        ledger: Any = AwayOnce(bench, hours, **how)
        clock = Clock(lambda: bench.ms / 1_000, lambda: bench.ms / 1_000)
        any_: Any = None
        gate = LedgerClaims(
            ledger,
            any_,
            owner="w",
            outage=Outage(),
            clock=clock,
            count=Metrics(),
            term=lambda: 1,
            judge_again=bench.gates.judge_again,
        )
        bench.judge(*works)
        if request.param == "claim":
            to_send, ended = gate.admit(works)
        else:
            _, found = gate.settle_and_claim([], list(works))
            assert found is not None
            to_send, ended = found
        return ledger.tries, to_send, ended

    return claimed


@pytest.mark.parametrize("action", QuietAction)
def test_quiet_hours_that_begin_in_an_outage_hold_for_what_waited_to_be_claimed(
    after_outage: Callable[..., Any], action: QuietAction
) -> None:
    bench = Bench(quiet_hours=msgspec.structs.replace(QUIET, action=action))
    bench.ms -= 2 * HOUR_MS
    work = bench.work()
    tries, to_send, ended = after_outage(bench, 2, work)
    event, left = (Event.HOLD, 9 * HOUR_MS) if action is QuietAction.HOLD else (Event.DROP, 0)
    assert tries == [[(Event.CLAIM, None, 0)], [(event, "quiet_hours", left)]]
    assert (to_send, ended) == ([], [work])
    family, labels = worker_families.GATES_DROPPED, {"reason": "quiet_hours"}
    if action is QuietAction.HOLD:
        family, labels = worker_families.GATES_HELD, {}
    assert bench.shown(family, **labels) == 1


def test_a_hold_ends_when_it_would_have_ended_without_the_outage(
    after_outage: Callable[..., Any],
) -> None:
    bench = Bench(quiet_hours=QUIET)
    tries, _, _ = after_outage(bench, 2, bench.work())
    assert [delay for ((_, _, delay),) in tries] == [9 * HOUR_MS, 7 * HOUR_MS]


def test_what_expires_in_an_outage_is_entered_as_expired(after_outage: Callable[..., Any]) -> None:
    bench = Bench()
    tries, to_send, _ = after_outage(bench, 25, bench.work())
    assert [event for ((event, _, _),) in tries] == [Event.CLAIM, Event.TTL_AT_INTAKE]
    assert to_send == []


@pytest.mark.parametrize("action", QuietAction)
def test_what_the_try_before_the_outage_entered_goes_back_to_the_ledger_in_quiet_hours(
    after_outage: Callable[..., Any], action: QuietAction
) -> None:
    quiet = msgspec.structs.replace(QUIET, action=action)
    bench = Bench(quiet_hours=quiet, frequency=ONE_AN_HOUR)
    bench.ms -= 2 * HOUR_MS
    work = bench.work()
    _, to_send, ended = after_outage(bench, 2, work, entered=True)
    delay_ms = 9 * HOUR_MS if action is QuietAction.HOLD else 0
    assert (to_send, ended) == ([], [work])
    assert work.end == NotStarted(Event.SHUT, "quiet_hours", delay_ms)
    assert settlement_of(work, bench.policy) == Settlement(
        work.delivery, Event.SHUT, "quiet_hours", delay_ms=delay_ms
    )
    assert work.delivery.day == 7
    bench.gates.unclaimed(ended)
    assert bench.fleet.given_back == [], "it will go: recovery sends it when quiet hours are over"


def test_what_the_try_before_the_outage_entered_and_what_expired_is_left_to_its_lane(
    after_outage: Callable[..., Any],
) -> None:
    """The lane looks at the clock before each call, and ends it as expired."""
    bench = Bench()
    work = bench.work()
    _, to_send, _ = after_outage(bench, 25, work, entered=True)
    assert to_send == [work]
