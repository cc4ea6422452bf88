"""What every ledger promises, on every database it runs on."""

import msgspec
import pytest

from backends.settings import DatabaseSettings, OutcomeSettings, Settings
from idempotency.claims.rows import READER_MS
from idempotency.ledger import (
    Claim,
    Claimed,
    LedgerOutdated,
    LedgerUnavailable,
    Settlement,
    WorkerNameTaken,
)
from idempotency.lines import ASLEEP_AT
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.envelope import Template
from message.ids import new_token
from message.outcome_event import receiver_hash
from message.states import Event, State
from tests.idempotency.making import (
    LEASE_MS,
    NOON,
    World,
    adopt,
    claimed,
    claims,
    deliveries,
    delivery,
    reply_lost,
    settle,
    worker,
)

IN_FLIGHT = Claimed(True, State.IN_FLIGHT, False, 1, NOON // 86_400_000)


# -- claiming --


def test_a_fresh_claim_is_won_and_durable(world: World, ledger: SqlLedger) -> None:
    item = delivery(biz_id="order-1", resend_of="0" * 32)
    assert ledger.claim(claims([item]), "w1") == [IN_FLIGHT]
    (row,) = world.open().queries().by_biz("order-1")
    assert (row.delivery_key, row.message_id) == (item.key, item.notification.id)
    assert (row.state, row.attempt, row.owner, row.reason) == ("IN_FLIGHT", 1, "w1", None)
    assert (row.channel, row.kind, row.lane) == ("sms", "notice", "sms.notice")
    assert (row.created_at, row.updated_at, row.next_at) == (NOON, NOON, None)
    assert (row.expires_at, row.resend_of) == (item.expires_at, "0" * 32)


def test_an_empty_batch_does_nothing(ledger: SqlLedger) -> None:
    assert ledger.claim([], "w1") == []
    assert ledger.settle([]) == []


def test_answers_come_in_the_order_asked(ledger: SqlLedger) -> None:
    items = [delivery() for _ in range(50)]
    claimed(ledger, *items[::2])
    answers = ledger.claim(claims(items), "w2")
    assert [answer.won for answer in answers] == [False, True] * 25


def test_a_claim_whose_reply_was_lost_wins_when_repeated(ledger: SqlLedger) -> None:
    made = claims([delivery(), delivery()])
    with reply_lost(ledger.database), pytest.raises(LedgerUnavailable):
        ledger.claim(made, "w1")
    assert ledger.claim(made, "w1") == [IN_FLIGHT, IN_FLIGHT]


@pytest.mark.parametrize(
    "later", [Event.HOLD, Event.DROP, Event.TTL_AT_INTAKE], ids=lambda event: event.name
)
def test_a_claim_whose_reply_was_lost_is_won_by_a_repeat_with_a_later_verdict(
    ledger: SqlLedger, later: Event
) -> None:
    item, token = delivery(), new_token()
    with reply_lost(ledger.database), pytest.raises(LedgerUnavailable):
        ledger.claim([Claim(item, token)], "w1")
    assert ledger.claim([Claim(item, token, later, "why", 1_000)], "w1") == [IN_FLIGHT]
    (other,) = ledger.claim([Claim(item, new_token(), later, "why", 1_000)], "w2")
    assert (other.won, other.state) == (False, State.IN_FLIGHT)


def test_an_ordered_claim_whose_reply_was_lost_gives_the_same_answers(ledger: SqlLedger) -> None:
    made = claims([delivery(ordering_key="k"), delivery(ordering_key="k")])
    with reply_lost(ledger.database), pytest.raises(LedgerUnavailable):
        ledger.claim(made, "w1", ordered=True)
    first, second = ledger.claim(made, "w1", ordered=True)
    assert first == IN_FLIGHT
    assert (second.won, second.state) == (True, State.RETRY)


@pytest.mark.parametrize(
    "event", [Event.TTL_AT_INTAKE, Event.DROP, Event.PARK, Event.HOLD, Event.BEHIND]
)
def test_a_drop_whose_reply_was_lost_wins_when_repeated(ledger: SqlLedger, event: Event) -> None:
    made = claims([delivery()], event, reason="why")
    answers = ledger.claim(made, "w1")
    assert ledger.claim(made, "w1") == answers


def test_a_second_claim_loses_and_learns_how_the_row_stands(ledger: SqlLedger) -> None:
    (item,) = claimed(ledger, delivery())
    assert ledger.claim(claims([item]), "w2")[0] == Claimed(
        False, State.IN_FLIGHT, False, 1, item.day
    )
    settle(ledger, item, Event.ACCEPTED)
    assert ledger.claim(claims([item]), "w2")[0].state is State.SENT


def test_another_body_under_the_same_key_is_a_conflict(ledger: SqlLedger) -> None:
    item = delivery(text="one")
    claimed(ledger, item)
    same, other = (
        delivery(text="one", id=item.notification.id),
        delivery(text="two", id=item.notification.id),
    )
    assert [a.conflict for a in ledger.claim(claims([same]), "w2")] == [False]
    assert [a.conflict for a in ledger.claim(claims([other]), "w2")] == [True]


def test_of_one_key_twice_in_a_batch_the_first_wins(world: World, ledger: SqlLedger) -> None:
    item = delivery(text="one")
    other = delivery(text="two", id=item.notification.id)
    token = new_token()
    batch = [Claim(item, token), Claim(item, token), Claim(delivery(), token), Claim(other, token)]
    answers = ledger.claim(batch, "w1")
    assert [(a.won, a.state, a.conflict) for a in answers] == [
        (True, State.IN_FLIGHT, False),
        (False, State.IN_FLIGHT, False),
        (True, State.IN_FLIGHT, False),
        (False, State.IN_FLIGHT, True),
    ]
    assert ledger.queries().kept(item.key).payload == item.payload  # type: ignore[union-attr]
    assert ledger.claim(batch, "w1") == answers


def test_a_claim_swept_meanwhile_is_not_won_by_its_repeat(world: World, ledger: SqlLedger) -> None:
    ledger.register(worker())
    made = claims([delivery()])
    ledger.claim(made, "w1")
    world.advance(LEASE_MS + 1)
    assert ledger.sweep() == [("w1", 1)]
    (answer,) = ledger.claim(made, "w1")
    assert (answer.won, answer.state) == (False, State.UNKNOWN)


@pytest.mark.parametrize(
    ("event", "state", "next_at"),
    [
        (Event.TTL_AT_INTAKE, State.EXPIRED, None),
        (Event.DROP, State.DROPPED, None),
        (Event.PARK, State.PARKED, None),
        (Event.HOLD, State.RETRY, NOON + 500),
        (Event.BEHIND, State.RETRY, NOON + 500),
    ],
)
def test_what_intake_decides_enters_with_its_reason_and_no_attempt(
    ledger: SqlLedger, event: Event, state: State, next_at: int | None
) -> None:
    item = delivery()
    (answer,) = ledger.claim(claims([item], event, reason="why", delay_ms=500), "w1")
    assert (answer.won, answer.state, answer.attempt) == (True, state, 0)
    row = ledger.queries().by_key(item.key)
    assert row is not None
    assert (row.state, row.reason, row.attempt, row.next_at) == (state, "why", 0, next_at)


# -- settling --


UNSTARTED = {Event.GIVEN_BACK, Event.SHUT, Event.TTL, Event.PARK, Event.REFUSED}


@pytest.mark.parametrize(
    ("event", "state"),
    [
        (Event.ACCEPTED, State.SENT),
        (Event.REJECTED, State.REJECTED),
        (Event.REFUSED, State.REJECTED),
        (Event.NOT_SENT, State.RETRY),
        (Event.UNKNOWN, State.UNKNOWN),
        (Event.TTL, State.EXPIRED),
        (Event.BUDGET_SPENT, State.PARKED),
        (Event.PARK, State.PARKED),
        (Event.GIVEN_BACK, State.RETRY),
        (Event.SHUT, State.RETRY),
    ],
)
def test_each_outcome_leads_to_its_state_once(
    world: World, ledger: SqlLedger, event: Event, state: State
) -> None:
    (item,) = claimed(ledger, delivery())
    item.account = "main"
    world.advance(10)
    assert settle(ledger, item, event, reason="why", provider_id="p-1", delay_ms=700)
    row = ledger.queries().by_key(item.key)
    assert row is not None
    assert (row.state, row.provider_id, row.updated_at) == (state, "p-1", NOON + 10)
    waits_until = NOON + 10 + READER_MS if event is Event.GIVEN_BACK else NOON + 710
    assert row.next_at == (waits_until if state is State.RETRY else None)
    assert row.reason == ("given_back" if event is Event.GIVEN_BACK else "why")
    assert row.attempt == (0 if event in UNSTARTED else 1)
    assert world.rows("SELECT account, version FROM deliveries") == [("main", 2)]
    other = Event.UNKNOWN if event is not Event.UNKNOWN else Event.ACCEPTED
    assert not settle(ledger, item, other, reason="other")
    assert world.states() == {item.key: state}


def test_a_stale_token_writes_nothing(world: World, ledger: SqlLedger) -> None:
    fresh, stale = claimed(ledger, delivery(), delivery())
    stale.token += 1
    answers = ledger.settle([Settlement(item, Event.ACCEPTED) for item in (stale, fresh)])
    assert answers == [False, True]
    assert world.states() == {fresh.key: "SENT", stale.key: "IN_FLIGHT"}


def test_a_sweep_is_not_taken_for_the_workers_own_doubt(world: World, ledger: SqlLedger) -> None:
    ledger.register(worker())
    (item,) = claimed(ledger, delivery())
    world.advance(LEASE_MS + 1)
    ledger.sweep()
    assert not settle(ledger, item, Event.UNKNOWN, reason="timeout")


def test_what_was_never_claimed_cannot_be_settled(ledger: SqlLedger) -> None:
    assert not settle(ledger, delivery(), Event.ACCEPTED)


def test_a_settlement_whose_reply_was_lost_is_true_when_repeated(ledger: SqlLedger) -> None:
    batch = [
        Settlement(item, event, "why", "p-1" if event is Event.ACCEPTED else None)
        for item, event in zip(
            claimed(ledger, *[delivery() for _ in range(4)]),
            (Event.ACCEPTED, Event.REJECTED, Event.NOT_SENT, Event.GIVEN_BACK),
            strict=True,
        )
    ]
    with reply_lost(ledger.database), pytest.raises(LedgerUnavailable):
        ledger.settle(batch)
    assert ledger.settle(batch) == [True] * 4


def test_a_repeat_is_still_true_after_a_receipt_that_gave_a_reason(ledger: SqlLedger) -> None:
    (mine,) = claimed(ledger, delivery())
    settlement = Settlement(mine, Event.ACCEPTED, provider_id="p-1")
    assert ledger.settle([settlement]) == [True]
    with ledger.database.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE deliveries SET state = 'UNDELIVERED', reason = 'DB:0101'"
        )
    assert ledger.settle([settlement]) == [True]


def test_a_repeat_is_still_true_after_the_receipt(world: World, ledger: SqlLedger) -> None:
    (item,) = claimed(ledger, delivery())
    settle(ledger, item, Event.ACCEPTED, provider_id="p-1")
    with ledger.database.begin() as connection:
        connection.exec_driver_sql("UPDATE deliveries SET state = 'DELIVERED'")
    assert settle(ledger, item, Event.ACCEPTED, provider_id="p-1")
    assert not settle(ledger, item, Event.ACCEPTED, provider_id="p-2")


def test_one_delivery_settled_twice_in_a_batch_keeps_the_first(
    world: World, ledger: SqlLedger
) -> None:
    (item,) = claimed(ledger, delivery())
    both = [Settlement(item, Event.ACCEPTED), Settlement(item, Event.REJECTED, "code")]
    assert ledger.settle(both) == [True, False]
    assert world.states() == {item.key: "SENT"}


def test_text_from_outside_never_fails_a_batch(ledger: SqlLedger) -> None:
    odd = 'a"b\\c{d},null\n\0\ud800 鸿雁' + "x" * 2_000
    items = claimed(ledger, delivery(biz_id='{"a\\b",null}'), delivery(biz_id="null"))
    batch = [Settlement(item, Event.REJECTED, odd, odd) for item in items]
    assert ledger.settle(batch) == [True, True]
    assert ledger.settle(batch) == [True, True]
    (row,) = ledger.queries().by_biz('{"a\\b",null}')
    assert row.reason is not None
    assert row.reason.startswith('a"b\\c{d},null\ufffd\ufffd\ufffd 鸿雁')
    assert len(row.reason) == 500
    assert len(ledger.queries().by_biz("null")) == 1


# -- given back unstarted --


def test_what_was_given_back_is_taken_over_by_whoever_reads_it_next(ledger: SqlLedger) -> None:
    (item,) = claimed(ledger, delivery())
    settle(ledger, item, Event.GIVEN_BACK)
    made = claims([item])
    assert ledger.claim(made, "w2") == [IN_FLIGHT]
    assert ledger.claim(made, "w2") == [IN_FLIGHT]
    row = ledger.queries().by_key(item.key)
    assert row is not None
    assert (row.owner, row.attempt, row.reason, row.next_at) == ("w2", 1, None, None)
    assert not settle(ledger, item, Event.ACCEPTED), "the first owner's token is stale now"
    assert settle(ledger, adopt(made, [IN_FLIGHT])[0], Event.ACCEPTED)


def test_another_body_takes_nothing_over(ledger: SqlLedger) -> None:
    (item,) = claimed(ledger, delivery(text="one"))
    settle(ledger, item, Event.GIVEN_BACK)
    (answer,) = ledger.claim(claims([delivery(text="two", id=item.notification.id)]), "w2")
    assert (answer.won, answer.state, answer.conflict) == (False, State.RETRY, True)


def test_what_waits_for_another_reason_is_left_to_recovery(ledger: SqlLedger) -> None:
    (item,) = claimed(ledger, delivery())
    settle(ledger, item, Event.NOT_SENT, reason="busy")
    (answer,) = ledger.claim(claims([item]), "w2")
    assert (answer.won, answer.state) == (False, State.RETRY)


def test_what_is_dropped_this_time_takes_nothing_over(world: World, ledger: SqlLedger) -> None:
    (item,) = claimed(ledger, delivery())
    settle(ledger, item, Event.GIVEN_BACK)
    (answer,) = ledger.claim(claims([item], Event.TTL_AT_INTAKE), "w2")
    assert (answer.won, answer.state) == (False, State.RETRY)
    assert world.states() == {item.key: "RETRY"}


# -- lines --


def test_of_one_line_in_a_batch_only_the_first_is_sent(ledger: SqlLedger) -> None:
    batch = [delivery(ordering_key=key) for key in ("a", "b", "a", "a", "b")] + [delivery()] * 1
    answers = ledger.claim(claims(batch), "w1", ordered=True)
    assert [a.state for a in answers] == [
        State.IN_FLIGHT,
        State.IN_FLIGHT,
        State.RETRY,
        State.RETRY,
        State.RETRY,
        State.IN_FLIGHT,
    ]
    assert all(a.won for a in answers)
    row = ledger.queries().by_key(batch[2].key)
    assert row is not None
    assert (row.reason, row.attempt, row.next_at) == ("behind", 0, ASLEEP_AT)


@pytest.mark.parametrize("event", [None, Event.NOT_SENT, Event.UNKNOWN, Event.GIVEN_BACK])
def test_an_open_row_of_any_worker_holds_up_its_line(
    ledger: SqlLedger, event: Event | None
) -> None:
    (first,) = claimed(ledger, delivery(ordering_key="k"))
    if event is not None:
        settle(ledger, first, event)
    (answer,) = ledger.claim(claims([delivery(ordering_key="k")]), "w2", ordered=True)
    assert (answer.won, answer.state) == (True, State.RETRY)


@pytest.mark.parametrize("event", [Event.ACCEPTED, Event.REJECTED, Event.BUDGET_SPENT, Event.TTL])
def test_a_row_that_ended_holds_up_nobody(ledger: SqlLedger, event: Event) -> None:
    (first,) = claimed(ledger, delivery(ordering_key="k"))
    settle(ledger, first, event)
    (answer,) = ledger.claim(claims([delivery(ordering_key="k")]), "w2", ordered=True)
    assert answer.state is State.IN_FLIGHT


def test_an_earlier_one_that_was_dropped_holds_up_nobody(ledger: SqlLedger) -> None:
    dropped = claims([delivery(ordering_key="k")], Event.DROP)
    held = claims([delivery(ordering_key="h")], Event.HOLD)
    rest = claims([delivery(ordering_key="k"), delivery(ordering_key="h")])
    answers = ledger.claim([*dropped, *held, *rest], "w1", ordered=True)
    assert [a.state for a in answers[2:]] == [State.IN_FLIGHT, State.RETRY]


def test_an_earlier_one_that_was_there_already_counts_as_it_stands(ledger: SqlLedger) -> None:
    sent, flying = claimed(ledger, delivery(ordering_key="s"), delivery(ordering_key="f"))
    settle(ledger, sent, Event.ACCEPTED)
    batch = claims([sent, delivery(ordering_key="s"), flying, delivery(ordering_key="f")])
    answers = ledger.claim(batch, "w2", ordered=True)
    assert [(a.won, a.state) for a in answers] == [
        (False, State.SENT),
        (True, State.IN_FLIGHT),
        (False, State.IN_FLIGHT),
        (True, State.RETRY),
    ]


def test_receivers_of_one_message_stand_in_line_together(ledger: SqlLedger) -> None:
    first, second = deliveries(receivers=["+8613800000001", "+8613800000002"], ordering_key="k")
    answers = ledger.claim(claims([first, second, delivery(ordering_key="k")]), "w1", ordered=True)
    assert [a.state for a in answers] == [State.IN_FLIGHT, State.IN_FLIGHT, State.RETRY]


def test_receivers_claimed_one_after_the_other_do_not_hold_up_each_other(ledger: SqlLedger) -> None:
    for each in deliveries(receivers=["+8613800000001", "+8613800000002"], ordering_key="k"):
        (answer,) = ledger.claim(claims([each]), "w1", ordered=True)
        assert answer.state is State.IN_FLIGHT


def test_lines_of_other_lanes_and_keys_go_on(ledger: SqlLedger) -> None:
    claimed(ledger, delivery(ordering_key="k"))
    others = [delivery(ordering_key="k", lane="sms.marketing"), delivery(ordering_key="l")]
    answers = ledger.claim(claims(others), "w1", ordered=True)
    assert [a.state for a in answers] == [State.IN_FLIGHT, State.IN_FLIGHT]


def test_without_order_a_line_is_none(ledger: SqlLedger) -> None:
    batch = [delivery(ordering_key="k"), delivery(ordering_key="k")]
    assert ledger.claim(claims(batch), "w1") == [IN_FLIGHT, IN_FLIGHT]


# -- workers --


def test_what_a_dead_worker_left_becomes_unknown_and_its_late_outcome_is_refused(
    world: World, ledger: SqlLedger
) -> None:
    ledger.register(worker())
    flying, sent = claimed(ledger, delivery(), delivery())
    settle(ledger, sent, Event.ACCEPTED)
    world.advance(LEASE_MS)
    assert ledger.sweep() == [], "the lease holds to its last millisecond"
    world.advance(1)
    assert world.open().sweep() == [("w1", 1)]
    assert ledger.sweep() == []
    row = ledger.queries().by_key(flying.key)
    assert row is not None
    assert (row.state, row.reason, row.owner) == ("UNKNOWN", "owner_dead", "w1")
    assert not settle(ledger, flying, Event.ACCEPTED)
    assert world.states() == {flying.key: "UNKNOWN", sent.key: "SENT"}
    assert world.rows("SELECT state FROM hongyan_workers") == [("DEAD",)]


def test_a_heartbeat_keeps_the_lease(world: World, ledger: SqlLedger) -> None:
    lease = ledger.register(worker())
    claimed(ledger, delivery())
    for _ in range(3):
        world.advance(LEASE_MS)
        renewed = ledger.heartbeat(lease, "DRAINING")
        assert renewed is not None
        assert (renewed.now_ms, renewed.epoch) == (world.now, lease.epoch)
        assert ledger.sweep() == []
    assert world.rows("SELECT state, heartbeat_at FROM hongyan_workers") == [
        ("DRAINING", world.now)
    ]


def test_a_late_heartbeat_renews_a_lease_that_nobody_swept(world: World, ledger: SqlLedger) -> None:
    lease = ledger.register(worker())
    (flying,) = claimed(ledger, delivery())
    world.advance(10 * LEASE_MS)
    assert ledger.heartbeat(lease) is not None, "the database was away, not the worker"
    assert ledger.sweep() == []
    assert settle(ledger, flying, Event.ACCEPTED)


def test_a_lease_that_was_swept_is_never_renewed(world: World, ledger: SqlLedger) -> None:
    lease = ledger.register(worker())
    world.advance(LEASE_MS + 1)
    ledger.sweep()
    assert ledger.heartbeat(lease) is None


def test_what_a_dead_worker_claims_late_is_swept_too(world: World, ledger: SqlLedger) -> None:
    ledger.register(worker())
    world.advance(LEASE_MS + 1)
    assert ledger.sweep() == [("w1", 0)]
    claimed(ledger, delivery())
    assert ledger.sweep() == [("w1", 1)]


def test_what_an_earlier_life_claims_late_is_swept_though_the_name_lives(
    world: World, ledger: SqlLedger
) -> None:
    old = ledger.register(worker())
    world.advance(LEASE_MS + 1)
    successor = world.open()
    lease = successor.register(worker(pid=2))
    assert lease.epoch == old.epoch + 1
    (late,) = claimed(ledger, delivery())
    (fresh,) = claimed(successor, delivery())
    assert ledger.heartbeat(old) is None
    assert successor.sweep() == [("w1", 1)]
    assert world.states() == {late.key: "UNKNOWN", fresh.key: "IN_FLIGHT"}


def test_registering_again_settles_what_the_earlier_life_left(
    world: World, ledger: SqlLedger
) -> None:
    ledger.register(worker())
    (left,) = claimed(ledger, delivery())
    (other,) = claimed(ledger, delivery(), owner="w2")
    world.advance(LEASE_MS + 1)
    world.open().register(worker(pid=2))
    assert world.states() == {left.key: "UNKNOWN", other.key: "IN_FLIGHT"}


def test_a_claim_made_elsewhere_in_the_process_counts_for_the_living_worker(
    world: World, ledger: SqlLedger
) -> None:
    ledger.register(worker())
    claimed(world.open(), delivery())
    assert ledger.sweep() == []


def test_what_nobody_registered_owns_is_swept(ledger: SqlLedger) -> None:
    claimed(ledger, delivery(), owner="ghost")
    assert ledger.sweep() == [("ghost", 1)]


def test_a_name_is_refused_while_another_lives_under_it(world: World, ledger: SqlLedger) -> None:
    ledger.register(worker())
    world.advance(LEASE_MS)
    with pytest.raises(WorkerNameTaken, match=r"'w1' runs on far as pid 1 \(heartbeat 1\.0 s ago"):
        world.open().register(worker(pid=2))
    with pytest.raises(WorkerNameTaken):
        world.open().register(worker(host="elsewhere"))
    world.advance(1)
    assert world.open().register(worker(pid=2)).epoch == 2


def test_a_retired_worker_frees_its_name_and_leaves_nothing_in_flight(
    world: World, ledger: SqlLedger
) -> None:
    lease = ledger.register(worker())
    (left,) = claimed(ledger, delivery())
    ledger.retire(lease)
    ledger.retire(lease)
    assert world.states() == {left.key: "UNKNOWN"}
    assert ledger.heartbeat(lease) is None
    assert ledger.sweep() == []
    assert ledger.register(worker(pid=2)).epoch == 2


def test_retiring_an_earlier_life_leaves_the_present_one_alone(
    world: World, ledger: SqlLedger
) -> None:
    old = ledger.register(worker())
    world.advance(LEASE_MS + 1)
    successor = world.open()
    lease = successor.register(worker(pid=2))
    (fresh,) = claimed(successor, delivery())
    ledger.retire(old)
    assert successor.heartbeat(lease) is not None
    assert world.states() == {fresh.key: "IN_FLIGHT"}


# -- what the row keeps --


def test_one_payload_serves_all_receivers(world: World, ledger: SqlLedger) -> None:
    many = deliveries(receivers=[f"+86138000000{n:02}" for n in range(20)])
    alone = delivery()
    claimed(ledger, *many, alone)
    assert world.rows("SELECT count(*) FROM payloads") == [(1,)]
    assert world.rows("SELECT count(*) FROM deliveries WHERE payload IS NULL") == [(20,)]
    for item in (*many, alone):
        kept = ledger.queries().kept(item.key)
        assert kept is not None
        assert (kept.payload, kept.receiver) == (item.payload, item.receiver)


def test_two_bodies_under_one_id_keep_each_its_own(ledger: SqlLedger) -> None:
    one = deliveries(receivers=["+8613800000001", "+8613800000002"], text="one")
    other = deliveries(
        receivers=["+8613800000003", "+8613800000004"], text="two", id=one[0].notification.id
    )
    claimed(ledger, *one, *other)
    kept = [ledger.queries().kept(item.key) for item in (*one, *other)]
    assert [k.payload for k in kept if k] == [item.payload for item in (*one, *other)]


def test_a_row_is_found_by_whatever_names_it(ledger: SqlLedger) -> None:
    two = deliveries(receivers=["+8613800000001", "+8613800000002"], biz_id="order-1")
    claimed(ledger, *two)
    settle(ledger, claimed(ledger, delivery())[0], Event.ACCEPTED)
    queries = ledger.queries()
    assert [row.delivery_key for row in queries.find(two[0].key)] == [two[0].key]
    for name in (two[0].notification.id, "order-1"):
        assert {row.delivery_key for row in queries.find(name)} == {d.key for d in two}
    assert queries.find("nobody") == []
    assert queries.kept("nobody") is None
    assert queries.counts() == {("sms.notice", "IN_FLIGHT"): 2, ("sms.notice", "SENT"): 1}


def test_the_views_have_the_columns_others_build_on(world: World, ledger: SqlLedger) -> None:
    ledger.register(worker())
    claimed(ledger, delivery())
    with ledger.database.begin() as connection:
        columns = {
            view: list(connection.exec_driver_sql(f"SELECT * FROM {view}").keys())
            for view in ("hongyan_deliveries", "hongyan_workers")
        }
    assert " ".join(columns["hongyan_deliveries"]) == (
        "delivery_key message_id biz_id channel kind lane state reason attempt owner provider_id"
        " created_at updated_at next_at expires_at policy_version resend_of account refusals"
        " template"
    )
    assert " ".join(columns["hongyan_workers"]) == (
        "id host pid state lanes threads started_at heartbeat_at kind program"
    )


def test_the_identity_is_the_databases_own(world: World, ledger: SqlLedger) -> None:
    assert ledger.identity() == world.open().identity()
    assert len(ledger.identity()) == 12


def test_the_ledgers_clock_is_the_databases(world: World, ledger: SqlLedger) -> None:
    world.advance(5)
    assert ledger.now_ms() == NOON + 5


# -- midnight --


def test_a_message_read_again_after_midnight_is_still_the_same(
    world: World, ledger: SqlLedger
) -> None:
    (item,) = claimed(ledger, delivery())
    world.advance(86_400_000)
    (answer,) = ledger.claim(claims([item]), "w2")
    assert (answer.won, answer.state, answer.day) == (False, State.IN_FLIGHT, item.day)
    assert len(world.states()) == 1


def test_one_batch_settles_what_was_claimed_on_two_days(world: World, ledger: SqlLedger) -> None:
    before = claimed(ledger, delivery())
    world.advance(86_400_000)
    after = claimed(ledger, delivery())
    assert after[0].day == before[0].day + 1
    assert ledger.settle([Settlement(d, Event.ACCEPTED) for d in before + after]) == [True, True]
    assert set(world.states().values()) == {"SENT"}


def test_a_shared_payload_is_found_from_rows_of_both_days(world: World, ledger: SqlLedger) -> None:
    two = deliveries(receivers=["+8613800000001", "+8613800000002"])
    claimed(ledger, two[0])
    world.advance(86_400_000)
    claimed(ledger, two[1])
    assert [ledger.queries().kept(d.key) is not None for d in two] == [True, True]


# -- bad times --


def test_a_database_without_the_schema_says_what_to_run(world: World, ledger: SqlLedger) -> None:
    with ledger.database.begin() as connection:
        connection.exec_driver_sql("UPDATE hongyan_schema SET version_num = '0000'")
    with pytest.raises(LedgerOutdated, match="hongyan db upgrade"):
        open_ledger(world.settings)


def test_a_table_dropped_under_a_running_worker_is_outdated(
    world: World, ledger: SqlLedger
) -> None:
    with ledger.database.begin() as connection:
        connection.exec_driver_sql("DROP VIEW hongyan_deliveries")
        connection.exec_driver_sql("DROP TABLE deliveries")
    with pytest.raises(LedgerOutdated):
        ledger.claim(claims([delivery()]), "w1")
    with pytest.raises(LedgerOutdated):
        ledger.sweep()


def test_an_unreachable_database_is_unavailable_and_shows_no_password() -> None:
    url = "postgresql://hongyan:s3cret@127.0.0.1:1/none?sslpassword=t0psecret"
    settings = Settings(database=DatabaseSettings(url=url))
    with pytest.raises(LedgerUnavailable) as caught:
        open_ledger(settings)
    assert "s3cret" not in repr(caught.value)
    assert "t0psecret" not in repr(caught.value)


def test_closing_twice_is_harmless(ledger: SqlLedger) -> None:
    ledger.close()
    ledger.close()


def test_a_row_has_the_hash_of_its_receiver_and_the_name_of_its_template(world: World) -> None:
    settings = msgspec.structs.replace(world.settings, outcomes=OutcomeSettings(hash_key="k" * 32))
    ledger = open_ledger(settings, lambda: world.now)
    item, bare = delivery(template=Template(id="SMS_1")), delivery()
    taken = claimed(ledger, item, bare)
    hashed = receiver_hash(b"k" * 32, "sms", item.receiver)
    assert [one.receiver_hash for one in taken] == [hashed, hashed]
    with ledger.database.connection() as connection:
        rows = connection.execute(
            "SELECT delivery_key, receiver_hash, receiver_text_hash, template FROM deliveries"
        ).fetchall()
    text = bytes.fromhex(receiver_hash(b"k" * 32, "", item.receiver))[:16]
    assert {key: (bytes(one).hex(), bytes(two), name) for key, one, two, name in rows} == {
        item.key: (hashed, text, "SMS_1"),
        bare.key: (hashed, text, None),
    }
    row = ledger.queries().by_key(item.key)
    assert row is not None
    assert row.template == "SMS_1"
    ledger.close()


def test_without_a_key_a_row_has_no_hash(world: World, ledger: SqlLedger) -> None:
    (taken,) = claimed(ledger, delivery())
    assert taken.receiver_hash == ""
    stored = "SELECT receiver_hash, receiver_text_hash FROM deliveries"
    assert world.rows(stored) == [(None, None)]
