"""Runs of the Spark jobs on record, on both databases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, text

from backends.settings import DatabaseSettings, Settings
from backends.sql.database import Database, database_url
from idempotency.fleet.duties import Duties
from idempotency.lost.runs import DUTY, RunOvertaken, Runs
from idempotency.sql_ledger import clock_of
from tests.harness.databases import upgraded


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    if url.startswith("sqlite"):
        upgraded(Settings(database=DatabaseSettings(url=url)))
    made = Database(database_url(url))
    yield made
    made.close()


@pytest.fixture
def runs(database: Database) -> Runs:
    return Runs(database, clock_of(database))


def test_a_run_is_on_record_from_its_begin_to_its_end(runs: Runs) -> None:
    assert runs.newest("ingest") is None
    number = runs.begin("ingest", "host-1")
    runs.positions(number, '{"taken_at":5}')
    assert runs.newest("ingest") is None  # it is not done
    (open_,) = runs.list(5)
    assert (open_.state, open_.ended_at, open_.figures) == ("RUNNING", None, {})
    runs.done(number, 5, {"rows": {"events": 3}})
    found = runs.newest("ingest")
    assert found is not None
    assert (found.id, found.job, found.holder, found.state) == (number, "ingest", "host-1", "DONE")
    assert (found.positions, found.watermark) == ('{"taken_at":5}', 5)
    assert found.figures == {"rows": {"events": 3}}
    assert found.ended_at is not None
    assert found.ended_at >= found.started_at


def test_a_failure_has_its_cause_and_is_not_the_newest(runs: Runs) -> None:
    done = runs.begin("lost", "host-1")
    runs.done(done, None, {})
    failed = runs.begin("lost", "host-1")
    runs.failed(failed, "the ledger is away")
    newest = runs.newest("lost")
    assert newest is not None
    assert newest.id == done
    assert [(one.id, one.state, one.error) for one in runs.list(5)] == [
        (failed, "FAILED", "the ledger is away"),
        (done, "DONE", None),
    ]
    assert len(runs.list(1)) == 1


def test_the_end_and_what_it_makes_valid_are_one_transaction(runs: Runs) -> None:
    number = runs.begin("audit", "host-1")

    def also(connection: Connection) -> None:
        connection.execute(text("DELETE FROM no_such_table"))

    with pytest.raises(Exception, match="no_such_table"):
        runs.done(number, None, {}, also)
    assert runs.list(1)[0].state == "RUNNING"


def test_a_run_whose_process_was_declared_dead_writes_nothing(runs: Runs) -> None:
    """Mutation: without the state in its condition the end of the dead run would count."""
    dead = runs.begin("lost", "host-1")
    runs.begin("lost", "host-2")
    called: list[Connection] = []
    with pytest.raises(RunOvertaken, match=f"run {dead} was declared dead"):
        runs.done(dead, None, {}, called.append)
    assert called == []
    assert [one.state for one in runs.list(5)] == ["RUNNING", "FAILED"]
    assert "ended before" in (runs.list(5)[1].error or "")


def test_a_run_whose_end_could_not_be_written_is_over_with_the_next_one(runs: Runs) -> None:
    runs.begin("ingest", "host-1")
    runs.begin("ingest", "host-1")
    newest, earlier = runs.list(5)
    assert (newest.state, earlier.state) == ("RUNNING", "FAILED")
    assert (
        earlier.error == "the ledger did not answer when the run ended; nothing of it was written"
    )
    runs.begin("ingest", "host-2")
    assert runs.list(5)[1].error == "its process ended before the run did"


def test_old_runs_go_and_keep_no_positions(
    database: Database, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cycle every 30 s writes some 600 MB of positions a day."""
    monkeypatch.setattr("idempotency.lost.runs.KEPT_POSITIONS", 3)
    numbers = []
    for job in ("ingest", *["lost"] * 6, "ingest"):
        numbers.append(runs.begin(job, "host-1"))
        runs.positions(numbers[-1], '{"taken_at":5}')
        if len(numbers) != 5:
            runs.done(numbers[-1], None, {})
    for _ in range(4):
        runs.failed(runs.begin("audit", "host-1"), "x")
    with_positions = [one.id for one in reversed(runs.list(50)) if one.positions]
    # The newest one of each job is where the next one goes on.
    assert with_positions == [numbers[6], numbers[7]]
    with database.begin() as connection:
        connection.execute(
            text("UPDATE spark_runs SET started_at = 5 WHERE id < :id"), {"id": numbers[7]}
        )
    last = runs.begin("audit", "host-1")
    assert [one.id for one in reversed(runs.list(50))] == [
        *numbers[6:],
        *range(numbers[7] + 1, last + 1),
    ]


def test_the_holder_of_the_duty_has_a_name(database: Database, runs: Runs) -> None:
    duties = Duties(database, clock_of(database))
    assert runs.holder() == ""
    assert duties.hold(DUTY, "host-1-77", 60_000)
    assert runs.holder() == "host-1-77"
    duties.drop(DUTY, "host-1-77")
    assert runs.holder() == ""
