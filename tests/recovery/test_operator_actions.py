"""What a person does to deliveries, on every database: compare-and-set, told one by one, safe to repeat."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from idempotency.recalls import Kind
from idempotency.recovery.contract import DueQuery, Transition
from idempotency.recovery.selection import ENDED, Pick, Wanted, page_statement
from idempotency.sql_ledger import SqlLedger
from message.delivery import Delivery
from message.envelope import decode
from message.ids import new_token
from message.states import Event, State
from message.vocabulary import Lane
from policy.gates import QuietHours
from policy.schema import LanePolicy, Policy
from recovery.operator_actions import Operator
from recovery.operator_results import Copy, OperatorResult, OperatorVerdict, copy_id
from recovery.operator_rules import OperatorNote, Verb
from recovery.unknown.decisions import REPLAY, UNPROVEN, AskLater, Evidence, conclude
from tests.idempotency.making import (
    World,
    claimed,
    claims,
    deliveries,
    delivery,
    settle,
    worker,
)
from tracing.events import NoRecorder, Stage, TraceEvent

LANE = "sms.notice"
HOUR_MS = 3_600_000


class Said(NoRecorder):
    """Keeps what was traced."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []

    def record(self, events: Sequence[TraceEvent]) -> None:
        self.events += events


class Desk:
    """A ledger and the person before it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ledger: SqlLedger = world.open()
        self.ledger.register(worker("w1"))
        self.rows = self.ledger.recovering()
        self.picks = self.ledger.picks()
        self.recorder = Said()
        self.given_back: list[tuple[str, str]] = []
        self.under(Policy())

    def under(self, policy: Policy) -> None:
        self.operator = Operator(
            *(self.rows, self.ledger.queries(), policy, self.recorder, self.ledger.now_ms),
            look=self.picks.named,
            give_back=self.given_back.extend,
        )

    def row(self, event: Event, reason: str = "x", item: Delivery | None = None) -> Delivery:
        (one,) = claimed(self.ledger, item or delivery())
        settle(self.ledger, one, event, reason=reason)
        return one

    def pick(self, item: Delivery) -> Pick:
        (pick,) = self.picks.named(item.key)
        return pick

    def do(self, verb: Verb, *items: Delivery, why: str = "") -> list[OperatorResult]:
        return self.operator.run(verb, [self.pick(i) for i in items], OperatorNote("li@ops", why))

    def again(self, picks: list[Pick], *, dry_run: bool = False) -> list[OperatorResult]:
        return self.operator.run(Verb.AGAIN, picks, dry_run=dry_run)

    def row_of(self, item: Delivery) -> tuple[str, str | None]:
        row = self.ledger.queries().by_key(item.key)
        assert row is not None
        return row.state, row.reason

    def doubtful(self, event: Event = Event.PARK_UNPROVEN) -> Delivery:
        """Parked, and an earlier call may have sent it."""
        item = self.row(Event.UNKNOWN)
        pick = self.pick(item)
        move = Transition(item.key, pick.day, pick.version, State.UNKNOWN, event, "unproven")
        assert self.rows.move([move]) == [True]
        return item

    def selected(self, *states: State, size: int = 1_000, **more: Any) -> list[str]:
        wanted = Wanted(states, [LANE], **{"since": self.world.now - HOUR_MS, **more})
        pages = self.picks.pages(wanted, self.world.now, size)
        return [pick.key for page in pages for pick in page]


@pytest.fixture
def desk(world: World) -> Desk:
    return Desk(world)


def test_what_ended_badly_is_due_again_and_sent_once_more(desk: Desk) -> None:
    items = [desk.row(Event.BUDGET_SPENT, "attempts_spent"), desk.row(Event.REJECTED)]
    told = desk.again([p for i in items for p in desk.picks.named(i.key)])
    assert [one.verdict for one in told] == [OperatorVerdict.RETRIED] * 2
    taking = desk.rows.take(DueQuery(LANE, attempts=1), "w1", new_token())
    assert {taken.delivery.key for taken in taking.taken} == {item.key for item in items}
    assert {taken.reason for taken in taking.taken} == {"operator"}


def test_what_is_past_its_time_lives_once_more_and_is_told_so(desk: Desk) -> None:
    item = desk.row(Event.TTL, "ttl_in_queue")
    desk.world.advance(HOUR_MS)
    (told,) = desk.again(desk.picks.named(item.key))
    assert "lives once more" in told.detail
    (again,) = desk.picks.named(item.key)
    assert again.expires_at == desk.world.now + 24 * HOUR_MS
    assert again.state is State.RETRY


@pytest.mark.parametrize("event", [Event.ACCEPTED, Event.UNKNOWN, None])
def test_what_was_sent_or_is_under_way_is_refused_with_a_reason(
    desk: Desk, event: Event | None
) -> None:
    item = delivery()
    if event is None:
        claimed(desk.ledger, item)
    else:
        desk.row(event, item=item)
    before = desk.world.states()
    (told,) = desk.again(desk.picks.named(item.key))
    assert told.verdict is OperatorVerdict.REFUSED
    assert told.detail
    assert desk.world.states() == before


def test_two_persons_at_once_have_it_sent_once(desk: Desk) -> None:
    item = desk.row(Event.BUDGET_SPENT)
    seen = desk.picks.named(item.key)
    (first,) = desk.again(seen)
    taking = desk.rows.take(DueQuery(LANE, attempts=1), "w1", new_token())
    assert len(taking.taken) == 1
    (second,) = desk.again(seen)
    assert (first.verdict, second.verdict) == (OperatorVerdict.RETRIED, OperatorVerdict.OVERTAKEN)
    assert desk.world.states() == {item.key: "IN_FLIGHT"}


def test_a_dry_run_says_the_same_and_changes_nothing(desk: Desk) -> None:
    item = desk.row(Event.BUDGET_SPENT)
    (told,) = desk.again(desk.picks.named(item.key), dry_run=True)
    assert told.verdict is OperatorVerdict.RETRIED
    assert desk.world.states() == {item.key: "PARKED"}


def test_a_parked_one_that_somebody_saw_arrive_is_sent(desk: Desk) -> None:
    item = desk.doubtful()
    (told,) = desk.do(Verb.ARRIVED, item)
    assert told.verdict is OperatorVerdict.SENT
    assert desk.world.states() == {item.key: "SENT"}
    (told,) = desk.do(Verb.ARRIVED, item)
    assert told.verdict is OperatorVerdict.REFUSED


@pytest.mark.parametrize("event", [Event.BUDGET_SPENT, Event.REJECTED, Event.TTL, Event.NOT_SENT])
@pytest.mark.parametrize("verb", [Verb.ARRIVED, Verb.NOT_ARRIVED, Verb.ACCEPT_RISK])
def test_what_surely_was_not_sent_is_not_decided_by_hand(
    desk: Desk, event: Event, verb: Verb
) -> None:
    item = desk.row(event)
    before = desk.world.states()
    (told,) = desk.do(verb, item)
    assert told.verdict is OperatorVerdict.REFUSED
    assert "surely was not sent" in told.detail
    assert desk.world.states() == before


@pytest.mark.parametrize("parked", [False, True])
@pytest.mark.parametrize(
    ("verb", "state", "doubted"),
    [
        (Verb.ARRIVED, "SENT", True),
        (Verb.NOT_ARRIVED, "RETRY", False),
        (Verb.ACCEPT_RISK, "RETRY", True),
        (Verb.DISCARD, "DROPPED", True),
    ],
)
def test_what_is_in_doubt_is_decided_by_hand_and_says_by_whom_and_why(
    desk: Desk, verb: Verb, state: str, doubted: bool, parked: bool
) -> None:
    item = desk.doubtful() if parked else desk.row(Event.UNKNOWN)
    (told,) = desk.do(verb, item, why="asked ann@example.com, +8613800000001")
    assert told.verdict not in (OperatorVerdict.REFUSED, OperatorVerdict.OVERTAKEN)
    code = "discarded" if verb is Verb.DISCARD else "operator"
    assert desk.row_of(item) == (state, f"{code}:li@ops: asked *** ***")
    assert desk.pick(item).doubted is doubted
    (event,) = desk.recorder.events
    assert (event.worker, event.state) == ("operator", state)
    assert "li@ops: asked *** ***" in (event.detail or "")
    assert ("second copy" in told.detail) is (verb is Verb.ACCEPT_RISK)
    assert desk.given_back == [], "it may have been sent"


def test_a_person_counts_no_attempts_whatever_stands_behind_the_colon(desk: Desk) -> None:
    item = desk.row(Event.UNKNOWN)
    desk.do(Verb.NOT_ARRIVED, item, why="the portal shows nothing")
    taking = desk.rows.take(DueQuery(LANE, attempts=1), "w1", new_token())
    assert [taken.delivery.key for taken in taking.taken] == [item.key]
    assert taking.taken[0].doubted_since is None


def test_a_doubt_that_recovery_asks_about_is_decided_all_the_same(desk: Desk) -> None:
    item = desk.row(Event.UNKNOWN)
    pick = desk.pick(item)
    desk.world.advance(1)
    (doubt,) = desk.rows.doubts(LANE, 60_000)
    (told,) = desk.operator.run(Verb.ARRIVED, [pick])
    assert told.verdict is OperatorVerdict.SENT
    late = Transition(
        item.key, pick.day, doubt.version, State.UNKNOWN, Event.RESOLVED_NOT_SENT, "x"
    )
    assert desk.rows.move([late]) == [False], "recovery writes nothing over a person's word"


def test_a_doubt_of_another_call_is_looked_at_again(desk: Desk) -> None:
    item = desk.row(Event.UNKNOWN)
    pick = desk.pick(item)
    desk.do(Verb.NOT_ARRIVED, item)
    desk.world.advance(1)
    (taken,) = desk.rows.take(DueQuery(LANE, attempts=3), "w1", new_token()).taken
    settle(desk.ledger, taken.delivery, Event.UNKNOWN, reason="timeout")
    (told,) = desk.operator.run(Verb.NOT_ARRIVED, [pick])
    assert told.verdict is OperatorVerdict.OVERTAKEN
    assert desk.row_of(item)[0] == "UNKNOWN"


def test_a_doubt_that_a_person_has_asked_about_is_the_next_one(desk: Desk) -> None:
    first, second = desk.row(Event.UNKNOWN), desk.row(Event.UNKNOWN)
    desk.world.advance(1)
    assert {doubt.delivery.key for doubt in desk.rows.doubts(LANE, 60_000)} == {
        first.key,
        second.key,
    }
    assert desk.rows.doubts(LANE, 60_000) == [], "both are being asked about"
    (dry,) = desk.operator.ask([desk.pick(second)], dry_run=True)
    assert dry.verdict is OperatorVerdict.ASKED
    assert desk.rows.doubts(LANE, 60_000) == []
    (told,) = desk.operator.ask([desk.pick(second)])
    assert told.verdict is OperatorVerdict.ASKED
    desk.world.advance(1)
    (next_one,) = desk.rows.doubts(LANE, 60_000)
    assert next_one.delivery.key == second.key
    assert desk.row_of(second)[0] == "UNKNOWN", "the answer decides, and not the order"


def test_a_doubt_that_was_written_meanwhile_is_asked_about_all_the_same(desk: Desk) -> None:
    item = desk.row(Event.UNKNOWN)
    old = desk.pick(item)
    desk.world.advance(1)
    assert desk.rows.doubts(LANE, 60_000)
    assert desk.pick(item).version != old.version
    (told,) = desk.operator.ask([old])
    assert told.verdict is OperatorVerdict.ASKED
    desk.do(Verb.ARRIVED, item)
    (late,) = desk.operator.ask([old])
    assert late.verdict is OperatorVerdict.OVERTAKEN
    assert desk.row_of(item)[0] == "SENT"


@pytest.mark.parametrize("event", [Event.BUDGET_SPENT, Event.ACCEPTED, Event.NOT_SENT])
def test_nobody_is_asked_about_what_is_not_in_doubt(desk: Desk, event: Event) -> None:
    item = desk.row(event)
    (told,) = desk.operator.ask([desk.pick(item)])
    assert told.verdict is OperatorVerdict.REFUSED


@pytest.mark.parametrize("event", [Event.BUDGET_SPENT, Event.NOT_SENT])
def test_what_still_waits_is_discarded_for_good_and_its_marks_given_back(
    desk: Desk, event: Event
) -> None:
    item = desk.row(event)
    (told,) = desk.do(Verb.DISCARD, item, why="campaign withdrawn")
    assert told.verdict is OperatorVerdict.DISCARDED
    assert desk.row_of(item) == ("DROPPED", "discarded:li@ops: campaign withdrawn")
    assert desk.given_back == [(LANE, item.key)]
    assert desk.recorder.events[-1].stage is Stage.DROPPED
    desk.world.advance(HOUR_MS)
    assert desk.rows.take(DueQuery(LANE, attempts=9), "w1", new_token()).taken == []


@pytest.mark.parametrize("event", [Event.ACCEPTED, Event.REJECTED, Event.TTL, None])
def test_what_has_ended_or_is_under_way_is_not_discarded(desk: Desk, event: Event | None) -> None:
    item = delivery()
    if event is None:
        claimed(desk.ledger, item)
    else:
        desk.row(event, item=item)
    before = desk.row_of(item)
    (told,) = desk.do(Verb.DISCARD, item)
    assert told.verdict is OperatorVerdict.REFUSED
    assert desk.row_of(item) == before


def test_what_was_recalled_is_refused_with_the_reason(desk: Desk) -> None:
    item = desk.row(Event.BUDGET_SPENT)
    desk.ledger.recalls().announce(Kind.MESSAGE, item.notification.id, HOUR_MS)
    (told,) = desk.do(Verb.AGAIN, item)
    assert told.verdict is OperatorVerdict.REFUSED
    assert "recalled" in told.detail
    assert desk.row_of(item)[0] == "PARKED"
    assert isinstance(desk.operator.copy(desk.pick(item), "job-1"), Copy)


def test_what_waits_behind_another_of_its_key_is_left_there(desk: Desk) -> None:
    head = delivery(ordering_key="k")
    behind = delivery(ordering_key="k")
    for item in (head, behind):
        made = claims([item])
        desk.ledger.claim(made, "w1", ordered=True)
    assert desk.row_of(behind) == ("RETRY", "behind")
    (told,) = desk.do(Verb.AGAIN, behind)
    assert (told.verdict, desk.row_of(behind)) == (OperatorVerdict.REFUSED, ("RETRY", "behind"))


@pytest.mark.parametrize(
    ("event", "reason", "sent_again"),
    [(Event.REPLAY, REPLAY, False), (Event.RESEND_UNPROVEN, UNPROVEN, True)],
    ids=[REPLAY, UNPROVEN],
)
def test_a_retry_in_doubt_is_no_plain_retry(
    desk: Desk, event: Event, reason: str, sent_again: bool
) -> None:
    """The same call is left to recovery: another one would be no repeat that the provider drops."""
    item = desk.row(Event.UNKNOWN)
    pick = desk.pick(item)
    move = Transition(item.key, pick.day, pick.version, State.UNKNOWN, event, reason)
    assert desk.rows.move([move]) == [True]
    (told,) = desk.do(Verb.AGAIN, item)
    if sent_again:
        assert told.verdict is OperatorVerdict.RETRIED
        assert "second copy" in told.detail
    else:
        assert told.verdict is OperatorVerdict.REFUSED
        assert "repeats the same call" in told.detail
        assert desk.row_of(item) == ("RETRY", reason)


class TestQuietHours:
    """A night of a lane whose quiet hours hold what comes in them."""

    @pytest.fixture
    def night(self, desk: Desk) -> Desk:
        at = datetime.fromtimestamp(desk.world.now / 1_000, UTC)
        begin, end = (f"{at + timedelta(hours=n):%H}:00" for n in (0, 4))
        quiet = QuietHours(windows=[f"{begin}-{end}"], zone="UTC")
        desk.under(Policy(lanes={LANE: LanePolicy(quiet_hours=quiet, ttl_ms=24 * HOUR_MS)}))
        return desk

    def test_what_is_sent_again_at_night_is_told_as_held_and_waits(self, night: Desk) -> None:
        item = night.row(Event.BUDGET_SPENT)
        (told,) = night.do(Verb.AGAIN, item)
        assert told.verdict is OperatorVerdict.HELD
        assert "held until" in told.detail
        pick = night.pick(item)
        assert pick.state is State.RETRY
        assert (pick.next_at or 0) > night.world.now + 3 * HOUR_MS - 1

    def test_what_is_held_already_stays_as_it_is(self, night: Desk) -> None:
        (claim,) = claims([delivery()])
        claim.delivery.expires_at = night.world.now + 24 * HOUR_MS
        fields = {"event": Event.HOLD, "reason": "quiet_hours", "delay_ms": 4 * HOUR_MS}
        held = msgspec.structs.replace(claim, **fields)
        night.ledger.claim([held], "w1")
        before = night.pick(claim.delivery)
        (told,) = night.do(Verb.AGAIN, claim.delivery)
        assert told.verdict is OperatorVerdict.HELD
        assert night.pick(claim.delivery) == before

    def test_what_would_be_over_by_morning_lives_once_more(self, night: Desk) -> None:
        item = delivery()
        item.expires_at = night.world.now + HOUR_MS
        night.row(Event.BUDGET_SPENT, item=item)
        (told,) = night.do(Verb.AGAIN, item)
        assert "lives once more" in told.detail
        assert night.pick(item).expires_at > night.world.now + 24 * HOUR_MS

    def test_what_needs_no_sending_is_not_held(self, night: Desk) -> None:
        item = night.row(Event.BUDGET_SPENT)
        (told,) = night.do(Verb.DISCARD, item)
        assert told.verdict is OperatorVerdict.DISCARDED


def test_what_may_have_been_sent_is_told_as_a_possible_second_copy(desk: Desk) -> None:
    item = desk.row(Event.UNKNOWN)
    desk.world.advance(60_000)
    (doubt,) = desk.rows.doubts(LANE, 1_000)
    found = conclude(doubt, Evidence(None, 0), Policy().of(Lane("sms", "notice")))
    assert not isinstance(found, AskLater)
    assert desk.rows.move([found]) == [True]
    (pick,) = desk.picks.named(item.key)
    assert pick.doubted
    (told,) = desk.again([pick])
    assert "second copy" in told.detail


def test_a_copy_is_a_notification_of_its_own_for_that_receiver_alone(desk: Desk) -> None:
    two = deliveries(receivers=("+8613800000001", "+8613800000002"))
    for item in two:
        desk.row(Event.ACCEPTED, item=item)
    (pick,) = desk.picks.named(two[1].key)
    copy = desk.operator.copy(pick, "job-1")
    assert isinstance(copy, Copy)
    made = decode(msgspec.json.encode(copy.fields))
    assert made.id == copy_id("job-1", two[1].key) != copy_id("job-2", two[1].key)
    assert made.resend_of == two[1].notification.id
    assert made.receivers == ["+8613800000002"]
    assert made.content == two[1].notification.content


def test_an_open_one_is_not_copied(desk: Desk) -> None:
    item = desk.row(Event.NOT_SENT)
    (pick,) = desk.picks.named(item.key)
    told = desk.operator.copy(pick, "job-1")
    assert not isinstance(told, Copy)
    assert told.verdict is OperatorVerdict.REFUSED


def test_a_selection_names_what_stands_so_and_not_what_was_moved(desk: Desk) -> None:
    parked = [desk.row(Event.BUDGET_SPENT) for _ in range(5)]
    refused = desk.row(Event.REJECTED)
    desk.row(Event.ACCEPTED)
    for size in (2, 5, 100):
        found = desk.selected(State.PARKED, size=size)
        assert sorted(found) == sorted(item.key for item in parked)
    assert len(desk.selected(State.PARKED, State.REJECTED, size=2)) == 6
    desk.again(desk.picks.named(parked[0].key) + desk.picks.named(refused.key))
    assert len(desk.selected(State.PARKED, State.REJECTED)) == 4


def test_since_counts_from_when_it_was_parked_and_not_from_when_it_was_made(desk: Desk) -> None:
    (item,) = claimed(desk.ledger, delivery())
    desk.world.advance(5 * HOUR_MS)
    settle(desk.ledger, item, Event.BUDGET_SPENT, reason="attempts_spent")
    assert desk.selected(State.PARKED) == [item.key]
    desk.world.advance(2 * HOUR_MS)
    assert desk.selected(State.PARKED) == []


def test_a_selection_keeps_to_account_reason_and_doubt(desk: Desk) -> None:
    main, (other,) = desk.row(Event.BUDGET_SPENT, "no_account"), claimed(desk.ledger, delivery())
    other.account = "spare"
    settle(desk.ledger, other, Event.BUDGET_SPENT, reason="no_account:x")
    third, doubtful = desk.row(Event.BUDGET_SPENT, "no_account_at_all"), desk.doubtful()
    assert desk.selected(State.PARKED, account="spare") == [other.key]
    assert set(desk.selected(State.PARKED, reason="no_account")) == {main.key, other.key}
    assert desk.selected(State.PARKED, doubted=True) == [doubtful.key]
    sure = {main.key, other.key, third.key}
    assert set(desk.selected(State.PARKED, doubted=False)) == sure


@pytest.mark.parametrize("state", ENDED)
def test_a_selection_by_state_goes_along_its_index(desk: Desk, state: State) -> None:
    for _ in range(50):
        desk.row(Event.BUDGET_SPENT)
    statement = page_statement(Wanted([state], [LANE], account="main"), state)
    asked = {"state": state.value, "lane": LANE, "at": 0, "after": "", "until": desk.world.now}
    asked |= {"limit": 10, "account": "main", "now": desk.world.now}
    is_postgres = desk.world.is_postgres
    explain = "EXPLAIN " if is_postgres else "EXPLAIN QUERY PLAN "
    with desk.ledger.database.begin() as connection:
        rows = connection.execute(text(explain + statement), asked).all()
    plan = "\n".join(str(row[0] if is_postgres else row[-1]) for row in rows)
    assert "Seq Scan on deliveries" not in plan, plan
    if is_postgres:
        assert "state_lane_updated_at_delivery_key_idx" in plan, plan
        assert "Sort  (" not in plan, plan
    else:
        assert "USING INDEX deliveries_ended (state=? AND lane=?" in plan, plan
        assert "TEMP B-TREE" not in plan, plan
