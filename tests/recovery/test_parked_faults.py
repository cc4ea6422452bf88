"""Faults that a person can mend, one for each such row of message/reasons.py.

Each is parked with its payload in the claim of its batch, told by one alert, and goes once it is mended.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from structlog.testing import capture_logs

from channels.channel import Account
from channels.registry import PROVIDERS
from channels.template_support import TEMPLATE_SUPPORT
from dispatcher.kafka.offsets import Offsets
from dispatcher.metrics import Metrics
from dispatcher.pipeline.claims import BestEffortClaims, LedgerClaims
from dispatcher.pipeline.lane_config import LaneConfig
from dispatcher.pipeline.telemetry import KEPT, LOST, WorkerTelemetry
from dispatcher.pipeline.work import (
    Assignment,
    Drop,
    EndedAtClaim,
    KafkaRecord,
    Park,
    Work,
    ended_by,
)
from idempotency.ledger import Settlement
from idempotency.prefilter import NoPrefilter
from idempotency.recovery.contract import DueQuery
from idempotency.recovery.selection import Pick
from idempotency.sql_ledger import SqlLedger
from message.delivery import Delivery, deliveries_of
from message.envelope import Notification, Template, encode
from message.ids import new_id, new_token
from message.reasons import BY_CODE, DROP_CODES, INTAKE, IntakeEnd, code_of, resend_of_dropped
from message.states import Event, State
from message.vocabulary import Lane
from policy.schema import LanePolicy, Policy
from policy.templates.loading import load
from recovery.operator_actions import Operator
from recovery.operator_results import OperatorVerdict
from recovery.operator_rules import Verb, refusal
from recovery.wiring import _render
from sending.accounts.rate_limiter import RateLimiter
from sending.accounts.selector import AccountSelector
from sending.adapter_refusals import refusal_of
from sending.alerts.notifier import Alert
from sending.lane_routes import Route
from sending.runtime.clock import Clock
from sending.runtime.outage import Outage
from sending.template_renderer import TemplateRejected, rendered
from tests.idempotency.making import NOON, World, worker
from tests.recovery.followed import followed
from tests.recovery.test_operator_actions import Said
from tracing.events import Stage

LANE = Lane("email", "notice")
NAME = "welcome"
PAYLOAD_KEY = b64encode(bytes(32)).decode()
MENDABLE = sorted(row.code for row in INTAKE if row.mender)


def page(text: str = "{{ v }}", variables: str = '{ v = "string" }', channel: str = "email") -> str:
    table = f'[templates.{NAME}]\nchannel = "{channel}"\nvariables = {variables}\n'
    return f'{table}text = """{text}"""\n'


class FaultTrial(NamedTuple):
    """templates.toml with the fault and without it; the notification stays as it is."""

    before: str
    after: str
    params: dict[str, Any] = {"v": "private-4711"}  # noqa: RUF012 - nobody writes it


LOOPS = "{% for a in range(200) %}{% for b in range(200) %}{{ v }}{% endfor %}{% endfor %}"
OF_TEMPLATES = {
    "template_unknown": FaultTrial("", page()),
    "template_channel": FaultTrial(page(channel="wecom"), page()),
    "variable_missing": FaultTrial(
        page(), page(variables='{ v = { type = "int", default = 5 } }'), {}
    ),
    "variable_surplus": FaultTrial(
        page(), page(variables='{ v = "string", w = "int" }'), {"v": "1", "w": 2}
    ),
    "variable_type": FaultTrial(page(), page(variables='{ v = "int" }'), {"v": 4711}),
    "template_failed": FaultTrial(page("{{ v | fixed }}"), page()),
    "template_too_large": FaultTrial(page(LOOPS), page()),
}


def of(params: dict[str, Any], **changes: Any) -> Notification:
    return Notification(
        id=new_id(),
        channel=LANE.channel,
        kind=LANE.kind,
        receivers=["li@example.com"],
        template=Template(NAME, params),
        created_at=NOON,
        **changes,
    )


def delivery_of(notification: Notification) -> Delivery:
    (one,) = deliveries_of(notification, encode(notification), expires_at=NOON + 60_000)
    return one


def _of_template(code: str, folder: Path) -> tuple[Delivery, str, str]:
    fault, file = OF_TEMPLATES[code], folder / "templates.toml"
    one = delivery_of(of(fault.params))
    file.write_text(fault.before)
    with pytest.raises(TemplateRejected) as caught:
        rendered(load(file), one.notification)
    assert _render(followed(load(file)), one) == caught.value.reason, (
        "recovery words it as a worker does"
    )
    file.write_text(fault.after)
    return one, caught.value.reason, _render(followed(load(file)), one)


def _of_account(_code: str, _folder: Path) -> tuple[Delivery, str, str]:
    one = delivery_of(of({}, account="b"))
    return (
        one,
        config("a").misfit(one.notification) or "",
        config("a", "b").misfit(one.notification) or "",
    )


def _of_form(_code: str, folder: Path) -> tuple[Delivery, str, str]:
    form = f'[templates.{NAME}.providers.aliyun_sms]\ntemplate_id = "SMS_1"\n'
    head = f'[templates.{NAME}]\nchannel = "sms"\n'
    other = f'[templates.{NAME}.providers.twilio]\ntext = "hello"\n'
    notification = Notification(
        id=new_id(),
        channel="sms",
        kind="notice",
        receivers=["+8613800000001"],
        template=Template(NAME, {}),
        created_at=NOON,
    )
    one, file = delivery_of(notification), folder / "templates.toml"
    account = Account("tw", "twilio", "", {"sender": "+15005550006"})
    found = []
    for text in (head + form, head + form + other):
        file.write_text(text)
        assert _render(followed(load(file, TEMPLATE_SUPPORT)), one) == ""
        found.append(refusal_of(one, account, PROVIDERS["twilio"]))
    return one, found[0], found[1]


def config(*names: str) -> LaneConfig:
    policy = LanePolicy()
    accounts = [Account(name, "null", "") for name in names]
    routes = {one.name: Route(one, PROVIDERS["null"]) for one in accounts}
    limiter = RateLimiter(accounts, None, workers=lambda _: 1)
    return LaneConfig("", policy, routes, AccountSelector(LANE, policy, accounts, limiter))


Trial = Callable[[str, Path], tuple[Delivery, str, str]]
"""Returns a delivery, the reason before the mend, and the reason after it: none."""
TRIALS: dict[str, Trial] = {
    **dict.fromkeys(OF_TEMPLATES, _of_template),
    "unknown_account": _of_account,
    "no_template": _of_form,
}
"""A row of the table that somebody can mend needs an entry here."""


def test_the_table_parks_what_can_be_mended_and_each_such_row_is_tried_here() -> None:
    assert {row.code for row in INTAKE if row.end is IntakeEnd.PARKED} == set(MENDABLE)
    assert set(TRIALS) == set(MENDABLE)


@pytest.mark.parametrize("code", [row.code for row in INTAKE])
def test_a_reason_parks_a_delivery_only_where_somebody_can_mend_it(code: str) -> None:
    made = ended_by(f"{code}: why")
    assert isinstance(made, Park if BY_CODE[code].mender else Drop)
    assert isinstance(ended_by("nobody_entered_it: why"), Park), (
        "nothing is lost by a forgotten row"
    )


def test_a_template_that_fails_unforeseen_parks_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = delivery_of(of({"v": "private-4711"}))
    (tmp_path / "templates.toml").write_text(page())
    templates = load(tmp_path / "templates.toml")

    def fails(_: Notification) -> None:
        raise ArithmeticError("over private-4711")

    monkeypatch.setattr(templates, "render", fails)
    expected = f"template_failed: template {NAME!r}: ArithmeticError"
    assert _render(followed(templates), one) == expected
    with pytest.raises(TemplateRejected, match=expected):
        rendered(templates, one.notification)


# -- the ledger --


@pytest.fixture
def sealed(url: str) -> Iterator[World]:
    world = World(url, PAYLOAD_KEY)
    yield world
    world.close()


class ClaimCounts:
    """Takes the counts of a claim strategy and keeps none."""

    def claimed(self, batch: int, seconds: float) -> None:
        pass

    def prefilter_hits(self, hits: int) -> None:
        pass


def ledger_claims(ledger: SqlLedger) -> LedgerClaims:
    return LedgerClaims(
        ledger,
        NoPrefilter(),
        owner="w1",
        outage=Outage(),
        clock=Clock(lambda: 0.0, lambda: NOON / 1_000),
        count=ClaimCounts(),
        term=lambda: 1,
    )


def work(one: Delivery, reason: str = "") -> Work:
    lane = Lane(one.notification.channel, one.notification.kind)
    assignment = Assignment(lane.topic(), 0, lane, Offsets())
    record = KafkaRecord(assignment, 0, one.notification, one.payload, NOON, None)
    return Work(one, record, ended_by(reason)) if reason else Work(one, record)


@contextmanager
def round_trips(ledger: SqlLedger) -> Iterator[list[str]]:
    """Notes each use of a connection."""
    database, made = ledger.database, ledger.database.connection
    used: list[str] = []

    @contextmanager
    def noted() -> Iterator[Any]:
        used.append("trip")
        with made() as connection:
            yield connection

    database.connection = noted  # type: ignore[method-assign]
    try:
        yield used
    finally:
        database.connection = made  # type: ignore[method-assign]


EVERYWHERE = ("unknown_account", "variable_missing")
"""A fault of either kind of mender; the database does not tell the others apart."""


@pytest.mark.parametrize(
    ("url", "code"),
    [("sqlite", code) for code in sorted(TRIALS)] + [("postgresql", code) for code in EVERYWHERE],
    indirect=["url"],
)
def test_it_is_parked_with_its_payload_and_goes_once_it_is_mended(
    code: str, sealed: World, tmp_path: Path
) -> None:
    one, before, after = TRIALS[code](code, tmp_path)
    assert (code_of(before), after) == (code, "")
    assert "private" not in before
    ledger = sealed.open()
    ledger.register(worker("w1"))
    good, faulty = work(delivery_of(of({"v": "1"}))), work(one, before)
    with round_trips(ledger) as used:
        to_send, ended = ledger_claims(ledger).admit([good, faulty])
    assert used == ["trip"], "what is parked costs a batch no statement more"
    assert (to_send, ended) == ([good], [faulty])
    assert faulty.end == EndedAtClaim(State.PARKED, before)

    kept = ledger.queries().kept(one.key)
    assert kept is not None
    assert (kept.payload, kept.receiver) == (one.payload, one.receiver)
    ((stored,),) = sealed.rows(f"SELECT payload FROM deliveries WHERE delivery_key = '{one.key}'")
    assert NAME.encode() not in bytes(stored), "sealed as the others"

    (pick,) = ledger.picks().named(one.key)
    assert (pick.state, pick.attempt, pick.doubted) == (State.PARKED, 0, False)
    (told,) = operator(ledger).run(Verb.AGAIN, [pick])
    assert told.verdict is OperatorVerdict.RETRIED
    lane = f"{one.notification.channel}.{one.notification.kind}"
    due = [
        taken
        for first in (False, True)
        for taken in ledger.recovering()
        .take(DueQuery(lane, 1, first=first), "r", new_token())
        .taken
    ]
    assert [taken.delivery.notification for taken in due] == [one.notification]
    assert due[0].delivery.attempt == 1, "no attempt was spent"


def operator(ledger: SqlLedger) -> Operator:
    return Operator(ledger.recovering(), ledger.queries(), Policy(), Said(), ledger.now_ms)


def test_a_settlement_that_carries_the_claim_parks_it_in_the_same_round_trip(
    sealed: World,
) -> None:
    ledger = sealed.open()
    ledger.register(worker("w1"))
    claims = ledger_claims(ledger)
    first = work(delivery_of(of({"v": "1"})))
    claims.admit([first])
    second = work(delivery_of(of({})), "variable_missing: v")
    settlement = Settlement(first.delivery, Event.ACCEPTED, provider_id="p")
    with round_trips(ledger) as used:
        written, claimed = claims.settle_and_claim([settlement], [second])
    assert claimed is not None
    assert (written, claimed[1]) == ([True], [second])
    assert len(used) == (1 if sealed.is_postgres else 2), "SQLite settles and claims apart"
    assert sealed.states() == {first.delivery.key: "SENT", second.delivery.key: "PARKED"}


# -- what is told --


class TelemetryReport:
    """A worker's telemetry, and what it told."""

    def __init__(self) -> None:
        self.kept, self.metrics = Said(), Metrics()
        self.raised: list[tuple[Alert, int]] = []
        self.telemetry = WorkerTelemetry(
            self.kept,
            self.metrics,
            clock=Clock(),
            worker="w",
            alert=lambda alert, count: self.raised.append((alert, count)),
        )

    def ended(self, works: Sequence[Work]) -> list[dict[str, Any]]:
        """Returns the lines of the log."""
        with capture_logs() as lines:
            self.telemetry.ended(works)
        return [dict(line) for line in lines]


def ended(one: Delivery, state: State, reason: str) -> Work:
    made = work(one, reason)
    made.end = EndedAtClaim(state, reason)
    return made


@pytest.mark.parametrize("code", sorted(TRIALS))
def test_an_alert_names_lane_template_and_reason_and_the_log_has_one_line_a_batch(
    code: str, tmp_path: Path
) -> None:
    one, reason, _ = TRIALS[code](code, tmp_path)
    report = TelemetryReport()
    (line,) = report.ended([ended(one, State.PARKED, reason) for _ in range(5)])
    assert (line["log_level"], line["count"]) == ("warning", 5)
    ((alert, count),) = report.raised
    assert (alert.rule, alert.lane, count) == ("parked", one.lane, 5)
    assert code in alert.about
    if code != "unknown_account":
        assert NAME in alert.text
    assert one.receiver not in f"{alert} {line}"
    assert "private" not in f"{alert} {line}"
    event = report.kept.events[0]
    assert (event.stage, event.state, event.reason) == (Stage.PARKED, "PARKED", reason)
    assert event.detail == KEPT


@pytest.mark.parametrize("code", sorted(TRIALS))
def test_a_lane_without_a_ledger_drops_it_with_an_alert_and_says_that_nothing_keeps_it(
    code: str, tmp_path: Path
) -> None:
    one, reason, _ = TRIALS[code](code, tmp_path)
    faulty, good = work(one, reason), work(delivery_of(of({"v": "1"})))
    clock = Clock(lambda: 0.0, lambda: NOON / 1_000)
    to_send, gone = BestEffortClaims(NoPrefilter(), clock).admit([faulty, good])
    assert (to_send, gone) == ([good], [faulty])
    assert faulty.end == EndedAtClaim(State.DROPPED, reason)
    report = TelemetryReport()
    (line,) = report.ended(gone)
    assert (line["log_level"], line["state"]) == ("warning", "DROPPED")
    ((alert, _),) = report.raised
    assert (alert.rule, alert.lane) == ("dropped", one.lane)
    assert (report.kept.events[0].stage, report.kept.events[0].detail) == (Stage.DROPPED, LOST)


def test_good_ends_and_what_a_policy_drops_call_nobody() -> None:
    report = TelemetryReport()
    quiet = [row for row in INTAKE if not row.mender and row.end is IntakeEnd.DROPPED]
    works = [ended(delivery_of(of({})), State.DROPPED, row.code) for row in quiet]
    assert report.ended(works) == []
    assert report.raised == []


# -- resend --


@pytest.mark.parametrize("code", [*DROP_CODES, *MENDABLE])
def test_resend_says_of_each_dropped_reason_what_can_be_done(code: str) -> None:
    said = resend_of_dropped(f"{code}: because")
    assert code in said
    assert "--new-id makes a copy" in said
    assert "\n" not in said
    assert refusal(Verb.AGAIN, _pick(State.DROPPED, f"{code}: because")) == said


@pytest.mark.parametrize("code", MENDABLE)
def test_resend_refuses_nothing_that_was_parked_over_a_fault(code: str) -> None:
    assert refusal(Verb.AGAIN, _pick(State.PARKED, f"{code}: because")) == ""


def _pick(state: State, reason: str) -> Pick:
    return Pick(
        *("k", 1, 1, state, reason, "sms.notice", "m", None, NOON, NOON, NOON, None, 0, None, ""),
        recalled=False,
        doubted=False,
    )
