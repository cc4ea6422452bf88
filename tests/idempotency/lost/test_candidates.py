"""Candidates of a finished run become findings; no others do."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import text

from idempotency.lost.candidates import Candidates, Promoted, promote
from idempotency.lost.runs import Runs
from idempotency.sql_ledger import clock_of
from tests.idempotency.making import World

LANE: Final = "sms.notice"
ASKING: Final = "sms.marketing"
LOOKED: Final = {"passed": [LANE, ASKING], "unread": [LANE]}
_INSERT: Final = text("""
INSERT INTO lost_candidates (run_id, subject, cause, lane, message_id, origin, expires_at, certain,
                             detail, body)
VALUES (:run, :subject, :cause, :lane, 'm1', :origin, 9, :certain, :detail, :body)""")


class Book:
    """A ledger with runs and candidates."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.database = world.open().database
        self.clock = clock_of(self.database, lambda: world.now)
        self.runs = Runs(self.database, self.clock)

    def propose(self, run: int, *subjects: str, **changes: Any) -> None:
        values = {"cause": "passed", "lane": LANE, "certain": 1, "detail": "d", "body": None}
        rows = [
            {**values, "origin": f"t/0/{number}", "subject": subject, "run": run, **changes}
            for number, subject in enumerate(subjects)
        ]
        with self.database.begin() as connection:
            connection.execute(_INSERT, rows)

    def begin(self) -> int:
        return self.runs.begin("lost", "me")

    def end(self, run: int, page: int = 3, looked: Any = None) -> Promoted:
        found: list[Promoted] = []
        self.runs.done(
            run,
            None,
            {},
            lambda connection: found.append(
                promote(
                    connection,
                    run,
                    self.clock(connection),
                    looked=LOOKED if looked is None else looked,
                    resending=[LANE],
                    page=page,
                )
            ),
        )
        return found[0]

    def findings(self) -> dict[tuple[str, str], str]:
        """Status by subject and cause."""
        rows = self.world.rows("SELECT subject, cause, status FROM lost_findings ORDER BY id")
        return {(subject, cause): status for subject, cause, status in rows}

    def rows(self, columns: str) -> list[tuple[Any, ...]]:
        return self.world.rows(f"SELECT {columns} FROM lost_findings ORDER BY subject, cause")

    def decide(self, subject: str, status: str) -> None:
        self.world.rows_changed(
            f"UPDATE lost_findings SET status = '{status}' WHERE subject = '{subject}'"
        )


def test_a_run_enters_each_subject_and_cause_once(world: World) -> None:
    book = Book(world)
    run = book.begin()
    # A repeated task has written its rows twice; the page's edge lies between two of them.
    for _ in range(2):
        book.propose(run, "a", "b", "c", "d")
    book.propose(run, "a", cause="unread", certain=0)
    assert book.end(run) == Promoted(5, 0)
    assert book.findings() == {
        ("a", "passed"): "NEW",
        ("a", "unread"): "ASKED",
        ("b", "passed"): "NEW",
        ("c", "passed"): "NEW",
        ("d", "passed"): "NEW",
    }


def test_candidates_of_a_run_that_did_not_end_count_for_nothing(world: World) -> None:
    book = Book(world)
    killed = book.begin()
    book.propose(killed, "a", "b")
    run = book.begin()
    book.propose(run, "b", "c")
    book.end(run)
    assert set(book.findings()) == {("b", "passed"), ("c", "passed")}


def test_a_later_run_deletes_what_earlier_ones_proposed(world: World) -> None:
    book = Book(world)
    killed = book.begin()
    book.propose(killed, *(f"s{number}" for number in range(5)))
    run = book.begin()
    book.propose(run, "b")
    assert Candidates(book.database, book.clock).clear(run) == 5
    assert world.rows("SELECT run_id, subject FROM lost_candidates") == [(run, "b")]


def test_only_a_certain_one_of_a_lane_that_resends_needs_nobody(world: World) -> None:
    book = Book(world)
    run = book.begin()
    book.propose(run, "a")
    book.propose(run, "b", certain=0)
    book.propose(run, "c", lane=ASKING)
    book.end(run)
    assert list(book.findings().values()) == ["NEW", "ASKED", "ASKED"]


def test_what_a_later_run_no_longer_finds_is_gone(world: World) -> None:
    book = Book(world)
    first = book.begin()
    book.propose(first, "a", "b", "c", "d", "e")
    book.propose(first, "x", lane="email.notice")
    book.propose(first, "y", cause="silent", certain=0)
    book.end(first)
    book.decide("c", "RESENT")
    book.decide("d", "DISMISSED")
    world.advance(5_000)
    second = book.begin()
    book.propose(second, "b")
    # a and e; not x, at whose lane the run did not look, nor y, for whose cause it did not.
    assert book.end(second, page=1) == Promoted(1, 2)
    assert book.findings() == {
        ("a", "passed"): "GONE",
        ("b", "passed"): "NEW",
        ("c", "passed"): "RESENT",
        ("d", "passed"): "DISMISSED",
        ("e", "passed"): "GONE",
        ("x", "passed"): "ASKED",
        ("y", "silent"): "ASKED",
    }
    decided = book.rows("subject, decided_at, decided_by")
    assert decided[0] == ("a", world.now, "spark lost")
    assert decided[1] == ("b", None, None)


def test_a_finding_that_comes_back_is_new_and_a_decided_one_stays(world: World) -> None:
    book = Book(world)
    first = book.begin()
    book.propose(first, "a", "b", body=b"sealed")
    book.end(first)
    book.decide("a", "GONE")
    book.decide("b", "RESENT")
    world.advance(5_000)
    second = book.begin()
    book.propose(second, "a", "b", detail="again")
    book.end(second)
    columns = "subject, status, first_run, last_run, found_at, detail, decided_at"
    assert book.rows(columns) == [
        ("a", "NEW", first, second, world.now, "again", None),
        ("b", "RESENT", first, second, world.now - 5_000, "again", None),
    ]
    bodies = [bytes(body) for (body,) in book.rows("body")]
    assert bodies == [b"sealed", b"sealed"], "a later run need not carry the body again"


def test_what_recovery_has_begun_or_a_person_ordered_stays(world: World) -> None:
    book = Book(world)
    first = book.begin()
    book.propose(first, "a", "b", "c", certain=0)
    book.end(first)
    run = world.rows_changed
    run("UPDATE lost_findings SET status = 'NEW', decided_at = 5 WHERE subject = 'a'")
    run("UPDATE lost_findings SET status = 'NEW', decided_by = 'wang' WHERE subject = 'b'")
    second = book.begin()
    book.propose(second, "b", certain=0)
    book.propose(second, "c", certain=1)
    assert book.end(second) == Promoted(2, 0)
    assert book.findings() == {
        ("a", "passed"): "NEW",
        ("b", "passed"): "NEW",
        ("c", "passed"): "NEW",
    }, "the lane resends by itself since then"
    assert book.rows("decided_by") == [(None,), ("wang",), (None,)]


def test_a_run_without_candidates_ends(world: World) -> None:
    book = Book(world)
    assert book.end(book.begin()) == Promoted(0, 0)
    assert book.end(book.begin(), looked={"passed": []}) == Promoted(0, 0)
