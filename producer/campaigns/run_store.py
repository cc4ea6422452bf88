"""Runs of campaigns in the ledger's database: checkpoints and bad rows.

A checkpoint is written under the run's version. A process that takes a run over writes its row first, so
that the checkpoints of the process before it are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, text

from idempotency.sql_ledger import SqlLedger
from idempotency.transactions import LedgerPart
from producer.campaigns.contract import (
    KEPT_BAD_ROWS,
    BadRow,
    Campaign,
    CampaignOvertaken,
    CampaignRun,
    CampaignState,
    RunBaseline,
    RunPlace,
    RunState,
    run_id_of,
)
from producer.campaigns.line_numbers import packed_lines, unpacked_lines
from producer.campaigns.store import CAMPAIGNS

COLUMNS: Final = ", ".join(CampaignRun.__struct_fields__)
_BY_ID: Final = text(f"SELECT {COLUMNS} FROM campaign_runs WHERE id = :id")  # noqa: S608 - ours
_RUNS_OF: Final = text(f"""
SELECT {COLUMNS} FROM campaign_runs WHERE campaign_id = :campaign
 ORDER BY due_at DESC LIMIT :limit""")  # noqa: S608 - ours
_INSERT: Final = text("""
INSERT INTO campaign_runs (id, campaign_id, state, due_at, started_at, updated_at)
VALUES (:id, :campaign, 'OPEN', :due, :now, :now) ON CONFLICT (id) DO NOTHING""")
_WRITE: Final = text("""
UPDATE campaign_runs
   SET version = version + 1, updated_at = :now, place = :place, line = :line, done = :done,
       sent = :sent, bad = :bad, repeated = :repeated, positions = :positions
 WHERE id = :id AND version = :version""")
_BAD: Final = text("""
INSERT INTO campaign_bad_rows (run_id, line, code, detail) VALUES (:run, :line, :code, :detail)
ON CONFLICT (run_id, line) DO NOTHING""")
_BAD_PAGE: Final = text("""
SELECT line, code, detail FROM campaign_bad_rows
 WHERE run_id = :run AND line > :after AND code <> :lines_alone
 ORDER BY line LIMIT :limit""")
_UNSENT_PAGE: Final = text("""
SELECT line, code, detail FROM campaign_bad_rows WHERE run_id = :run AND line > :after
 ORDER BY line LIMIT :limit""")
_END: Final = text("""
UPDATE campaign_runs SET state = :state, ended_at = :now
 WHERE id = :id AND state = 'OPEN'""")
_BASELINE: Final = text("UPDATE campaign_runs SET baseline = :baseline WHERE id = :id")
_PAGE: Final = 1_000
LINES_ALONE: Final = "lines_alone"
"""Code of a row that has the lines of the rows that are not kept with a reason (line_numbers.py)."""


class RunProgress(NamedTuple):
    """A checkpoint to write, with the bad rows since the one before."""

    reached: RunPlace
    positions: dict[int, int]
    bad_rows: Sequence[BadRow]
    kept: int
    """Bad and repeated rows before them: the first KEPT_BAD_ROWS of a run are kept."""
    every_line: bool = False
    """Whether the lines of the others are kept."""


class CampaignRuns(LedgerPart):
    """Every method is one transaction and raises LedgerError; a write CampaignOvertaken, too."""

    def get(self, run_id: str) -> CampaignRun | None:
        """Returns a run; None for an unknown id."""
        with self._transaction() as connection:
            found = connection.execute(_BY_ID, {"id": run_id}).one_or_none()
        return run_of(found) if found is not None else None

    def of(self, campaign_id: str, limit: int = 50) -> list[CampaignRun]:
        """Returns the newest runs of a campaign."""
        with self._transaction() as connection:
            found = connection.execute(_RUNS_OF, {"campaign": campaign_id, "limit": limit})
            return [run_of(row) for row in found]

    def open(self, campaign: Campaign, due_at: int) -> Campaign:
        """Opens the run of a SCHEDULED campaign's due time. Returns the campaign, which is RUNNING."""
        run_id = run_id_of(campaign.id, due_at)
        with self._begin() as (connection, now):
            asked = {"id": run_id, "campaign": campaign.id, "due": due_at, "now": now}
            connection.execute(_INSERT, asked)
            changes = {"run_id": run_id, "next_at": None, "note": None, "noted_by": None}
            return CAMPAIGNS.advance(
                connection, campaign, now, state=CampaignState.RUNNING, **changes
            )

    def take_over(self, run: CampaignRun) -> CampaignRun:
        """Refuses the checkpoints of all others from now on. Returns the run with its new version."""
        return self.write(run, RunProgress(run.reached, run.positions, (), 0))

    def write(self, run: CampaignRun, progress: RunProgress) -> CampaignRun:
        """Writes a checkpoint and its bad rows. Returns the run after it."""
        room = max(0, KEPT_BAD_ROWS - progress.kept)
        with self._begin() as (connection, now):
            values = msgspec.structs.asdict(progress.reached) | {
                "id": run.id,
                "version": run.version,
                "now": now,
                "positions": msgspec.json.encode(progress.positions).decode(),
            }
            if not connection.execute(_WRITE, values).rowcount:
                raise CampaignOvertaken(f"run {run.id} was taken over")
            kept, others = list(progress.bad_rows[:room]), progress.bad_rows[room:]
            if others and progress.every_line:
                kept.append(_lines_alone(others))
            rows = [{"run": run.id, **one._asdict()} for one in kept]
            if rows:
                connection.execute(_BAD, rows)
        return msgspec.structs.replace(
            run,
            version=run.version + 1,
            updated_at=now,
            positions=progress.positions,
            **msgspec.structs.asdict(progress.reached),
        )

    def end(self, campaign: Campaign, state: CampaignState, next_at: int | None) -> Campaign:
        """Ends the campaign's run as done. Returns the campaign, DONE or SCHEDULED for `next_at`."""
        with self._begin() as (connection, now):
            end_run(connection, campaign, RunState.DONE, now)
            ended = now if state is CampaignState.DONE else None
            changes = {"state": state, "next_at": next_at, "ended_at": ended}
            return CAMPAIGNS.advance(connection, campaign, now, **changes)

    def judge_anew(self, run: CampaignRun) -> None:
        """Has the rows so far judged no more."""
        written = msgspec.json.encode(RunBaseline(run.done, run.bad)).decode()
        with self._transaction() as connection:
            connection.execute(_BASELINE, {"id": run.id, "baseline": written})

    def bad_rows(self, run_id: str, after: int = -1, limit: int = _PAGE) -> list[BadRow]:
        """Returns a page of the kept bad rows, by line."""
        with self._transaction() as connection:
            asked = {"run": run_id, "after": after, "limit": limit, "lines_alone": LINES_ALONE}
            return [BadRow(*row) for row in connection.execute(_BAD_PAGE, asked)]

    def every_bad_row(self, run_id: str) -> Iterator[BadRow]:
        """Yields all kept bad rows; holds a page at a time."""
        after = -1
        while page := self.bad_rows(run_id, after):
            yield from page
            after = page[-1].line

    def unsent_lines(self, run_id: str) -> Iterator[int]:
        """Yields the first lines of all rows that were not sent, ascending; holds a page at a time. The run
        must have been written with `every_line`."""
        after = -1
        while page := self._unsent_page(run_id, after):
            for line, code, detail in page:
                if code == LINES_ALONE:
                    yield from unpacked_lines(detail)
                else:
                    yield line
            after = page[-1].line

    def _unsent_page(self, run_id: str, after: int) -> list[BadRow]:
        with self._transaction() as connection:
            asked = {"run": run_id, "after": after, "limit": _PAGE}
            return [BadRow(*row) for row in connection.execute(_UNSENT_PAGE, asked)]


def runs_of(ledger: SqlLedger) -> CampaignRuns:
    """Returns the runs of a ledger's campaigns."""
    return CampaignRuns(ledger.database, ledger.duties().clock)


def _lines_alone(rows: Sequence[BadRow]) -> BadRow:
    return BadRow(rows[0].line, LINES_ALONE, packed_lines(row.line for row in rows))


def end_run(connection: Connection, campaign: Campaign, state: RunState, now: int) -> None:
    """Ends the campaign's open run, if there is one."""
    if campaign.run_id is not None:
        connection.execute(_END, {"id": campaign.run_id, "state": str(state), "now": now})


def run_of(row: Any) -> CampaignRun:
    """Returns the run of a row with COLUMNS."""
    fields = row._asdict()
    fields["state"] = RunState(fields["state"])
    fields["baseline"] = msgspec.json.decode(fields["baseline"] or "{}", type=RunBaseline)
    fields["positions"] = msgspec.json.decode(fields["positions"] or "{}", type=dict[int, int])
    return CampaignRun(**fields)
