"""The store against a model: every order of records, checks, leases, time and decisions of people.

The model knows the contract of docs/lookback.md alone: the first decision wins, and nothing is lost.
"""

from pathlib import Path

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
from msgspec.structs import replace

from lookback.check import CheckReply
from lookback.operator import NotResolvable, TxDecision
from lookback.store import Forwarded
from lookback.transaction import TxRow
from message.lookback import LookbackRecord
from tests.idempotency.making import World
from tests.lookback.making import (
    CHECK,
    COMMIT,
    DEADLINE,
    FENCED,
    GRACE,
    IMMUNITY,
    KIND,
    LEASE,
    LONGEST,
    ROLLBACK,
    TERMS,
    UNKNOWN,
    Ground,
)

TRANSACTIONS = st.integers(0, 1)
ENDS = {"COMMIT": {"COMMITTED", "FORWARDED"}, "ROLLBACK": {"ROLLED_BACK"}}


class Lookback(RuleBasedStateMachine):
    """Two transactions, two processes that check and forward, and a clock."""

    world: World

    @initialize(prepared=st.integers(0, 2))
    def begin(self, prepared: int) -> None:
        for table in ("lookback_transactions", "alerts"):
            self.world.rows_changed(f"DELETE FROM {table}")
        self.terms = {KIND: TERMS}
        self.ground = Ground(self.world, self.terms)
        self.names = [self.ground.tx() for _ in range(2)]
        self.prepared_at: dict[str, int] = {}
        self.decision: dict[str, str] = {}
        """The first decision of each transaction, by whoever made it."""
        self.bodies: dict[str, bytes] = {}
        self.checks: list[TxRow] = []
        """Checks that may still be answered, also those whose lease is over."""
        self.asked_at: dict[int, int] = {}
        """Times of the checks by the token of their lease."""
        self.made: dict[str, int] = {}
        """Checks that were answered while they held their transaction."""
        self.forwards: list[TxRow] = []
        self.sent: dict[str, set[bytes]] = {}
        for number in range(prepared):
            self.prepare(number, b"one")

    def _take(self, number: int, record: LookbackRecord) -> None:
        before = self._states().get(self.names[number])
        taken = self.ground.store.take([record])
        assert not taken.poison
        assert (before in ("FORWARDED", "ROLLED_BACK")) <= (
            taken.did.keys() <= {"repeat", "conflict"}
        )

    @rule(number=TRANSACTIONS, body=st.sampled_from([b"one", b"one", b"two"]))
    def prepare(self, number: int, body: bytes) -> None:
        name = self.names[number]
        ended_early = self._states().get(name) == "ROLLED_BACK" and name not in self.bodies
        self._take(number, self.ground.prepare(name, body))
        if name not in self.bodies and not ended_early:
            self.bodies[name] = body
            self.prepared_at[name] = self.world.now

    @rule(number=TRANSACTIONS, commit=st.booleans())
    def decide(self, number: int, commit: bool) -> None:
        name = self.names[number]
        make = self.ground.commit if commit else self.ground.rollback
        self._take(number, make(name))
        self.decision.setdefault(name, "COMMIT" if commit else "ROLLBACK")

    @rule(ms=st.sampled_from([1, IMMUNITY - 1, GRACE, LONGEST, DEADLINE]))
    def wait(self, ms: int) -> None:
        self.world.advance(ms)

    @rule(immunity_ms=st.sampled_from([IMMUNITY, 3 * IMMUNITY]))
    def configure(self, immunity_ms: int) -> None:
        """The service starts again with another immunity time."""
        self.terms[KIND] = replace(TERMS, immunity_ms=immunity_ms)

    @rule(after=st.sampled_from([0, CHECK, LEASE, IMMUNITY]))
    def claim(self, after: int) -> None:
        self.world.advance(after)
        for row in self.ground.claim():
            assert self.world.now - self.prepared_at[row.tx_id] >= self.terms[KIND].immunity_ms
            assert row.tx_id not in self.decision
            self.checks.append(row)
            self.asked_at[row.lease_token] = self.world.now

    @rule(
        after=st.sampled_from([IMMUNITY, LONGEST]),
        reply=st.sampled_from([COMMIT, UNKNOWN, ROLLBACK, FENCED]),
        first=st.booleans(),
    )
    def ask(self, after: int, reply: CheckReply, first: bool) -> None:
        """Claims what is due and answers one check: the oldest may be one whose lease is over."""
        self.claim(after)
        if self.checks:
            self.answer(reply, first)

    @rule(number=TRANSACTIONS, reply=st.sampled_from([COMMIT, UNKNOWN, ROLLBACK, FENCED]))
    def ask_late(self, number: int, reply: CheckReply) -> None:
        """The question comes just before the longest business transaction ends, the answer after that."""
        asked_at = self.prepared_at.get(self.names[number], 0) + LONGEST - LEASE // 2
        if self.world.now >= asked_at:
            return
        self.claim(asked_at - self.world.now)
        self.world.advance(LEASE - 1)
        if self.checks:
            self.answer(reply, first=False)

    @rule()
    def sweep(self) -> None:
        self.ground.store.sweep()

    @precondition(lambda self: self.checks)
    @rule(reply=st.sampled_from([COMMIT, UNKNOWN, ROLLBACK, FENCED]), first=st.booleans())
    def answer(self, reply: CheckReply, first: bool) -> None:
        row = self.checks.pop(0 if first else -1)
        name = row.tx_id
        held = self._lease(name) == row.lease_token
        did = self.ground.store.reply(row, reply)
        if not held:
            assert did in ("late", "conflict", "repeat")
            return
        self.made[name] = self.made.get(name, 0) + 1
        certain = self.asked_at[row.lease_token] - self.prepared_at[name] >= LONGEST
        if reply == COMMIT:
            self.decision.setdefault(name, "COMMIT")
        elif reply == FENCED or (reply == ROLLBACK and certain):
            self.decision.setdefault(name, "ROLLBACK")

    @rule(number=TRANSACTIONS, commit=st.booleans())
    def person(self, number: int, commit: bool) -> None:
        name, state = self.names[number], self._states().get(self.names[number])
        decision = TxDecision.COMMIT if commit else TxDecision.ROLLBACK
        try:
            self.ground.desk.resolve(name, decision, person="ann", reason="asked")
        except NotResolvable:
            assert state != "UNRESOLVED" or (commit and name not in self.bodies)
        else:
            assert state == "UNRESOLVED"
            # A person may end a commit whose body never came.
            if name in self.decision:
                assert name not in self.bodies
            self.decision[name] = decision.value

    @rule()
    def produce(self) -> None:
        for row in self.ground.store.claim_forwards(10, LEASE):
            self.sent.setdefault(row.tx_id, set()).add(row.body or b"")
            self.forwards.append(row)

    @precondition(lambda self: self.forwards)
    @rule(first=st.booleans())
    def mark(self, first: bool) -> None:
        row = self.forwards.pop(0 if first else -1)
        held = self._lease(row.tx_id) == row.lease_token
        assert self.ground.store.mark_forwarded([Forwarded(row, "t/0/1")]) == held

    @invariant()
    def the_first_decision_holds(self) -> None:
        for name, state in self._states().items():
            decided = self.decision.get(name)
            if state in ("COMMITTED", "FORWARDED"):
                assert decided == "COMMIT"
            if state == "ROLLED_BACK":
                assert decided == "ROLLBACK"
            if decided and name in self.bodies:
                assert state in ENDS[decided]

    @invariant()
    def only_the_prepared_body_of_a_committed_one_was_sent(self) -> None:
        for name, bodies in self.sent.items():
            assert bodies == {self.bodies[name]}
            assert self.decision[name] == "COMMIT"

    @invariant()
    def checks_made_are_the_checks_counted(self) -> None:
        found = self.world.rows("SELECT tx_id, checks FROM lookback_transactions")
        assert {name: checks for name, checks in found if checks} == self.made
        assert all(checks <= TERMS.max_checks for checks in self.made.values())

    @invariant()
    def nothing_is_lost(self) -> None:
        known = {*self.bodies, *self.decision}
        assert known <= self._states().keys()

    def teardown(self) -> None:
        """In the end everything is decided, or waits for a person."""
        if not hasattr(self, "names"):
            return
        for _ in range(2 * TERMS.max_checks + 4):
            self.world.advance(DEADLINE)
            self.sweep()
            self.claim(0)
            while self.checks:
                self.answer(UNKNOWN, first=True)
            self.produce()
            while self.forwards:
                self.mark(first=True)
        assert set(self._states().values()) <= {"FORWARDED", "ROLLED_BACK", "UNRESOLVED"}
        self.the_first_decision_holds()

    def _states(self) -> dict[str, str]:
        if not hasattr(self, "names"):
            return {}
        return dict(self.world.rows("SELECT tx_id, state FROM lookback_transactions"))

    def _lease(self, name: str) -> int:
        query = f"SELECT lease_token FROM lookback_transactions WHERE tx_id = '{name}'"
        ((token,),) = self.world.rows(query)
        return int(token)


@pytest.mark.soak(
    small="tests/lookback/test_service_model.py::test_the_service_does_what_the_model_says"
)
def test_the_store_does_what_the_model_says(tmp_path: Path) -> None:
    world = World(f"sqlite:///{tmp_path / 'hongyan.db'}")
    _ = world.first

    class Here(Lookback):
        pass

    Here.world = world
    # A failing run is not made smaller: the mutation suite waits for it.
    run = settings(
        max_examples=300,
        stateful_step_count=30,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
    )
    run_state_machine_as_test(Here, settings=run)
    world.close()
