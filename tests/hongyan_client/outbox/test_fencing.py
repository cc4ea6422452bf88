"""Claims, marks, lapsed leases, releases and recalls in any order (hypothesis), against a model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from hongyan_client.outbox.store import ClaimedBatch, ClaimedRow, FailedRow
from tests.hongyan_client.outbox.places import LEASE_MS, OutboxPlace, opened

Held = tuple[ClaimedBatch, ClaimedRow]


class OutboxMachine(RuleBasedStateMachine):
    """Publishers that sleep, die and come back. `holder` is the model: the one token that counts."""

    held = Bundle("held")

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.context = opened(f"sqlite:///{Path(self.folder.name) / 'o.db'}")
        self.place: OutboxPlace = self.context.__enter__()
        self.order: dict[str | None, list[str]] = {}
        self.holder: dict[str, int] = {}
        self.ended: dict[str, str] = {}
        self.first_claims: dict[str | None, list[str]] = {}

    def teardown(self) -> None:
        self.context.__exit__(None, None, None)
        self.folder.cleanup()

    @rule(key=st.sampled_from([None, "a", "b"]))
    def add(self, key: str | None) -> None:
        self.order.setdefault(key, []).append(self.place.add(key))

    @rule(target=held, limit=st.integers(1, 5))
    def claim(self, limit: int) -> Any:
        batch = self.place.store.claim_due("r", LEASE_MS, limit)
        for row in batch.rows:
            assert row.message_id not in self.ended
            assert row.message_id not in self.holder, "two publishers hold one row"
            self.holder[row.message_id] = batch.token
            self._note_first(row.message_id)
        return multiple(*((batch, row) for row in batch.rows))

    @rule(one=consumes(held))
    def mark_sent(self, one: Held) -> None:
        self._mark(one, None, "SENT")

    @rule(one=consumes(held))
    def mark_failed(self, one: Held) -> None:
        self._mark(one, 0, "PENDING")

    @rule(one=consumes(held))
    def park(self, one: Held) -> None:
        self._mark(one, -1, "PARKED")

    @rule(one=held)
    def lease_ends(self, one: Held) -> None:
        batch, row = one
        if self.holder.get(row.message_id) == batch.token:
            self.place.end_lease(row.message_id)
            del self.holder[row.message_id]

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        parked = [one for one, state in self.ended.items() if state == "PARKED"]
        if parked:
            message_id = data.draw(st.sampled_from(parked))
            assert self.place.operator.release(message_id, "li", "mended") == 1
            del self.ended[message_id]

    @rule()
    def held_rows_come_up(self) -> None:
        with self.place.engine.begin() as connection:
            connection.exec_driver_sql(
                "UPDATE hongyan_outbox SET next_at = 1 WHERE state = 'PENDING'"
            )

    @invariant()
    def one_row_of_a_key_is_in_flight(self) -> None:
        states = self.place.states() if hasattr(self, "place") else {}
        for key, ids in getattr(self, "order", {}).items():
            if key is not None:
                flying = [one for one in ids if states[one] == "SENDING"]
                assert len(flying) <= 1, f"{key}: {flying}"

    @invariant()
    def what_the_token_decided_stays(self) -> None:
        if hasattr(self, "place"):
            states = self.place.states()
            assert {one: states[one] for one in self.ended} == self.ended
            assert all(states[one] == "SENDING" for one in self.holder)

    @invariant()
    def keys_begin_in_order(self) -> None:
        for key, begun in getattr(self, "first_claims", {}).items():
            if key is not None:
                assert begun == self.order[key][: len(begun)]

    def _mark(self, one: Held, delay_ms: int | None, state: str) -> None:
        batch, row = one
        mine = self.holder.get(row.message_id) == batch.token
        failed = [] if state == "SENT" else [FailedRow(row, "x", True, _delay(delay_ms))]
        sent = [row] if state == "SENT" else []
        fenced = self.place.store.mark(batch.token, sent, failed)
        lapsed = fenced == 0 and not mine
        assert fenced == (0 if mine else 1) or lapsed
        if mine or lapsed:
            self.holder.pop(row.message_id, None)
            if state in ("SENT", "PARKED"):
                self.ended[row.message_id] = state

    def _note_first(self, message_id: str) -> None:
        key = next(key for key, ids in self.order.items() if message_id in ids)
        begun = self.first_claims.setdefault(key, [])
        if message_id not in begun:
            begun.append(message_id)


def _delay(delay_ms: int | None) -> int | None:
    return None if delay_ms == -1 else delay_ms


TestFencing = OutboxMachine.TestCase
TestFencing.settings = settings(max_examples=15, stateful_step_count=25)
