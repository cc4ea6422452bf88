"""What a person does to deliveries, on every database: compare-and-set, told one by one, safe to repeat."""

import msgspec
import pytest

from idempotency.opening import SqlLedger
from idempotency.recovering import Ask
from idempotency.recovering_picks import LOOKED_AT, Picks, Wanted
from message.delivery import Delivery
from message.envelope import decode
from message.ids import new_token
from message.states import Event, State
from message.vocabulary import Lane
from policy.schema import Policy
from recovery.conclusions import Facts, Later, conclude
from recovery.operator import Copy, Operator, Verdict, copy_id
from tests.idempotency.making import World, claimed, deliveries, delivery, settle, worker
from tracing.events import NoRecorder

LANE = "sms.notice"
HOUR_MS = 3_600_000


class Desk:
    """A ledger and the person before it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ledger: SqlLedger = world.open()
        self.ledger.register(worker("w1"))
        self.rows = self.ledger.recovering()
        self.picks = Picks(self.ledger.database)
        self.operator = Operator(
            self.rows, self.ledger.queries(), Policy(), NoRecorder(), self.ledger.now_ms
        )

    def row(self, event: Event, reason: str = "x", item: Delivery | None = None) -> Delivery:
        (one,) = claimed(self.ledger, item or delivery())
        settle(self.ledger, one, event, reason=reason)
        return one

    def selected(self, *states: State) -> list[str]:
        wanted = Wanted(states, [LANE], self.world.now - HOUR_MS)
        return [pick.key for page in self.picks.pages(wanted, self.world.now) for pick in page]


@pytest.fixture
def desk(world: World) -> Desk:
    return Desk(world)


def test_what_ended_badly_is_due_again_and_sent_once_more(desk: Desk) -> None:
    items = [desk.row(Event.BUDGET_SPENT, "attempts_spent"), desk.row(Event.REJECTED)]
    told = desk.operator.again([p for i in items for p in desk.picks.named(i.key)])
    assert [one.verdict for one in told] == [Verdict.RETRIED] * 2
    taking = desk.rows.take(Ask(LANE, attempts=1), "w1", new_token())
    assert {taken.delivery.key for taken in taking.taken} == {item.key for item in items}
    assert {taken.reason for taken in taking.taken} == {"operator"}


def test_what_is_past_its_time_lives_once_more_and_is_told_so(desk: Desk) -> None:
    item = desk.row(Event.TTL, "ttl_in_queue")
    desk.world.advance(HOUR_MS)
    (told,) = desk.operator.again(desk.picks.named(item.key))
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
    (told,) = desk.operator.again(desk.picks.named(item.key))
    assert told.verdict is Verdict.REFUSED
    assert told.detail
    assert desk.world.states() == before


def test_two_persons_at_once_have_it_sent_once(desk: Desk) -> None:
    item = desk.row(Event.BUDGET_SPENT)
    seen = desk.picks.named(item.key)
    (first,) = desk.operator.again(seen)
    taking = desk.rows.take(Ask(LANE, attempts=1), "w1", new_token())
    assert len(taking.taken) == 1
    (second,) = desk.operator.again(seen)
    assert (first.verdict, second.verdict) == (Verdict.RETRIED, Verdict.OVERTAKEN)
    assert desk.world.states() == {item.key: "IN_FLIGHT"}


def test_a_dry_run_says_the_same_and_changes_nothing(desk: Desk) -> None:
    item = desk.row(Event.BUDGET_SPENT)
    (told,) = desk.operator.again(desk.picks.named(item.key), dry_run=True)
    assert told.verdict is Verdict.RETRIED
    assert desk.world.states() == {item.key: "PARKED"}


def test_a_parked_one_that_somebody_saw_arrive_is_sent(desk: Desk) -> None:
    item = desk.row(Event.BUDGET_SPENT)
    (pick,) = desk.picks.named(item.key)
    assert desk.operator.arrived(pick).verdict is Verdict.SENT
    assert desk.world.states() == {item.key: "SENT"}
    (pick,) = desk.picks.named(item.key)
    assert desk.operator.arrived(pick).verdict is Verdict.REFUSED


def test_what_may_have_been_sent_is_told_as_a_possible_second_copy(desk: Desk) -> None:
    item = desk.row(Event.UNKNOWN)
    desk.world.advance(60_000)
    (doubt,) = desk.rows.doubts(LANE, 1_000)
    found = conclude(doubt, Facts(None, 0), Policy().of(Lane("sms", "notice")))
    assert not isinstance(found, Later)
    assert desk.rows.move([found]) == [True]
    (pick,) = desk.picks.named(item.key)
    assert pick.doubted
    (told,) = desk.operator.again([pick])
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
    assert told.verdict is Verdict.REFUSED


def test_a_selection_names_what_stands_so_and_not_what_was_moved(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LOOKED_AT > 1
    monkeypatch.setattr("idempotency.recovering_picks.LOOKED_AT", 2)
    parked = [desk.row(Event.BUDGET_SPENT) for _ in range(5)]
    refused = desk.row(Event.REJECTED)
    desk.row(Event.ACCEPTED)
    assert sorted(desk.selected(State.PARKED)) == sorted(item.key for item in parked)
    assert len(desk.selected(State.PARKED, State.REJECTED)) == 6
    desk.operator.again(desk.picks.named(parked[0].key) + desk.picks.named(refused.key))
    assert len(desk.selected(State.PARKED, State.REJECTED)) == 4
