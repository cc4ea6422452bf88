"""The judge, on made-up books: good ones pass, and every broken promise is seen and named."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from message.states import SETTLED
from simulator import LedgerRecord
from tests.chaos import logs
from tests.chaos.announced import Announced, read
from tests.chaos.books import Books, Hit, LifeBook, Limits
from tests.chaos.doubt import WAKING, Doubt
from tests.chaos.history import Move
from tests.chaos.judge import Judgement, judge
from tests.chaos.kinds import Kind
from tests.chaos.pauses import resumed_late
from tests.chaos.plan import Fault
from tests.harness import Committed, Place, Sent, keys_of, notification
from tests.harness.books import Row

TOPIC = "t.dispatch.webhook.notice"
PLACE = Place(TOPIC, 0)
T0 = 1_790_000_000_000
LIMITS = Limits(pool_threads=2, timeout_ms=5_000, lease_ms=3_000)


class Maker:
    """Good books: ten ordered deliveries in two lines, sent by one worker that was killed at the
    sixth and one that took over; a second apart each."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.rows: dict[str, Row] = {}
        self.records: list[LedgerRecord] = []
        self.moves: list[Move] = []
        self.dead: set[str] = set()
        self.planned: list[Fault] = []
        self.silent: set[str] = set()
        """Keys of deliveries without an event."""
        self.events: list[Announced] = []
        """Further records of the topic."""
        for number in range(10):
            self.deliver(number)
        self.hits = [hit(Kind.KILL, T0 + 5_500, worker="w1", life=0)]
        self.lives = [
            LifeBook(0, "w1", T0 - 1_000, T0 + 5_500, "kill -9", -9, 90.0),
            LifeBook(1, "w2", T0 + 5_600, T0 + 20_000, "SIGTERM", 0, 90.0),
        ]

    def deliver(self, number: int) -> None:
        at, owner = T0 + 1_000 * number, "w1" if number < 6 else "w2"
        one = notification(id=f"n-{number}", ordering_key=f"line-{number % 2}", created_at=at)
        (key,) = keys_of(one)
        self.sent.append(Sent(PLACE, number, b"", one, [key]))
        self.rows[key] = row(key, one.id, "SENT", owner=owner, created_at=at, updated_at=at + 50)
        self.records.append(record(number + 1, key, one.id, at + 10))

    def key(self, number: int) -> str:
        return self.sent[number].keys[0]

    def change(self, number: int, **changes: object) -> None:
        key = self.key(number)
        self.rows[key] = self.rows[key]._replace(**changes)  # type: ignore[arg-type]

    def move(
        self, number: int, source: str, state: str, at: int, reason: str = "", owner: str = "w1"
    ) -> None:
        """The row of that delivery moved."""
        since = self.rows[self.key(number)].created_at
        self.moves.append(Move(at, self.key(number), source, state, reason, owner, since))

    def doubt(self, number: int, *, at: int, owner: str = "w1", reason: str = "owner_dead") -> None:
        """It was in doubt from then on, for a second; it had been sent."""
        self.move(number, "IN_FLIGHT", "UNKNOWN", at, reason, owner)
        self.move(number, "UNKNOWN", "SENT", at + 1_000)
        self.change(number, updated_at=at + 1_000)

    def outlasting(self, kind: Kind) -> None:
        """A fault that brought the fourth along, which was refused once and then sent."""
        self.hits.append(hit(kind, T0 + 2_000, until_ms=T0 + 4_000, number=2))
        self.hits[-1].sent = self.sent[3:4]
        self.move(3, "IN_FLIGHT", "RETRY", T0 + 3_010, "425")
        self.move(3, "RETRY", "IN_FLIGHT", T0 + 3_200, owner="r1")
        self.change(3, updated_at=T0 + 3_300)

    def announced(self) -> list[Announced]:
        """One event for each end that the ledger or the history has, and the further ones."""
        ends = {(key, row.state) for key, row in self.rows.items()}
        ends |= {(move.delivery_key, move.state) for move in self.moves}
        told = sorted(one for one in ends if one[0] not in self.silent and one[1] in SETTLED)
        return [*(event(key, state) for key, state in told), *self.events]

    def books(self, troubles: tuple[str, ...] = ()) -> Books:
        return Books(
            sent=self.sent,
            rows=self.rows,
            records=self.records,
            committed={PLACE: Committed(len(self.sent), "")},
            hits=self.hits,
            lives=self.lives,
            limits=LIMITS,
            ordered=TOPIC,
            moves=self.moves,
            announced={"webhook.notice"},
            events=self.announced(),
            dead=self.dead,
            planned=self.planned,
            troubles=troubles,
        )

    def judge(self) -> Judgement:
        return judge(self.books())


def row(
    key: str, message_id: str, state: str, *, owner: str, created_at: int, updated_at: int
) -> Row:
    return Row(
        delivery_key=key,
        message_id=message_id,
        lane="webhook.notice",
        state=state,
        reason=None,
        attempt=1,
        owner=owner,
        provider_id=None,
        created_at=created_at,
        updated_at=updated_at,
        next_at=None,
        expires_at=created_at + 60_000,
    )


def event(key: str, state: str, version: int = 2, **fields: object) -> Announced:
    told = {"event_id": f"{key}-{state}-{version}", "delivery_key": key, "state": state}
    (one,) = read([msgspec.json.encode({**told, "ended_at": version, **fields})])
    return one


def record(
    seq: int, key: str, message_id: str, at_ms: int, *, attempt: int = 1, path: str = "/send"
) -> LedgerRecord:
    return LedgerRecord(
        seq=seq,
        at_ms=at_ms,
        key=key,
        path=path,
        id=message_id,
        receiver="somebody",
        attempt=attempt,
        digest="d",
        accepted=True,
        answer="200",
    )


def hit(
    kind: Kind, at_ms: int, *, worker: str = "", life: int = -1, until_ms: int = 0, number: int = 1
) -> Hit:
    fault = Fault(number, kind, 0.5, 0.0, 0.0, 1.0, same_name=True)
    return Hit(fault, at_ms, worker, life, until_ms or at_ms + 1_000)


@pytest.fixture
def made() -> Maker:
    return Maker()


def only(found: Judgement, *words: str) -> None:
    """One problem, with these words in it."""
    assert len(found.problems) == 1, found.problems
    assert all(word in found.problems[0] for word in words), found.problems


def test_good_books_are_good(made: Maker) -> None:
    found = made.judge()
    assert found.problems == []
    assert (found.acknowledged, found.lost, found.doubles) == (10, [], [])
    assert found.lost_bound == pytest.approx(0.3)
    assert found.order.judged == 2
    assert found.took_s == [0.05] * 10


def test_a_doubt_that_a_kill_explains_and_that_ended_is_no_problem(made: Maker) -> None:
    made.doubt(5, at=T0 + 8_600)
    found = made.judge()
    assert found.problems == []
    assert found.doubts == [Doubt(Kind.KILL.value, 1, "w1", 1, LIMITS.in_doubt)]
    assert (found.doubted, found.troubles[-1].seconds) == (1, 4.6)


# -- lost --


def test_a_delivery_without_a_row_is_lost(made: Maker) -> None:
    del made.rows[made.key(3)]
    made.records = [r for r in made.records if r.key != made.key(3)]
    found = made.judge()
    assert found.lost == [made.key(3)]
    only(found, made.key(3), "the ledger does not own it")


def test_a_row_in_a_state_that_has_no_name_is_a_problem(made: Maker) -> None:
    made.change(3, state="MISLAID")
    only(made.judge(), "'MISLAID' is no state")


def test_a_row_that_says_sent_and_was_not_is_a_problem(made: Maker) -> None:
    made.records = [r for r in made.records if r.key != made.key(3)]
    only(made.judge(), "SENT, and the provider never accepted it")


def test_a_row_that_says_retry_and_was_accepted_is_a_problem(made: Maker) -> None:
    made.change(3, state="RETRY", reason="429")
    found = made.judge()
    assert any("RETRY (429), and the provider has it" in problem for problem in found.problems)


def test_what_the_provider_accepted_and_nobody_knows_is_a_problem(made: Maker) -> None:
    made.records.append(record(11, "f" * 32, "stray", T0))
    only(made.judge(), "f" * 32, "the ledger has no row")


@pytest.mark.parametrize("state", ["IN_FLIGHT", "UNKNOWN", "RETRY"])
def test_a_row_that_has_not_ended_is_a_problem(made: Maker, state: str) -> None:
    made.change(3, state=state)
    assert any(f"left {state}" in problem for problem in made.judge().problems)


def test_a_row_given_back_whose_offset_passed_is_lost(made: Maker) -> None:
    made.change(3, state="RETRY", reason="given_back")
    made.records = [r for r in made.records if r.key != made.key(3)]
    assert made.judge().lost == [made.key(3)]


def test_an_offset_that_the_group_never_passed_is_a_problem(made: Maker) -> None:
    books = replace(made.books(), committed={PLACE: Committed(9, "")})
    only(judge(books), "never passed by the group")


def test_a_notification_produced_twice_is_one_delivery(made: Maker) -> None:
    made.sent.append(replace(made.sent[3], offset=10))
    found = made.judge()
    assert (found.acknowledged, found.problems) == (10, [])


# -- doubled --

RESENDING = replace(LIMITS, resending=frozenset({"webhook.notice"}))
CAUSE = "in doubt: owner_dead"


def doubled(
    made: Maker,
    number: int = 5,
    *,
    attempt: int = 2,
    limits: Limits = RESENDING,
    path: str = "/mute",
    doubted: bool = True,
) -> Judgement:
    """The judgement where that delivery was accepted once more, later."""
    made.records[number] = replace_path(made.records[number], path)
    if doubted:
        made.doubt(number, at=T0 + 8_600)
    one = record(11, made.key(number), f"n-{number}", T0 + 15_000, attempt=attempt)
    made.records.append(one)
    # Its line has it late; that is another verdict's business.
    return judge(replace(made.books(), limits=limits, ordered=""))


def replace_path(one: LedgerRecord, path: str) -> LedgerRecord:
    return record(one.seq, one.key, one.id, one.at_ms, path=path)


def test_a_double_that_was_in_doubt_and_could_not_be_asked_about_is_policy(made: Maker) -> None:
    found = doubled(made)
    assert [d.cause for d in found.doubles] == [CAUSE]
    assert found.problems == []


def test_a_double_that_was_never_in_doubt_is_a_problem(made: Maker) -> None:
    found = doubled(made, doubted=False)
    assert [d.cause for d in found.doubles] == [None]
    only(found, "accepted 2 times", "never had it in doubt")


def test_a_doubt_after_both_explains_no_double(made: Maker) -> None:
    made.doubt(5, at=T0 + 16_000)
    only(doubled(made, doubted=False), "never had it in doubt")


def test_where_nothing_resends_no_doubt_excuses_a_double(made: Maker) -> None:
    only(doubled(made, limits=LIMITS), f"accepted 2 times ({CAUSE}), and no policy sends it again")


def test_where_the_provider_could_be_asked_no_doubt_excuses_a_double(made: Maker) -> None:
    only(doubled(made, path="/send"), f"accepted 2 times ({CAUSE}), and no policy sends it again")


def test_a_second_call_of_the_same_attempt_is_explained_by_nothing(made: Maker) -> None:
    only(doubled(made, attempt=1), "never had it in doubt")


# -- in doubt --


def test_one_more_in_doubt_than_the_pools_can_hold_is_a_problem(made: Maker) -> None:
    for number in range(LIMITS.in_doubt):
        made.doubt(number, at=T0 + 8_600)
    assert made.judge().problems == []
    made.doubt(LIMITS.in_doubt, at=T0 + 8_600)
    only(made.judge(), "left 5 in doubt, more than 4")


def test_a_stop_has_the_same_bound(made: Maker) -> None:
    made.hits.append(hit(Kind.STOP, T0 + 4_100, worker="w1", life=0, until_ms=T0 + 5_000, number=2))
    for number in range(LIMITS.in_doubt + 1):
        made.doubt(number, at=T0 + 5_200)
    only(made.judge(), "SIGSTOP past the lease of w1 (fault 2) left 5 in doubt")


def test_what_a_sleeper_claimed_on_waking_is_bounded_for_itself(made: Maker) -> None:
    made.hits.append(hit(Kind.STOP, T0 - 500, worker="w1", life=0, until_ms=T0 + 2_900, number=2))
    for number in range(6):
        made.doubt(number, at=T0 + 5_200)
    assert [(d.cause, d.left) for d in made.judge().doubts] == [
        (Kind.STOP.value, 2),
        (Kind.STOP.value + WAKING, 4),
    ]


def test_each_fault_is_charged_with_its_own(made: Maker) -> None:
    made.hits.append(hit(Kind.STOP, T0 + 500, worker="w1", life=0, until_ms=T0 + 4_000, number=2))
    made.doubt(0, at=T0 + 3_600)
    made.doubt(5, at=T0 + 8_600)
    assert [(d.fault, d.left) for d in made.judge().doubts] == [(1, 1), (2, 1)]


def test_two_lives_of_one_name_are_told_apart(made: Maker) -> None:
    made.lives[1].worker = "w1"
    made.lives[1].lapses_ms = [T0 + 9_500]
    made.doubt(5, at=T0 + 8_600)
    made.doubt(9, at=T0 + 9_600, owner="w1")
    assert [(d.cause, d.left) for d in made.judge().doubts] == [
        ("lease lapsed", 1),
        (Kind.KILL.value, 1),
    ]


def test_an_outage_of_the_database_is_charged_per_worker(made: Maker) -> None:
    made.hits.append(hit(Kind.OUTAGE, T0 + 7_000, until_ms=T0 + 11_000, number=2))
    made.lives[1].lapses_ms = [T0 + 11_100]
    made.doubt(7, at=T0 + 11_200, owner="w2")
    assert made.judge().doubts == [Doubt(Kind.OUTAGE.value, 2, "w2", 1, LIMITS.in_doubt)]


def test_a_doubt_that_no_fault_explains_is_a_problem(made: Maker) -> None:
    made.doubt(9, at=T0 + 9_500, owner="w2")
    only(made.judge(), "in doubt, and no fault explains it")


def test_all_that_one_fault_killed_answer_for_it_each_for_itself(made: Maker) -> None:
    made.hits[0] = hit(Kind.OFFSETS, T0 + 5_500)
    made.hits[0].lives, made.hits[0].effect = (0,), "offsets deleted"
    made.doubt(5, at=T0 + 8_600)
    assert made.judge().doubts == [Doubt(Kind.OFFSETS.value, 1, "w1", 1, LIMITS.in_doubt)]


def test_a_doubt_about_an_answer_is_the_providers_and_counts_for_no_fault(made: Maker) -> None:
    made.doubt(9, at=T0 + 9_500, reason="500")
    found = made.judge()
    assert (found.problems, found.doubts, found.doubted) == ([], [], 1)


# -- order --


def swap(made: Maker, one: int, other: int) -> None:
    first, second = made.records[one], made.records[other]
    made.records[one] = record(first.seq, second.key, second.id, first.at_ms)
    made.records[other] = record(second.seq, first.key, first.id, second.at_ms)


def test_two_of_one_line_the_wrong_way_round_are_a_problem(made: Maker) -> None:
    swap(made, 2, 4)
    only(made.judge(), "line-0: its notifications reached the provider out of order")


def test_two_of_different_lines_may_come_either_way(made: Maker) -> None:
    swap(made, 2, 3)
    assert made.judge().problems == []


def test_a_line_with_a_delivery_in_doubt_is_excused_and_told_apart(made: Maker) -> None:
    made.doubt(4, at=T0 + 8_600)
    swap(made, 2, 4)
    found = made.judge()
    assert found.problems == []
    assert found.order == (1, [], 1, ["line-0"])


# -- ends --


def test_the_longest_silence_is_told_with_its_fault(made: Maker) -> None:
    made.hits.append(hit(Kind.FLUSH, T0 + 6_900, number=2))
    longest = made.judge().longest_silence
    assert longest is not None
    assert (longest.fault, longest.seconds) == (1, 0.55)


def test_a_fault_after_which_nothing_was_settled_is_a_problem(made: Maker) -> None:
    made.hits.append(hit(Kind.BROKER, T0 + 60_000, number=2))
    only(made.judge(), "fault 2 (Kafka restart): nothing was settled after it")


def test_a_recovery_that_took_too_long_is_a_problem(made: Maker) -> None:
    made.doubt(5, at=T0 + 8_600)
    made.change(5, updated_at=T0 + 65_001)
    only(made.judge(), "recovered after 60.0 s, later than 60 s")


def test_while_the_database_is_away_no_recovery_takes_long(made: Maker) -> None:
    """Two outages that meet count once; what lies before and after them counts."""
    made.doubt(5, at=T0 + 8_600)
    made.change(5, updated_at=T0 + 75_001)
    made.hits.append(hit(Kind.OUTAGE, T0 + 20_000, until_ms=T0 + 26_000))
    made.hits.append(hit(Kind.BROKER, T0 + 24_000, number=2, until_ms=T0 + 29_000))
    only(made.judge(), "recovered after 61.0 s, later than 60 s")
    made.change(5, updated_at=T0 + 73_000)
    assert made.judge().problems == []


def test_a_move_that_the_state_machine_does_not_have_is_a_problem(made: Maker) -> None:
    made.move(3, "SENT", "RETRY", T0 + 3_060)
    only(made.judge(), "moved from SENT to RETRY")


def test_what_expired_before_its_time_is_a_problem(made: Maker) -> None:
    made.records = [r for r in made.records if r.key != made.key(3)]
    made.change(3, state="EXPIRED", reason="ttl_in_queue", updated_at=T0 + 63_000)
    assert made.judge().problems == []
    made.change(3, updated_at=T0 + 62_900)
    only(made.judge(), "EXPIRED (ttl_in_queue) before its time was over")


def test_a_call_past_the_ttl_is_a_problem(made: Maker) -> None:
    made.change(3, expires_at=T0 + 3_000)
    made.records[3] = record(4, made.key(3), "n-3", T0 + 3_000 + LIMITS.timeout_ms + 1)
    only(made.judge(), "5001 ms past its TTL")


PARKING = replace(LIMITS, parking=frozenset({"webhook.notice"}))


@pytest.mark.parametrize(
    ("reason", "path", "doubted", "limits", "right"),
    [
        ("attempts_spent:http_429", "/send", False, LIMITS, True),
        ("unproven", "/mute", True, PARKING, True),
        ("unproven", "/mute", True, LIMITS, False),
        ("unproven", "/mute", False, PARKING, False),
        ("unproven", "/send", True, PARKING, False),
        ("ttl_in_doubt", "/mute", True, LIMITS, False),
        ("no_account", "/send", False, LIMITS, False),
    ],
)
def test_a_row_is_parked_only_as_a_policy_wants(
    made: Maker, reason: str, path: str, doubted: bool, limits: Limits, right: bool
) -> None:
    if doubted:
        made.doubt(9, at=T0 + 10_000, owner="w2", reason="timeout")
    made.records[9] = replace_path(made.records[9], path)
    made.change(9, state="PARKED", reason=reason)
    found = judge(replace(made.books(), limits=limits))
    assert (found.problems == []) is right, found.problems


@pytest.mark.parametrize(("left_ms", "right"), [(7_000, True), (7_100, False)])
def test_what_is_refused_for_pace_is_parked_at_the_end_of_its_patience(
    made: Maker, left_ms: int, right: bool
) -> None:
    """Of its minute a tenth is left, and the second that the provider asked for."""
    row = made.books().rows[made.key(9)]
    made.change(
        9,
        state="PARKED",
        reason="paced:http_429",
        created_at=row.expires_at - 60_000,
        updated_at=row.expires_at - left_ms,
    )
    assert (made.judge().problems == []) is right


@pytest.mark.parametrize(("attempt", "right"), [(1, False), (2, True)])
def test_an_earlier_refusal_where_it_could_be_asked_excuses_what_was_parked_later(
    made: Maker, attempt: int, right: bool
) -> None:
    """Refused through the account that can be asked, then in doubt through the other."""
    made.doubt(9, at=T0 + 10_000, owner="w2", reason="timeout")
    made.records[9] = msgspec.structs.replace(made.records[9], accepted=False, answer="429")
    made.change(9, state="PARKED", reason="unproven", attempt=attempt)
    found = judge(replace(made.books(), limits=PARKING))
    assert (found.problems == []) is right, found.problems


def test_what_is_parked_in_doubt_at_the_end_of_its_time_is_policy(made: Maker) -> None:
    made.doubt(5, at=T0 + 8_600)
    made.change(5, state="PARKED", reason="ttl_in_doubt", updated_at=T0 + 65_000)
    assert made.judge().problems == []


# -- faults --


def test_poison_without_a_dead_letter_is_a_problem(made: Maker) -> None:
    made.sent.append(Sent(PLACE, 10, b"not an envelope"))
    only(made.judge(), f"{TOPIC}/0/10: poison, and no dead letter")
    made.dead.add(f"{TOPIC}/0/10")
    assert made.judge().problems == []


def test_a_fault_that_was_never_done_is_a_problem(made: Maker) -> None:
    made.planned = [made.hits[0].fault, replace(made.hits[0].fault, number=2)]
    only(made.judge(), "fault 2", "never done")


@pytest.mark.parametrize("kind", [Kind.SLOW, Kind.STALE, Kind.CUT, Kind.MANUAL, Kind.POISON])
def test_a_fault_that_struck_nothing_is_a_problem(made: Maker, kind: Kind) -> None:
    made.hits.append(hit(kind, T0 + 7_000, number=2))
    only(made.judge(), f"fault 2 ({kind}): struck nothing")


# -- pauses --


def test_what_is_sent_in_a_pause_is_a_problem(made: Maker) -> None:
    made.hits.append(paused(T0 + 3_000, T0 + 6_000))
    found = made.judge().problems
    assert [problem.partition(":")[0] for problem in found] == [made.key(n) for n in (3, 4, 5)]
    assert all("while its lane was paused by fault 2" in problem for problem in found)


def test_a_process_that_slept_learns_of_a_pause_as_it_wakes(made: Maker) -> None:
    made.hits.append(paused(T0 + 3_000, T0 + 6_000))
    made.hits.append(hit(Kind.STOP, T0 + 2_500, worker="w1", life=0, until_ms=T0 + 3_100, number=3))
    assert len(made.judge().problems) == 0


def test_another_lane_and_other_times_are_no_problem(made: Maker) -> None:
    made.hits.append(paused(T0 + 3_000, T0 + 6_000, lane="sms.notice"))
    made.hits.append(paused(T0 + 3_020, T0 + 4_000))
    assert made.judge().problems == []


def test_a_pause_that_was_too_short_to_prove_anything_is_a_problem(made: Maker) -> None:
    made.hits.append(paused(T0 + 3_000, T0 + 3_000))
    only(made.judge(), f"fault 2 ({Kind.PAUSED}): struck nothing")


def paused(since: int, until: int, lane: str = "webhook.notice") -> Hit:
    found = hit(Kind.PAUSED, since - 5_000, until_ms=until, number=2)
    found.lane, found.quiet_ms = lane, (since, until)
    return found


def resumed(made: Maker, waits_ms: int) -> Hit:
    """A pause until the eighth's call, which had waited for so long since the resume."""
    called_at = made.records[8].at_ms
    found = paused(called_at - waits_ms - 500, called_at - waits_ms)
    found.sent, found.resumed_ms = made.sent[8:9], called_at - waits_ms
    made.rows = {key: row._replace(lane="sms.notice") for key, row in made.rows.items()}
    found.lane = "webhook.notice"
    return found


def test_what_waited_for_a_resume_and_came_late_is_a_problem(made: Maker) -> None:
    made.hits = [resumed(made, 5_001)]
    assert resumed_late(made.books()) == [
        "fault 2: no call for webhook.notice within 5 s of its resume"
    ]


def test_what_comes_within_five_seconds_of_a_resume_is_no_problem(made: Maker) -> None:
    made.hits = [resumed(made, 4_999)]
    assert resumed_late(made.books()) == []


def test_what_waited_for_a_resume_and_never_came_is_a_problem(made: Maker) -> None:
    made.hits = [resumed(made, 100)]
    del made.records[8]
    assert len(resumed_late(made.books())) == 1


@pytest.mark.parametrize(("kind", "count"), [(Kind.KILL, 0), (Kind.LIMITS, 0), (Kind.POISON, 1)])
def test_a_resume_that_met_another_fault_proves_nothing(
    made: Maker, kind: Kind, count: int
) -> None:
    late = resumed(made, 6_000)
    made.hits = [
        late,
        hit(kind, late.resumed_ms + 1_000, until_ms=late.resumed_ms + 2_000, number=3),
    ]
    assert len(resumed_late(made.books())) == count


# -- workers --


def test_a_worker_that_ended_by_itself_is_a_problem_with_its_log(made: Maker) -> None:
    made.lives[1].ended_by, made.lives[1].code, made.lives[1].tail = "", 1, "it says why"
    only(made.judge(), "w2", "ended by itself with code 1", "it says why")


def test_a_worker_that_answers_sigterm_with_anything_but_zero_is_a_problem(made: Maker) -> None:
    made.lives[1].code = None
    only(made.judge(), "answered SIGTERM with code None")


def test_a_worker_that_grew_is_a_problem(made: Maker) -> None:
    made.lives[0].peak_mb = 201.0
    only(made.judge(), "grew to 201 MB")


def test_what_a_log_complains_of_is_a_problem(made: Maker) -> None:
    made.lives[0].complaints = ["Traceback (most recent call last)"]
    only(made.judge(), "w1", "Traceback")


def test_troubles_of_the_run_itself_are_problems(made: Maker) -> None:
    only(judge(made.books(("production failed",))), "production failed")


LOG = """\
{"time": "2026-09-21T12:00:00.500000Z", "level": "info", "event": "worker_started"}
{"time": "2026-09-21T12:00:01.500000Z", "level": "error", "event": "ledger_away"}
{"time": "2026-09-21T12:00:02.500000Z", "level": "error", "event": "lease_lapsed"}
%3|1795253701.079|FAIL|rdkafka#producer-1| Connection refused
"""


def test_a_log_of_outages_has_lapses_and_no_complaints() -> None:
    assert logs.lapses_ms(LOG) == [1_789_992_002_500]
    assert logs.complaints(LOG) == []
    assert logs.point_of(LOG) == "joining the group"


@pytest.mark.parametrize(
    "line",
    [
        '{"time": "2026-09-21T12:00:00Z", "level": "critical", "event": "thread_died"}',
        '{"time": "2026-09-21T12:00:00Z", "level": "error", "event": "lane_thread_died"}',
        '{"time": "2026-09-21T12:00:00Z", "level": "warning", "event": "x", "exception": []}',
        "Traceback (most recent call last):",
        "ERROR sqlalchemy.pool something",
    ],
)
def test_whatever_else_goes_wrong_in_a_log_is_a_complaint(line: str) -> None:
    assert logs.complaints(LOG + line) == [line]


@pytest.mark.parametrize("kind", [Kind.BACKLOG, Kind.REDIS_AWAY, Kind.NO_RECOVERY])
def test_what_had_to_outlast_a_fault_and_was_not_sent_is_named(kind: Kind) -> None:
    made = Maker()
    made.outlasting(kind)
    assert made.judge().problems == []
    made.change(3, state="PARKED", reason="attempts_spent")
    assert any(f"{made.key(3)}: PARKED" in p and kind in p for p in made.judge().problems)


@pytest.mark.parametrize("kind", [Kind.BACKLOG, Kind.REDIS_AWAY, Kind.NO_RECOVERY])
def test_a_fault_under_which_nothing_had_to_be_tried_again_struck_nothing(kind: Kind) -> None:
    made = Maker()
    made.outlasting(kind)
    made.moves.clear()
    only(made.judge(), f"fault 2 ({kind}): struck nothing")


def test_what_was_tried_again_once_redis_was_back_says_nothing_of_its_absence() -> None:
    made = Maker()
    made.outlasting(Kind.REDIS_AWAY)
    made.hits[-1].until_ms = T0 + 3_100
    only(made.judge(), "struck nothing")


# -- outcome events --


def test_an_end_that_nobody_announced_is_seen() -> None:
    books = Maker()
    books.silent.add(books.key(3))
    assert books.judge().problems == [
        f"{books.key(3)}: ended as SENT 1 times, and the topic has 0 events of it"
    ]


def test_each_of_two_ends_of_one_delivery_needs_an_event() -> None:
    books = Maker()
    for at in (1, 2):
        books.move(3, "IN_FLIGHT", "PARKED", T0 + 3_000 + at)
        books.move(3, "PARKED", "RETRY", T0 + 3_100 + at)
    books.events.append(event(books.key(3), "PARKED", 2))
    assert f"{books.key(3)}: ended as PARKED 2 times, and the topic has 1 events of it" in (
        books.judge().problems
    )
    books.events.append(event(books.key(3), "PARKED", 4))
    assert not [p for p in books.judge().problems if "ended as" in p]


def test_an_announced_end_that_never_was_is_seen() -> None:
    books = Maker()
    books.events.append(event(books.key(3), "REJECTED"))
    assert books.judge().problems == [f"{books.key(3)}: announced as REJECTED, which it never was"]


def test_a_repeat_is_allowed_under_its_own_id_alone() -> None:
    books = Maker()
    books.events.append(event(books.key(3), "SENT"))
    found = books.judge()
    assert not found.problems
    assert (found.outcomes.events, found.outcomes.repeats) == (10, 1)
    books.events.append(event(books.key(3), "SENT", event_id="another"))
    (problem,) = books.judge().problems
    assert "one event has two ids" in problem


def test_two_different_events_under_one_id_are_seen() -> None:
    books = Maker()
    books.events.append(event(books.key(3), "SENT", attempt=9))
    (problem,) = books.judge().problems
    assert "share the event id" in problem
