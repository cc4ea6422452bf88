"""What recovery asks of the ledger, on every database it runs on."""

import threading
from typing import Any

import msgspec
import pytest

from idempotency.claims.rows import READER_MS
from idempotency.claims.store import MS_PER_DAY
from idempotency.ledger import Settlement
from idempotency.lines import ASLEEP_AT, PAGE
from idempotency.recalls import Kind
from idempotency.recovery.contract import (
    ATTEMPTS_SPENT,
    QUEUED,
    TTL,
    TTL_IN_DOUBT,
    UNREADABLE,
    DueQuery,
    Ended,
    RecordedCall,
    RecoveryStore,
    TakeResult,
    Transition,
    call_key_of,
)
from idempotency.sql_ledger import SqlLedger
from message.delivery import Delivery
from message.ids import new_token
from message.states import Event, IllegalTransition, State
from tests.harness.operator_moves import operator_retry, operator_sent
from tests.idempotency.making import (
    LEASE_MS,
    NOON,
    World,
    claimed,
    claims,
    deliveries,
    delivery,
    settle,
    worker,
)

LANE = "sms.notice"
ASK = DueQuery(LANE, attempts=5)
ORDERED = DueQuery(LANE, 5, ordered=True)
LANES = frozenset({LANE})


@pytest.fixture
def recovering(ledger: SqlLedger) -> RecoveryStore:
    ledger.register(worker("r1"))
    return ledger.recovering()


def waiting(ledger: SqlLedger, *items: Delivery, delay_ms: int = 0) -> list[Delivery]:
    """Rows that a worker tried and that are to be tried again."""
    made = claimed(ledger, *items)
    for item in made:
        assert settle(ledger, item, Event.NOT_SENT, reason="http_429", delay_ms=delay_ms)
    return made


def test_calls_refused_for_pace_are_kept_and_spend_no_attempt(
    ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    (item,) = claimed(ledger, delivery())
    item.attempt, item.refusals, item.repeats = 1, 1, 2
    assert settle(ledger, item, Event.NOT_SENT, reason="http_429")
    for refusals in (2, 3):
        (taken,) = take(recovering, DueQuery(LANE, attempts=1)).taken
        one = taken.delivery
        assert (one.attempt, one.refusals, one.repeats) == (refusals, refusals - 1, 2)
        one.refusals = refusals
        ledger.settle([Settlement(one, Event.NOT_SENT, "http_429")])
    (taken,) = take(recovering, DueQuery(LANE, attempts=1)).taken
    ledger.settle([Settlement(taken.delivery, Event.NOT_SENT, "http_408")])
    (ended,) = take(recovering, DueQuery(LANE, attempts=1)).ended
    assert (ended.state, ended.reason) == (State.PARKED, "attempts_spent")


def doubted(ledger: SqlLedger, *items: Delivery) -> list[Delivery]:
    made = claimed(ledger, *items)
    for item in made:
        assert settle(ledger, item, Event.UNKNOWN, reason="timeout")
    return made


def take(recovering: RecoveryStore, ask: DueQuery = ASK, owner: str = "r1") -> TakeResult:
    """What was called before, then what was not."""
    again = recovering.take(ask, owner, new_token())
    first = recovering.take(msgspec.structs.replace(ask, first=True), owner, new_token())
    return TakeResult(
        [*again.taken, *first.taken],
        [*again.ended, *first.ended],
        again.postponed + first.postponed,
    )


def keys(taking: TakeResult) -> list[str]:
    return [taken.delivery.key for taken in taking.taken]


def version_of(recovering: RecoveryStore, key: str) -> int:
    found = recovering.version_of(key)
    assert found is not None
    return found[1]


# -- taking what is due --


def test_a_due_row_comes_back_as_it_was_for_one_more_attempt(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    (item,) = waiting(ledger, delivery(biz_id="order-1"), delay_ms=500)
    assert keys(take(recovering)) == []
    world.advance(500)
    token = new_token()
    (taken,) = recovering.take(ASK, "r1", token).taken
    assert taken.delivery == msgspec.structs.replace(
        item, attempt=2, token=token, call_key=call_key_of(item.key, 2), account="", body_digest=b""
    )
    assert (taken.reason, taken.doubted_since) == ("http_429", None)
    row = ledger.queries().by_key(item.key)
    assert row is not None
    assert (row.state, row.owner, row.attempt, row.next_at) == ("IN_FLIGHT", "r1", 2, None)
    assert settle(ledger, taken.delivery, Event.ACCEPTED, provider_id="p-1")
    assert world.states() == {item.key: "SENT"}


def test_the_oldest_come_first_and_no_more_than_asked(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    late = waiting(ledger, delivery(), delay_ms=30)
    early = waiting(ledger, delivery(), delay_ms=10)
    other = waiting(ledger, delivery(lane="sms.marketing"))
    world.advance(50)
    assert keys(take(recovering, DueQuery(LANE, 5, limit=1))) == [early[0].key]
    assert keys(take(recovering)) == [late[0].key]
    assert keys(take(recovering)) == []
    assert keys(take(recovering, DueQuery("sms.marketing", 5))) == [other[0].key]


def test_many_of_one_kind_do_not_hide_the_other(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    held = claims([delivery() for _ in range(20)], Event.HOLD, reason="quiet_hours")
    ledger.claim(held, "w1")
    (retry,) = waiting(ledger, delivery(), delay_ms=1)
    world.advance(1)
    again = recovering.take(DueQuery(LANE, 5, limit=3), "r1", new_token())
    assert keys(again) == [retry.key]
    first = recovering.take(DueQuery(LANE, 5, limit=3, first=True), "r1", new_token())
    assert len(keys(first)) == 3
    assert {taken.reason for taken in first.taken} == {"quiet_hours"}


def test_lanes_with_work_are_those_with_a_due_row_or_a_doubt(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    lanes = ["sms.notice", "sms.marketing", "email.notice", "email.marketing"]
    waiting(ledger, delivery(), delay_ms=10)
    waiting(ledger, delivery(lane="sms.marketing"), delay_ms=1_000)
    doubted(ledger, delivery(lane="email.notice", receivers=["a@b.c"]))
    world.advance(20)
    assert recovering.lanes_with_work(lanes) == (["sms.notice"], ["email.notice"])
    assert recovering.lanes_with_work([]) == ([], [])


def lasting(**fields: Any) -> Delivery:
    """Outlives the minute in which it is left to its record's next reader."""
    one = delivery(**fields)
    one.expires_at += READER_MS
    return one


def test_what_was_given_back_is_left_to_kafka_for_a_minute(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    """Nobody reads its record again if that passed by a worker that read it while it was under way."""
    (item,) = claimed(ledger, lasting())
    settle(ledger, item, Event.GIVEN_BACK)
    world.advance(READER_MS - 1)
    assert recovering.lanes_with_work([LANE]) == ([], [])
    assert keys(take(recovering)) == []
    world.advance(1)
    assert recovering.lanes_with_work([LANE]) == ([LANE], [])
    assert keys(take(recovering)) == [item.key]
    assert not ledger.claim(claims([item]), "w1")[0].won, "its reader comes too late"


def test_what_was_given_back_expires_like_all_others(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    (item,) = claimed(ledger, delivery())
    settle(ledger, item, Event.GIVEN_BACK)
    world.advance(60_000)
    assert [e.state for e in take(recovering).ended] == [State.EXPIRED]
    assert world.states() == {item.key: "EXPIRED"}


@pytest.mark.parametrize("kind", ["message", "biz", "lane"])
def test_what_was_given_back_and_recalled_is_taken_by_nobody(
    world: World, ledger: SqlLedger, recovering: RecoveryStore, kind: str
) -> None:
    item, other = claimed(ledger, lasting(biz_id="order-1"), lasting(biz_id="order-2"))
    for one in (item, other):
        settle(ledger, one, Event.GIVEN_BACK)
    world.advance(10)
    name, recalls = item.notification.id, ledger.recalls()
    recalls.announce_in_lanes(other.notification.id, {"sms.verification"}, 86_400_000)
    if kind == "lane":
        recalls.announce_in_lanes(name, {LANE}, 86_400_000)
    else:
        recalls.announce(Kind(kind), "order-1" if kind == "biz" else name, 86_400_000)
    answers = ledger.claim(claims([item, other]), "w1")
    assert [one.won for one in answers] == [False, True]
    assert world.states() == {item.key: "RETRY", other.key: "IN_FLIGHT"}
    world.advance(READER_MS)
    taking = take(recovering)
    assert [(one.key, one.state) for one in taking.ended] == [(item.key, State.DROPPED)]
    assert taking.taken == []


@pytest.mark.parametrize(
    "spoilt",
    ["expires_at = 1", "payload = ''", "attempt = 9"],
    ids=["expired", "unreadable", "spent"],
)
def test_what_only_ends_hides_nobody_however_much_it_is(
    world: World, ledger: SqlLedger, recovering: RecoveryStore, spoilt: str
) -> None:
    waiting(ledger, *[delivery() for _ in range(250)])
    with ledger.database.begin() as connection:
        connection.exec_driver_sql(f"UPDATE deliveries SET {spoilt}")
    world.advance(10)
    (item,) = waiting(ledger, delivery())
    world.advance(10)
    taking = recovering.take(DueQuery(LANE, 5, limit=3), "r1", new_token())
    assert keys(taking) == [item.key]
    assert len(taking.ended) == 250


def test_no_more_are_taken_than_asked_after_those_that_ended(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    waiting(ledger, *[delivery() for _ in range(5)])
    with ledger.database.begin() as connection:
        connection.exec_driver_sql("UPDATE deliveries SET expires_at = 1")
    world.advance(10)
    waiting(ledger, *[delivery() for _ in range(9)])
    world.advance(10)
    assert len(recovering.take(DueQuery(LANE, 5, limit=3), "r1", new_token()).taken) == 3


def test_what_recovery_itself_gives_back_is_recoverys_again(
    ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    (item,) = waiting(ledger, delivery())
    (taken,) = take(recovering).taken
    assert recovering.give_back([taken]) == [True]
    assert recovering.give_back([taken]) == [False]
    (again,) = take(recovering).taken
    assert (again.delivery.key, again.delivery.attempt, again.reason) == (item.key, 2, "http_429")
    assert again.doubted_since is None


def test_past_its_ttl_a_row_expires_even_if_its_turn_is_later(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    (item,) = waiting(ledger, delivery(), delay_ms=600_000)
    world.advance(60_000)
    taking = take(recovering)
    assert [(e.key, e.state, e.reason) for e in taking.ended] == [(item.key, State.EXPIRED, TTL)]
    assert keys(taking) == []
    assert settle(ledger, item, Event.ACCEPTED) is False


def test_past_its_ttl_a_row_that_may_have_been_sent_is_parked(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    waiting(ledger, delivery())
    (taken,) = take(recovering).taken
    world.advance(1)
    settle(ledger, taken.delivery, Event.UNKNOWN, reason="timeout")
    (doubt,) = recovering.doubts(LANE, 1_000)
    move = Transition(
        *place(doubt.delivery), doubt.version, State.UNKNOWN, Event.RESEND_UNPROVEN, "unproven"
    )
    assert recovering.move([move]) == [True]
    world.advance(60_000)
    assert [(e.state, e.reason) for e in take(recovering).ended] == [(State.PARKED, TTL_IN_DOUBT)]


def test_with_its_attempts_spent_a_row_is_parked(
    ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    (item,) = waiting(ledger, delivery())
    taking = take(recovering, DueQuery(LANE, attempts=1))
    assert [(e.key, e.state, e.reason) for e in taking.ended] == [
        (item.key, State.PARKED, ATTEMPTS_SPENT)
    ]


def test_a_take_whose_reply_was_lost_gives_the_same_rows_again(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    waiting(ledger, delivery(), delivery())
    token = new_token()
    recovering.take(ASK, "r1", token)  # committed, and its answer never heard
    world.advance(10)
    waiting(ledger, delivery())
    taking = recovering.take(ASK, "r1", token)
    mine = [key for key, state in world.states().items() if state == "IN_FLIGHT"]
    assert (sorted(keys(taking)), len(mine)) == (sorted(mine), 2)
    assert {t.delivery.attempt for t in taking.taken} == {2}
    assert {t.doubted_since for t in taking.taken} == {None}


def test_receivers_that_share_a_payload_keep_it(
    ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    items = deliveries(receivers=["+8613800000001", "+8613800000002"])
    waiting(ledger, *items)
    found = {t.delivery.receiver: t.delivery.payload for t in take(recovering).taken}
    assert found == {item.receiver: item.payload for item in items}


def test_a_sealed_payload_is_opened_and_one_that_cannot_be_is_parked(url: str) -> None:
    sealed = World(url, payload_key="MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
    plain = World.__new__(World)
    plain.__dict__.update(sealed.__dict__)
    plain.settings = msgspec.structs.replace(
        sealed.settings, database=msgspec.structs.replace(sealed.settings.database, payload_key="")
    )
    try:
        ledger = sealed.open()
        ledger.register(worker("r1"))
        (item,) = waiting(ledger, delivery())
        (other,) = doubted(ledger, delivery())
        blind = plain.open()
        blind.register(worker("r2"))
        taking = take(blind.recovering(), owner="r2")
        assert [(e.key, e.state, e.reason) for e in taking.ended] == [
            (item.key, State.PARKED, UNREADABLE)
        ]
        (doubt,) = ledger.recovering().doubts(LANE, 0)
        assert doubt.delivery.payload == other.payload
        assert blind.recovering().doubts(LANE, 1_000) == []
        assert set(sealed.states().values()) == {"PARKED"}
    finally:
        sealed.close()


@pytest.mark.parametrize("takers", [4])
def test_two_recoveries_at_once_never_take_the_same_row(
    world: World, ledger: SqlLedger, recovering: RecoveryStore, takers: int
) -> None:
    waiting(ledger, *[delivery() for _ in range(120)])
    others = [world.open() for _ in range(takers)]
    for number, other in enumerate(others):
        other.register(worker(f"t{number}"))
    found: list[list[str]] = [[] for _ in others]
    start = threading.Barrier(takers)

    def run(number: int) -> None:
        mine = others[number].recovering()
        start.wait()
        empty = 0
        while empty < 3:
            got = keys(take(mine, DueQuery(LANE, 5, limit=7), f"t{number}"))
            found[number] += got
            empty = 0 if got else empty + 1

    threads = [threading.Thread(target=run, args=(n,)) for n in range(takers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [key for mine in found for key in mine]
    assert len(everything) == len(set(everything)) == 120


def test_rows_of_a_recovery_that_died_are_swept_and_stay_in_doubt_since_its_call(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    waiting(ledger, delivery())
    take(recovering)
    world.advance(LEASE_MS + 1)
    assert ledger.sweep() == [("r1", 1)]
    (doubt,) = recovering.doubts(LANE, 1_000)
    assert (doubt.called_at, doubt.reason, doubt.now) == (NOON, "owner_dead", world.now)


# -- calls --


def test_what_is_kept_of_a_call_is_found_with_its_doubt(
    ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    waiting(ledger, delivery())
    (taken,) = take(recovering).taken
    one = taken.delivery
    call = RecordedCall(one.key, one.day, one.token, "main", "c" * 32, "digest")
    assert recovering.keep([call, call._replace(token=1)]) == [True, False]
    settle(ledger, one, Event.UNKNOWN, reason="timeout")
    (doubt,) = recovering.doubts(LANE, 1_000)
    assert (doubt.delivery.account, doubt.delivery.call_key) == ("main", "c" * 32)
    assert doubt.call_digest == "digest"


def together(
    ledger: SqlLedger, *items: Delivery, account: str = "main", key: str = "c" * 32
) -> list[Delivery]:
    """In doubt about one call, whose digest is on record."""
    for item in items:
        item.account, item.call_key, item.call_digest = account, key, "digest"
    return doubted(ledger, *items)


def test_those_in_doubt_about_one_call_are_found_by_any_of_them(
    ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    mine = together(ledger, *(delivery() for _ in range(3)))
    together(ledger, delivery(), account="other")
    together(ledger, delivery(), key="d" * 32)
    doubted(ledger, delivery())
    for doubt in recovering.doubts(LANE, 1_000):
        if doubt.delivery.key in {item.key for item in mine}:
            found = recovering.joined(doubt, 1_000)
            assert [d.delivery.key for d in found] == sorted(item.key for item in mine)


def test_those_found_to_share_a_call_are_nobody_elses_to_ask_about(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    together(ledger, delivery(), delivery())
    first, _ = recovering.doubts(LANE, 0)
    world.advance(1)
    found = recovering.joined(first, 1_000)
    assert recovering.doubts(LANE, 1_000) == []
    assert [recovering.ask_again(doubt, 0) for doubt in found] == [True, True]
    assert recovering.ask_again(first, 0) is False, "it stands with another version now"


def test_what_ended_or_was_recalled_is_not_found_with_its_call(
    ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    left, ended, _ = together(ledger, delivery(), delivery(), delivery(id="gone"))
    ledger.recalls().announce(Kind.MESSAGE, "gone", 600_000)
    doubts = {doubt.delivery.key: doubt for doubt in recovering.doubts(LANE, 1_000)}
    sent = doubts[ended.key]
    move = Transition(
        ended.key, ended.day, sent.version, State.UNKNOWN, Event.RESOLVED_SENT, None, "p-1"
    )
    assert recovering.move([move]) == [True]
    found = recovering.joined(doubts[left.key], 1_000)
    assert [doubt.delivery.key for doubt in found] == [left.key]


def test_a_repeat_of_a_doubted_call_keeps_its_key_and_the_time_of_the_first(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    waiting(ledger, delivery())
    (first,) = take(recovering).taken
    world.advance(10)
    settle(ledger, first.delivery, Event.UNKNOWN, reason="timeout")
    (doubt,) = recovering.doubts(LANE, 1_000)
    recovering.move([moved(doubt.delivery, doubt.version, Event.REPLAY, "replay")])
    (again,) = take(recovering).taken
    assert again.delivery.call_key == first.delivery.call_key
    assert (again.doubted_since, again.delivery.attempt) == (NOON, 3)


def called_again(
    ledger: SqlLedger, recovering: RecoveryStore, account: str, event: Event = Event.RESEND_UNPROVEN
) -> Delivery:
    """What is in doubt, called once more through that account, and in doubt again."""
    (doubt,) = recovering.doubts(LANE, 0)
    recovering.move([moved(doubt.delivery, doubt.version, event, "unproven")])
    (again,) = take(recovering).taken
    one = again.delivery
    call = RecordedCall(one.key, one.day, one.token, account, one.call_key, None)
    assert recovering.keep([call, call]) == [True, True], "a repeat of the write changes nothing"
    one.account = account
    settle(ledger, one, Event.UNKNOWN, reason="timeout")
    return one


def test_a_doubt_tells_of_its_first_call_and_of_its_last(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    item = delivery()
    item.account = "a"
    (mine,) = claimed(ledger, item)
    world.advance(10)
    settle(ledger, mine, Event.UNKNOWN, reason="timeout")
    world.advance(10_000)
    last = world.now
    called_again(ledger, recovering, "a")
    world.advance(1)
    (doubt,) = recovering.doubts(LANE, 0)
    assert (doubt.called_at, doubt.last_call) == (NOON, last)
    assert doubt.earlier_accounts == ()


def test_a_doubt_names_every_account_that_was_called(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    item = delivery()
    item.account = "a"
    (mine,) = claimed(ledger, item)
    settle(ledger, mine, Event.UNKNOWN, reason="timeout")
    for account in ("b", "a", "c"):
        world.advance(1_000)
        called_again(ledger, recovering, account)
    world.advance(1_000)
    (doubt,) = recovering.doubts(LANE, 0)
    assert (doubt.delivery.account, doubt.earlier_accounts) == ("c", ("a", "b"))


def test_calls_that_are_known_to_have_sent_nothing_are_forgotten(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    item = delivery()
    item.account = "a"
    (mine,) = claimed(ledger, item)
    settle(ledger, mine, Event.UNKNOWN, reason="timeout")
    world.advance(1_000)
    called_again(ledger, recovering, "b")
    world.advance(1_000)
    last = world.now
    called_again(ledger, recovering, "c", Event.RESOLVED_NOT_SENT)
    world.advance(1_000)
    (doubt,) = recovering.doubts(LANE, 0)
    assert (doubt.called_at, doubt.last_call, doubt.earlier_accounts) == (last, last, ())


def test_once_it_is_known_that_nothing_was_sent_the_next_call_has_another_key(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    waiting(ledger, delivery())
    (first,) = take(recovering).taken
    world.advance(10)
    settle(ledger, first.delivery, Event.UNKNOWN, reason="timeout")
    (doubt,) = recovering.doubts(LANE, 1_000)
    recovering.move([moved(doubt.delivery, doubt.version, Event.RESOLVED_NOT_SENT)])
    (again,) = take(recovering).taken
    assert again.delivery.call_key != first.delivery.call_key
    assert again.doubted_since is None


# -- lines --


@pytest.fixture
def line(world: World, ledger: SqlLedger) -> list[Delivery]:
    """Three messages of one key; the first failed, the others stand behind it."""
    items = [delivery(ordering_key="k") for _ in range(3)]
    made = claims(items)
    answers = ledger.claim(made, "w1", ordered=True)
    assert [a.state for a in answers] == [State.IN_FLIGHT, State.RETRY, State.RETRY]
    items[0].token, items[0].day = made[0].token, answers[0].day
    for place_in_line, item in enumerate(items):
        world_update(world, ledger, item.key, place_in_line)
    return items


def world_update(world: World, ledger: SqlLedger, key: str, offset: int) -> None:
    with ledger.database.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE deliveries SET kafka_offset = {offset} WHERE delivery_key = '{key}'"
        )


def test_only_the_head_of_a_line_is_taken(
    world: World, ledger: SqlLedger, recovering: RecoveryStore, line: list[Delivery]
) -> None:
    due_anyway(ledger, *line[1:])
    taking = take(recovering, ORDERED)
    assert (keys(taking), taking.postponed) == ([], 2)
    settle(ledger, line[0], Event.NOT_SENT, reason="http_429")
    (head,) = take(recovering, ORDERED).taken
    assert head.delivery.key == line[0].key
    assert keys(take(recovering, ORDERED)) == []
    settle(ledger, head.delivery, Event.ACCEPTED, ordered=LANES)
    (second,) = take(recovering, ORDERED).taken
    assert (second.delivery.key, second.delivery.attempt) == (line[1].key, 1)
    assert recovering.wake(LANE, ordered=True) == 0


def due_anyway(ledger: SqlLedger, *items: Delivery) -> None:
    """As a worker of an older version enters what stands behind another."""
    with ledger.database.begin() as connection:
        for item in items:
            connection.exec_driver_sql(
                f"UPDATE deliveries SET next_at = {NOON} WHERE delivery_key = '{item.key}'"
            )


def next_at(ledger: SqlLedger, item: Delivery) -> int | None:
    row = ledger.queries().by_key(item.key)
    assert row is not None
    return row.next_at


def test_what_is_behind_is_no_candidate_until_its_time_is_over(
    world: World, ledger: SqlLedger, recovering: RecoveryStore, line: list[Delivery]
) -> None:
    settle(ledger, line[0], Event.UNKNOWN, reason="timeout")
    assert recovering.lanes_with_work([LANE])[0] == []
    assert recovering.backlog([LANE])[0].due == 0
    assert take(recovering, ORDERED) == ([], [], 0)
    world.advance(60_000)
    assert [end.reason for end in take(recovering, ORDERED).ended] == [TTL, TTL]


def test_what_an_older_version_left_due_sleeps_after_one_look_and_hides_nobody(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    items = [delivery(ordering_key="k") for _ in range(40)]
    ledger.claim(claims(items), "w1", ordered=True)
    due_anyway(ledger, *items[1:])
    (late,) = waiting(ledger, delivery(), delay_ms=1)
    world.advance(1)
    few = DueQuery(LANE, 5, ordered=True, limit=5)
    assert keys(take(recovering, few)) == [late.key]
    assert take(recovering, few) == ([], [], 0)
    assert recovering.lanes_with_work([LANE])[0] == []


WAYS_TO_END = (Event.ACCEPTED, Event.REJECTED, Event.TTL, Event.BUDGET_SPENT)


@pytest.mark.parametrize("event", WAYS_TO_END)
def test_however_a_worker_ends_a_head_the_next_is_due_at_once(
    ledger: SqlLedger, recovering: RecoveryStore, line: list[Delivery], event: Event
) -> None:
    settle(ledger, line[0], event, ordered=LANES)
    assert [next_at(ledger, item) for item in line[1:]] == [NOON, ASLEEP_AT]
    assert keys(take(recovering, ORDERED)) == [line[1].key]


def test_an_outcome_that_ends_a_head_beside_claims_wakes_the_next(
    ledger: SqlLedger, recovering: RecoveryStore, line: list[Delivery]
) -> None:
    outcome = [Settlement(line[0], Event.ACCEPTED)]
    ledger.settle_and_claim(outcome, claims([delivery()]), "w1", LANES)
    assert keys(take(recovering, ORDERED)) == [line[1].key]


@pytest.mark.parametrize("event", [Event.NOT_SENT, Event.UNKNOWN, Event.GIVEN_BACK])
def test_a_head_that_stays_open_wakes_nobody(
    ledger: SqlLedger, line: list[Delivery], event: Event
) -> None:
    settle(ledger, line[0], event, ordered=LANES)
    assert next_at(ledger, line[1]) == ASLEEP_AT


def test_a_head_whose_time_is_over_makes_way(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    short, long = delivery(ordering_key="k"), delivery(ordering_key="k")
    short.expires_at, long.expires_at = NOON + 10, NOON + 60_000
    made = claims([short, long])
    ledger.claim(made, "w1", ordered=True)
    short.token, short.day = made[0].token, NOON // MS_PER_DAY
    settle(ledger, short, Event.NOT_SENT, delay_ms=5_000, ordered=LANES)
    world.advance(10)
    taking = take(recovering, ORDERED)
    assert [end.key for end in taking.ended] == [short.key]
    assert keys(taking) == [long.key]


def test_a_head_in_doubt_that_is_decided_makes_way(
    ledger: SqlLedger, recovering: RecoveryStore, line: list[Delivery]
) -> None:
    settle(ledger, line[0], Event.UNKNOWN, reason="timeout", ordered=LANES)
    (doubt,) = recovering.doubts(LANE, LEASE_MS)
    assert recovering.move([moved(doubt.delivery, doubt.version, Event.RESOLVED_SENT)]) == [True]
    assert keys(take(recovering, ORDERED)) == [line[1].key]


def test_a_head_that_is_recalled_makes_way(
    ledger: SqlLedger, recovering: RecoveryStore, line: list[Delivery]
) -> None:
    settle(ledger, line[0], Event.NOT_SENT, delay_ms=50_000, ordered=LANES)
    version = version_of(recovering, line[0].key)
    recall = Transition(*place(line[0]), version, State.RETRY, Event.RECALL)
    assert recovering.move([recall]) == [True]
    assert keys(take(recovering, ORDERED)) == [line[1].key]


def test_a_head_that_cannot_be_read_makes_way(
    ledger: SqlLedger, recovering: RecoveryStore, line: list[Delivery]
) -> None:
    with ledger.database.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE deliveries SET payload = NULL WHERE delivery_key = '{line[0].key}'"
        )
    settle(ledger, line[0], Event.NOT_SENT, ordered=LANES)
    taking = take(recovering, ORDERED)
    assert [(end.key, end.reason) for end in taking.ended] == [(line[0].key, UNREADABLE)]
    assert keys(taking) == [line[1].key]


def test_what_quiet_hours_hold_behind_another_is_not_due_with_their_end(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    items = [delivery(ordering_key="k") for _ in range(3)]
    ledger.claim(
        claims(items, Event.HOLD, reason="quiet_hours", delay_ms=1_000), "w1", ordered=True
    )
    assert [next_at(ledger, item) for item in items] == [
        NOON + 1_000,
        ASLEEP_AT,
        ASLEEP_AT,
    ]
    world.advance(1_000)
    (head,) = take(recovering, ORDERED).taken
    settle(ledger, head.delivery, Event.ACCEPTED, ordered=LANES)
    (second,) = take(recovering, ORDERED).taken
    assert (second.delivery.key, second.reason) == (items[1].key, "quiet_hours")


def test_an_earlier_one_that_a_person_opens_again_goes_before_those_that_sleep(
    ledger: SqlLedger, recovering: RecoveryStore, line: list[Delivery]
) -> None:
    settle(ledger, line[0], Event.BUDGET_SPENT, ordered=LANES)
    (second,) = take(recovering, ORDERED).taken
    version = version_of(recovering, line[0].key)
    retry = operator_retry(line[0].key, line[0].day, version, State.PARKED)
    assert recovering.move([retry]) == [True]
    (again,) = take(recovering, ORDERED).taken
    assert again.delivery.key == line[0].key
    settle(ledger, second.delivery, Event.ACCEPTED, ordered=LANES)
    assert keys(take(recovering, ORDERED)) == [], "the one that was opened again is under way"
    settle(ledger, again.delivery, Event.ACCEPTED, ordered=LANES)
    assert keys(take(recovering, ORDERED)) == [line[2].key]


def test_a_later_one_that_a_person_retries_sleeps_until_its_turn_and_keeps_its_reason(
    ledger: SqlLedger, recovering: RecoveryStore, line: list[Delivery]
) -> None:
    version = version_of(recovering, line[1].key)
    retry = operator_retry(line[1].key, NOON // MS_PER_DAY, version, State.RETRY)
    assert recovering.move([retry]) == [True]
    assert take(recovering, ORDERED) == ([], [], 1)
    settle(ledger, line[0], Event.ACCEPTED, ordered=LANES)
    (taken,) = take(recovering, ORDERED).taken
    assert (taken.delivery.key, taken.reason) == (line[1].key, "operator")


def test_waking_cuts_no_wait_short(
    world: World, ledger: SqlLedger, recovering: RecoveryStore, line: list[Delivery]
) -> None:
    settle(ledger, line[0], Event.ACCEPTED, ordered=LANES)
    (second,) = take(recovering, ORDERED).taken
    settle(ledger, second.delivery, Event.NOT_SENT, delay_ms=7_000, ordered=LANES)
    assert recovering.wake(LANE, ordered=True) == 0
    assert next_at(ledger, line[1]) == NOON + 7_000


def test_a_wake_leaves_receivers_that_wait_alone(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    """Of the message at the head one receiver sleeps, another one waits after a failure."""
    several = deliveries(receivers=["+8613800000001", "+8613800000002"], ordering_key="k")
    waits, sleeps = waiting(ledger, *several, delay_ms=30_000)
    with ledger.database.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE deliveries SET next_at = {ASLEEP_AT}, created_at = created_at - 1"
            f" WHERE delivery_key = '{sleeps.key}'"
        )
    assert recovering.wake(LANE, ordered=True) == 1
    assert (next_at(ledger, waits), next_at(ledger, sleeps)) == (NOON + 30_000, NOON)


def test_what_was_given_back_is_not_woken(
    ledger: SqlLedger, recovering: RecoveryStore, line: list[Delivery]
) -> None:
    settle(ledger, line[0], Event.GIVEN_BACK, ordered=LANES)
    assert recovering.wake(LANE, ordered=True) == 0
    assert recovering.lanes_with_work([LANE]) == ([], [])
    assert take(recovering, ORDERED) == ([], [], 0)


def test_a_line_whose_head_an_older_version_ended_is_found_and_woken(
    ledger: SqlLedger, recovering: RecoveryStore, line: list[Delivery]
) -> None:
    others = [delivery(ordering_key=f"k{n}") for n in range(PAGE + 5)]
    ledger.claim(claims(others), "w1", ordered=True)
    settle(ledger, line[0], Event.ACCEPTED)
    assert keys(take(recovering, ORDERED)) == []
    assert recovering.wake(LANE, ordered=True) == 1
    assert recovering.wake(LANE, ordered=True) == 0
    assert keys(take(recovering, ORDERED)) == [line[1].key]


def test_a_line_without_a_name_that_an_older_version_made_is_found_and_woken(
    ledger: SqlLedger, recovering: RecoveryStore, line: list[Delivery]
) -> None:
    with ledger.database.begin() as connection:
        connection.exec_driver_sql("UPDATE deliveries SET ordering_key = ''")
    assert ledger.held_lines().lines_waiting(LANE, 10).held == 1
    settle(ledger, line[0], Event.ACCEPTED)
    assert recovering.wake(LANE, ordered=True) == 1
    assert keys(take(recovering, ORDERED)) == [line[1].key]


def test_once_a_lane_keeps_no_order_whatever_slept_is_due(
    ledger: SqlLedger, recovering: RecoveryStore, line: list[Delivery]
) -> None:
    assert recovering.wake(LANE, ordered=False) == 2
    assert set(keys(take(recovering, ASK))) == {line[1].key, line[2].key}


def test_receivers_of_the_message_at_the_head_wake_together(
    ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    (head,) = claimed(ledger, delivery(ordering_key="k"))
    several = deliveries(receivers=["+8613800000001", "+8613800000002"], ordering_key="k")
    ledger.claim(claims([*several, delivery(ordering_key="k")]), "w1", ordered=True)
    settle(ledger, head, Event.ACCEPTED, ordered=LANES)
    assert set(keys(take(recovering, ORDERED))) == {item.key for item in several}


def test_a_doubted_head_holds_its_line(
    world: World, ledger: SqlLedger, recovering: RecoveryStore, line: list[Delivery]
) -> None:
    settle(ledger, line[0], Event.UNKNOWN, reason="timeout")
    assert keys(take(recovering, DueQuery(LANE, 5, ordered=True))) == []


def test_receivers_of_one_message_hold_up_none_of_each_other(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    items = deliveries(receivers=["+8613800000001", "+8613800000002"], ordering_key="k")
    waiting(ledger, *items)
    assert len(keys(take(recovering, DueQuery(LANE, 5, ordered=True)))) == 2


# -- doubts --


def place(item: Delivery) -> tuple[str, int]:
    return item.key, item.day


def moved(
    item: Delivery, version: int, event: Event, reason: str | None = None, **more: int
) -> Transition:
    return Transition(*place(item), version, State.UNKNOWN, event, reason, **more)  # type: ignore[arg-type]


def test_doubts_that_cannot_be_read_hide_no_others(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    doubted(ledger, *[delivery() for _ in range(20)])
    with ledger.database.begin() as connection:
        connection.exec_driver_sql("UPDATE deliveries SET payload = ''")
    world.advance(10)
    (item,) = doubted(ledger, delivery())
    world.advance(10)
    ended: list[Ended] = []
    found = recovering.doubts(LANE, 1_000, 3, ended=ended)
    assert [doubt.delivery.key for doubt in found] == [item.key]
    assert len(ended) == 20


def test_a_doubt_is_one_recoverys_until_its_lease_ends(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    (item,) = doubted(ledger, delivery())
    (doubt,) = recovering.doubts(LANE, 1_000)
    assert (doubt.delivery.key, doubt.reason) == (item.key, "timeout")
    assert recovering.doubts(LANE, 1_000) == []
    world.advance(1_000)
    (again,) = recovering.doubts(LANE, 1_000)
    assert recovering.move([moved(item, doubt.version, Event.RESOLVED_SENT)]) == [False]
    assert recovering.ask_again(doubt, 5) is False
    assert recovering.ask_again(again, 5) is True
    assert recovering.doubts(LANE, 1_000) == []
    world.advance(5)
    assert len(recovering.doubts(LANE, 1_000)) == 1


@pytest.mark.parametrize(
    ("event", "state", "next_at"),
    [
        (Event.RESOLVED_SENT, State.SENT, None),
        (Event.RESOLVED_NOT_SENT, State.RETRY, NOON + 7),
        (Event.REPLAY, State.RETRY, NOON + 7),
        (Event.RESEND_UNPROVEN, State.RETRY, NOON + 7),
        (Event.PARK_UNPROVEN, State.PARKED, None),
        (Event.TTL, State.PARKED, None),
    ],
)
def test_what_was_found_out_is_written_once(
    ledger: SqlLedger, recovering: RecoveryStore, event: Event, state: State, next_at: int | None
) -> None:
    (item,) = doubted(ledger, delivery())
    (doubt,) = recovering.doubts(LANE, 1_000)
    move = moved(item, doubt.version, event, "why", delay_ms=7)._replace(provider_id="p-1")
    assert recovering.move([move]) == [True]
    row = ledger.queries().by_key(item.key)
    assert row is not None
    assert (row.state, row.reason, row.next_at, row.provider_id) == (state, "why", next_at, "p-1")
    assert recovering.move([move]) == [True], "a repeat finds its own words"
    assert recovering.move([move._replace(reason="else")]) == [False]


@pytest.mark.parametrize(("named", "kept"), [(None, "task-1"), ("", None), ("p-2", "p-2")])
def test_a_move_keeps_clears_or_sets_the_providers_name(
    ledger: SqlLedger, recovering: RecoveryStore, named: str | None, kept: str | None
) -> None:
    (item,) = claimed(ledger, delivery())
    assert settle(ledger, item, Event.QUEUED, reason=QUEUED, provider_id="task-1")
    (doubt,) = recovering.doubts(LANE, 1_000)
    assert doubt.task == "task-1"
    move = moved(item, doubt.version, Event.RESOLVED_SENT)._replace(provider_id=named)
    assert recovering.move([move]) == [True]
    row = ledger.queries().by_key(item.key)
    assert row is not None
    assert (row.state, row.provider_id) == (State.SENT, kept)


def test_a_move_that_the_state_machine_does_not_have_is_refused(recovering: RecoveryStore) -> None:
    with pytest.raises(IllegalTransition):
        recovering.move([Transition("k", 0, 1, State.SENT, Event.OPERATOR_RETRY)])


# -- people --


def test_a_persons_retry_replaces_the_pending_one(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    (item,) = waiting(ledger, delivery(), delay_ms=30_000)
    version = version_of(recovering, item.key)
    assert recovering.move([operator_retry(*place(item), version, State.RETRY)]) == [True]
    (taken,) = take(recovering, DueQuery(LANE, attempts=1)).taken
    assert (taken.delivery.key, taken.reason) == (item.key, "operator")
    settle(ledger, taken.delivery, Event.ACCEPTED)
    world.advance(30_000)
    assert keys(take(recovering)) == []


def test_of_a_persons_retry_and_an_automatic_one_the_first_wins(
    ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    (item,) = waiting(ledger, delivery())
    version = version_of(recovering, item.key)
    assert len(take(recovering).taken) == 1
    assert recovering.move([operator_retry(*place(item), version, State.RETRY)]) == [False]
    assert ledger.queries().by_key(item.key).attempt == 2  # type: ignore[union-attr]


def test_of_many_who_retry_by_hand_while_it_comes_due_one_sends(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    (item,) = waiting(ledger, delivery())
    version = version_of(recovering, item.key)
    opened = [world.open().recovering() for _ in range(3)]
    start = threading.Barrier(6)
    sends: list[int] = []

    def by_hand(mine: RecoveryStore) -> None:
        start.wait()
        mine.move([operator_retry(*place(item), version, State.RETRY)])

    def automatic(mine: RecoveryStore) -> None:
        start.wait()
        for _ in range(5):
            sends.extend(t.delivery.attempt for t in take(mine).taken)

    threads = [threading.Thread(target=t, args=(m,)) for m in opened for t in (by_hand, automatic)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sends) == 1
    assert ledger.queries().by_key(item.key).attempt == 2  # type: ignore[union-attr]


def test_a_person_revives_what_expired_with_a_new_end(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    (item,) = waiting(ledger, delivery())
    world.advance(60_000)
    take(recovering)
    found = recovering.version_of(item.key)
    assert found is not None
    day, version, state = found
    assert state is State.EXPIRED
    move = operator_retry(item.key, day, version, state, expires_at=world.now + 1_000)
    assert recovering.move([move]) == [True]
    assert [t.delivery.expires_at for t in take(recovering).taken] == [world.now + 1_000]


def test_a_person_who_saw_it_arrive_settles_it(
    ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    (item,) = doubted(ledger, delivery())
    (doubt,) = recovering.doubts(LANE, 1_000)
    recovering.move([moved(item, doubt.version, Event.PARK_UNPROVEN, "unproven")])
    sent = operator_sent(*place(item), version_of(recovering, item.key))
    assert recovering.move([sent]) == [True]
    assert ledger.queries().by_key(item.key).state == "SENT"  # type: ignore[union-attr]
    assert recovering.version_of("f" * 32) is None


# -- duties and backlog --


def test_a_duty_has_one_holder_until_its_lease_ends(
    world: World, recovering: RecoveryStore
) -> None:
    assert recovering.hold("beat", "one", 1_000) is True
    assert recovering.hold("beat", "two", 1_000) is False
    assert recovering.hold("other", "two", 1_000) is True
    world.advance(900)
    assert recovering.hold("beat", "one", 1_000) is True, "its holder renews it"
    world.advance(900)
    assert recovering.hold("beat", "two", 1_000) is False
    world.advance(101)
    assert recovering.hold("beat", "two", 1_000) is True
    recovering.drop("beat", "one")
    assert recovering.hold("beat", "one", 1_000) is False
    recovering.drop("beat", "two")
    assert recovering.hold("beat", "one", 1_000) is True


def test_the_backlog_counts_what_is_due_and_what_is_in_doubt(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    waiting(ledger, delivery(), delivery())
    waiting(ledger, delivery(), delay_ms=60_000)
    doubted(ledger, delivery())
    world.advance(250)
    (found, none) = recovering.backlog([LANE, "email.notice"])
    assert found == (LANE, 2, 1, 250, 250)
    assert none == ("email.notice", 0, 0, 0, 0)


def test_a_clock_that_is_set_back_takes_no_doubt_away(
    world: World, ledger: SqlLedger, recovering: RecoveryStore
) -> None:
    """As after a failover to a server whose clock is behind."""
    item = delivery()
    item.account = "a"
    (mine,) = claimed(ledger, item)
    settle(ledger, mine, Event.UNKNOWN, reason="timeout")
    (doubt,) = recovering.doubts(LANE, 0)
    recovering.move([moved(doubt.delivery, doubt.version, Event.RESEND_UNPROVEN, "unproven")])
    world.advance(-5_000)
    world.rows_changed("UPDATE deliveries SET next_at = 0")
    token = new_token()
    (first,) = recovering.take(ASK, "r1", token).taken
    (again,) = recovering.take(ASK, "r1", token).taken  # of one whose reply was lost
    assert first.doubted_since == again.doubted_since == world.now - 1
    one = first.delivery
    call = RecordedCall(one.key, one.day, one.token, "b", one.call_key, None)
    assert recovering.keep([call]) == [True]
    one.account = "b"
    settle(ledger, one, Event.UNKNOWN, reason="timeout")
    (doubt,) = recovering.doubts(LANE, 0)
    assert (doubt.earlier_accounts, doubt.last_call) == (("a",), world.now)


# -- PostgreSQL's plans --


@pytest.fixture
def explained(postgres: World) -> SqlLedger:
    ledger = postgres.open()
    waiting(ledger, *[delivery() for _ in range(50)])
    doubted(ledger, *[delivery() for _ in range(50)])
    return ledger


@pytest.mark.parametrize(
    ("statement", "index"), [("due", "lane_expr_least_idx"), ("doubted", "lane_coalesce_idx")]
)
def test_rows_are_found_by_their_lanes_index_in_its_order(
    explained: SqlLedger, statement: str, index: str
) -> None:
    from idempotency.recovery.statements import for_postgres

    text = getattr(for_postgres(), statement)
    asked = {"lane": LANE, "now": NOON, "limit": 10, "ordered": False, "again": True}
    values = {name: asked[name] for name in text._bindparams}
    with explained.database.begin() as connection:
        plan = "\n".join(
            connection.exec_driver_sql("EXPLAIN " + str(text.compile(connection)), values).scalars()
        )
    assert "Index Scan using deliveries_" in plan, plan
    assert index in plan, plan
    assert "Merge Append" in plan, plan
    assert "Sort  (" not in plan, plan
    assert "Seq Scan" not in plan, plan


def test_the_receipt_of_a_row_in_doubt_is_found_by_its_index(explained: SqlLedger) -> None:
    from idempotency.recovery.statements import for_postgres

    text = for_postgres().leased
    values = {"rows": '[{"key": "k", "day": 1, "version": 1}]'}
    with explained.database.begin() as connection:
        plan = "\n".join(
            connection.exec_driver_sql("EXPLAIN " + str(text.compile(connection)), values).scalars()
        )
    assert "using receipts_delivery on receipts" in plan, plan
    assert "Seq Scan" not in plan, plan


def test_what_is_overdue_is_found_at_the_head_of_each_lanes_index(explained: SqlLedger) -> None:
    from idempotency.fleet.health import OVERDUE

    statement = OVERDUE.format(least="least", lanes="(%(lane)s)").replace(":now", "%(now)s")
    with explained.database.begin() as connection:
        values = {"lane": LANE, "now": NOON}
        plan = "\n".join(connection.exec_driver_sql("EXPLAIN " + statement, values).scalars())
    assert "lane_least_idx" in plan, plan
    assert "lane_coalesce_idx" in plan, plan
    assert plan.count("Merge Append") == 2, plan
    assert "Sort  (" not in plan, plan
