"""The audit under `console.secret`: set later, changed, or missing in one process."""

from collections.abc import Callable, Sequence

import pytest
from sqlalchemy import text

from admin.access import Role
from admin.audit.chain import KEY_ACTION, AuditKey, JournalRow
from admin.audit.journal import AuditFilter, AuditRefused, Journal
from admin.parts import ConsoleParts
from tests.admin.conftest import SECRET, Browser
from tests.admin.test_people import without_guards

OTHER = "another secret of the tests, long enough"
ROWS = 4


def journal(parts: ConsoleParts, secret: str) -> Journal:
    return Journal(parts.databases.primary, parts.databases.clock, secret)


def write(to: Journal, times: int = ROWS) -> None:
    for number in range(times):
        to.record_alone(person="lin", action="trial", subject=str(number), reason="so")


def rekeyed(parts: ConsoleParts, before: str = "") -> Journal:
    """Four rows under the secret of before, and four under ours."""
    write(journal(parts, before))
    assert parts.journal.rekey(person="lin", reason="it is set")
    write(parts.journal)
    return parts.journal


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("before", "now"),
    [("", SECRET), (OTHER, SECRET), (SECRET, "")],
    ids=["set", "changed", "missing"],
)
def test_no_row_comes_behind_one_under_another_secret(
    before: str, now: str, parts: ConsoleParts
) -> None:
    write(journal(parts, before))
    with pytest.raises(AuditRefused):
        journal(parts, now).record_alone(person="lin", action="trial")
    assert len(parts.journal.page(AuditFilter(), 10)) == ROWS
    assert journal(parts, before).check().faults == ()


@pytest.mark.parametrize("before", ["", OTHER], ids=["set", "changed"])
def test_a_key_row_begins_the_rows_under_a_new_secret(parts: ConsoleParts, before: str) -> None:
    found = rekeyed(parts, before).check()
    assert (found.rows, found.faults) == (2 * ROWS + 1, ())
    assert found.key_row
    assert (found.key_row.number, found.key_row.person) == (ROWS + 1, "lin")
    state = "not written under this console.secret: 1 to 4" if before else "whole, without a secret"
    assert found.key_row.reason.startswith("it is set; the rows before were: ")
    assert state in found.key_row.reason
    assert parts.journal.rekey(person="lin", reason="again") is None


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_a_chain_under_two_secrets_in_turns_is_whole_from_its_key_row_on(
    parts: ConsoleParts,
) -> None:
    """As processes with and without the secret wrote it before a row was refused."""
    for secret in ("", SECRET, ""):
        for last in parts.journal.page(AuditFilter(), 1):
            seal = AuditKey(secret).seal(last.number, last.digest)
            without_guards(parts, f"UPDATE console_audit_head SET seal = '{seal}'")
        write(journal(parts, secret), 2)
    assert parts.journal.check().faults[:2] == (
        "changed, or not written under this console.secret: 1 to 2",
        "changed, or not written under this console.secret: 5 to 6",
    )
    row = parts.journal.rekey(person="lin", reason="a command had no secret")
    assert row
    assert "1 to 2; changed" in row.reason
    write(parts.journal)
    assert parts.journal.check().faults == ()


_CHANGES = {
    "a_row_before": "UPDATE console_audit SET reason = 'other' WHERE number = 2",
    "the_last_digest_before": "UPDATE console_audit SET digest = 'other' WHERE number = 4",
    "a_digest_of_no_ascii": "UPDATE console_audit SET digest = '改' WHERE number = 4",
    "the_reason_of_the_key_row": "UPDATE console_audit SET reason = 'other' WHERE number = 5",
    "the_digest_of_the_past": "UPDATE console_audit SET subject = 'other' WHERE number = 5",
    "a_row_behind": "UPDATE console_audit SET reason = 'other' WHERE number = 7",
    "no_first_row": "DELETE FROM console_audit WHERE number = 1",
    "no_row_3": "DELETE FROM console_audit WHERE number = 3",
    "no_rows_before": "DELETE FROM console_audit WHERE number <= 4",
    "no_key_row": "DELETE FROM console_audit WHERE number = 5",
    "no_past": "DELETE FROM console_audit WHERE number <= 5",
}


@pytest.mark.parametrize("before", ["", OTHER], ids=["set", "changed"])
@pytest.mark.parametrize("statement", _CHANGES.values(), ids=_CHANGES.keys())
def test_rows_before_a_key_row_are_those_that_it_vouches_for(
    parts: ConsoleParts, before: str, statement: str
) -> None:
    whole = rekeyed(parts, before)
    without_guards(parts, statement)
    assert whole.check().faults


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
@pytest.mark.parametrize("secret", ["", OTHER], ids=["plain", "own_secret"])
@pytest.mark.parametrize("first", [1, 3, 5, 6])
def test_who_owns_the_database_alone_cannot_begin_anew(
    parts: ConsoleParts, secret: str, first: int
) -> None:
    """Makes the rows from `first` on anew, digests and seal included, under no secret or another one."""
    rekeyed(parts)
    rows = sorted(parts.journal.page(AuditFilter(), 100))
    forged = forge(rows, AuditKey(secret), first)
    for row in forged:
        without_guards(
            parts,
            f"UPDATE console_audit SET reason = '{row.reason}', digest = '{row.digest}'"
            f" WHERE number = {row.number}",
        )
    seal = AuditKey(secret).seal(forged[-1].number, forged[-1].digest)
    head = f"digest = '{forged[-1].digest}', seal = '{seal}'"
    without_guards(parts, f"UPDATE console_audit_head SET {head}")
    assert parts.journal.check().faults
    with pytest.raises(AuditRefused):
        write(parts.journal, 1)
    stranger = journal(parts, OTHER)
    stranger.rekey(person="lin", reason="it is set")
    assert parts.journal.check().faults


def forge(rows: Sequence[JournalRow], key: AuditKey, first: int) -> list[JournalRow]:
    made = [row for row in rows if row.number < first]
    for row in rows[len(made) :]:
        other = row._replace(reason="forged")
        made.append(other._replace(digest=key.digest(other, made[-1].digest if made else "")))
    return made


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE console_audit SET reason = 'other' WHERE number = 2",
        "DELETE FROM console_audit WHERE number >= 3",
        "UPDATE console_audit_head SET number = 2, digest = ''",
    ],
)
def test_a_key_row_does_not_hide_what_was_wrong(parts: ConsoleParts, change: str) -> None:
    write(parts.journal)
    without_guards(parts, change)
    faults = parts.journal.check().faults
    row = parts.journal.rekey(person="lin", reason="after the change")
    assert row
    assert row.number == ROWS + 1, "no number comes twice"
    assert any(fault in row.reason for fault in faults)
    write(parts.journal)
    found = parts.journal.check()
    assert (found.faults, found.key_row) == ((), row)


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_without_a_secret_there_is_no_key_to_begin(parts: ConsoleParts) -> None:
    with pytest.raises(AuditRefused):
        journal(parts, "").rekey(person="lin", reason="so")


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_an_action_that_the_audit_refuses_is_not_done_and_the_page_says_why(
    parts: ConsoleParts, browser: Callable[[], Browser], user: Callable[..., int]
) -> None:
    user("lin", {Role.ADMIN: ("*",)})
    write(journal(parts, ""))
    lin = browser()
    refused = lin.sign_in("lin")
    assert refused.status_code == 503
    assert "console.secret" in refused.text
    with parts.databases.primary.begin() as connection:
        assert not connection.execute(text("SELECT count(*) FROM console_sessions")).scalar()
    assert parts.journal.rekey(person="cli", reason="it is set")
    assert lin.sign_in("lin").status_code == 303
    checked = lin.post("/audit/check")
    assert "Rows up to 4 are as they were when cli wrote row 5." in checked.text
    assert lin.get("/audit", params={"action": KEY_ACTION}).text.count("whole, without a secret")
