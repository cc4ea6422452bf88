"""Claims and settlements on every database: the batch around the statement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from idempotency.claims.rows import (
    ClaimBatch,
    ExistingRow,
    OutcomeRow,
    answer,
    change,
    takes_over,
    wrote,
)
from idempotency.ledger import Claim, Claimed, LedgerUnavailable, Settlement
from idempotency.lines import Line, line_ended
from idempotency.outcomes.lanes import AnnouncedLanes
from idempotency.payload_cipher import PayloadCipher, body_digest
from message.delivery import Delivery
from message.receiver_hash import HashReceiver, no_hash
from message.states import Event, State, after

MS_PER_DAY = 86_400_000


class ClaimResult(NamedTuple):
    """The result of one claim statement: keys not entered, keys put behind another, recalled keys."""

    day: int
    lost: Sequence[str]
    behind: Sequence[str]
    recalled: Sequence[str]


class TakeoverRow(NamedTuple):
    """A row that existed: taken under `token` if it was given back unstarted, else read."""

    key: str
    token: int
    digest: bytes
    takes: bool
    account: str | None = None
    call_key: str | None = None
    call_digest: str | None = None
    policy_version: str | None = None


class RerouteRow(NamedTuple):
    """One delivery that is called through another account, in the order of the ledger's parameters."""

    key: str
    day: int
    token: int
    account: str
    call_key: str | None
    call_digest: str | None


class ClaimStore(ABC):
    """Answers in the order asked, names each key once, and reads back rows that existed."""

    def __init__(
        self,
        sealer: PayloadCipher,
        announced: AnnouncedLanes,
        hash_receiver: HashReceiver = no_hash,
    ) -> None:
        self._sealer = sealer
        self._hash_receiver = hash_receiver
        self._announced = announced

    @abstractmethod
    def _enter(
        self, batch: ClaimBatch, owner: str, ordered: bool, *, announces: bool
    ) -> ClaimResult:
        """Inserts the rows whose keys are new, durably, in one statement.

        The rows of one line are in their order in the batch. `announces`: the same transaction writes the
        ends of lanes that are announced; so in the methods below.
        """

    @abstractmethod
    def _take_or_look(self, wanted: Sequence[TakeoverRow], owner: str) -> list[ExistingRow]:
        """Takes the rows that were given back unstarted. Returns all rows as they are then."""

    @abstractmethod
    def _change(self, changes: Sequence[OutcomeRow], *, announces: bool) -> int:
        """Writes outcomes to rows still IN_FLIGHT under their token, in one statement. Returns how many."""

    @abstractmethod
    def _change_in_lines(
        self, changes: Sequence[OutcomeRow], lines: Iterable[Line], *, announces: bool
    ) -> int:
        """As `_change`; wakes the heads of these lines in the same transaction."""

    @abstractmethod
    def _look(self, keys: Sequence[str]) -> list[ExistingRow]:
        """Returns these rows as they are."""

    @abstractmethod
    def _route(self, rows: Sequence[RerouteRow]) -> dict[str, int]:
        """Puts the calls on record where the row is still IN_FLIGHT under its token. Returns the attempt of
        each of these rows."""

    def _change_and_enter(
        self, changes: Sequence[OutcomeRow], batch: ClaimBatch, owner: str, *, announces: bool
    ) -> tuple[int, ClaimResult]:
        """`_change`, then `_enter`, in one statement where the database can."""
        changed = self._change(changes, announces=announces)
        return changed, self._enter(batch, owner, False, announces=announces)

    def claim(self, claims: Sequence[Claim], owner: str, *, ordered: bool = False) -> list[Claimed]:
        if not claims:
            return []
        announces = self._announces(claims)
        return self._claimed(
            claims, owner, lambda batch: self._enter(batch, owner, ordered, announces=announces)
        )

    def settle_and_claim(
        self,
        settlements: Sequence[Settlement],
        claims: Sequence[Claim],
        owner: str,
        ordered: frozenset[str] = frozenset(),
    ) -> tuple[list[bool], list[Claimed]]:
        ends_lines = bool(ordered) and any(line_ended(s, ordered) for s in settlements)
        if not settlements or not claims or ends_lines:
            return self.settle(settlements, ordered), self.claim(claims, owner)
        changes = [change(settlement) for settlement in settlements]
        announces = self._announces(settlements) or self._announces(claims)
        changed = 0

        def enter(batch: ClaimBatch) -> ClaimResult:
            nonlocal changed
            changed, entered = self._change_and_enter(changes, batch, owner, announces=announces)
            return entered

        claimed = self._claimed(claims, owner, enter)
        return self._written(changes, changed), claimed

    def _claimed(
        self, claims: Sequence[Claim], owner: str, enter: Callable[[ClaimBatch], ClaimResult]
    ) -> list[Claimed]:
        firsts = {claim.delivery.key: claim for claim in reversed(claims)}
        repeated = len(firsts) < len(claims)
        new = [c for c in claims if firsts[c.delivery.key] is c] if repeated else claims
        entered = enter(ClaimBatch(new, self._sealer, self._hash_receiver))
        if not entered.lost and not repeated:
            return _all_won(claims, entered)
        lost = set(entered.lost)
        wanted = lost.union(_keys_repeated(claims, firsts)) if repeated else lost
        found = self._standings([firsts[key] for key in wanted], owner)
        won = dict(zip((c.delivery.key for c in new), _all_won(new, entered), strict=True))
        return [
            won[key]
            if key not in lost and firsts[key] is claim
            else _answer(claim, found[key], first=firsts[key] is claim)
            for claim in claims
            for key in (claim.delivery.key,)
        ]

    def settle(
        self, settlements: Sequence[Settlement], ordered: frozenset[str] = frozenset()
    ) -> list[bool]:
        """See `Ledger.settle`. An outcome that ends no row of a line waits for no line's lock."""
        if not settlements:
            return []
        changes = [change(settlement) for settlement in settlements]
        announces = self._announces(settlements)
        lines = [line_ended(s, ordered) for s in settlements] if ordered else []
        if not any(lines):
            return self._written(changes, self._change(changes, announces=announces))
        apart = [c for c, line in zip(changes, lines, strict=True) if line is None]
        changed = self._change(apart, announces=announces) if apart else 0
        in_lines = [c for c, line in zip(changes, lines, strict=True) if line is not None]
        ended = [line for line in lines if line is not None]
        changed += self._change_in_lines(in_lines, ended, announces=announces)
        return self._written(changes, changed)

    def _announces(self, items: Sequence[Claim] | Sequence[Settlement]) -> bool:
        """Returns whether a delivery's lane is announced; without such lanes the statements stay as short
        as they are."""
        announced = self._announced
        return bool(announced) and announced.any_of(item.delivery.lane for item in items)

    def _written(self, changes: Sequence[OutcomeRow], changed: int) -> list[bool]:
        """Returns for each change if its row has it; `changed` of them were written just now."""
        if changed == len(changes):
            return [True] * len(changes)
        standing = {row.key: row for row in self._look([change.key for change in changes])}
        return [wrote(change, standing.get(change.key)) for change in changes]

    def reroute(self, deliveries: Sequence[Delivery]) -> list[bool]:
        if not deliveries:
            return []
        attempts = self._route([_rerouted(delivery) for delivery in deliveries])
        for delivery in deliveries:
            if delivery.key in attempts:
                delivery.attempt = attempts[delivery.key] - delivery.unmade
        return [delivery.key in attempts for delivery in deliveries]

    def _standings(self, claims: Iterable[Claim], owner: str) -> dict[str, ExistingRow]:
        wanted = [
            TakeoverRow(
                d.key,
                c.token,
                body_digest(d.payload),
                takes_over(c),
                d.account or None,
                d.call_key or None,
                d.call_digest or None,
                d.policy_version or None,
            )
            for c in claims
            for d in (c.delivery,)
        ]
        found = {row.key: row for row in self._take_or_look(wanted, owner)}
        if len(found) < len(wanted):
            raise LedgerUnavailable(
                "rows were archived while they were looked at; if this goes on, rows were deleted from"
                " deliveries and their keys left in delivery_keys: delete those too"
            )
        return found


def _rerouted(d: Delivery) -> RerouteRow:
    return RerouteRow(d.key, d.day, d.token, d.account, d.call_key or None, d.call_digest or None)


def _keys_repeated(claims: Sequence[Claim], firsts: dict[str, Claim]) -> set[str]:
    return {c.delivery.key for c in claims if firsts[c.delivery.key] is not c}


def _answer(claim: Claim, row: ExistingRow, *, first: bool) -> Claimed:
    answered = answer(claim, row)
    if first or not answered.won:
        return answered
    return Claimed(False, answered.state, answered.conflict, answered.attempt, answered.day)


def _all_won(claims: Sequence[Claim], entered: ClaimResult) -> list[Claimed]:
    """Returns the answers for new rows; equal ones are one object."""
    by_event = {event: _entered(event, entered.day) for event in {c.event for c in claims}}
    if not entered.behind and not entered.recalled:
        return [by_event[c.event] for c in claims]
    waits = Claimed(True, State.RETRY, False, 0, entered.day)
    dropped = Claimed(True, State.DROPPED, False, 0, entered.day)
    others = dict.fromkeys(entered.behind, waits) | dict.fromkeys(entered.recalled, dropped)
    return [others.get(c.delivery.key) or by_event[c.event] for c in claims]


def _entered(event: Event, day: int) -> Claimed:
    return Claimed(True, after(None, event), False, int(event is Event.CLAIM), day)
