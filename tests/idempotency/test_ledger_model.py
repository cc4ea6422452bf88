"""Any order of claims, outcomes, repeats, lapses and sweeps, held against a model of a few lines."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from idempotency.ledger import Claim, Claimed, Lease, LedgerUnavailable, Settlement
from message.delivery import Delivery
from message.ids import new_token
from message.states import OPEN, Event, State, after
from tests.idempotency.making import LEASE_MS, World, claims, delivery, reply_lost, worker

OWNERS = ("w1", "w2", "w3")
KEYS = 8
LINE = 3
"""The first of the deliveries share an ordering key."""
OUTCOMES = (
    Event.ACCEPTED,
    Event.REJECTED,
    Event.NOT_SENT,
    Event.UNKNOWN,
    Event.TTL,
    Event.BUDGET_SPENT,
    Event.GIVEN_BACK,
)
ENTRIES = (*[Event.CLAIM] * 3, Event.TTL_AT_INTAKE, Event.DROP, Event.PARK, Event.HOLD)
batches = st.lists(
    st.tuples(st.integers(0, KEYS - 1), st.sampled_from(ENTRIES)), min_size=1, max_size=5
)


class Row:
    """What the model knows of one delivery."""

    def __init__(self, state: State, token: int, life: tuple[str, int], attempt: int) -> None:
        self.state = state
        self.token = token
        self.life = life
        self.attempt = attempt
        self.given_back = False
        self.behind = False


class LedgerModel(RuleBasedStateMachine):
    """The ledger beside a dictionary."""

    open_world: Any = None  # set per database below

    made = Bundle("made")
    """(claims, owner, ordered) that may be repeated as they were."""
    flying = Bundle("flying")
    """(delivery with its token) that some worker believes it owns."""

    @initialize()
    def begin(self) -> None:
        self.stack = ExitStack()
        self.world: World = self.stack.enter_context(self.open_world())
        self.ledger = self.world.open()
        self.items = [delivery(ordering_key="line" if n < LINE else None) for n in range(KEYS)]
        self.rows: dict[str, Row] = {}
        self.leases: dict[str, Lease] = {}
        self.alive_until: dict[str, int] = {}
        self.epochs = dict.fromkeys(OWNERS, 0)
        for owner in OWNERS:
            self._register(owner)

    def teardown(self) -> None:
        if hasattr(self, "stack"):
            self.stack.close()

    # -- workers --

    @rule(owner=st.sampled_from(OWNERS))
    def beat(self, owner: str) -> None:
        renewed = self.ledger.heartbeat(self.leases[owner])
        ended = self.alive_until[owner] < 0  # swept, or retired; a late heartbeat is none of these
        assert (renewed is None) == ended
        if renewed:
            self.alive_until[owner] = self.world.now + LEASE_MS

    @rule(owner=st.sampled_from(OWNERS))
    def register_again(self, owner: str) -> None:
        self._register(owner)

    @rule(owner=st.sampled_from(OWNERS))
    def retire(self, owner: str) -> None:
        self.ledger.retire(self.leases[owner])
        self.alive_until[owner] = -1
        self._orphan(lambda row: row.life == (owner, self.epochs[owner]))

    @rule(ms=st.sampled_from((1, LEASE_MS // 2, LEASE_MS + 1)))
    def time_passes(self, ms: int) -> None:
        self.world.advance(ms)

    @rule()
    def sweep(self) -> None:
        before = [row for row in self.rows.values() if row.state is State.IN_FLIGHT]
        swept = self.ledger.sweep()
        for owner in OWNERS:
            if not self._alive(owner):
                self.alive_until[owner] = -1
        self._orphan(lambda row: not self._lives(row.life))
        assert sum(n for _owner, n in swept) == sum(r.state is State.UNKNOWN for r in before)

    # -- deliveries --

    @rule(
        target=made,
        batch=batches,
        owner=st.sampled_from(OWNERS),
        ordered=st.booleans(),
    )
    def claim_and_lose_the_reply(
        self, batch: list[tuple[int, Event]], owner: str, ordered: bool
    ) -> object:
        made = [claims([self.items[n]], event)[0] for n, event in batch]
        with reply_lost(self.ledger.database), pytest.raises(LedgerUnavailable):
            self.ledger.claim(made, owner, ordered=ordered)
        self._expect(made, owner, ordered, cut=True)
        return (made, owner, ordered)

    @rule(target=flying, tried=consumes(made))
    def claim_once_more(self, tried: tuple[list[Claim], str, bool]) -> object:
        return self._claim(*tried)

    @rule(
        target=flying,
        batch=batches,
        owner=st.sampled_from(OWNERS),
        ordered=st.booleans(),
    )
    def claim(self, batch: list[tuple[int, Event]], owner: str, ordered: bool) -> object:
        return self._claim(
            [claims([self.items[n]], event)[0] for n, event in batch], owner, ordered
        )

    def _claim(self, made: list[Claim], owner: str, ordered: bool) -> object:
        """What it won is in flight."""
        answers = self.ledger.claim(made, owner, ordered=ordered)
        self._expect(made, owner, ordered)
        return self._flying(made, answers)

    @rule(
        target=flying,
        item=flying,
        event=st.sampled_from(OUTCOMES),
        batch=batches,
        owner=st.sampled_from(OWNERS),
        lost=st.booleans(),
    )
    def settle_and_claim(
        self, item: Delivery, event: Event, batch: list[tuple[int, Event]], owner: str, lost: bool
    ) -> object:
        made = [claims([self.items[n]], entry)[0] for n, entry in batch]
        outcome = [Settlement(item, event, reason="why", delay_ms=5)]
        row = self.rows[item.key]
        ours = row.state is State.IN_FLIGHT and row.token == item.token
        if lost:
            with reply_lost(self.ledger.database), pytest.raises(LedgerUnavailable):
                self.ledger.settle_and_claim(outcome, made, owner)
        (written,), answers = self.ledger.settle_and_claim(outcome, made, owner)
        if ours:
            self._write(row, event)
        if not lost and row.token != item.token:
            assert not written
        elif ours and all(claim.delivery.key != item.key for claim in made):
            assert written
        self._expect(made, owner, False)
        return self._flying(made, answers)

    def _flying(self, made: list[Claim], answers: list[Claimed]) -> object:
        """The claims that won, as deliveries that may be settled."""
        first: set[str] = set()
        won = []
        for claim, answer in zip(made, answers, strict=True):
            key, row = claim.delivery.key, self.rows[claim.delivery.key]
            assert answer.state is row.state
            assert answer.attempt == row.attempt
            assert not answer.conflict
            assert answer.won == (key not in first and self._won(claim, row))
            first.add(key)
            if answer.won and answer.state is State.IN_FLIGHT:
                claim.delivery.token, claim.delivery.day = claim.token, answer.day
                won.append(claim.delivery)
        return multiple(*won)

    @rule(item=flying, event=st.sampled_from(OUTCOMES), lost=st.booleans(), stale=st.booleans())
    def settle(self, item: Delivery, event: Event, lost: bool, stale: bool) -> None:
        if stale:
            item = Delivery(**{**_fields(item), "token": new_token()})
        outcome = [Settlement(item, event, reason="why", delay_ms=5)]
        row = self.rows[item.key]
        ours = row.state is State.IN_FLIGHT and row.token == item.token
        if lost:
            with reply_lost(self.ledger.database), pytest.raises(LedgerUnavailable):
                self.ledger.settle(outcome)
        if ours:
            self._write(row, event)
            assert self.ledger.settle(outcome) == [True]
            assert self.ledger.settle(outcome) == [True]
        elif row.token != item.token:
            assert self.ledger.settle(outcome) == [False]
        else:
            self.ledger.settle(outcome)  # its own outcome again, or another one: nothing changes

    # -- what always holds --

    @invariant()
    def the_ledger_stands_as_the_model(self) -> None:
        if not hasattr(self, "world"):
            return
        found = self.world.rows("SELECT delivery_key, state, token, attempt FROM deliveries")
        assert {key: (state, token, attempt) for key, state, token, attempt in found} == {
            key: (str(row.state), row.token, row.attempt) for key, row in self.rows.items()
        }

    # -- the model --

    def _register(self, owner: str) -> None:
        self.leases[owner] = self.ledger.register(worker(owner))
        self.epochs[owner] += 1
        assert self.leases[owner].epoch == self.epochs[owner]
        self.alive_until[owner] = self.world.now + LEASE_MS
        self._orphan(lambda row: row.life[0] == owner and row.life[1] < self.epochs[owner])

    def _alive(self, owner: str) -> bool:
        return self.world.now <= self.alive_until[owner]

    def _lives(self, life: tuple[str, int]) -> bool:
        return self._alive(life[0]) and life[1] == self.epochs[life[0]]

    def _orphan(self, which: Any) -> None:
        for row in self.rows.values():
            if row.state is State.IN_FLIGHT and which(row):
                row.state = after(row.state, Event.OWNER_DEAD)

    def _expect(self, made: list[Claim], owner: str, ordered: bool, *, cut: bool = False) -> None:
        """`cut`: the reply to the inserts was lost, so nothing was taken over after them."""
        seen: set[str] = set()
        open_line = {c for c, row in self.rows.items() if row.state in OPEN and c in self._line()}
        for claim in made:
            key = claim.delivery.key
            if key in self.rows:
                if key not in seen and not cut:
                    self._take_over(claim, self.rows[key], owner)
                seen.add(key)
                continue
            row = Row(
                after(None, claim.event),
                claim.token,
                (owner, self.epochs[owner]),
                int(claim.event is Event.CLAIM),
            )
            in_line = ordered and key in self._line()
            if in_line and open_line and claim.event is Event.CLAIM:
                row.state, row.attempt, row.behind = State.RETRY, 0, True
            if in_line and row.state in OPEN:
                open_line.add(key)
            self.rows[key] = row
            seen.add(key)

    def _take_over(self, claim: Claim, row: Row, owner: str) -> None:
        if row.state is State.RETRY and row.given_back and claim.event is Event.CLAIM:
            row.state, row.token = after(row.state, Event.TAKE_OVER), claim.token
            row.life, row.given_back = (owner, self.epochs[owner]), False
            row.attempt += 1

    def _won(self, claim: Claim, row: Row) -> bool:
        if row.token != claim.token:
            return False
        if claim.event is Event.CLAIM:
            return row.state is State.IN_FLIGHT or row.behind
        return row.state is after(None, claim.event)

    def _write(self, row: Row, event: Event) -> None:
        row.state = after(row.state, event)
        row.given_back = event is Event.GIVEN_BACK
        row.attempt -= event in (Event.GIVEN_BACK, Event.TTL)

    def _line(self) -> set[str]:
        return {item.key for item in self.items[:LINE]}


def _fields(item: Delivery) -> dict[str, Any]:
    return {name: getattr(item, name) for name in item.__struct_fields__}


def run(open_world: Any, *, examples: int, steps: int) -> None:
    machine = type("Machine", (LedgerModel,), {"open_world": staticmethod(open_world)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


class Opened:
    """A world for one example, closed and removed after it."""

    def __init__(self, url: str) -> None:
        self.world = World(url)

    def __enter__(self) -> World:
        return self.world

    def __exit__(self, *_exc: object) -> None:
        self.world.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.soak(small="::test_postgresql_behaves_as_the_model")
def test_sqlite_behaves_as_the_model(folder: Path) -> None:
    count = iter(range(10**6))
    run(lambda: Opened(f"sqlite:///{folder}/{next(count)}.db"), examples=150, steps=40)


class Emptied(Opened):
    """One PostgreSQL database for all examples, emptied for each: making one takes its time."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.run("TRUNCATE deliveries, delivery_keys, payloads, workers")

    def __exit__(self, *_exc: object) -> None:
        self.world.close()


def test_postgresql_behaves_as_the_model(postgres: World) -> None:
    run(lambda: Emptied(postgres), examples=12, steps=25)
