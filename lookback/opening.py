"""Opens the look-back's store on the ledger's database."""

from __future__ import annotations

from backends.settings import Settings
from idempotency.payload_cipher import PayloadCipher
from idempotency.sql_ledger import SqlLedger
from lookback.desk import SqlLookbackDesk
from lookback.history import PastTransactions
from lookback.store import LookbackStore
from lookback.transaction import terms_of


def open_store(ledger: SqlLedger, settings: Settings) -> LookbackStore:
    """Returns the store. Raises SettingsError for terms that contradict each other."""
    cipher = PayloadCipher(settings.database.payload_key)
    return LookbackStore(ledger.database, ledger.clock, cipher, terms_of(settings.lookback))


def open_lookback_desk(ledger: SqlLedger, settings: Settings) -> SqlLookbackDesk:
    """Returns the moves of a person, with the archive. Raises SettingsError."""
    store = open_store(ledger, settings)
    past = PastTransactions(ledger.database, settings.lookback.archive_dir, settings.base)
    return SqlLookbackDesk(store, past)
