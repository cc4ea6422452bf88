"""One template name, two providers: what each of two real adapters is given, and how one takes over."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest
from structlog.testing import capture_logs

from backends.settings import Settings
from channels.channel import Account, Call, Channel
from channels.registry import channel_for, load_accounts
from channels.template_support import TEMPLATE_SUPPORT
from dispatcher.kafka.offsets import Offsets
from dispatcher.pipeline.batching import calls_of
from dispatcher.pipeline.lane_config import LaneConfig
from dispatcher.pipeline.lanes import LanePool
from dispatcher.pipeline.work import Assignment, Finished, KafkaRecord, Park, Work
from dispatcher.process import _tell_gaps
from message.delivery import Delivery, deliveries_of
from message.envelope import Notification, Template
from message.outcomes import Accepted, AnyOutcome, NotSent
from message.states import Event
from message.vocabulary import Lane
from policy.schema import LanePolicy, Policy
from policy.templates.loading import load
from policy.templates.templates import Templates
from sending.accounts.rate_limiter import RateLimiter
from sending.accounts.selector import AccountSelector
from sending.endings import NotStarted
from sending.lane_routes import Route
from sending.runtime.clock import Clock
from tests.dispatcher.fakes import AtOnce, no_limits, routed

LANE = Lane("sms", "notice")
NOW_MS = 1_790_000_000_000
LOGIN = """
[templates.login-code]
channel = "sms"
variables = { code = "string", minutes = { type = "int", default = 5 } }
[templates.login-code.providers.aliyun_sms]
template_id = "SMS_123"
params = { code = "{{ code }}" }
[templates.login-code.providers.tencent_sms]
template_id = "1234567"
params = { "1" = "{{ code }}", "2" = "{{ minutes }}" }
"""
TABLES: dict[str, dict[str, Any]] = {
    "ali": {
        "provider": "aliyun_sms",
        "access_key_id": "id",
        "access_key_secret": "secret",
        "sign_name": "鸿雁",
    },
    "ten": {
        "provider": "tencent_sms",
        "secret_id": "id",
        "secret_key": "secret",
        "sdk_app_id": "1400000000",
        "region": "ap-guangzhou",
        "sign_name": "鸿雁",
    },
    "tw": {
        "provider": "twilio",
        "account_sid": "AC0123456789abcdef0123456789abcdef",
        "auth_token": "secret",
        "sender": "+15005550006",
    },
}
SENT_BY_ALI = {"Code": "OK", "BizId": "900^0", "Message": "OK", "RequestId": "r"}
NO_BALANCE = {"Code": "isv.AMOUNT_NOT_ENOUGH", "Message": "no balance", "RequestId": "r"}
NO_BALANCE_TEN = {
    "Response": {
        "Error": {"Code": "FailedOperation.InsufficientBalanceInSmsPackage", "Message": "no"},
        "RequestId": "r",
    }
}


def sent_by_ten(call: Call) -> dict[str, Any]:
    statuses = [
        {"SerialNo": f"s-{number}", "PhoneNumber": one.receiver, "Code": "Ok", "Message": "sent"}
        for number, one in enumerate(call.deliveries)
    ]
    return {"Response": {"SendStatusSet": statuses, "RequestId": "r"}}


class Bench(AtOnce):
    """A lane of one thread over the real adapters; `answers` says what each provider replies."""

    def __init__(self, templates: Templates, weights: dict[str, int], **answers: Any) -> None:
        self.requests: list[tuple[str, httpx.Request]] = []
        self.rerouted: list[str] = []
        self._templates = templates
        self._answers = answers
        self.finished: SimpleQueue[Finished] = SimpleQueue()
        accounts = [one for n, one in load_accounts(TABLES).items() if n in weights]
        policy = LanePolicy(threads=1, accounts=weights)
        routes = {one.name: Route(one, channel_for(one)) for one in accounts}
        limiter = RateLimiter(accounts, None, workers=lambda _: 1)
        self.pool = LanePool(
            LANE,
            LaneConfig("", policy, routes, AccountSelector(LANE, policy, accounts, limiter)),
            self,
            permit=self,
            clock=Clock(lambda: NOW_MS / 1_000, lambda: NOW_MS / 1_000),
            finished=self.finished,
            reroute=self._reroute,
            delays=no_limits,
        )

    def send(self, channel: Channel, call: Call, _timeout_s: float) -> list[AnyOutcome]:
        self.requests.append((call.account.name, channel.request(call)))
        answer = self._answers[call.account.name]
        said = answer(call) if callable(answer) else answer
        return channel.outcomes(call, httpx.Response(200, json=said))

    def ends_at(self, _term: int) -> float:
        return inf

    def wait_valid(self, _term: int, _until: Callable[[], bool]) -> bool:
        return True

    def _reroute(self, deliveries: Sequence[Delivery]) -> list[bool]:
        self.rerouted += [one.account for one in deliveries]
        for one in deliveries:
            one.attempt += 1
        return [True] * len(deliveries)

    def delivery(self, number: int, account: str | None = None) -> tuple[Notification, Delivery]:
        one = Notification(
            id=f"m-{number}",
            channel="sms",
            kind="notice",
            receivers=[f"+861380000{number:04}"],
            account=account,
            template=Template("login-code", {"code": "4711"}),
            created_at=NOW_MS,
        )
        (made,) = deliveries_of(one, b"{}", expires_at=NOW_MS + 60_000)
        made.attempt, made.rendered = 1, self._templates.render(one)
        return one, made

    def works(self, count: int = 1, account: str | None = None) -> list[Work]:
        """Works with their routes, as intake prepares them."""
        works = []
        for number in range(count):
            one, delivery = self.delivery(number, account)
            assignment = Assignment(LANE.topic(), 0, LANE, Offsets())
            works.append(Work(delivery, KafkaRecord(assignment, number, one, b"{}", NOW_MS, None)))
            works[-1].route = routed(works[-1], self.pool)
        return works

    def serve(self, count: int = 1, account: str | None = None) -> list[Work]:
        works = self.works(count, account)
        self.pool.start()
        for call in calls_of(works, {LANE.name: self.pool}):
            self.pool.put(call)
        for _ in works:
            self.finished.get(timeout=10)
        self.pool.close()
        return works


@pytest.fixture
def templates(tmp_path: Path) -> Templates:
    (tmp_path / "templates.toml").write_text(LOGIN, "utf-8")
    return load(tmp_path / "templates.toml", TEMPLATE_SUPPORT)


def of_ali(request: httpx.Request) -> tuple[str, dict[str, str]]:
    query = parse_qs(request.url.query.decode())
    return query["TemplateCode"][0], json.loads(query["TemplateParam"][0])


def of_ten(request: httpx.Request) -> tuple[str, list[str]]:
    body = json.loads(request.read())
    return body["TemplateId"], body["TemplateParamSet"]


def test_another_provider_takes_over_with_its_own_template(templates: Templates) -> None:
    bench = Bench(templates, {"ali": 1, "ten": 0}, ali=NO_BALANCE, ten=sent_by_ten)
    works = bench.serve(3)
    assert [name for name, _ in bench.requests] == ["ali", "ten"]
    assert of_ali(bench.requests[0][1]) == ("SMS_123", {"code": "4711"})
    assert of_ten(bench.requests[1][1]) == ("1234567", ["4711", "5"])
    numbers = json.loads(bench.requests[1][1].read())["PhoneNumberSet"]
    assert numbers == [work.delivery.receiver for work in works], "all of the refused share a call"
    assert [work.end for work in works] == [Accepted(f"s-{n}") for n in range(3)]
    assert bench.rerouted == ["ten"] * 3, "on record before the call"
    assert [(t.account, t.code) for t in works[0].tries] == [("ali", "isv.AMOUNT_NOT_ENOUGH")]


def test_what_the_notification_says_is_what_it_said(templates: Templates) -> None:
    bench = Bench(templates, {"ali": 1, "ten": 0}, ali=NO_BALANCE, ten=sent_by_ten)
    (work,) = bench.serve()
    assert work.delivery.notification.template == Template("login-code", {"code": "4711"})
    assert work.delivery.payload == b"{}", "the ledger's payload is the envelope's bytes"


def shut(work: Work) -> bool:
    """Whether its account was shut before its call began."""
    return isinstance(work.end, NotStarted) and work.end.event is Event.SHUT


def test_the_account_that_has_no_form_is_neither_chosen_nor_turned_to(templates: Templates) -> None:
    bench = Bench(templates, {"tw": 5, "ali": 1, "ten": 1}, ali=NO_BALANCE, ten=NO_BALANCE_TEN)
    works = bench.serve(4)
    assert {name for name, _ in bench.requests} == {"ali", "ten"}
    assert "tw" not in bench.rerouted
    assert all(isinstance(w.end, NotSent) or shut(w) for w in works)


def test_the_account_without_a_form_holds_no_place_in_front_of_one_with_it(
    templates: Templates,
) -> None:
    bench = Bench(templates, {"ali": 1, "tw": 0, "ten": 0}, ali=NO_BALANCE, ten=sent_by_ten)
    (work,) = bench.serve()
    assert isinstance(work.end, Accepted)
    assert bench.rerouted == ["ten"], "no attempt is spent on one that would refuse"


def test_an_only_account_without_a_form_leaves_it_to_the_reserve(templates: Templates) -> None:
    bench = Bench(templates, {"tw": 1, "ten": 0}, ten=sent_by_ten)
    (work,) = bench.serve()
    assert isinstance(work.end, Accepted)


def test_where_no_account_has_a_form_its_adapter_says_so(templates: Templates) -> None:
    bench = Bench(templates, {"tw": 1})
    (work,) = bench.works()
    calls_of([work], {LANE.name: bench.pool})
    assert work.intent == Park("no_template: template login-code has nothing for twilio")


def test_an_account_that_is_named_is_not_exchanged(templates: Templates) -> None:
    bench = Bench(templates, {"tw": 1, "ali": 1}, ali=SENT_BY_ALI)
    (work,) = bench.works(account="tw")
    calls_of([work], {LANE.name: bench.pool})
    assert isinstance(work.intent, Park)
    assert work.chosen.account.name == "tw"


def test_who_may_send_it_is_told_of_what_waits(templates: Templates) -> None:
    bench = Bench(templates, {"tw": 1, "ali": 1, "ten": 1})
    accounts = bench.pool.terms.accounts
    assert accounts.restricted_to(bench.delivery(1)[1]) == ("ali", "ten")
    assert accounts.restricted_to(bench.delivery(1, "tw")[1]) == ("tw",)
    _, plain = bench.delivery(1)
    plain.rendered = None
    assert accounts.restricted_to(plain) == ()


def test_a_worker_names_the_accounts_that_a_template_leaves_out(templates: Templates) -> None:
    settings = Settings(accounts={name: TABLES[name] for name in ("ali", "tw")})
    with capture_logs() as logs:
        _tell_gaps(settings, Policy(), [Lane("sms", "verification"), LANE], templates)
    (told,) = logs
    assert (told["event"], told["log_level"]) == ("template_leaves_out", "warning")
    assert (told["template"], told["lanes"]) == ("login-code", ["sms.verification", "sms.notice"])
    assert told["what"] == "nothing for tw (twilio): it goes through ali alone"


def test_joint_calls_are_of_one_form(templates: Templates) -> None:
    """The batch keys of both adapters follow their own form, not the notification's template."""
    accounts: dict[str, Account] = load_accounts(TABLES)
    bench = Bench(templates, {"ali": 1, "ten": 1})
    _, one = bench.delivery(1)
    _, other = bench.delivery(2)
    other.rendered = templates.named("login-code").render({"code": "4711", "minutes": 9})
    ali, ten = (channel_for(accounts[name]) for name in ("ali", "ten"))
    assert ali.batch_key(one) == ali.batch_key(other), "minutes is nothing to Aliyun's form"
    assert ten.batch_key(one) != ten.batch_key(other)
