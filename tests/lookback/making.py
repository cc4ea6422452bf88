"""Look-back records, and a store whose clock a test moves by hand."""

from typing import Any

from msgspec.structs import replace
from uuid_utils import uuid7

from backends.lookback_settings import BizTypeSettings
from idempotency.payload_cipher import PayloadCipher
from lookback.check import Answer, CheckReply
from lookback.desk import SqlLookbackDesk
from lookback.operator import TxShown
from lookback.store import Forwarded, LookbackStore
from lookback.transaction import TxRow, TxTerms, made_terms
from message.lookback import CommitRecord, LookbackRecord, PrepareRecord, RollbackRecord
from tests.idempotency.making import World

KIND = "order"
IMMUNITY, CHECK, DEADLINE, LONGEST, GRACE, LEASE = 10_000, 5_000, 100_000, 60_000, 20_000, 2_000
TERMS = made_terms(
    BizTypeSettings(
        check="orders",
        topics=["t*"],
        immunity_s=IMMUNITY / 1_000,
        check_s=CHECK / 1_000,
        longest_pause_s=CHECK / 1_000,
        max_checks=3,
        deadline_s=DEADLINE / 1_000,
        longest_transaction_s=LONGEST / 1_000,
        grace_s=GRACE / 1_000,
        threads=2,
    )
)
COMMIT, UNKNOWN = CheckReply(Answer.COMMIT), CheckReply(Answer.UNKNOWN, "it is 500")
ROLLBACK, FENCED = CheckReply(Answer.ROLLBACK), CheckReply(Answer.ROLLBACK, fenced=True)


def tx_at(ms: int) -> str:
    """Returns a tx_id that was made at this time."""
    return f"{ms:012x}{uuid7().hex[12:]}"


class Ground:
    """One store and its clock."""

    def __init__(
        self, world: World, terms: dict[str, TxTerms] | None = None, key: str = ""
    ) -> None:
        self.world = world
        self.ledger = world.first
        self.store = LookbackStore(
            self.ledger.database,
            self.ledger.clock,
            PayloadCipher(key),
            {KIND: TERMS} if terms is None else terms,
        )
        self.desk = SqlLookbackDesk(self.store)

    def tx(self) -> str:
        return tx_at(self.world.now)

    def prepare(self, tx_id: str, payload: bytes = b"{}", **more: Any) -> PrepareRecord:
        record = PrepareRecord(
            biz_type=KIND, biz_id=f"o-{tx_id[-6:]}", tx_id=tx_id, topic="t", payload=payload
        )
        return replace(record, **more)

    def commit(self, tx_id: str) -> CommitRecord:
        return CommitRecord(biz_type=KIND, biz_id=f"o-{tx_id[-6:]}", tx_id=tx_id)

    def rollback(self, tx_id: str) -> RollbackRecord:
        return RollbackRecord(biz_type=KIND, biz_id=f"o-{tx_id[-6:]}", tx_id=tx_id)

    def take(self, *records: LookbackRecord) -> dict[str, int]:
        return dict(self.store.take(records).did)

    def prepared(self) -> str:
        """Returns a transaction that is PREPARED."""
        tx_id = self.tx()
        self.take(self.prepare(tx_id))
        return tx_id

    def claim(self, limit: int = 100) -> list[TxRow]:
        return self.store.claim_checks(KIND, limit, LEASE)

    def checking(self) -> TxRow:
        """Returns a transaction under a check."""
        self.prepared()
        self.world.advance(IMMUNITY)
        (row,) = self.claim()
        return row

    def forward(self) -> list[TxRow]:
        """Leases and marks all that is due, as acknowledged."""
        rows = self.store.claim_forwards(100, LEASE)
        self.store.mark_forwarded([Forwarded(row, "t/0/1") for row in rows])
        return rows

    def shown(self, tx_id: str) -> TxShown:
        (found,) = self.desk.find(tx_id)
        return found

    def state(self, tx_id: str) -> str:
        return self.shown(tx_id).state.value

    def alerts(self) -> dict[str, int]:
        """Returns the counts of the alerts by rule."""
        found = self.world.rows("SELECT rule, kept FROM alerts")
        counts: dict[str, int] = {}
        for rule, kept in found:
            counts[rule] = counts.get(rule, 0) + kept
        return counts
