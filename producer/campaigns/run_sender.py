"""Sends the rows of one run, from its checkpoint on.

    take rows ─▶ check the file ─▶ build ─▶ publish ─▶ acknowledged ─▶ checkpoint, many rows at once
                                     └─ bad or repeated: settled without a record

At most WINDOW rows are taken up after the written checkpoint. A row that Kafka did not take is published
again under the same id. The sender ends when the rows are over, the campaign is no more running, its hours
are over, its lease lapsed, or the process stops. Rows under way are awaited first, and the checkpoint is
written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

import structlog

from hongyan_client.records import Record
from idempotency.ledger import LedgerError
from message.envelope import EnvelopeError
from message.trace_context import HEADER
from producer.campaigns.checkpoint import Checkpoint, PendingRow, RowEnd
from producer.campaigns.contract import (
    BadRow,
    Campaign,
    CampaignRun,
    CampaignState,
)
from producer.campaigns.crowd_file import CrowdReader, CrowdWatch
from producer.campaigns.crowd_rows import CrowdRow
from producer.campaigns.notifications import DETAIL_AT_MOST, RowBuilder
from producer.campaigns.repeated_receivers import MetReceivers
from producer.campaigns.row_publisher import (
    OnRowAccepted,
    PublishesRecords,
    RowPublisher,
    RunTrouble,
    SentRow,
)
from producer.campaigns.run_lease import RunLease
from producer.campaigns.run_store import CampaignRuns, RunProgress
from producer.campaigns.sending_pace import SendingPace, is_open
from producer.campaigns.store import CampaignStore
from sending.runtime.clock import Clock
from tracing.sinks.span_ids import traceparent_of

log = structlog.get_logger(__name__)
WINDOW: Final = 2_000
"""Most rows that are taken up after the written checkpoint."""
BLOCK: Final = 200
"""Most rows taken up at once; a block ends at BLOCK_BYTES of lines, too."""
CHECKPOINT_S: Final = 0.5
LOOK_S: Final = 1.0
"""Interval between two looks at a person's orders."""
JUDGED_ROWS: Final = 100
"""Rows before which no share of bad ones is judged."""
DRAIN_S: Final = 20.0
_WAIT_S: Final = 0.05
_ID: Final = "hongyan-id"


class RunEnd(StrEnum):
    """Ways in which a sender ends."""

    DONE = "done"
    STOPPED = "stopped"
    """Another process, or this one later, goes on from the checkpoint."""


class RunSurroundings(NamedTuple):
    """What a sender asks and tells."""

    store: CampaignStore
    runs: CampaignRuns
    publisher: PublishesRecords
    lease: RunLease
    accepted: OnRowAccepted
    """Records the `accepted` event of a row."""
    settled: Callable[[RowEnd, int], None]
    """Counts rows."""
    stopping: Callable[[], bool]
    clock: Clock
    """The database's time, calibrated before the opening and at each look."""
    monotonic: Callable[[], float]
    sample_ratio: float = 1.0
    """Share of the rows whose traces are sampled."""

    def calibrate(self) -> None:
        """Sets the clock by the database. Raises LedgerError."""
        asked_at = self.clock.monotonic()
        self.clock.calibrate(self.store.now_ms(), asked_at)


class RunInput(NamedTuple):
    """The rows of one run, and what they are checked against."""

    campaign: Campaign
    run: CampaignRun
    topic: str
    reader: CrowdReader
    watch: CrowdWatch
    builder: RowBuilder
    met: MetReceivers | None
    """For campaigns that send once per receiver; knows those of all rows that were sent."""
    there: frozenset[int]
    """Rows after the checkpoint that the topic holds."""
    lapses: int = 0
    """`RunLease.lapses` before the opening wrote the run's row."""


class RunSender:
    """For one thread. The publisher's thread only queues its answers (row_publisher.py)."""

    def __init__(self, given: RunInput, around: RunSurroundings) -> None:
        self._in = given
        self._around = around
        self._run = given.run
        self._checkpoint = Checkpoint(given.run.reached, given.run.positions)
        self._pace = SendingPace(given.campaign.limits.rate_per_s, around.monotonic())
        self._records = RowPublisher(
            around.publisher, around.accepted, around.monotonic, given.run.id
        )
        self._bad: deque[BadRow] = deque()  # of rows after the written checkpoint
        self._bad_seen = given.run.bad
        self._rows_seen = given.run.done
        self._over = False  # the file is read to its end
        self._written_at = around.monotonic()
        self._look_at = float("-inf")
        self._ends = False
        self._lapses = given.lapses
        self.last_turn = around.monotonic()
        """Monotonic time of the last turn; other threads read it."""

    def run(self) -> RunEnd:
        """Sends until the end. Raises RunTrouble, CrowdUnusable, CampaignOvertaken; the rows settled until
        then are in the checkpoint, if the lease still holds."""
        try:
            while self._goes_on():
                self.last_turn = self._around.monotonic()
                self._records.publish_again(self._goes_on)
                taken = self._take_rows()
                self._records.collect(0.0 if taken else _WAIT_S)
                self._write_if_due()
                if self._over and not len(self._checkpoint):
                    break
        finally:
            self._drain()
        return RunEnd.DONE if self._over and self._complete() else RunEnd.STOPPED

    # ---- rows --------------------------------------------------------------------------------

    def _take_rows(self) -> int:
        """Takes up the next rows. Returns their number. At an end in between the next sender reads the rest
        again, from the checkpoint."""
        taken_up = self._checkpoint.reached.done - self._run.done + len(self._checkpoint)
        room = WINDOW - taken_up
        most = min(room, BLOCK, self._pace.allowed(self._around.monotonic()))
        if most <= 0 or self._over or self._records.again:
            return 0
        rows = self._in.reader.take(most)
        self._in.watch.check()
        self._pace.take(len(rows))
        for row in rows:
            if not self._goes_on():
                return len(rows)
            self._take_row(row)
            self._judge()
        self._over = self._in.reader.is_over
        return len(rows)

    def _take_row(self, row: CrowdRow) -> None:
        pending = PendingRow(row.number, row.last_line, row.place)
        self._checkpoint.take_up(pending)
        self._rows_seen += 1
        if row.number in self._in.there:  # as it was judged then; the opening met its receiver
            pending.end = RowEnd.SENT
            return
        if row.code:
            self._refuse(pending, row.line, row.code, row.detail)
            return
        try:
            made = self._in.builder.build(row.number, row.fields)
        except EnvelopeError as exc:
            self._refuse(pending, row.line, exc.code, f"{exc.path}: {exc.detail}")
            return
        if self._in.met is not None and not self._in.met.add(made.receiver):
            pending.end = RowEnd.REPEATED
            self._bad.append(BadRow(row.line, "repeated_receiver", "an earlier row names it"))
        else:
            notification = made.notification
            context = traceparent_of(notification.id, self._around.sample_ratio)
            headers = ((_ID, notification.id.encode()), (HEADER, context.encode()))
            key = notification.kafka_key.encode()
            record = Record(self._in.topic, key, made.value, headers)
            self._records.publish(SentRow(pending, notification, record, context))

    def _refuse(self, row: PendingRow, line: int, code: str, detail: str) -> None:
        row.end = RowEnd.BAD
        self._bad_seen += 1
        self._bad.append(BadRow(line, code, detail[:DETAIL_AT_MOST]))

    def _judge(self) -> None:
        """Raises RunTrouble if too many rows are bad."""
        baseline = self._in.run.baseline
        rows, bad = self._rows_seen - baseline.done, self._bad_seen - baseline.bad
        if rows >= JUDGED_ROWS and bad / rows >= self._in.campaign.limits.error_rate:
            raise RunTrouble(
                f"{bad:,} of {rows:,} rows are bad ({bad / rows:.0%}): see its bad rows, then resume it or"
                " cancel it"
            )

    # ---- checkpoint --------------------------------------------------------------------------

    def _write_if_due(self) -> None:
        self._checkpoint.advance()
        now = self._around.monotonic()
        waiting = self._checkpoint.reached.done - self._run.done
        if waiting and (now - self._written_at >= CHECKPOINT_S or waiting >= WINDOW // 2):
            self._write(self._checkpoint.positions())

    def _write(self, positions: dict[int, int]) -> None:
        """Writes the checkpoint. Without a database no further rows are taken up. Raises
        CampaignOvertaken."""
        self._written_at = self._around.monotonic()
        reached, before = self._checkpoint.reached, self._run
        unsettled = len(self._checkpoint)
        ended = reached.bad + reached.repeated - before.bad - before.repeated
        rows = [self._bad[i] for i in range(ended)]
        every_line = self._in.met is not None
        progress = RunProgress(reached, positions, rows, before.bad + before.repeated, every_line)
        try:
            self._run = self._around.runs.write(before, progress)
        except LedgerError as exc:
            log.warning("campaign_checkpoint_waits", run=before.id, cause=str(exc), rows=unsettled)
            return
        for _ in range(ended):
            self._bad.popleft()
        for end in RowEnd:
            self._around.settled(end, getattr(reached, end) - getattr(before, end))

    def _drain(self) -> None:
        """Awaits the rows under way, then writes the checkpoint: the next sender reads no topic if none is
        left."""
        until = self._around.monotonic() + DRAIN_S
        self._checkpoint.advance()
        while self._under_way() and self._around.monotonic() < until and self._around.lease.holds():
            try:
                self._records.collect(_WAIT_S)
            except RunTrouble:
                break
            self._checkpoint.advance()
        if self._around.lease.holds():
            clean = not len(self._checkpoint)
            self._write({} if clean else self._checkpoint.positions())

    def _under_way(self) -> bool:
        """Returns whether a record has no answer yet. Rows that wait for another try had one."""
        return self._checkpoint.unsettled > self._records.again

    def _complete(self) -> bool:
        return not len(self._checkpoint) and self._run.done == self._checkpoint.reached.done

    # ---- orders ------------------------------------------------------------------------------

    def _goes_on(self) -> bool:
        """Returns whether the next row may be produced. An end is final. Raises CampaignOvertaken."""
        self._ends = self._ends or not self._may_produce()
        return not self._ends

    def _may_produce(self) -> bool:
        if self._around.stopping() or not self._is_own():
            return False
        now = self._around.monotonic()
        if now < self._look_at:
            return True
        self._look_at = now + LOOK_S
        schedule, limits = self._in.campaign.schedule, self._in.campaign.limits
        if not is_open(limits, schedule.zone, self._around.clock.now_ms()):
            return False
        try:
            self._around.calibrate()
            found = self._around.store.get(self._in.campaign.id)
        except LedgerError:
            return True  # the lease ends it in time
        return (
            found is not None
            and found.state is CampaignState.RUNNING
            and found.run_id == self._run.id
        )

    def _is_own(self) -> bool:
        """Returns whether this process has the lease. After a lapse the run's row says whether another one
        sent rows meanwhile. Raises CampaignOvertaken."""
        lease = self._around.lease
        if not lease.holds():
            return False
        if lease.lapses != self._lapses:
            try:
                self._run = self._around.runs.take_over(self._run)
            except LedgerError:
                return False
            self._lapses = lease.lapses
        return True
