"""From a finding to the ledger: what is entered, what is not, and never twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from backends.kafka.clients import KafkaUnavailable
from backends.settings import SettingsError
from idempotency.claims.store import MS_PER_DAY
from idempotency.ledger import LedgerUnavailable
from idempotency.recalls import Kind
from idempotency.recovery.contract import DueQuery
from message.delivery import Delivery, deliveries_of
from message.envelope import Template, encode
from message.foreign_text import MASK
from message.ids import new_id, new_token
from message.outcome_event import receiver_hash
from message.states import Event, State
from recovery.lost.job import LEASE_MS, NO_BODY
from tests.idempotency.making import (
    World,
    adopt,
    claimed,
    claims,
    deliveries,
    delivery,
    reply_lost,
    settle,
)
from tests.recovery.lost.lostfield import HASH_KEY, Entering, Killed, LostField

LANE = "sms.notice"


@pytest.fixture
def field(world: World) -> LostField:
    return LostField(world)


def taken(field: LostField, lane: str = LANE, **ask: Any) -> list[Delivery]:
    """Returns the deliveries that recovery would send now for the first time."""
    query = DueQuery(lane, 10, first=True, **ask)
    return [one.delivery for one in field.ledger.recovering().take(query, "r1", new_token()).taken]


# -- entered --


@pytest.mark.parametrize("cause", ["passed", "removed"])
@pytest.mark.parametrize("kept", [False, True], ids=["in_kafka", "kept"])
def test_a_certain_loss_is_entered_and_due(field: LostField, cause: str, kept: bool) -> None:
    item = delivery()
    number = field.found(item, cause, kept=kept)
    assert field.run() == 1
    assert field.row(item) == ("RETRY", "lost")
    assert field.status(number)[0] == "RESENT"
    (sent,) = taken(field)
    assert (sent.key, sent.payload, sent.origin) == (item.key, item.payload, item.origin)
    (event,) = field.traced
    assert (event.stage, event.state, event.reason) == ("found", "RETRY", "lost")
    assert event.delivery_key == item.key
    assert event.detail == f"lost: {cause}"
    channel = item.notification.channel
    assert event.receiver_hash == receiver_hash(HASH_KEY.encode(), channel, item.receiver)


def test_a_template_named_like_a_receiver_is_not_in_the_trace(field: LostField) -> None:
    plain = delivery()
    named = Template(id="code-8613800000001")
    made = msgspec.structs.replace(plain.notification, content=None, template=named)
    item = deliveries_of(made, encode(made), expires_at=plain.expires_at, origin=plain.origin)[0]
    field.found(item)
    assert field.run() == 1
    (event,) = field.traced
    assert event.template == MASK


def test_of_several_receivers_the_lost_one_alone_is_entered(field: LostField) -> None:
    one, two = deliveries(receivers=["+8613800000001", "+8613800000002"])
    claimed(field.ledger, one)
    number = field.found(two)
    assert field.run() == 1
    assert (field.row(one)[0], field.row(two)) == ("IN_FLIGHT", ("RETRY", "lost"))
    assert field.status(number)[0] == "RESENT"


def test_a_page_is_one_claim_and_pages_follow_each_other(
    field: LostField, monkeypatch: pytest.MonkeyPatch
) -> None:
    import idempotency.lost.findings as module

    monkeypatch.setattr(module.LostFindings.new, "__defaults__", (0, 3))
    for _ in range(7):
        field.found(delivery(), kept=True)
    calls: list[int] = []
    ledger = Entering(field.ledger)
    ledger.before = lambda: calls.append(1)
    assert field.run(ledger=ledger) == 7
    assert len(calls) == 3


def test_past_its_time_it_is_entered_as_expired_and_a_person_may_retry_it(field: LostField) -> None:
    item = delivery()
    number = field.found(item)
    field.world.advance(60_000)
    assert field.run() == 1
    assert field.row(item) == ("EXPIRED", "lost")
    assert field.status(number)[0] == "EXPIRED"
    assert taken(field) == []
    (pick,) = field.ledger.picks().named(item.key)
    from recovery.operator_rules import Verb, refusal

    assert refusal(Verb.AGAIN, pick) == ""


def test_the_lane_s_time_of_today_ends_it_earlier_than_that_of_its_day(field: LostField) -> None:
    item = delivery()
    field.with_policy('[lanes."sms.notice"]\nttl_ms = 20_000\ntimeout_ms = 1_000\n')
    field.found(item)
    field.world.advance(20_000)
    field.run()
    assert field.row(item)[0] == "EXPIRED"


def test_a_paused_lane_s_delivery_is_entered_and_waits(field: LostField) -> None:
    field.ledger.controls().pause([LANE], None, author="lin", reason="repairs")
    item = delivery()
    field.found(item)
    field.run()
    assert field.row(item) == ("RETRY", "lost")


# -- not entered: something speaks against it --


def test_a_worker_that_reads_the_record_meanwhile_and_recovery_make_one_row(
    field: LostField,
) -> None:
    item = delivery()
    number = field.found(item)
    ledger = Entering(field.ledger)
    ledger.before = lambda: claimed(field.ledger, item)
    assert field.run(ledger=ledger) == 0
    assert field.row(item)[0] == "IN_FLIGHT"
    assert taken(field) == []
    assert field.world.rows("SELECT count(*) FROM deliveries") == [(1,)]
    assert field.status(number) == ("CONTRADICTED", "the ledger has it (IN_FLIGHT)")


def test_a_row_of_yesterday_is_no_second_row_today(field: LostField) -> None:
    """The rows' key has the day in it; the names' has not."""
    item = delivery()
    field.records.there.clear()
    number = field.found(item, expires_at=None)
    field.with_policy('[lanes."sms.notice"]\nttl_ms = 604_800_000\n')
    (ours,) = claimed(field.ledger, item)
    settle(field.ledger, ours, Event.ACCEPTED, provider_id="p1")
    field.world.advance(MS_PER_DAY)
    job = field.job(ledger=field.ledger)
    job._stores = job._stores._replace(rows=lambda _keys: [])  # read before the worker's claim
    assert job.run_once() == 0
    assert field.world.rows("SELECT count(*) FROM deliveries") == [(1,)]
    assert field.row(item)[0] == "SENT"
    assert field.status(number)[0] == "CONTRADICTED"
    assert taken(field) == []


def test_the_worker_comes_after_recovery_and_sends_nothing(field: LostField) -> None:
    item = delivery()
    field.found(item)
    field.run()
    (answer,) = field.ledger.claim(claims([item]), "w1")
    assert (answer.won, answer.state, answer.conflict) == (False, State.RETRY, False)


@pytest.mark.parametrize("by_biz", [False, True], ids=["by_id", "by_biz"])
def test_a_recalled_one_enters_as_dropped(field: LostField, by_biz: bool) -> None:
    item = delivery(biz_id="order-1")
    number = field.found(item)
    name = (Kind.BIZ, "order-1") if by_biz else (Kind.MESSAGE, item.notification.id)
    field.ledger.recalls().announce(*name, 3_600_000)
    field.run()
    assert field.row(item) == ("DROPPED", "recalled")
    assert field.status(number) == ("CONTRADICTED", "it is recalled")
    assert [event.reason for event in field.traced] == ["recalled"]


@pytest.mark.parametrize(
    ("event", "state"),
    [(Event.HOLD, "RETRY"), (Event.DROP, "DROPPED"), (Event.PARK, "PARKED")],
    ids=["held", "dropped", "parked"],
)
def test_what_intake_decided_meanwhile_stays(field: LostField, event: Event, state: str) -> None:
    item = delivery()
    number = field.found(item)
    field.ledger.claim(claims([item], event, reason="quiet_hours", delay_ms=1_000), "w1")
    assert field.run() == 0
    assert field.row(item) == (state, "quiet_hours")
    assert field.status(number) == ("CONTRADICTED", f"the ledger has it ({state})")


def test_a_conflict_stays_with_the_first_body(field: LostField) -> None:
    first = delivery(id="m1", text="one")
    second = delivery(id="m1", text="two")
    claimed(field.ledger, first)
    number = field.found(second)
    assert field.run() == 0
    assert field.ledger.queries().kept(first.key).payload == first.payload  # type: ignore[union-attr]
    assert field.status(number)[0] == "CONTRADICTED"


def test_a_dead_letter_is_no_loss_and_its_replay_is_sent_once(field: LostField) -> None:
    item = delivery()
    number = field.found(item)
    field.records.letters.add(str(item.origin))
    assert field.run() == 0
    assert field.status(number) == ("CONTRADICTED", "its record is a dead letter")
    (answer,) = field.ledger.claim(claims([item]), "w1")  # the replayed record
    assert answer.won


def test_letters_are_read_from_the_start_of_the_run(field: LostField) -> None:
    field.world.rows_changed("UPDATE spark_runs SET started_at = 5000")
    field.found(delivery(), first_run=1, last_run=1)
    field.found(delivery(), first_run=1, last_run=1)
    field.run()
    assert field.records.asked == [5_000]


@pytest.mark.parametrize(
    "error", [KafkaUnavailable("gone"), SettingsError("kafka.client: ssl.ca.location failed")]
)
def test_without_the_broker_nothing_is_entered_and_the_next_round_does(
    field: LostField, error: Exception
) -> None:
    item = delivery()
    number = field.found(item)
    field.records.error = error
    job = field.job()
    with capture_logs() as logs:
        assert job.run_once() == 0
    assert [one["event"] for one in logs] == ["lost_not_entered"]
    assert (field.row(item), field.status(number)) == (("", None), ("NEW", ""))
    field.records.error = None
    field.later()
    assert job.run_once() == 1


def test_an_archived_one_is_no_loss(field: LostField) -> None:
    item = delivery()
    number = field.found(item, expires_at=None)
    field.with_policy('[lanes."sms.notice"]\nttl_ms = 604_800_000\n')

    class Shelf:
        def newest(self) -> Any:
            from datetime import date, timedelta

            return date(1970, 1, 1) + timedelta(days=20_800)

        def find(self, name: str) -> Any:
            from idempotency.archive.lookup import ArchivedRow

            return [ArchivedRow(name, "m", LANE, "SENT", "", b"", b"", "archive.deliveries_x")]

    job = field.job()
    shelf: Any = Shelf()
    job._stores = job._stores._replace(archived=shelf)
    assert job.run_once() == 0
    assert field.status(number) == ("CONTRADICTED", "the archive has it (archive.deliveries_x)")


def test_a_body_that_no_worker_would_send_is_not_entered(field: LostField) -> None:
    item = delivery()
    number = field.found(item)
    assert item.origin is not None
    field.records.there[item.origin] = b'{"v":1}'
    field.run()
    assert field.status(number)[0] == "CONTRADICTED"
    assert field.row(item) == ("", None)


@pytest.mark.parametrize("other", [b"", None], ids=["none", "other"])
def test_without_its_body_a_person_decides(field: LostField, other: bytes | None) -> None:
    item = delivery()
    number = field.found(item)
    assert item.origin is not None
    if other is None:  # the topic was made anew
        field.records.there[item.origin] = delivery().payload
    else:
        del field.records.there[item.origin]
    field.run()
    status, why = field.status(number)
    assert status == "ASKED"
    assert (why == NO_BODY) == (other is not None)
    assert field.row(item) == ("", None)


# -- the policy --


def test_a_lane_that_asks_waits_for_an_order(field: LostField) -> None:
    field.with_policy('[lanes."sms.notice"]\nlost = "ask"\n')
    item = delivery()
    number = field.found(item)
    assert field.run() == 0
    assert field.status(number) == ("ASKED", "its lane's policy asks a person")
    assert field.findings.order([number], "lin", "the customer waits") == {number}
    field.later()
    assert field.run() == 1
    one = field.finding(number)
    assert (one.status, one.decided_by) == ("RESENT", "lin")
    assert one.decided_why == "the customer waits; entered into the ledger"


def test_a_lane_without_a_ledger_is_left_alone(field: LostField) -> None:
    field.with_policy('[lanes."sms.notice"]\nguarantee = "best_effort"\n')
    item = delivery()
    number = field.found(item)
    assert field.run() == 0
    assert field.status(number)[0] == "CONTRADICTED"
    assert field.row(item) == ("", None)


@pytest.mark.parametrize("cause", ["hole", "unread", "open", "forgotten"])
def test_an_uncertain_cause_is_never_sent_by_itself(field: LostField, cause: str) -> None:
    item = delivery()
    number = field.found(item, cause, status="NEW")
    assert field.run() == 0
    assert field.status(number)[0] == "ASKED"
    assert field.row(item) == ("", None)


def test_a_forgotten_one_goes_by_a_person_s_order(field: LostField) -> None:
    item = delivery()
    number = field.found(item, "forgotten", kept=True)
    field.findings.order([number], "lin", "restored backup")
    assert field.run() == 1
    assert field.row(item) == ("RETRY", "lost")


def test_a_dismissed_one_is_not_entered(field: LostField) -> None:
    item = delivery()
    number = field.found(item)
    job = field.job()
    contradicted: Callable[..., Any] = job._contradicted

    def dismiss(page: Any) -> Any:
        field.findings.dismiss([number], "lin", "stale")
        return contradicted(page)

    job._contradicted = dismiss  # type: ignore[method-assign]
    assert job.run_once() == 0
    assert field.status(number) == ("DISMISSED", "stale")
    assert field.row(item) == ("", None)


# -- crashes and pairs --


def test_killed_between_claim_and_note_it_is_one_row_and_noted_later(field: LostField) -> None:
    item = delivery()
    number = field.found(item)
    ledger = Entering(field.ledger)

    def kill() -> None:
        raise Killed

    ledger.after = kill
    with pytest.raises(Killed):
        field.run(ledger=ledger)
    assert field.status(number) == ("NEW", "")
    (sent,) = taken(field)  # another recovery goes on with the row
    settle(field.ledger, sent, Event.ACCEPTED, provider_id="p1")
    field.world.advance(LEASE_MS + 1)
    assert field.run(name="r2") == 0
    assert field.status(number)[0] == "RESENT"
    assert field.row(item)[0] == "SENT"


def test_killed_before_the_claim_it_is_entered_later(field: LostField) -> None:
    item = delivery()
    field.found(item, expires_at=None)
    ledger = Entering(field.ledger)

    def kill() -> None:
        raise Killed

    ledger.before = kill
    with pytest.raises(Killed):
        field.run(ledger=ledger)
    field.world.advance(LEASE_MS + 1)
    assert field.run(name="r2") == 1
    assert field.row(item) == ("RETRY", "lost")


def test_a_lost_reply_of_the_claim_makes_no_second_row(field: LostField) -> None:
    item = delivery()
    number = field.found(item)
    ledger = Entering(field.ledger)
    lost = reply_lost(field.ledger.database)
    ledger.before = lost.__enter__
    with pytest.raises(LedgerUnavailable):
        field.run(ledger=ledger)
    lost.__exit__(None, None, None)
    assert field.row(item) == ("RETRY", "lost")
    field.later()
    assert field.run() == 0
    assert field.status(number)[0] == "RESENT"
    assert field.world.rows("SELECT count(*) FROM deliveries") == [(1,)]


def test_one_recovery_at_a_time_has_the_duty(field: LostField) -> None:
    first, second = field.job(name="r1"), field.job(name="r2")
    first.run_once()
    field.found(delivery())
    assert second.run_once() == 0
    field.later()
    assert first.run_once() == 1


def test_a_second_finding_of_the_same_delivery_enters_nothing(field: LostField) -> None:
    item = delivery()
    field.found(item, "passed")
    second = field.found(item, "removed")
    assert field.run() == 1
    assert field.status(second)[0] in ("RESENT", "CONTRADICTED")
    assert field.world.rows("SELECT count(*) FROM deliveries") == [(1,)]


# -- order --

ORDERED = '[lanes."sms.notice"]\nordering = "key"\n'


def lined(offset: int) -> Delivery:
    from message.delivery import Origin

    (one,) = deliveries(ordering_key="customer-1", text=str(offset))
    one.origin = Origin("hongyan.dispatch.sms.notice", 1, offset)
    return one


def test_lost_ones_of_one_key_go_in_their_order_behind_what_is_open(field: LostField) -> None:
    field.with_policy(ORDERED)
    newer = lined(90)
    made = claims([newer])
    (ours,) = adopt(made, field.ledger.claim(made, "w1", ordered=True))
    second, first = lined(50), lined(40)
    field.found(second)
    field.found(first)
    assert field.run() == 2
    assert taken(field, ordered=True) == [], "the open one goes first"
    line = frozenset({LANE})
    settle(field.ledger, ours, Event.ACCEPTED, line, provider_id="p")
    for expected in (first, second):
        (now,) = taken(field, ordered=True)
        assert now.key == expected.key
        settle(field.ledger, now, Event.ACCEPTED, line, provider_id="p")


def test_one_behind_newer_ones_that_were_sent_is_sent_late(field: LostField) -> None:
    field.with_policy(ORDERED)
    newer = lined(90)
    made = claims([newer])
    (ours,) = adopt(made, field.ledger.claim(made, "w1", ordered=True))
    settle(field.ledger, ours, Event.ACCEPTED, frozenset({LANE}), provider_id="p")
    older = lined(40)
    field.found(older)
    assert field.run() == 1
    assert [one.key for one in taken(field, ordered=True)] == [older.key]


def test_ids_are_what_they_are_named_by(field: LostField) -> None:
    item = delivery(id=new_id())
    number = field.found(item)
    for name in (str(number), item.key, item.notification.id):
        assert [one.id for one in field.findings.named(name)] == [number]
    assert field.findings.named("nobody") == []
