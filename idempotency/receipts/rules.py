"""Receipts: a provider's later word about a delivery, and the row that it moves.

A receipt is stored first, durably and once, however often it is repeated. Then it is placed by the
provider's id, or by the call's key for a row without that id (a call whose outcome is open). Where one id
names many rows, the receiver decides. Receivers are sealed in the ledger and digested here: those of the
few rows with the right name are opened and compared.

    SENT ─▶ DELIVERED | UNDELIVERED
    UNKNOWN, RETRY in doubt ─▶ SENT ─▶ …   a receipt proves that it was sent
    IN_FLIGHT, any other RETRY, PARKED     the receipt waits until the row has come further. It names the
                                           row: it is evidence for recovery and for a person
    DELIVERED, UNDELIVERED, …              the first final word stays: repeated or contradicted, recorded
    no row                                 kept, and looked for again and again while receipts are kept
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec
import structlog

from idempotency.claims.rows import clean
from idempotency.payload_cipher import PayloadCipher, PayloadUnreadable
from message.states import OPEN, Event, State, after

log = structlog.get_logger(__name__)

_DIGITS: Final = 32
_LATEST_MS: Final = (1 << 63) - 1
"""The databases' greatest time; a later one counts as none."""
_WAITS: Final = OPEN - {State.UNKNOWN} | {State.PARKED}
"""A receipt does not move these rows: their own outcome, or a person for PARKED, comes first. A RETRY that
an earlier call may have sent is none of them."""


class ReceiptState(StrEnum):
    """Kinds of receipts, spelt as the state that each proves."""

    SENT = "SENT"
    DELIVERED = "DELIVERED"
    UNDELIVERED = "UNDELIVERED"


_FINAL: Final = {
    ReceiptState.DELIVERED: Event.RECEIPT_DELIVERED,
    ReceiptState.UNDELIVERED: Event.RECEIPT_UNDELIVERED,
}


class ApplyResult(StrEnum):
    """Results of placing a receipt."""

    APPLIED = "applied"
    REPEATED = "repeated"
    """The row has that state already."""
    CONTRADICTED = "contradicted"
    """The row has another state, which came first."""


class Receipt(msgspec.Struct, frozen=True):
    """One statement of a provider about one delivery. Holds a receiver: not for logs."""

    account: str
    said: ReceiptState
    provider_id: str = ""
    call_key: str = ""
    """The name that we gave the call; one of the two names must be there."""
    receivers: tuple[str, ...] = ()
    """The receiver, in each spelling that the ledger may have; empty where the provider names none."""
    code: str | None = None
    """The provider's own, for a message that did not arrive."""
    at: int = 0
    """Time of the event, epoch milliseconds; 0 where the provider names none."""

    def __post_init__(self) -> None:
        if not (self.provider_id or self.call_key):
            raise ValueError("a receipt must name the provider's id or the call's key")


class StoredReceipt(NamedTuple):
    """One receipt as its table has it, in the order of the statements; the first five are its key."""

    account: str
    provider_id: str
    call_key: str
    receivers: str
    said: str
    code: str | None
    at: int
    received_at: int = 0

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """The fields that identify the receipt."""
        return self[:5]


class CandidateRow(NamedTuple):
    """A row of the ledger that a receipt may belong to."""

    key: str
    day: int
    state: str
    version: int
    provider_id: str | None
    call_key: str | None
    account: str | None
    receiver: bytes
    message_id: str
    biz_id: str | None
    lane: str
    attempt: int
    ordering_key: str | None = None
    created_at: int = 0
    policy_version: str = ""
    reason: str | None = None
    owner: str = ""
    updated_at: int = 0
    called_at: int | None = None
    last_called_at: int | None = None
    template: str | None = None
    receiver_hash: bytes | None = None
    kafka_topic: str | None = None
    kafka_partition: int | None = None
    kafka_offset: int | None = None


class ReceiptVerdict(NamedTuple):
    """The effect of one receipt. It waits where `row` or `applied` is None."""

    receipt: StoredReceipt
    row: CandidateRow | None = None
    applied: ApplyResult | None = None
    state: State | None = None
    """The row's state after this receipt."""
    receiver: str = ""
    moves: bool = False
    """The row must be written for it."""


def kept(receipt: Receipt) -> StoredReceipt:
    """Returns the receipt as it is stored."""
    provider_id, call_key = clean(receipt.provider_id), clean(receipt.call_key)
    name = provider_id or call_key
    receivers = ",".join(digest(name, receiver) for receiver in receipt.receivers)
    code = clean(receipt.code) if receipt.code else None
    at = receipt.at if 0 <= receipt.at <= _LATEST_MS else 0
    return StoredReceipt(
        receipt.account, provider_id, call_key, receivers, receipt.said.value, code, at
    )


def digest(name: str, receiver: str) -> str:
    """Returns 32 hex digits. `name` is the receipt's: no two receipts show the same for one person."""
    return sha256(f"{name}\x1f{receiver}".encode(errors="replace")).hexdigest()[:_DIGITS]


def judge(
    due: Sequence[StoredReceipt], rows: Iterable[CandidateRow], sealer: PayloadCipher
) -> list[ReceiptVerdict]:
    """Returns the effect of each receipt, the earliest first."""
    index = _Index(rows, sealer)
    states: dict[str, State] = {}
    verdicts = []
    for receipt in sorted(due, key=lambda one: (one.received_at, one.at)):
        row, receiver = index.find(receipt)
        if row is None:
            verdicts.append(ReceiptVerdict(receipt))
            continue
        before = states.get(row.key) or State(row.state)
        doubted = row.called_at is not None
        applied, state = decide(ReceiptState(receipt.said), before, doubted=doubted)
        states[row.key] = state
        verdicts.append(ReceiptVerdict(receipt, row, applied, state, receiver, state is not before))
    return verdicts


def decide(
    reported: ReceiptState, state: State, *, doubted: bool = False
) -> tuple[ApplyResult | None, State]:
    """Returns the effect of a receipt on a row in `state`, and the state after it. `doubted`: an earlier
    call of the row may have sent it."""
    if state is State.UNKNOWN or (state is State.RETRY and doubted):
        sent = after(state, Event.RESOLVED_SENT)
        return ApplyResult.APPLIED, decide(reported, sent)[1]
    if state in _WAITS:
        return None, state
    if state is State.SENT and reported is not ReceiptState.SENT:
        return ApplyResult.APPLIED, after(state, _FINAL[reported])
    proved = state in (State.SENT, State.DELIVERED, State.UNDELIVERED)
    if state.value == reported.value or (reported is ReceiptState.SENT and proved):
        return ApplyResult.REPEATED, state
    return ApplyResult.CONTRADICTED, state


class _Index:
    """Finds the row of a receipt among the candidates of a batch."""

    def __init__(self, rows: Iterable[CandidateRow], sealer: PayloadCipher) -> None:
        self._sealer = sealer
        self._by_id: dict[str, list[CandidateRow]] = {}
        self._by_call: dict[str, list[CandidateRow]] = {}
        self._groups: dict[tuple[str, str, str], list[CandidateRow]] = {}
        self._receivers: dict[str, str] = {}
        self._digests: dict[tuple[str, str, str], dict[str, CandidateRow]] = {}
        for row in {row.key: row for row in rows}.values():
            self._by_call.setdefault(row.call_key or row.key, []).append(row)
            if row.provider_id:
                self._by_id.setdefault(row.provider_id, []).append(row)

    def find(self, receipt: StoredReceipt) -> tuple[CandidateRow | None, str]:
        """Returns the row and its receiver. Without receivers a receipt fits only a name of one row."""
        named = self._named(receipt)
        row: CandidateRow | None = None
        if not receipt.receivers:
            row = named[0] if len(named) == 1 else None
        else:
            digests = self._digested(receipt, named)
            row = next((digests[d] for d in receipt.receivers.split(",") if d in digests), None)
        return row, self._receiver(row) if row else ""

    def _named(self, receipt: StoredReceipt) -> list[CandidateRow]:
        """Returns the rows of this name. A receipt with a provider's id finds a row by its call only if the
        row has no such id: the same call made again may have got another id."""
        group = receipt.key[:3]
        if group not in self._groups:
            rows = list(self._by_id.get(receipt.provider_id, ()))
            if receipt.call_key:
                called = self._by_call.get(receipt.call_key, ())
                rows += [row for row in called if not (row.provider_id and receipt.provider_id)]
            self._groups[group] = [r for r in rows if r.account in (None, receipt.account)]
        return self._groups[group]

    def _digested(
        self, receipt: StoredReceipt, named: Sequence[CandidateRow]
    ) -> dict[str, CandidateRow]:
        group = receipt.key[:3]
        if group not in self._digests:
            name = receipt.provider_id or receipt.call_key
            self._digests[group] = {
                digest(name, receiver): row for row in named if (receiver := self._receiver(row))
            }
        return self._digests[group]

    def _receiver(self, row: CandidateRow) -> str:
        """Returns the receiver, opened once; empty where our key does not open it."""
        if row.key not in self._receivers:
            try:
                opened = self._sealer.open(bytes(row.receiver), row.message_id).decode()
            except PayloadUnreadable as exc:
                log.warning("receiver_unreadable", delivery=row.key, cause=str(exc))
                opened = ""
            self._receivers[row.key] = opened
        return self._receivers[row.key]
