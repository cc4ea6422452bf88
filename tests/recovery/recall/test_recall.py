"""Recalls from beginning to end: a real ledger, a real provider, and what is said of each delivery."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest

from backends.settings import DatabaseSettings, RedisSettings, Settings, TraceSettings
from channels.channel import Call
from channels.engine import Engine
from channels.probe.probe import ExchangeRecorder as Exchanges
from channels.probe.probe import OwnTokens
from channels.registry import channel_for, load_accounts
from channels.transports import TransportRouter
from idempotency.ledger import Settlement
from idempotency.recalls import Kind, Recalls
from idempotency.recovery.contract import DueQuery
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.delivery import Delivery
from message.ids import new_token
from message.outcomes import Accepted
from message.states import Event, State
from recovery.recall.factory import open_recalling
from recovery.recall.recall import Recalled, RecallOutcome, RecallVerdict
from simulator import Faults, Simulator
from tests.conformance.samples import sample
from tests.harness.databases import upgraded
from tests.harness.notifications import webhook
from tests.idempotency.making import adopt, claims, deliveries, worker
from tests.recovery.ground import Ground
from tracing.stories import find

MakeGround = Callable[..., Ground]


class Stage:
    """One ledger and one WeCom; everything is sent as a worker sends it."""

    def __init__(self, url: str, provider: Simulator) -> None:
        of = sample("wecom")
        assert of is not None
        endpoint = of.account(provider.url).endpoint
        self.provider = provider
        self.settings = Settings(
            database=DatabaseSettings(url=url),
            redis=RedisSettings(),
            trace=TraceSettings(kafka=False),
            accounts={
                "main": {"provider": "wecom", **of.account_table, "endpoint": endpoint},
                "hook": webhook(f"{provider.url}/hook"),
            },
        )
        upgraded(self.settings)
        self.ledger: SqlLedger = open_ledger(self.settings)
        self.ledger.register(msgspec.structs.replace(worker(), lease_ms=600_000))
        self.now = self.ledger.now_ms()

    def claimed(self, *receivers: str, lane: str = "wecom.notice", **fields: Any) -> list[Delivery]:
        items = deliveries(receivers=receivers, lane=lane, **fields)
        for item in items:
            item.expires_at = self.now + 600_000
            item.account, item.call_key = "main" if lane[:5] == "wecom" else "hook", items[0].key
        made = claims(items)
        return adopt(made, self.ledger.claim(made, "w1"))

    def sent(self, *groups: list[Delivery]) -> None:
        """All of them in one call, and on record."""
        whole = [item for group in groups for item in group]
        account = load_accounts(self.settings.accounts)[whole[0].account]
        wires = TransportRouter()
        exchanges = Exchanges(wires)
        engine = Engine(exchanges, OwnTokens(exchanges, 5.0))
        outcomes = engine.send(channel_for(account), Call(account, whole), 5.0)
        wires.close()
        settled = []
        for item, outcome in zip(whole, outcomes, strict=True):
            assert isinstance(outcome, Accepted)
            settled.append(Settlement(item, Event.ACCEPTED, provider_id=outcome.provider_id))
        assert all(self.ledger.settle(settled))

    def recall(self, kind: Kind, name: str, *, whole_calls: bool = False) -> list[RecallOutcome]:
        return self.recalled(kind, name, whole_calls=whole_calls).deliveries

    def recalled(self, kind: Kind, name: str, *, whole_calls: bool = False) -> Recalled:
        with ExitStack() as stack:
            opened = open_recalling(self.settings, stack, lambda: False)
            return opened.recalling.run(kind, name, opened.life_ms, whole_calls=whole_calls)

    def taken_back(self) -> int:
        counts = self.provider.report(summary_only=True).summary.counts
        return sum(n for name, n in counts.items() if name.startswith("recalled."))


@pytest.fixture
def stage(url: str, provider: Simulator) -> Iterator[Stage]:
    made = Stage(url, provider)
    yield made
    made.ledger.close()


def verdicts(told: list[RecallOutcome]) -> dict[str, RecallVerdict]:
    return {one.receiver or one.delivery_key: one.verdict for one in told}


def test_many_rows_are_cancelled_without_asking_for_the_time_of_each(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = stage.claimed(*[f"user-{number}" for number in range(20)], id="m-1")
    assert all(stage.ledger.settle([Settlement(one, Event.NOT_SENT, reason="x") for one in items]))
    asked = []
    now_ms = Recalls.now_ms

    def counted(recalls: Recalls) -> int:
        asked.append(recalls)
        return now_ms(recalls)

    monkeypatch.setattr(Recalls, "now_ms", counted)
    told = stage.recall(Kind.MESSAGE, "m-1")
    assert [one.verdict for one in told] == [RecallVerdict.CANCELLED] * 20
    assert len(asked) == 1, "for the events of all that were cancelled"


def test_what_was_sent_is_taken_back_once_and_stands_in_its_story(stage: Stage) -> None:
    stage.sent(stage.claimed("ann", "bob", id="m-1"))
    told = stage.recall(Kind.MESSAGE, "m-1")
    assert {(t.verdict, t.why, t.state) for t in told} == {("recalled", "by wecom", "SENT")}
    assert len(told) == 2
    assert stage.taken_back() == 1, "one call, one recall"
    again = stage.recall(Kind.MESSAGE, "m-1")
    assert {(t.verdict, t.why) for t in again} == {("recalled", "taken back before")}
    assert stage.taken_back() == 1
    (story,) = find(stage.ledger.database, "m-1")
    assert all("recalled" in [m.what for m in d.moments] for d in story.deliveries)


def test_a_call_shared_with_others_is_left_unless_they_are_meant_too(stage: Stage) -> None:
    mine, others = stage.claimed("ann", id="m-1"), stage.claimed("bob", id="m-2")
    stage.sent(mine, others)
    (told,) = stage.recall(Kind.MESSAGE, "m-1")
    assert told.verdict is RecallVerdict.NOT_POSSIBLE
    assert told.why == "its call reached 1 more; --whole-calls takes it back from them too"
    assert stage.taken_back() == 0
    both = stage.recall(Kind.MESSAGE, "m-1", whole_calls=True)
    assert {(t.message_id, t.why) for t in both} == {
        ("m-1", "by wecom"),
        ("m-2", "by wecom, along with those recalled"),
    }
    assert stage.taken_back() == 1


def test_what_was_sent_under_a_name_that_nobody_knows_is_not_said_to_be_taken_back(
    stage: Stage,
) -> None:
    (item,) = stage.claimed("ann", id="m-1")
    stage.ledger.settle([Settlement(item, Event.ACCEPTED)])
    (told,) = stage.recall(Kind.MESSAGE, "m-1")
    assert told.verdict is RecallVerdict.NOT_POSSIBLE
    assert told.why == "the provider's name for it is not known"
    assert stage.taken_back() == 0


def test_a_business_id_is_recalled_in_every_state_and_each_is_told(stage: Stage) -> None:
    stage.sent(stage.claimed("sent", biz_id="b"))
    stage.sent(stage.claimed("hooked", lane="webhook.notice", biz_id="b"))
    ends = {
        "retry": (Event.NOT_SENT, "http_429"),
        "doubt": (Event.UNKNOWN, "timeout"),
        "refused": (Event.REJECTED, "40003"),
    }
    for receiver, (event, reason) in ends.items():
        (item,) = stage.claimed(receiver, biz_id="b")
        stage.ledger.settle([Settlement(item, event, reason)])
    stage.claimed("flying", biz_id="b")
    told = stage.recall(Kind.BIZ, "b")
    by_state = {t.state: t.verdict for t in told if t.lane == "wecom.notice"}
    assert by_state == {
        "SENT": RecallVerdict.RECALLED,
        "DROPPED": RecallVerdict.CANCELLED,
        "UNKNOWN": RecallVerdict.TOO_LATE,
        "REJECTED": RecallVerdict.NOT_SENT,
        "IN_FLIGHT": RecallVerdict.TOO_LATE,
    }
    (hooked,) = [t for t in told if t.lane == "webhook.notice"]
    assert (hooked.verdict, hooked.why) == (
        RecallVerdict.NOT_POSSIBLE,
        "webhook takes nothing back",
    )


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("idempotency.recalls.PAGE", 2)


@pytest.mark.usefixtures("small_pages")
def test_a_business_id_with_more_rows_than_a_page_is_recalled_whole(stage: Stage) -> None:
    for number in range(3):
        stage.sent(stage.claimed(f"sent-{number}", biz_id="b"))
        (item,) = stage.claimed(f"waits-{number}", biz_id="b")
        stage.ledger.settle([Settlement(item, Event.NOT_SENT, "http_429")])
    found = stage.recalled(Kind.BIZ, "b")
    assert found.verdicts == {RecallVerdict.RECALLED: 3, RecallVerdict.CANCELLED: 3}
    assert len({one.delivery_key for one in found.deliveries}) == 6
    assert (found.stopped, found.unlisted) == (True, 0)
    assert stage.taken_back() == 3


@pytest.mark.usefixtures("small_pages")
def test_a_call_over_several_pages_is_taken_back_once(stage: Stage) -> None:
    receivers = [f"user-{number}" for number in range(5)]
    stage.sent(stage.claimed(*receivers, id="m-1", biz_id="b"), stage.claimed("else", id="m-2"))
    kept = stage.recalled(Kind.BIZ, "b")
    assert kept.verdicts == {RecallVerdict.NOT_POSSIBLE: 5}
    whys = {one.why for one in kept.deliveries}
    assert whys == {"its call reached 1 more; --whole-calls takes it back from them too"}
    found = stage.recalled(Kind.BIZ, "b", whole_calls=True)
    assert found.verdicts == {RecallVerdict.RECALLED: 6}
    assert len({one.delivery_key for one in found.deliveries}) == 6
    assert stage.taken_back() == 1


@pytest.mark.usefixtures("small_pages")
def test_what_stays_sent_is_listed_first_and_the_rest_is_counted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recovery.recall.recall.LISTED", 3)
    for number in range(4):
        (item,) = stage.claimed(f"waits-{number}", biz_id="b")
        stage.ledger.settle([Settlement(item, Event.NOT_SENT, "http_429")])
    stage.sent(stage.claimed("hooked", lane="webhook.notice", biz_id="b"))
    found = stage.recalled(Kind.BIZ, "b")
    assert found.verdicts == {RecallVerdict.CANCELLED: 4, RecallVerdict.NOT_POSSIBLE: 1}
    assert RecallVerdict.NOT_POSSIBLE in {one.verdict for one in found.deliveries}
    assert (len(found.deliveries), found.unlisted, found.stopped) == (3, 2, False)


def test_a_provider_that_does_not_answer_is_asked_again_by_the_next_recall(stage: Stage) -> None:
    stage.sent(stage.claimed("ann", id="m-1"))
    stage.provider.control(rules=[Faults(method="RECALL", reset=1.0)])
    (told,) = stage.recall(Kind.MESSAGE, "m-1")
    assert told.verdict is RecallVerdict.ASK_AGAIN
    stage.provider.control(rules=[])
    (told,) = stage.recall(Kind.MESSAGE, "m-1")
    assert told.verdict is RecallVerdict.RECALLED


def test_without_the_secret_of_an_account_the_others_are_recalled_all_the_same(
    stage: Stage,
) -> None:
    waiting, unread = stage.claimed("waits", id="m-1")[0], deliveries(id="m-1", receivers=["cyd"])
    stage.ledger.settle([Settlement(waiting, Event.NOT_SENT, "45009")])
    stage.sent(stage.claimed("ann", id="m-1"))
    stage.sent(stage.claimed("hooked", lane="webhook.notice", id="m-1"))
    whole = dict(stage.settings.accounts)
    main = {key: value for key, value in whole["main"].items() if key != "corpsecret"}
    stage.settings = msgspec.structs.replace(stage.settings, accounts=whole | {"main": main})
    told = {(t.lane, t.state): (t.verdict, t.why) for t in stage.recall(Kind.MESSAGE, "m-1")}
    missing = "its account cannot be used here: accounts.main.corpsecret: is missing"
    assert told.pop(("wecom.notice", State.SENT)) == (RecallVerdict.NOT_POSSIBLE, missing)
    assert told == {
        ("wecom.notice", State.DROPPED): (RecallVerdict.CANCELLED, "before the send"),
        ("webhook.notice", State.SENT): (RecallVerdict.NOT_POSSIBLE, "webhook takes nothing back"),
    }
    (later,) = stage.ledger.claim(claims(unread), "w1")
    assert later.state is State.DROPPED, "the announcement holds"
    stage.settings = msgspec.structs.replace(stage.settings, accounts=whole)
    again = {t.state: t.verdict for t in stage.recall(Kind.MESSAGE, "m-1") if t.lane[:5] == "wecom"}
    assert again == {State.SENT: RecallVerdict.RECALLED, State.DROPPED: RecallVerdict.CANCELLED}


def test_what_is_too_old_for_the_provider_is_not_even_asked_for(stage: Stage) -> None:
    stage.sent(stage.claimed("ann", id="m-1"))
    with stage.ledger.database.connection() as connection:
        connection.execute("UPDATE deliveries SET called_at = called_at - 86400001")
    (told,) = stage.recall(Kind.MESSAGE, "m-1")
    assert (told.verdict, told.why) == (RecallVerdict.TOO_LATE, "wecom takes back for 24 hours")
    assert stage.taken_back() == 0


def test_the_providers_time_counts_from_the_last_call(stage: Stage) -> None:
    """The first one was in doubt; a day later it was made again, and accepted."""
    stage.sent(stage.claimed("ann", id="m-1"))
    with stage.ledger.database.connection() as connection:
        connection.execute("UPDATE deliveries SET last_called_at = called_at")
        connection.execute("UPDATE deliveries SET called_at = called_at - 86400001")
    (told,) = stage.recall(Kind.MESSAGE, "m-1")
    assert told.verdict is RecallVerdict.RECALLED


def test_what_is_not_there_yet_is_dropped_when_it_comes(stage: Stage) -> None:
    assert stage.recall(Kind.MESSAGE, "m-1") == []
    (item,) = stage.claimed("ann", id="m-1")
    (row,) = stage.ledger.queries().by_message("m-1")
    assert (item.attempt, row.state, row.reason) == (0, "DROPPED", "recalled")
    assert verdicts(stage.recall(Kind.MESSAGE, "m-1")) == {"***": RecallVerdict.CANCELLED}


def test_what_flew_during_the_recall_is_never_tried_again(stage: Stage) -> None:
    (item,) = stage.claimed("ann", id="m-1")
    (told,) = stage.recall(Kind.MESSAGE, "m-1")
    assert told.verdict is RecallVerdict.TOO_LATE
    stage.ledger.settle([Settlement(item, Event.NOT_SENT, "45009")])
    taking = stage.ledger.recovering().take(DueQuery("wecom.notice", 5), "w1", new_token())
    assert not taking.taken
    assert verdicts(stage.recall(Kind.MESSAGE, "m-1")) == {"***": RecallVerdict.CANCELLED}


def test_a_running_recovery_sends_nothing_that_is_recalled(
    ground: MakeGround, provider: Simulator
) -> None:
    one = ground()
    gone, kept = one.claimed(biz_id="b")[0], one.claimed()[0]
    one.ledger.recalls().announce(Kind.BIZ, "b", 600_000)
    one.ledger.settle([Settlement(item, Event.NOT_SENT, "http_429") for item in (gone, kept)])
    one.process("r1")
    one.await_states(SENT=1, DROPPED=1)
    assert one.accepted() == {kept.key: 1}
    assert one.state(gone) == ("DROPPED", "recalled")
