"""Consumer, forwarder, alerts and archive against a model: every order of records, kills, outages and time.

The processes are killed between any two of their writes. The model knows docs/lookback.md alone. An offset
passes behind its rows. FORWARDED means in Kafka as it was prepared. A park has its alert. Only days that
have ended leave. tests/lookback/test_model.py has decisions, checks and leases.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from backends.lookback_settings import LookbackSettings
from backends.settings import DatabaseSettings, Settings
from idempotency.alerts.windows import note_in
from idempotency.archive.contract import DayOpen
from idempotency.claims.store import MS_PER_DAY
from idempotency.ledger import LedgerUnavailable
from lookback.archive import open_archive
from lookback.consumer import ConsumerParts, LookbackConsumer
from lookback.dead_letters import PoisonWriter
from lookback.forwarder import Forwarder, ForwardTerms
from lookback.metrics import LookbackMetrics
from lookback.states import OPEN_STATES
from message.lookback import encode
from tests.idempotency.making import World
from tests.lookback.kafka_fakes import FakeProducer, FakeRecord
from tests.lookback.making import (
    COMMIT,
    DEADLINE,
    FENCED,
    GRACE,
    IMMUNITY,
    KIND,
    LEASE,
    TERMS,
    UNKNOWN,
    Ground,
)

KEEP = 30
BATCH = 2
TRANSACTIONS = st.integers(0, 1)
ENDED = ("FORWARDED", "ROLLED_BACK")


class Killed(BaseException):
    """The process dies here."""


class Said(NamedTuple):
    """A record of the topic."""

    tx_id: str
    kind: str
    """prepare, commit or rollback."""
    body: bytes
    value: bytes


class Reader:
    """The consumer's Kafka: gives the log from its position, and dies where it is told to."""

    def __init__(self, log: list[Said], committed: int, dies_at: str) -> None:
        self.log, self.position, self.committed = log, committed, committed
        self.dies_at = dies_at

    def consume(self, _most: int, _timeout: float) -> Sequence[FakeRecord]:
        first, self.position = self.position, min(len(self.log), self.position + BATCH)
        return [FakeRecord(self.log[n].value, n) for n in range(first, self.position)]

    def poll(self, _timeout: float) -> None:
        raise Killed  # the database is away: it waits no longer

    def assignment(self) -> list[str]:
        return ["all"]

    def pause(self, _places: object) -> None:
        return

    def resume(self, _places: object) -> None:
        return

    def commit(self, offsets: Sequence[int], asynchronous: bool) -> None:
        assert asynchronous
        if self.dies_at == "before its offset":
            raise Killed
        self.committed = offsets[-1]
        if self.dies_at == "after its offset":
            raise Killed


class Broker(FakeProducer):
    """Counts the messages that it acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.acknowledged = 0

    def poll(self, timeout: float) -> None:
        if not self.holding:
            self.acknowledged = len(self.sent)
        super().poll(timeout)


class Row(NamedTuple):
    """A transaction as the database has it."""

    state: str
    decision: str
    early: str
    conflict: str
    has_body: bool


_ROWS = (
    "SELECT tx_id, state, decision, early, conflict, body_hash IS NOT NULL"
    " FROM lookback_transactions"
)


class LookbackService(RuleBasedStateMachine):
    """Two transactions at a time, one process that takes and one that forwards."""

    world: World
    folder: Path
    patch: pytest.MonkeyPatch

    @initialize()
    def begin(self) -> None:
        for table in ("lookback_transactions", "alerts"):
            self.world.rows_changed(f"DELETE FROM {table}")
        self.ground = Ground(self.world)
        self.log: list[Said] = []
        self.committed = 0
        self.archived: set[str] = set()
        self.damaged: set[str] = set()
        self.alerts_away = False
        self.raised = {"lookback_unresolved": 0, "lookback_conflict": 0}
        """Parks and conflicts that were seen in rows."""
        self.in_kafka: list[tuple[str, tuple[Any, ...]]] = []
        """Messages that the broker has, acknowledged or not: tx_id, and topic, value and key."""
        self.acknowledged: set[str] = set()
        self.names = [self.ground.tx() for _ in range(2)]
        self.producer = Broker()
        self.forwarder = self._new_forwarder()
        self.patch.setattr("lookback.store.note_in", self._note)

    # -- what happens --

    @rule(number=TRANSACTIONS, body=st.sampled_from([b"one", b"one", b"two"]))
    def prepare(self, number: int, body: bytes) -> None:
        record = self.ground.prepare(self.names[number], body)
        self.log.append(Said(record.tx_id, "prepare", body, encode(record)))

    @rule(number=TRANSACTIONS, commit=st.sampled_from([True, True, False]))
    def decide(self, number: int, commit: bool) -> None:
        make = self.ground.commit if commit else self.ground.rollback
        record = make(self.names[number])
        kind = "commit" if commit else "rollback"
        self.log.append(Said(record.tx_id, kind, b"", encode(record)))

    @rule(dies_at=st.sampled_from(["", "", "before its offset", "after its offset"]))
    def take(self, dies_at: str) -> None:
        """A process takes a batch, and may die on both sides of its commit to Kafka."""
        reader = Reader(self.log, self.committed, dies_at)
        parts = ConsumerParts(
            reader,
            self.ground.store,
            PoisonWriter(FakeProducer(), "dead"),
            {KIND: TERMS},
            LookbackMetrics(),
            lambda _topic, _partition, offset: offset,
        )
        taking = LookbackConsumer(parts, "look_back_msg", BATCH, wall_ms=lambda: self.world.now)
        with self._watched():
            try:
                taking.run_once()
            except Killed:
                pass
        self.committed = reader.committed

    @rule(number=TRANSACTIONS)
    def commit_at_once(self, number: int) -> None:
        """A transaction of the good sort."""
        self.prepare(number, b"one")
        self.decide(number, commit=True)
        while self.committed < len(self.log) and not self.alerts_away:
            self.take("")

    @rule(acknowledged=st.booleans(), rounds=st.integers(1, 2))
    def forward(self, acknowledged: bool, rounds: int = 1) -> None:
        """The forwarder goes round; Kafka has what it produced, and may not tell."""
        self.producer.holding = not acknowledged
        sent = len(self.producer.sent)
        with self._watched():
            for _ in range(rounds):
                self.forwarder.run_once()
        self._keep_sent(sent)

    @rule()
    def kill_forwarder(self) -> None:
        """The rows that it did not mark stay leased."""
        self.producer = Broker()
        self.forwarder = self._new_forwarder()

    @rule(number=TRANSACTIONS)
    def damage(self, number: int) -> None:
        """A committed message is changed behind everybody's back."""
        name = self.names[number]
        row = self._rows().get(name)
        if row is not None and row.state == "COMMITTED" and row.has_body:
            self.damaged.add(name)
            self.world.rows_changed(
                f"UPDATE lookback_transactions SET topic = 'u' WHERE tx_id = '{name}'"
            )

    @rule(ms=st.sampled_from([LEASE, IMMUNITY, GRACE, DEADLINE]))
    def wait(self, ms: int) -> None:
        self.world.advance(ms)

    @rule(reply=st.sampled_from([COMMIT, UNKNOWN, FENCED]))
    def check(self, reply: Any) -> None:
        """A check begins and is answered, unless its writes fail."""
        with self._watched():
            for row in self.ground.claim():
                self.ground.store.reply(row, reply)

    @rule()
    def sweep(self) -> None:
        with self._watched():
            self.ground.store.sweep()

    @rule(away=st.booleans())
    def alerts(self, away: bool) -> None:
        """The table of alerts cannot be written, or can be again."""
        self.alerts_away = away

    @precondition(lambda self: self.committed == len(self.log))
    @rule()
    def archive(self) -> None:
        """A month passes. Days leave if each of their transactions has ended."""
        self.world.advance((KEEP + 1) * MS_PER_DAY)
        where = LookbackSettings(archive_dir=str(self.folder), keep_days=KEEP)
        place = DatabaseSettings(url=self.world.url)
        archive = open_archive(self.ground.ledger, Settings(database=place, lookback=where))
        before = self._rows()
        is_open = any(row.state in OPEN_STATES for row in before.values())
        for day in archive.days(KEEP):
            try:
                archive.archive(day)
            except DayOpen:
                assert is_open
        gone = before.keys() - self._rows().keys()
        assert all(before[name].state in ENDED for name in gone)
        self.archived |= gone
        self.names = [self.ground.tx() if one in gone else one for one in self.names]

    # -- what holds --

    @invariant()
    def the_offset_passes_behind_its_rows(self) -> None:
        """Invariant 3."""
        if not hasattr(self, "log"):
            return
        rows = self._rows()
        for said in self.log[: self.committed]:
            if said.tx_id in self.archived:
                continue
            row = rows[said.tx_id]
            if said.kind == "prepare":
                assert row.has_body or row.state == "ROLLED_BACK"
            else:
                assert row.decision or row.early

    @invariant()
    def what_is_forwarded_is_in_kafka_as_it_was_prepared(self) -> None:
        """Invariants 2 and 4: the same topic, bytes and key each time."""
        if not hasattr(self, "log"):
            return
        for tx_id, message in self.in_kafka:
            assert message == ("t", self._prepared(tx_id), f"o-{tx_id[-6:]}".encode())
        rows = self._rows()
        forwarded = {name for name, row in rows.items() if row.state == "FORWARDED"}
        assert forwarded <= self.acknowledged

    @invariant()
    def each_park_and_each_conflict_has_its_alert(self) -> None:
        """Invariant 9."""
        if hasattr(self, "log"):
            told = self.ground.alerts()
            assert {rule: told.get(rule, 0) for rule in self.raised} == self.raised

    @invariant()
    def nothing_is_discarded(self) -> None:
        """Invariant 7: a row stays, or left with its day."""
        if hasattr(self, "log"):
            known = {said.tx_id for said in self.log[: self.committed]}
            assert known <= self._rows().keys() | self.archived

    def teardown(self) -> None:
        """In the end everything that was said is taken; all of it has ended, or waits for a person."""
        if not hasattr(self, "log"):
            return
        self.alerts_away = False
        while self.committed < len(self.log):
            self.take("")
        for _ in range(2 * TERMS.max_checks + 4):
            self.world.advance(DEADLINE)
            self.sweep()
            self.check(UNKNOWN)
            self.forward(acknowledged=True)
        assert {row.state for row in self._rows().values()} <= {*ENDED, "UNRESOLVED"}
        self.what_is_forwarded_is_in_kafka_as_it_was_prepared()
        self.each_park_and_each_conflict_has_its_alert()

    # -- how it is seen --

    def _rows(self) -> dict[str, Row]:
        return {name: Row(*rest) for name, *rest in self.world.rows(_ROWS)}

    def _prepared(self, tx_id: str) -> bytes:
        """Returns the first body that was prepared."""
        return next(one.body for one in self.log if (one.tx_id, one.kind) == (tx_id, "prepare"))

    def _new_forwarder(self) -> Forwarder:
        terms = ForwardTerms(batch=10, lease_s=LEASE / 1_000, poll_s=0.001, drain_s=0.001)
        made = Forwarder(
            self.ground.store,
            self.producer,
            LookbackMetrics(),
            terms,
            monotonic=lambda: self.world.now / 1_000,
        )
        made.stop()  # its pauses end at once
        return made

    def _keep_sent(self, first: int) -> None:
        for topic, value, key, headers in self.producer.sent[first:]:
            self.in_kafka.append((_tx_of(headers), (topic, value, key)))
        known = self.producer.sent[: self.producer.acknowledged]
        self.acknowledged |= {_tx_of(headers) for *_, headers in known}

    def _note(self, connection: Any, raised: Sequence[Any], now: int) -> None:
        if raised and self.alerts_away:
            raise LedgerUnavailable("away")
        note_in(connection, raised, now)

    def _watched(self) -> "Watch":
        return Watch(self)


def _tx_of(headers: Any) -> str:
    return bytes(dict(headers)["hongyan-tx-id"]).decode()


def _count(row: Row) -> int:
    """Returns the number of contradictions in a row."""
    return len(row.conflict.split("; ")) if row.conflict else 0


class Watch:
    """Counts the parks and conflicts that a step brought; a database that is away ends the step."""

    def __init__(self, machine: LookbackService) -> None:
        self._machine = machine

    def __enter__(self) -> None:
        self._before = self._machine._rows()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        nothing = Row("", "", "", "", False)
        for name, row in self._machine._rows().items():
            before = self._before.get(name, nothing)
            parked = row.state == "UNRESOLVED" and before.state != "UNRESOLVED"
            self._machine.raised["lookback_unresolved"] += parked
            self._machine.raised["lookback_conflict"] += _count(row) - _count(before)
        return kind is not None and issubclass(kind, LedgerUnavailable)


@pytest.mark.parametrize("examples", [40, pytest.param(100, marks=pytest.mark.soak)])
def test_the_service_does_what_the_model_says(
    examples: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(f"sqlite:///{tmp_path / 'hongyan.db'}")
    _ = world.first

    class Here(LookbackService):
        pass

    Here.world, Here.folder, Here.patch = world, tmp_path / "archive", monkeypatch
    # A failing run is not made smaller: the mutation suite waits for it.
    run = settings(
        max_examples=examples,
        stateful_step_count=30,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
    )
    run_state_machine_as_test(Here, settings=run)
    world.close()
