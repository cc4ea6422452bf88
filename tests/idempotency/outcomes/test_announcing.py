"""Each end of an announced lane is in exactly one batch, written with the end itself."""

import ast
import random
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import idempotency
from idempotency.claims import postgres as statements
from idempotency.ledger import LedgerUnavailable, Settlement
from idempotency.outcomes.lanes import TOPIC, WEBHOOK
from idempotency.recalls import Kind
from idempotency.receipts.rules import Receipt, ReceiptState
from idempotency.receipts.sql import open_receipts
from idempotency.recovery.contract import DueQuery, RecoveryStore, Transition
from idempotency.sql_ledger import SqlLedger
from message.delivery import Delivery
from message.ids import new_token
from message.outcome_event import ANNOUNCED
from message.states import OPEN, SETTLED, TRANSITIONS, Event, State
from tests.idempotency.making import (
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
from tests.idempotency.outcomes import audit

LANE, SILENT = "sms.notice", "sms.marketing"
ORDERED = frozenset({LANE})
ROOT = Path(idempotency.__file__).parent.parent
LIFE_MS = 600_000
RECEIPTS = {
    Event.RECEIPT_DELIVERED: ReceiptState.DELIVERED,
    Event.RECEIPT_UNDELIVERED: ReceiptState.UNDELIVERED,
}
_ID = "provider-1"


@pytest.fixture
def ledger(world: World) -> SqlLedger:
    opened = world.open()
    opened.announced.follow({LANE: TOPIC})
    opened.register(worker("w1"))
    opened.register(worker("r1"))
    audit.watch(world)
    return opened


@pytest.fixture
def rows(ledger: SqlLedger) -> RecoveryStore:
    return ledger.recovering()


def check(world: World, least: int = 1) -> None:
    """Compares the batches with the triggers' notes."""
    noted = audit.ends(world, LANE)
    assert audit.announced(world) == noted
    assert len(noted) >= least


# -- each move of the state machine --

_TO: dict[State, Event] = {
    State.SENT: Event.ACCEPTED,
    State.REJECTED: Event.REJECTED,
    State.RETRY: Event.NOT_SENT,
    State.UNKNOWN: Event.UNKNOWN,
    State.EXPIRED: Event.TTL,
    State.PARKED: Event.BUDGET_SPENT,
}
ENDS = [(source, event) for (source, event), to in TRANSITIONS.items() if to in SETTLED]


def test_every_move_that_ends_a_delivery_is_announced_once(
    world: World, ledger: SqlLedger, rows: RecoveryStore
) -> None:
    """A new end in the state machine comes here by itself."""
    wanted = set()
    for source, event in ENDS:
        item, other = delivery(), delivery(lane=SILENT)
        for one in (item, other):
            _make(world, ledger, rows, one, source, event)
        wanted.add((item.key, TRANSITIONS[source, event].value))
    check(world, len(ENDS))
    assert wanted <= {(end.key, end.state) for end in audit.announced(world)}


def _make(
    world: World,
    ledger: SqlLedger,
    rows: RecoveryStore,
    item: Delivery,
    source: State | None,
    event: Event,
) -> None:
    """Has the delivery make this move, by the writer that makes it at work."""
    if source is None:
        (answer,) = ledger.claim(claims([item], event, reason="why"), "w1")
        assert answer.won
        return
    (item,) = claimed(ledger, item)
    item.account = "main"
    if source is State.IN_FLIGHT:
        assert settle(ledger, item, event, reason="why")
        return
    assert settle(ledger, item, _TO[source], provider_id=f"{_ID}-{item.key}")
    if event in RECEIPTS:
        receipts = open_receipts(ledger, world.settings, lambda: world.now)
        receipts.store([Receipt("main", RECEIPTS[event], f"{_ID}-{item.key}")])
        assert receipts.match().verdicts
        return
    found = rows.version_of(item.key)
    assert found is not None
    assert rows.move([Transition(item.key, found[0], found[1], source, event, "why")]) == [True]


# -- the writers --


def test_ends_and_claims_of_one_statement_are_one_batch(world: World, ledger: SqlLedger) -> None:
    first, second = claimed(ledger, delivery(), delivery())
    silent = claimed(ledger, delivery(lane=SILENT))[0]
    settlements = [
        Settlement(first, Event.ACCEPTED, provider_id="p"),
        Settlement(second, Event.NOT_SENT, "http_503", delay_ms=5),
        Settlement(silent, Event.ACCEPTED),
    ]
    late, fresh = claims([delivery()], Event.TTL_AT_INTAKE)[0], claims([delivery()])[0]
    written, _ = ledger.settle_and_claim(settlements, [late, fresh], "w1")
    assert written == [True] * 3
    check(world, 2)
    if world.is_postgres:  # SQLite has a transaction for each half
        assert world.rows("SELECT target, size FROM outcome_batches") == [(TOPIC, 2)]


def test_ends_in_a_line_are_announced(world: World, ledger: SqlLedger) -> None:
    made = claims([delivery(ordering_key="k"), delivery(ordering_key="k")])
    head, _ = adopt(made, ledger.claim(made, "w1", ordered=True))
    assert settle(ledger, head, Event.ACCEPTED, ORDERED)
    check(world)


def test_claims_that_a_recall_drops_are_announced_in_and_out_of_lines(
    world: World, ledger: SqlLedger
) -> None:
    ledger.recalls().announce(Kind.MESSAGE, "gone", LIFE_MS)
    ledger.recalls().announce(Kind.MESSAGE, "line", LIFE_MS)
    ledger.claim(
        claims(deliveries(id="gone", receivers=["+8613800000001", "+8613800000002"])), "w1"
    )
    ledger.claim(claims([delivery(id="line", ordering_key="k")]), "w1", ordered=True)
    check(world, 3)


def test_due_rows_that_recovery_ends_are_announced(
    world: World, ledger: SqlLedger, rows: RecoveryStore
) -> None:
    spent, recalled, old = claimed(ledger, delivery(), delivery(id="gone"), delivery())
    for item in (spent, recalled, old):
        assert settle(ledger, item, Event.NOT_SENT, delay_ms=0)
    ledger.recalls().announce(Kind.MESSAGE, "gone", LIFE_MS)
    rows.take(DueQuery(LANE, attempts=1), "r1", new_token())
    late = claimed(ledger, delivery())[0]
    assert settle(ledger, late, Event.NOT_SENT, delay_ms=0)
    world.advance(60_000)
    rows.take(DueQuery(LANE, attempts=9), "r1", new_token())
    states = {end.state for end in audit.announced(world)}
    assert states == {"PARKED", "DROPPED", "EXPIRED"}
    check(world, 4)


def test_an_unusable_doubt_that_is_parked_is_announced(
    world: World, ledger: SqlLedger, rows: RecoveryStore
) -> None:
    (item,) = claimed(ledger, delivery())
    assert settle(ledger, item, Event.UNKNOWN)
    world.rows_changed(f"UPDATE deliveries SET attempt = {2**31 - 1}")
    rows.doubts(LANE, 1_000)
    check(world)


# -- only real transitions --


def test_a_stale_token_announces_nothing(world: World, ledger: SqlLedger) -> None:
    (item,) = claimed(ledger, delivery())
    assert settle(ledger, item, Event.ACCEPTED)
    item.token += 1
    assert not settle(ledger, item, Event.REJECTED, reason="late")
    check(world)


def test_a_repeat_after_a_lost_reply_announces_nothing_new(world: World, ledger: SqlLedger) -> None:
    (item,) = claimed(ledger, delivery())
    dropped = claims([delivery()], Event.DROP, reason="dedup")
    with reply_lost(ledger.database), pytest.raises(LedgerUnavailable):
        settle(ledger, item, Event.ACCEPTED)
    with reply_lost(ledger.database), pytest.raises(LedgerUnavailable):
        ledger.claim(dropped, "w1")
    assert settle(ledger, item, Event.ACCEPTED)
    assert ledger.claim(dropped, "w1")[0].won
    check(world, 2)


def test_a_move_on_an_old_version_announces_nothing(
    world: World, ledger: SqlLedger, rows: RecoveryStore
) -> None:
    (item,) = claimed(ledger, delivery())
    assert settle(ledger, item, Event.BUDGET_SPENT, reason="attempts_spent:x")
    _, version, _ = rows.version_of(item.key) or (0, 0, State.PARKED)
    move = Transition(item.key, item.day, version - 1, State.PARKED, Event.OPERATOR_SENT)
    assert rows.move([move]) == [False]
    check(world)


def test_an_end_and_its_event_are_one_transaction(world: World, ledger: SqlLedger) -> None:
    """Without the table no end is written either."""
    (item,) = claimed(ledger, delivery())
    world.rows_changed("ALTER TABLE outcome_batches RENAME TO away")
    with pytest.raises(Exception, match="outcome_batches"):
        settle(ledger, item, Event.ACCEPTED)
    assert world.states()[item.key] == "IN_FLIGHT"


def test_a_delivery_that_is_parked_twice_has_two_events(
    world: World, ledger: SqlLedger, rows: RecoveryStore
) -> None:
    (item,) = claimed(ledger, delivery())
    assert settle(ledger, item, Event.BUDGET_SPENT)
    for _ in range(2):
        day, version, state = rows.version_of(item.key) or (0, 0, State.PARKED)
        if state is State.PARKED:
            assert rows.move(
                [Transition(item.key, day, version, state, Event.OPERATOR_RETRY, "operator")]
            ) == [True]
            day, version, state = rows.version_of(item.key) or (0, 0, State.RETRY)
        parked = Transition(item.key, day, version, state, Event.BUDGET_SPENT, "x")
        assert rows.move([parked]) == [True]
    found = audit.announced(world)
    assert len(found) == len({end.version for end in found}) == 3
    check(world, 3)


# -- lanes --


def test_a_lane_that_is_not_announced_has_todays_statements(
    world: World, ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SETTLE_ANNOUNCED", "_CLAIM_NUMBERED", "_LINE_NUMBERED", "_BOTH_NUMBERED"):
        monkeypatch.setattr(statements, name, "this is no SQL")
    first, second = claimed(ledger, delivery(lane=SILENT), delivery(lane=SILENT))
    assert settle(ledger, first, Event.ACCEPTED)
    made = claims([delivery(lane=SILENT)], Event.DROP)
    ledger.settle_and_claim([Settlement(second, Event.ACCEPTED)], made, "w1")
    assert audit.announced(world) == []


def test_statements_of_silent_lanes_name_no_outbox() -> None:
    for text in (statements.CLAIM, statements.CLAIM_IN_LINE, statements.SETTLE):
        assert "outcome_batches" not in text
    assert "outcome_batches" not in statements.SETTLE_AND_CLAIM
    assert "RETURNING delivery_key, message_id" not in statements.CLAIM


def test_each_target_has_batches_of_its_own(world: World, ledger: SqlLedger) -> None:
    ledger.announced.follow({LANE: TOPIC, SILENT: WEBHOOK})
    for item in claimed(
        ledger, delivery(), delivery(lane=SILENT), delivery(lane="sms.verification")
    ):
        assert settle(ledger, item, Event.ACCEPTED)
    found = world.rows("SELECT target, size FROM outcome_batches ORDER BY id")
    assert found == [(TOPIC, 1), (WEBHOOK, 1)]


# -- any order of all of it --


@pytest.mark.parametrize("seed", [2])
def test_whatever_happens_each_end_is_in_one_batch(
    world: World, ledger: SqlLedger, rows: RecoveryStore, seed: int
) -> None:
    Walk(world, ledger, rows, random.Random(seed)).run(200)
    check(world, 20)
    assert {end.state for end in audit.announced(world)} == set(ANNOUNCED)


class Walk:
    """Random steps of workers, recovery, receipts and persons."""

    def __init__(
        self, world: World, ledger: SqlLedger, rows: RecoveryStore, luck: random.Random
    ) -> None:
        self.world, self.ledger, self.rows, self.luck = world, ledger, rows, luck
        self.receipts = open_receipts(ledger, world.settings, lambda: world.now)
        self.flying: list[Delivery] = []
        self.known: list[Delivery] = []

    def run(self, steps: int) -> None:
        kinds: list[Callable[[], None]] = [self.claim, self.claim, self.settle, self.settle]
        kinds += [self.move, self.move, self.move, self.receive, self.take, self.both]
        for _ in range(steps):
            self.luck.choice(kinds)()

    def claim(self) -> None:
        events = (Event.CLAIM, Event.CLAIM, Event.CLAIM, Event.DROP, Event.TTL_AT_INTAKE)
        event = self.luck.choice(events)
        items = [delivery(lane=self.luck.choice((LANE, LANE, SILENT))) for _ in range(3)]
        if self.known and self.luck.random() < 0.3:
            items.append(self.luck.choice(self.known))  # again, from another partition's reader
        made = claims(items, event, reason="gate")
        answers = self.ledger.claim(made, "w1")
        self.known += items[:3]
        adopted = adopt(made, answers)
        self.flying += [
            d for d, a in zip(adopted, answers, strict=True) if a.won and a.state is State.IN_FLIGHT
        ]

    def _settlements(self) -> list[Settlement]:
        outcomes = [Event.ACCEPTED, Event.ACCEPTED, Event.REJECTED, Event.NOT_SENT, Event.UNKNOWN]
        outcomes += [Event.TTL, Event.BUDGET_SPENT]
        chosen = self.luck.sample(self.flying, min(3, len(self.flying)))
        for item in chosen:
            item.account = "main"
            if self.luck.random() < 0.8:
                self.flying.remove(item)  # else it is settled once more, too late
        return [
            Settlement(item, self.luck.choice(outcomes), "why", f"id-{item.key}") for item in chosen
        ]

    def settle(self) -> None:
        self.ledger.settle(self._settlements())

    def both(self) -> None:
        made = claims([delivery()], self.luck.choice((Event.CLAIM, Event.DROP)))
        self.ledger.settle_and_claim(self._settlements(), made, "w1")

    def move(self) -> None:
        if not self.known:
            return
        item = self.luck.choice(self.known)
        found = self.rows.version_of(item.key)
        assert found is not None
        day, version, state = found
        ways = [
            event
            for source, event in TRANSITIONS
            if source is state
            and state is not State.IN_FLIGHT
            and event not in RECEIPTS
            and event not in (Event.TAKE_OVER, Event.DUE)
        ]
        if ways:
            version -= self.luck.random() < 0.2
            event = self.luck.choice(ways)
            self.rows.move([Transition(item.key, day, version, state, event, "moved")])

    def receive(self) -> None:
        for item in self.luck.sample(self.known, min(6, len(self.known))):
            said = self.luck.choice(list(ReceiptState))
            self.receipts.store([Receipt("main", said, f"id-{item.key}", code="MK")])
        self.world.advance(10)
        self.receipts.match()

    def take(self) -> None:
        self.world.advance(self.luck.choice((1, 100, 20_000)))
        for first in (True, False):
            ask = DueQuery(LANE, attempts=self.luck.choice((1, 2, 9)), first=first)
            with suppress(LedgerUnavailable):
                taken = self.rows.take(ask, "r1", new_token()).taken
                self.flying += [one.delivery for one in taken]


# -- the sources --

_WRITES = re.compile(r"UPDATE deliveries\b|INSERT INTO deliveries\b", re.IGNORECASE)
WRITERS = {
    # Announce the ends that they write.
    "idempotency/claims/postgres.py",
    "idempotency/claims/sqlite.py",
    "idempotency/recovery/statements.py",
    "idempotency/receipts/sql.py",
    # End nothing: a row that they write stays open.
    "idempotency/lines.py",
    "idempotency/fleet/worker_leases.py",
}
FOLLOWS = {
    "dispatcher/process.py",
    "producer/gateway/wiring.py",
    "receipts/process.py",
    "recovery/recall/factory.py",
    "recovery/resend/desk.py",
    "recovery/wiring.py",
}
READS = {
    "admin/parts.py",  # its actions on deliveries go through recovery/resend/desk.py
    "hongyan/commands/accounts.py",
    "hongyan/commands/campaign.py",
    "hongyan/commands/db.py",
    "hongyan/commands/dead.py",
    "hongyan/commands/deliveries.py",
    "hongyan/commands/lanes.py",
    "hongyan/commands/lookback.py",
    "hongyan/commands/lost.py",
    "hongyan/commands/policy_versions.py",
    "hongyan/commands/resend_jobs.py",
    "hongyan/commands/status.py",
    "hongyan/commands/workers.py",
    "lookback/wiring.py",  # it has tables of its own
    "producer/campaigns/process.py",
    "producer/relay/process.py",
}


OPENER = "hongyan/database.py"
"""Opens the ledger for the commands; each that calls it is named above."""


def _sources() -> dict[str, str]:
    found = {}
    for package in (
        "admin",
        "dispatcher",
        "hongyan",
        "idempotency",
        "lookback",
        "producer",
        "receipts",
        "recovery",
        "sending",
    ):
        for path in (ROOT / package).rglob("*.py"):
            found[path.relative_to(ROOT).as_posix()] = path.read_text()
    return found


def test_no_other_module_writes_rows() -> None:
    """A new statement has to announce its ends: see tests of this page, then add its module."""
    writers = {name for name, text in _sources().items() if _WRITES.search(_texts(text))}
    assert writers == WRITERS


def _texts(source: str) -> str:
    """Returns the strings of a module, but for its docstrings."""
    tree = ast.parse(source)
    docs = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return "\n".join(
        " ".join(node.value.split())
        for node in constants
        if isinstance(node.value, str) and id(node) not in docs
    )


def test_every_process_that_opens_the_ledger_follows_the_policy_or_only_reads() -> None:
    opens = {
        name
        for name, text in _sources().items()
        if re.search(r"\bopen(ed)?_ledger\(settings\b", text)
        and not name.startswith("idempotency/")
        and name != OPENER
    }
    assert opens == FOLLOWS | READS
    for name in FOLLOWS:
        wiring = "dispatcher/wiring.py" if name == "dispatcher/process.py" else name
        assert "announced.follow(" in (ROOT / wiring).read_text(), name


def test_the_rows_that_silent_writers_leave_are_open() -> None:
    lines = (ROOT / "idempotency/lines.py").read_text()
    leases = (ROOT / "idempotency/fleet/worker_leases.py").read_text()
    assert "SET state" not in lines
    assert re.findall(r"SET state = '(\w+)', reason", leases) == ["UNKNOWN", "UNKNOWN"]
    assert State.UNKNOWN in OPEN
