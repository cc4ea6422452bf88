"""No person's delivery reaches a group's account, nor the reverse: cases drawn over every channel,
provider, weight, reserve, default, name and failure, through the routing that workers and recovery have.

The judge is a table of its own: what each account may be called for. It knows nothing of
`channels.accounts.reach`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from queue import SimpleQueue
from random import Random
from typing import Any

import msgspec
import pytest

from channels.accounts.lane_accounts import lane_accounts
from channels.channel import Account, Call
from channels.registry import AccountError, channel_for
from dispatcher.kafka.offsets import Offsets
from dispatcher.pipeline.batching import calls_of
from dispatcher.pipeline.binding import waits_for
from dispatcher.pipeline.lane_config import LaneConfig
from dispatcher.pipeline.lanes import LanePool
from dispatcher.pipeline.work import Assignment, Finished, KafkaRecord, Work
from message.delivery import Delivery, deliveries_of
from message.envelope import Notification
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown
from message.vocabulary import CHANNELS, Lane
from policy.schema import LanePolicy, RetryPolicy
from recovery.retry.retry_lane import RetryLane
from sending.accounts.rate_limiter import RateLimiter
from sending.accounts.selector import AccountSelector
from sending.lane_routes import Route
from sending.runtime.clock import Clock
from tests.conformance.samples import Sample, samples
from tests.dispatcher.fakes import NOW_MS, AtOnce, no_limits, routed

CASES = 60
"""Of each channel."""
CHAT = "oc_5ad11d72b830411d72b836c20"
CHATS = ("wecom", "dingtalk", "feishu", "chat")
ROBOTS = {
    "wecom_robot": "key",
    "dingtalk_robot": "access_token",
    "feishu_robot": "hook",
    "slack": "hook",
    "discord": "hook",
    "mattermost": "hook",
    "teams": "hook",
}
"""Providers whose accounts are each in one group, and the option that says in which."""
FAILURES: Sequence[AnyOutcome] = (
    NotSent("halted", account=True),
    NotSent("connect"),
    Rejected("no_balance", account=True),
    NotSent("130101", retry_after_ms=600_000, limit=Limit.ACCOUNT),
    NotSent("busy"),
    Unknown("timeout"),
)
BY_CHANNEL: dict[str, list[Sample]] = {
    channel: [one for one in samples() if one.channel.channel == channel] for channel in CHANNELS
}


def tables_of(channel: str) -> dict[str, dict[str, Any]]:
    """Two accounts of every application; of every robot two in one group, and one in another each."""
    tables: dict[str, dict[str, Any]] = {}
    for one in BY_CHANNEL[channel]:
        table = {
            "provider": one.provider,
            **one.account_table,
            "endpoint": f"{one.scheme}://127.0.0.1",
        }
        groups = ["ops", "ops", "sales"] if one.provider in ROBOTS else []
        groups += [CHAT] if one.provider == "feishu_robot" else []
        for number in range(len(groups) or 2):
            name = f"{one.provider}-{number}"
            tables[name] = dict(table)
            if groups:
                tables[name]["group"] = groups[number]
                secret = ROBOTS[one.provider]
                tables[name][secret] = f"{one.account_table[secret]}{number}"
    if channel == "webhook":
        tables = {
            name: {"provider": "webhook", "endpoint": "http://127.0.0.1"} for name in ("w-0", "w-1")
        }
    return tables


def receivers_of(channel: str) -> dict[str, str | None]:
    """Receiver to the group that it is; None: a person, or on channels without groups whoever it is."""
    apps = [one for one in BY_CHANNEL[channel] if one.provider not in ROBOTS]
    persons = [r for one in apps for n in (1, 2) for r in one.notification(n).receivers]
    found: dict[str, str | None] = dict.fromkeys(persons)
    if channel not in CHATS:
        return found | dict.fromkeys(["group:ops"])
    found |= dict.fromkeys(["ops", "sales", "Group:ops", "grouped", "oc_ops", "@all"])
    found |= {f"group:{name}": name for name in ("ops", "sales", "nobodys", "", " ops", CHAT)}
    return found | ({CHAT: CHAT} if channel == "feishu" else {CHAT: None})


def may_get(account: str, group: str | None, table: Mapping[str, Any]) -> bool:
    """The judge: whether the account may be called for a person (None) or this group."""
    if account.split("-")[0] in ROBOTS:
        return bool(group == table["group"])
    return group is None or (account.startswith("feishu-") and group == CHAT)


def policies(names: Sequence[str], luck: Random) -> LanePolicy:
    """None named, some, or some with weights."""
    some = luck.sample(names, luck.randint(1, len(names)))
    weights = {name: luck.choice((0, 1, 1, 3)) for name in some}
    weights[some[0]] = 1
    accounts: Any = luck.choice(([], some, weights))
    retry = RetryPolicy(immediate=luck.choice((0, 1)))
    return LanePolicy(threads=1, accounts=accounts, retry=retry)


class Case(AtOnce):
    """One lane, and what it called: `failing` accounts never accept."""

    def __init__(self, channel: str, luck: Random) -> None:
        self.tables = tables_of(channel)
        self.lane = Lane(channel, luck.choice(("verification", "notice")))
        self.policy, self.accounts = self._accounts(luck)
        self.failing = {
            account.name: luck.choice(FAILURES) for account in self.accounts if luck.random() < 0.5
        }
        self.calls: list[tuple[str, str]] = []
        self.finished: SimpleQueue[Finished] = SimpleQueue()
        self.rates = RateLimiter(self.accounts, None, workers=lambda _: 1)
        self.chooser = AccountSelector(self.lane, self.policy, self.accounts, self.rates)

    def _accounts(self, luck: Random) -> tuple[LanePolicy, list[Account]]:
        while True:
            policy = policies(list(self.tables), luck)
            try:
                return policy, lane_accounts(self.lane, self.tables, policy)
            except AccountError:
                continue  # a mixture that no worker starts with

    def notifications(self, luck: Random) -> Iterator[Notification]:
        pattern: Sample | None = None
        if some := BY_CHANNEL[self.lane.channel]:
            pattern = luck.choice(some)
        for number, receiver in enumerate(receivers_of(self.lane.channel)):
            content = {"text": "4711"} if pattern is None else pattern.notification(number).content
            template = None if pattern is None else pattern.notification(number).template
            named = luck.choice([a.name for a in self.accounts]) if luck.random() < 0.2 else None
            yield Notification(
                id=f"n-{number}",
                channel=self.lane.channel,
                kind=self.lane.kind,
                receivers=[receiver],
                content=content,
                template=template,
                account=named,
                created_at=NOW_MS,
            )

    # -- what a lane's thread asks --

    def send(self, channel: Any, call: Call, timeout_s: float) -> list[AnyOutcome]:
        name = call.account.name
        self.calls += [(name, delivery.receiver) for delivery in call.deliveries]
        outcome = self.failing.get(name, Accepted("1"))
        return [outcome] * len(call.deliveries)

    def wait_valid(self, _term: int, _until: Callable[[], bool]) -> bool:
        return True

    def ends_at(self, _term: int) -> float:
        return inf

    # -- driving --

    def through_a_worker(self, luck: Random) -> list[Work]:
        """Everything, three times over, so that breakers open and reserves go."""
        pool = self._pool()
        pool.start()
        works = []
        for _ in range(3):
            some = [self._work(n) for n in self.notifications(luck)]
            for work in some:
                work.route = routed(work, pool)
            going = [work for work in some if work.route is not None]
            for call in calls_of(going, {self.lane.name: pool}):
                pool.put(call)
            works += [self.finished.get(timeout=10) for _ in going]
        pool.close()
        return [work for work in works if isinstance(work, Work)]

    def through_recovery(self, luck: Random) -> None:
        """What recovery would call, its failover with it."""
        made = {a.name: Route(a, channel_for(a)) for a in self.accounts}
        routes = RetryLane(self.lane, "", self.policy, made, self.chooser)
        for one in self.notifications(luck):
            (delivery,) = deliveries_of(one, b"", expires_at=NOW_MS + 1_000)
            route, tried = routes.choose(delivery, one.account), list[str]()
            while route is not None and not route.channel.refusal(route.account, delivery):
                (outcome,) = self.send(None, Call(route.account, [delivery]), 1.0)
                self.chooser.record(route.account, [outcome])
                tried.append(route.account.name)
                refuses = routes.refuses(delivery)
                other = self.chooser.failover(delivery, outcome, tried, refuses)
                route = None if other is None else routes.of(other.name)

    def _pool(self) -> LanePool:
        routes: dict[str, Route] = {a.name: Route(a, channel_for(a)) for a in self.accounts}
        return LanePool(
            self.lane,
            LaneConfig("", self.policy, routes, self.chooser),
            self,
            permit=self,
            clock=Clock(lambda: NOW_MS / 1_000, lambda: 1.0),
            finished=self.finished,
            reroute=self._reroute,
            delays=no_limits,
        )

    def _reroute(self, deliveries: Sequence[Delivery]) -> list[bool]:
        for delivery in deliveries:
            delivery.attempt += 1
        return [True] * len(deliveries)

    def _work(self, one: Notification) -> Work:
        record = KafkaRecord(Assignment("t", 0, self.lane, Offsets()), 0, one, b"{}", NOW_MS, None)
        (delivery,) = deliveries_of(one, b"{}", expires_at=NOW_MS + 60_000)
        delivery.attempt = 1
        return Work(delivery, record)

    def crossed(self) -> list[tuple[str, str]]:
        """The calls that should never have been made."""
        groups = receivers_of(self.lane.channel)
        return [
            (name, receiver)
            for name, receiver in self.calls
            if not may_get(name, groups[receiver], self.tables[name])
        ]


@pytest.mark.parametrize("channel", CHANNELS)
def test_nothing_ever_goes_to_whom_it_is_not_for(channel: str) -> None:
    called: set[str] = set()
    for seed in range(CASES):
        luck = Random(f"{channel}-{seed}")
        case = Case(channel, luck)
        case.through_a_worker(luck)
        assert case.crossed() == [], (seed, case.policy.accounts, case.failing)
        called |= {name for name, _ in case.calls}
    assert called == set(tables_of(channel)), "an account that is never called proves nothing"


@pytest.mark.parametrize("channel", CHATS)
def test_nor_by_recovery(channel: str) -> None:
    called: set[str] = set()
    for seed in range(CASES):
        luck = Random(f"{channel}-{seed}")
        case = Case(channel, luck)
        for _ in range(3):
            case.through_recovery(luck)
        assert case.crossed() == [], (seed, case.policy.accounts, case.failing)
        called |= {name for name, _ in case.calls}
    assert called == set(tables_of(channel))


@pytest.mark.parametrize("channel", CHATS)
def test_adapters_refuse_what_routing_would_not_give_them(channel: str) -> None:
    tables = tables_of(channel)
    for account in lane_accounts(Lane(channel, "notice"), tables, LanePolicy()):
        one = next(s for s in BY_CHANNEL[channel] if s.provider == account.provider)
        for receiver, group in receivers_of(channel).items():
            pattern = msgspec.structs.replace(one.notification(1), receivers=[receiver])
            (delivery,) = deliveries_of(pattern, b"", expires_at=NOW_MS)
            refused = channel_for(account).refusal(account, delivery)
            if not may_get(account.name, group, tables[account.name]):
                assert refused.startswith(("wrong_receiver: ", "wrong_group: ")), receiver
                assert not receiver or receiver == "group:" or receiver not in refused
            else:
                assert not refused.startswith("wrong_")


def by(case: Case, receiver: str) -> list[str]:
    return [name for name, one in case.calls if one == receiver]


def lane_of(failing: Mapping[str, AnyOutcome], accounts: Any = ()) -> Case:
    case = Case("wecom", Random(1))
    case.policy = LanePolicy(threads=1, accounts=accounts or [])
    case.accounts = lane_accounts(case.lane, case.tables, case.policy)
    case.failing = dict(failing)
    case.rates = RateLimiter(case.accounts, None, workers=lambda _: 1)
    case.chooser = AccountSelector(case.lane, case.policy, case.accounts, case.rates)
    return case


def served(case: Case, *receivers: str) -> list[Work]:
    pool = case._pool()
    pool.start()
    ended = []
    for receiver in receivers:
        one = Notification(
            id=f"n-{receiver}",
            channel="wecom",
            kind="verification",
            receivers=[receiver],
            content={"text": "4711"},
            created_at=NOW_MS,
        )
        work = case._work(one)
        work.route = routed(work, pool)
        assert work.route is not None
        for call in calls_of([work], {case.lane.name: pool}):
            pool.put(call)
        done = case.finished.get(timeout=10)
        assert isinstance(done, Work)
        ended.append(done)
    pool.close()
    return ended


HALT = NotSent("93000", account=True)


def test_every_login_code_goes_to_its_person_whatever_robots_the_lane_has() -> None:
    case = lane_of({})
    members = [f"li{number}" for number in range(8)]
    works = served(case, *members)
    assert all(isinstance(work.end, Accepted) for work in works)
    assert {name for name, _ in case.calls} == {"wecom-0", "wecom-1"}


def test_a_persons_message_fails_over_to_the_other_application_and_to_no_robot() -> None:
    case = lane_of({"wecom-0": HALT, "wecom-1": HALT})
    (work,) = served(case, "li")
    assert sorted(by(case, "li")) == ["wecom-0", "wecom-1"]
    assert work.end == HALT


def test_a_groups_message_fails_over_to_the_same_groups_robot_and_to_no_other() -> None:
    case = lane_of({"wecom_robot-0": HALT})
    works = served(case, "group:ops", "group:ops", "group:ops")
    assert {*by(case, "group:ops")} == {"wecom_robot-0", "wecom_robot-1"}
    assert all(isinstance(work.end, Accepted) for work in works)
    case = lane_of({"wecom_robot-0": HALT, "wecom_robot-1": HALT})
    (work,) = served(case, "group:ops")
    assert sorted(by(case, "group:ops")) == ["wecom_robot-0", "wecom_robot-1"]
    assert work.end == HALT


def test_a_receiver_that_nobody_reaches_is_rejected_and_never_sent() -> None:
    case = lane_of({}, accounts=["wecom_robot-0", "wecom_robot-2"])
    works = served(case, "li", "group:nobodys", "ops")
    assert case.calls == []
    assert [getattr(work.end, "code", "") for work in works] == [
        "wrong_receiver",
        "wrong_group",
        "wrong_receiver",
    ]
    assert all(isinstance(work.end, Rejected) for work in works)


def test_while_one_robot_is_silent_persons_and_other_groups_go_on() -> None:
    silent = NotSent("45009", retry_after_ms=600_000, limit=Limit.ACCOUNT)
    case = lane_of({"wecom_robot-2": silent})
    served(case, "group:sales")
    pool = case._pool()

    def goes(receiver: str) -> bool:
        one = Notification(
            id="n",
            channel="wecom",
            kind="notice",
            receivers=[receiver],
            content={"text": "x"},
            created_at=NOW_MS,
        )
        work = case._work(one)
        return routed(work, pool) is not None or waits_for(work, pool.terms) == ()

    assert not goes("group:sales")
    assert goes("li")
    assert goes("group:ops")
