"""Opens the ledger that the settings name."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from sqlalchemy import Connection, text

from backends.settings import Settings, SettingsError
from backends.sql import online_indexes, schema
from backends.sql.database import Database, database_url
from backends.sql.login_refusal import refusal
from idempotency.alerts.book import AlertBook
from idempotency.alerts.windows import AlertWindows
from idempotency.archive.contract import Archive, folder_of
from idempotency.archive.lookup import (
    ArchivedDeliveries,
    files_in,
    find_in_files,
    find_in_postgres,
    tables_in_postgres,
)
from idempotency.archive.postgres import PostgresArchive
from idempotency.archive.sqlite import SqliteArchive
from idempotency.claims.postgres import PostgresBatches
from idempotency.claims.sqlite import SqliteBatches
from idempotency.claims.store import ClaimStore
from idempotency.dead_letter_replays import Replays
from idempotency.dead_letters.browsing import LetterBrowser
from idempotency.dead_letters.index import LetterIndex
from idempotency.error_mapping import OUTDATED, connected, errors
from idempotency.fleet.account_pauses import AccountPauses
from idempotency.fleet.controls import Controls
from idempotency.fleet.duties import Duties
from idempotency.fleet.health import FleetHealth
from idempotency.fleet.held_lines import HeldLines
from idempotency.fleet.status import FleetStatus
from idempotency.fleet.worker_leases import Workers
from idempotency.ledger import (
    LedgerError,
    LedgerOutdated,
    LedgerRefused,
    LedgerUnavailable,
)
from idempotency.lookups import Queries
from idempotency.lost.findings import LostFindings
from idempotency.outcomes.lanes import AnnouncedLanes
from idempotency.outcomes.outbox import OutcomeOutbox
from idempotency.partitions import LOOKBACK_TABLES, TABLES, ensure_partitions
from idempotency.payload_cipher import PayloadCipher
from idempotency.recalls import Recalls
from idempotency.recovery.contract import RecoveryStore
from idempotency.recovery.selection import Picks
from idempotency.recovery.store import SqlRecovering
from idempotency.resend_jobs.freezing import JobFreezing
from idempotency.resend_jobs.items import JobItems
from idempotency.resend_jobs.store import ResendJobStore
from idempotency.search.views import SavedViews
from idempotency.sums.rollup import SumRollup
from idempotency.sums.store import SumStore
from idempotency.transactions import Clock
from message.receiver_hash import HashReceiver, hasher

_MAINTAIN_S: Final = 6 * 3600.0
_AGAIN_S: Final = 300.0
"""The same after a failure."""


def wall_ms() -> int:
    """Returns this machine's clock, epoch milliseconds: SQLite has no other."""
    return time.time_ns() // 1_000_000


class SqlLedger:
    """The ledger on PostgreSQL or SQLite; implements `idempotency.ledger.Ledger`. Thread-safe."""

    def __init__(
        self,
        database: Database,
        sealer: PayloadCipher,
        batches: ClaimStore,
        workers: Workers,
        announced: AnnouncedLanes,
    ) -> None:
        self.database = database
        self.announced = announced
        """Lanes whose ends are announced; each process that reads the policy has it follow."""
        self._sealer = sealer
        self._workers = workers
        self._maintain_at = 0.0  # monotonic; `maintain` writes it, on any thread that sweeps
        # Of `Ledger`, as the batches and the workers have them.
        self.claim = batches.claim
        self.settle = batches.settle
        self.settle_and_claim = batches.settle_and_claim
        self.reroute = batches.reroute
        self.register = workers.register
        self.heartbeat = workers.heartbeat
        self.retire = workers.retire
        self.live_lanes = workers.live_lanes
        self.sending_lanes = workers.sending_lanes
        self.now_ms = workers.now_ms

    def identity(self) -> str:
        with connected(self.database) as connection:
            row = connection.execute("SELECT id FROM ledger_identity").fetchone()
        if row is None:
            raise LedgerOutdated("the ledger has lost its identity: see docs/ledger.md, Identity")
        return str(row[0])

    def sweep(self) -> list[tuple[str, int]]:
        """See `Ledger.sweep`; makes the coming days' partitions too, a few times a day."""
        if time.monotonic() >= self._maintain_at:
            self.maintain()
        return self._workers.sweep()

    @property
    def clock(self) -> Clock:
        """The reader of the database's time, for parts beside the ledger's own."""
        return self._workers.clock

    def maintain(self) -> list[str]:
        """Makes the coming days' partitions. Returns the names made."""
        self._maintain_at = time.monotonic() + _AGAIN_S
        with errors():
            made = ensure_partitions(self.database)
        self._maintain_at = time.monotonic() + _MAINTAIN_S
        return made

    def queries(self) -> Queries:
        """Returns searches on this ledger's connections."""
        return Queries(self.database, self._sealer)

    def recovering(self) -> RecoveryStore:
        """Returns recovery's store, with the epochs of the workers registered here."""
        return SqlRecovering(
            self.database,
            self._sealer,
            self._workers.epochs,
            self._workers.clock,
            self.announced,
        )

    def outbox(self) -> OutcomeOutbox:
        """Returns the batches of outcome events that wait."""
        return OutcomeOutbox(self.database, self._workers.clock, self._sealer)

    def picks(self) -> Picks:
        """Returns selections of rows for a person, on this ledger's connections."""
        return Picks(self.database, self._workers.clock)

    def resend_jobs(self) -> ResendJobStore:
        """Returns the resend jobs."""
        return ResendJobStore(self.database, self._workers.clock)

    def job_items(self) -> JobItems:
        """Returns the items of the resend jobs."""
        return JobItems(self.database, self._workers.clock)

    def job_freezing(self) -> JobFreezing:
        """Returns the step that freezes selections of resend jobs."""
        return JobFreezing(self.database, self._workers.clock)

    def recalls(self) -> Recalls:
        """Returns the recalls in this ledger, on its connections."""
        return Recalls(self.database, self._sealer, self._workers.clock)

    def archive(self, folder: str = "", base: str = ".") -> Archive:
        """Returns the archive for days that are over; `folder` is for SQLite's files."""
        if self.database.is_postgres:
            return PostgresArchive(self.database, self._workers.clock)
        place = folder_of(self.database.url.database, folder, base)
        return SqliteArchive(self.database, self._workers.clock, place)

    def archived(self, folder: str = "", base: str = ".") -> ArchivedDeliveries:
        """Returns searches in the archive; `folder` is where SQLite's files are."""
        if self.database.is_postgres:
            find = partial(find_in_postgres, self.database)
            tables = partial(tables_in_postgres, self.database)
            return ArchivedDeliveries(find, tables, self._sealer)
        place = folder_of(self.database.url.database, folder, base)
        return ArchivedDeliveries(
            partial(find_in_files, place), partial(files_in, place), self._sealer
        )

    def views(self) -> SavedViews:
        """Returns the searches that people keep under a name."""
        return SavedViews(self.database, self._workers.clock)

    def replays(self) -> Replays:
        """Returns the record of dead letters that were sent again."""
        return Replays(self.database, self._workers.clock)

    def letter_index(self) -> LetterIndex:
        """Returns the index of dead letters, for the process that fills it."""
        return LetterIndex(self.database, self._workers.clock)

    def letters(self) -> LetterBrowser:
        """Returns the index of dead letters, for a person."""
        return LetterBrowser(self.database, self._workers.clock)

    def findings(self) -> LostFindings:
        """Returns the lost deliveries that a Spark job found."""
        return LostFindings(self.database, self._sealer, self._workers.clock)

    def alerting(self) -> AlertWindows:
        """Returns the alerts as processes count, report and post them."""
        return AlertWindows(self.database, self._workers.clock)

    def alert_book(self) -> AlertBook:
        """Returns the alerts as a person sees them."""
        return AlertBook(self.database, self._workers.clock)

    def fleet_health(self) -> FleetHealth:
        """Returns the searches for lost processes and overdue rows."""
        return FleetHealth(self.database, self._workers.clock)

    def fleet_status(self) -> FleetStatus:
        """Returns the processes and each lane's backlog, for a person."""
        return FleetStatus(self.database, self._workers.clock)

    def held_lines(self) -> HeldLines:
        """Returns the search for lines whose head holds others back."""
        return HeldLines(self.database, self._workers.clock)

    def controls(self) -> Controls:
        """Returns a person's orders to the fleet: pauses and drains."""
        return Controls(self.database, self._workers.clock)

    def account_pauses(self) -> AccountPauses:
        """Returns a person's pauses of accounts."""
        return AccountPauses(self.database, self._workers.clock)

    def sums(self) -> SumStore:
        """Returns the table of minute sums."""
        return SumStore(self.database, self._workers.clock)

    def sum_rollup(self) -> SumRollup:
        """Returns the roll-up of the minute sums."""
        return SumRollup(self.database, self._workers.clock)

    def duties(self) -> Duties:
        """Returns the duties that one process at a time may hold."""
        return Duties(self.database, self._workers.clock)

    def close(self) -> None:
        self.database.close()


def open_ledger(settings: Settings, now_ms: Callable[[], int] = wall_ms) -> SqlLedger:
    """Returns the ledger of `settings.database`. `now_ms` is SQLite's clock; PostgreSQL has its own.

    Raises SettingsError, LedgerOutdated when the schema is not this version's, LedgerRefused,
    LedgerUnavailable.
    """
    database, sealer = _configured(settings)
    try:
        _check(database)
        ledger = _ledger(database, sealer, hasher(settings.outcomes.hash_key), now_ms)
        ledger.maintain()
    except LedgerError:
        database.close()
        raise
    return ledger


def upgrade(
    settings: Settings, tell: Callable[[str], None] = lambda _step: None
) -> tuple[str, str]:
    """Brings the database to this version, and makes its indexes and partitions. Claims go on meanwhile.

    On a database that is of this version already it drops indexes that older programs read.

    `tell` gets each index that takes time. Returns (version before, version now). Raises SettingsError,
    LedgerUnavailable.
    """
    database, _sealer = _configured(settings)
    with errors():
        before = schema.upgrade(database.url)
        online_indexes.mend_archive(database.url)
        online_indexes.build(database.url, tell)
        if before == schema.head():
            online_indexes.drop_replaced(database.url, tell)
        ensure_partitions(database, tables=(*TABLES, *LOOKBACK_TABLES))
        now = schema.current(database)
    database.close()
    return before, now


def _configured(settings: Settings) -> tuple[Database, PayloadCipher]:
    try:
        url = database_url(settings.database.url, settings.base)
    except ValueError as exc:
        raise SettingsError(f"database.url: {exc}") from exc
    try:
        sealer = PayloadCipher(settings.database.payload_key)
    except ValueError as exc:
        raise SettingsError(str(exc)) from exc
    return Database(url, hot=True), sealer


def _check(database: Database) -> None:
    try:
        with errors():
            found, wanted = schema.current(database), schema.head()
            oldest = "" if found == wanted else schema.oldest_program(database)
    except LedgerUnavailable as exc:
        if reason := refusal(database.url):
            raise LedgerRefused(f"database.url: the database refuses us: {reason}") from exc
        raise
    if schema.is_newer(found) and not schema.runs_on(found, oldest):
        raise LedgerOutdated(
            f"the database is of version {found}, and this program ({wanted}) is too old for it: start one"
            f" of version {oldest or found} or newer"
        )
    if not schema.runs_on(found, oldest):
        raise LedgerOutdated(f"{OUTDATED} (it has {found or 'none'}, this program wants {wanted})")


def clock_of(database: Database, now_ms: Callable[[], int] = wall_ms) -> Clock:
    """Returns the clock of that database; `now_ms` is SQLite's."""
    return _server_clock if database.is_postgres else lambda _connection: now_ms()


def _ledger(
    database: Database,
    sealer: PayloadCipher,
    hash_receiver: HashReceiver,
    now_ms: Callable[[], int],
) -> SqlLedger:
    workers = Workers(database, clock_of(database, now_ms))
    announced, epochs = AnnouncedLanes(), workers.epochs
    batches: ClaimStore
    if database.is_postgres:
        batches = PostgresBatches(database, sealer, epochs, announced, hash_receiver)
    else:
        batches = SqliteBatches(database, sealer, epochs, now_ms, announced, hash_receiver)
    return SqlLedger(database, sealer, batches, workers, announced)


def _server_clock(connection: Connection) -> int:
    return int(connection.execute(text("SELECT hongyan_now()")).scalar_one())
