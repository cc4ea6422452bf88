"""What is recalled is claimed by nobody: queued, held, retrying, or claimed at that very moment."""

import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import psycopg
import pytest

from idempotency.ledger import Claim, Settlement
from idempotency.recalls import Kind, cancelling
from idempotency.recovery.contract import DueQuery, Transition
from idempotency.sql_ledger import SqlLedger
from message.ids import new_token
from message.states import Event, State
from tests.idempotency.making import (
    NOON,
    World,
    claimed,
    claims,
    deliveries,
    delivery,
    settle,
    wait_until,
    worker,
)

LIFE_MS = 600_000


@pytest.fixture
def ledger(world: World) -> SqlLedger:
    opened = world.open()
    opened.register(worker())
    return opened


def waiting(ledger: SqlLedger, **fields: object) -> str:
    (item,) = claimed(ledger, delivery(**fields))
    assert settle(ledger, item, Event.NOT_SENT, reason="http_429")
    return item.key


def test_what_is_recalled_by_its_id_enters_as_dropped_and_others_do_not(
    world: World, ledger: SqlLedger
) -> None:
    gone, other = delivery(id="gone"), delivery(id="other")
    ledger.recalls().announce(Kind.MESSAGE, "gone", LIFE_MS)
    first, second = ledger.claim(claims([gone, other]), "w1")
    assert (first.won, first.state, first.attempt) == (True, State.DROPPED, 0)
    assert (second.won, second.state, second.attempt) == (True, State.IN_FLIGHT, 1)
    assert world.rows(
        "SELECT reason, next_at, called_at FROM deliveries WHERE message_id = 'gone'"
    ) == [("recalled", None, None)]


def test_every_receiver_is_recalled_and_a_lost_reply_changes_no_answer(ledger: SqlLedger) -> None:
    items = deliveries(id="gone", receivers=["+8613800000001", "+8613800000002"])
    ledger.recalls().announce(Kind.MESSAGE, "gone", LIFE_MS)
    made = claims(items)
    answers = ledger.claim(made, "w1")
    assert {(a.won, a.state) for a in answers} == {(True, State.DROPPED)}
    assert [(a.won, a.state) for a in ledger.claim(made, "w1")] == [(True, State.DROPPED)] * 2


def test_a_business_id_is_recalled_up_to_now_and_not_beyond(ledger: SqlLedger) -> None:
    recalls = ledger.recalls()
    assert recalls.announce(Kind.BIZ, "order-1", LIFE_MS) == NOON
    before, after = delivery(biz_id="order-1"), delivery(biz_id="order-1")
    later = msgspec.structs.replace(after.notification, created_at=NOON + 1)
    after = msgspec.structs.replace(after, notification=later)
    nobodys = delivery()
    answers = ledger.claim(claims([before, after, nobodys]), "w1")
    assert [a.state for a in answers] == [State.DROPPED, State.IN_FLIGHT, State.IN_FLIGHT]


def test_a_recall_ends_with_its_life(world: World, ledger: SqlLedger) -> None:
    ledger.recalls().announce(Kind.MESSAGE, "gone", LIFE_MS)
    world.advance(LIFE_MS)
    (answer,) = ledger.claim(claims([delivery(id="gone")]), "w1")
    assert answer.state is State.IN_FLIGHT
    ledger.recalls().announce(Kind.MESSAGE, "another", LIFE_MS)
    assert world.rows("SELECT name FROM recalls") == [("another",)], "what is over is forgotten"


def test_a_recall_in_lanes_covers_no_delivery_of_another_lane(ledger: SqlLedger) -> None:
    recalls = ledger.recalls()
    assert recalls.announce_in_lanes("gone", {"sms.notice", "email.notice"}, LIFE_MS) == NOON
    items = [
        delivery(id="gone", lane="sms.notice"),
        delivery(id="gone", lane="email.notice", receivers=["a@example.com"]),
        delivery(id="gone", lane="sms.verification", receivers=["+8613800000002"]),
        delivery(id="other", lane="sms.notice"),
        # Joined with its lane the id is a text that could be one of another lane.
        delivery(id="sms.notice:gone", lane="sms.notice"),
    ]
    answers = ledger.claim(claims(items), "w1")
    assert [a.state for a in answers] == [State.DROPPED] * 2 + [State.IN_FLIGHT] * 3


def test_a_recall_in_lanes_ends_with_its_life(world: World, ledger: SqlLedger) -> None:
    ledger.recalls().announce_in_lanes("gone", {"sms.notice"}, LIFE_MS)
    world.advance(LIFE_MS)
    (answer,) = ledger.claim(claims([delivery(id="gone")]), "w1")
    assert answer.state is State.IN_FLIGHT


def test_recovery_sends_nothing_again_that_is_recalled_in_its_lane(ledger: SqlLedger) -> None:
    gone, kept = claimed(ledger, delivery(id="gone"), delivery(id="kept"))
    ledger.recalls().announce_in_lanes("gone", {"sms.notice"}, LIFE_MS)
    ledger.recalls().announce_in_lanes("kept", {"sms.verification"}, LIFE_MS)
    ledger.settle([Settlement(d, Event.NOT_SENT, "http_429") for d in (gone, kept)])
    taking = ledger.recovering().take(DueQuery("sms.notice", 5), "w1", new_token())
    assert [t.delivery.key for t in taking.taken] == [kept.key]
    assert [(e.key, e.state, e.reason) for e in taking.ended] == [
        (gone.key, State.DROPPED, "recalled")
    ]


def test_held_and_parked_ones_are_dropped_too_and_what_a_gate_dropped_keeps_its_reason(
    world: World, ledger: SqlLedger
) -> None:
    ledger.recalls().announce(Kind.MESSAGE, "gone", LIFE_MS)
    receivers = [f"+861380000000{number}" for number in range(3)]
    one, two, three = deliveries(id="gone", receivers=receivers)
    held = Claim(one, new_token(), Event.HOLD, "quiet_hours", 5_000)
    dropped = Claim(two, new_token(), Event.DROP, "frequency_cap")
    parked = Claim(three, new_token(), Event.PARK, "variable_missing: code")
    for _ in range(2):  # a repeat gets the same answers
        answers = ledger.claim([held, dropped, parked], "w1")
        assert [(a.won, a.state) for a in answers] == [(True, State.DROPPED)] * 3
    reasons = dict(world.rows("SELECT delivery_key, reason FROM deliveries"))
    assert reasons == {one.key: "recalled", two.key: "frequency_cap", three.key: "recalled"}


def test_a_recalled_head_of_a_line_holds_up_nobody(ledger: SqlLedger) -> None:
    head, behind = delivery(id="gone", ordering_key="k"), delivery(ordering_key="k")
    ledger.recalls().announce(Kind.MESSAGE, "gone", LIFE_MS)
    answers = ledger.claim(claims([head, behind]), "w1", ordered=True)
    assert [a.state for a in answers] == [State.DROPPED, State.IN_FLIGHT]


def test_what_waits_is_cancelled_once_and_told_again(ledger: SqlLedger) -> None:
    key = waiting(ledger, id="gone")
    recalls = ledger.recalls()
    made_at = recalls.announce(Kind.MESSAGE, "gone", LIFE_MS)
    (row,) = recalls.rows(Kind.MESSAGE, "gone", made_at)
    assert (row.key, row.state, row.receiver) == (key, State.RETRY, "+8613800000001")
    assert ledger.recovering().move([cancelling(row)]) == [True]
    (after,) = recalls.rows(Kind.MESSAGE, "gone", made_at)
    assert (after.state, after.reason) == (State.DROPPED, "recalled")
    stale = [Transition(key, row.day, row.version, State.RETRY, Event.OPERATOR_RETRY, "operator")]
    assert ledger.recovering().move(stale) == [False], "whoever comes second writes nothing"


def test_recovery_sends_nothing_again_that_is_recalled(world: World, ledger: SqlLedger) -> None:
    """Rows that were in flight when the recall came: not sent after all, and due later."""
    (flying,) = claimed(ledger, delivery(id="gone"))
    (other,) = claimed(ledger, delivery())
    (biz,) = claimed(ledger, delivery(biz_id="order-1"))
    ledger.recalls().announce(Kind.MESSAGE, "gone", LIFE_MS)
    ledger.recalls().announce(Kind.BIZ, "order-1", LIFE_MS)
    ledger.settle([Settlement(d, Event.NOT_SENT, "http_429") for d in (flying, other, biz)])
    taking = ledger.recovering().take(DueQuery("sms.notice", 5), "w1", new_token())
    assert [t.delivery.key for t in taking.taken] == [other.key]
    assert {(e.key, e.state, e.reason) for e in taking.ended} == {
        (key, State.DROPPED, "recalled") for key in (flying.key, biz.key)
    }


def test_a_recalled_row_that_may_have_been_sent_is_parked_for_a_person(
    world: World, ledger: SqlLedger
) -> None:
    (item,) = claimed(ledger, delivery(id="gone"))
    assert settle(ledger, item, Event.UNKNOWN, reason="timeout")
    rows = ledger.recovering()
    (doubt,) = rows.doubts("sms.notice", 1_000)
    resend = Transition(
        item.key, item.day, doubt.version, State.UNKNOWN, Event.RESEND_UNPROVEN, "x"
    )
    assert rows.move([resend]) == [True]
    recalls = ledger.recalls()
    (row,) = recalls.rows(Kind.MESSAGE, "gone", recalls.announce(Kind.MESSAGE, "gone", LIFE_MS))
    assert row.doubted
    (ended,) = rows.take(DueQuery("sms.notice", 5), "w1", new_token()).ended
    assert (ended.state, ended.reason) == (State.PARKED, "recalled_in_doubt")
    assert cancelling(row).event is Event.BUDGET_SPENT


def test_every_row_of_a_name_is_read_page_by_page(
    ledger: SqlLedger, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idempotency.recalls.PAGE", 2)
    made = list[str]()
    for count in (3, 1, 3):
        receivers = [f"+861380000000{number}" for number in range(count)]
        items = deliveries(id=f"m-{len(made)}", biz_id="order-1", receivers=receivers)
        made += sorted(item.key for item in claimed(ledger, *items))
        world.advance(1_000)
    recalls = ledger.recalls()
    made_at = recalls.announce(Kind.BIZ, "order-1", LIFE_MS)
    found, last = list[str](), None
    while rows := recalls.rows(Kind.BIZ, "order-1", made_at, last):
        assert len(rows) <= 2
        found += [row.key for row in rows]
        last = rows[-1]
    assert found == made
    first = recalls.rows_in_lanes("m-0", ["sms.notice"])
    second = recalls.rows_in_lanes("m-0", ["sms.notice"], first[-1])
    assert [row.key for row in (*first, *second)] == made[:3]


def test_what_shared_a_call_is_found_and_what_was_taken_back_is_kept(ledger: SqlLedger) -> None:
    items = claimed(ledger, *deliveries(lane="wecom.notice", receivers=["a", "b"]))
    for item in items:
        item.account = "main"
        assert settle(ledger, item, Event.ACCEPTED, provider_id="msg-1")
    recalls = ledger.recalls()
    assert {row.receiver for row in recalls.of_call("main", "msg-1")} == {"a", "b"}
    assert recalls.of_call("other", "msg-1") == []
    recalls.keep([items[0].key])
    recalls.keep([items[0].key])
    taken = {row.receiver: row.taken_back for row in recalls.of_call("main", "msg-1")}
    assert taken == {"a": True, "b": False}


def test_no_claim_slips_between_a_recall_and_its_look_at_the_ledger(ledger: SqlLedger) -> None:
    """Claims run while recalls are announced: each row was there to be seen, or was dropped."""
    ids = [f"m-{number}" for number in range(60)]
    seen: dict[str, State | None] = {}
    answers: dict[str, State] = {}

    def claim(name: str) -> None:
        (answer,) = ledger.claim(claims([delivery(id=name)]), "w1")
        answers[name] = answer.state

    def recall(name: str) -> None:
        recalls = ledger.recalls()
        rows = recalls.rows(Kind.MESSAGE, name, recalls.announce(Kind.MESSAGE, name, LIFE_MS))
        seen[name] = rows[0].state if rows else None

    with ThreadPoolExecutor(4) as pool:
        for name in ids:
            done = [pool.submit(claim, name), pool.submit(recall, name)]
            for future in done:
                future.result()
    for name in ids:
        assert seen[name] is not None or answers[name] is State.DROPPED, name


def test_a_recall_waits_for_the_claims_under_way(postgres: World) -> None:
    """The lock is what makes it so: a claim that began first is seen, however long it takes."""
    ledger = postgres.open()
    ledger.register(worker())
    announced = threading.Event()

    def announce() -> None:
        ledger.recalls().announce(Kind.MESSAGE, "gone", LIFE_MS)
        announced.set()

    with psycopg.connect(postgres.url.replace("+psycopg", "")) as slow:
        slow.execute("SELECT EXISTS (SELECT FROM recalls)")  # as a claim does, and then goes on
        thread = threading.Thread(target=announce)
        thread.start()
        waits = "SELECT count(*) FROM pg_locks WHERE relation = 'recalls'::regclass AND NOT granted"
        wait_until(lambda: postgres.rows(waits) == [(1,)])
        assert not announced.is_set()
        slow.commit()
    thread.join(10)
    assert announced.is_set()
