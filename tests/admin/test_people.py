"""People and the audit: pages, and the chain that finds a removed or changed row."""

from collections.abc import Callable

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError

from admin.access import Role
from admin.audit.chain import AuditCheck
from admin.audit.journal import AuditFilter, Journal
from admin.parts import ConsoleParts
from tests.admin.conftest import PASSWORD, Browser
from tests.admin.sent_forms import form_of

Open = Callable[[], Browser]
User = Callable[..., int]
ADMIN = {Role.ADMIN: ("*",)}


def without_guards(parts: ConsoleParts, statement: str) -> None:
    """As somebody does who owns the database: the triggers are off."""
    with parts.databases.primary.begin() as connection:
        if parts.databases.primary.is_postgres:
            connection.execute(text("ALTER TABLE console_audit DISABLE TRIGGER USER"))
        else:
            connection.execute(text("DROP TRIGGER IF EXISTS console_audit_update"))
            connection.execute(text("DROP TRIGGER IF EXISTS console_audit_delete"))
        connection.execute(text(statement))


def record(parts: ConsoleParts, times: int = 5) -> None:
    for number in range(times):
        parts.journal.record_alone(person="lin", action="trial", subject=str(number), reason="so")


def test_an_admin_adds_a_user_who_signs_in(parts: ConsoleParts, browser: Open, user: User) -> None:
    user("lin", ADMIN)
    lin, bo = browser(), browser()
    lin.sign_in("lin")
    fields = {"name": "bo", "password": PASSWORD, "role_operator": "1", "lanes_operator": "sms.*"}
    assert lin.post("/people", **fields).status_code == 422  # without a reason
    assert lin.post("/people", **fields, reason="new in the team").status_code == 303
    assert bo.sign_in("bo").status_code == 303
    assert bo.get("/people").status_code == 403
    rows = parts.journal.page(AuditFilter(action="user.add"), 10)
    assert [(row.person, row.subject) for row in rows] == [("lin", "bo")]
    assert "new in the team" in rows[0].reason
    assert PASSWORD not in str(parts.journal.page(AuditFilter(), 10))
    assert "new in the team" in lin.get("/audit").text


def test_roles_that_changed_since_the_page_was_loaded_stay(
    parts: ConsoleParts, browser: Open, user: User
) -> None:
    """An admin's older page would give a role back that another admin took away."""
    user("lin", ADMIN)
    number = user("bo", {Role.OPERATOR: ("*",)})
    lin = browser()
    lin.sign_in("lin")
    seen = form_of(lin.get("/people").text, f"/people/{number}/roles")["seen"]
    with parts.databases.primary.begin() as connection:
        parts.people.users.set_roles(connection, number, {Role.VIEWER: ("sms.*",)})
    fields = {"role_operator": "1", "lanes_operator": "email.*", "reason": "mails, too"}
    late = lin.post(f"/people/{number}/roles", seen=seen, **fields)
    assert late.status_code == 409
    assert "viewer:sms.*" in late.text
    now = form_of(lin.get("/people").text, f"/people/{number}/roles")["seen"]
    assert now == "viewer:sms.*"
    assert lin.post(f"/people/{number}/roles", seen=now, **fields).status_code == 303


def test_the_last_admin_stays(browser: Open, user: User) -> None:
    number = user("lin", ADMIN)
    lin = browser()
    lin.sign_in("lin")
    state = lin.post(f"/people/{number}/state", state="DISABLED", reason="trial")
    roles = lin.post(f"/people/{number}/roles", role_viewer="1", reason="trial")
    assert (state.status_code, roles.status_code) == (422, 422)
    assert lin.get("/people").status_code == 200


def test_the_last_admin_of_all_lanes_stays_one(browser: Open, user: User) -> None:
    number = user("lin", {Role.ADMIN: ("*.*",)})
    other = user("bo", {Role.ADMIN: ("sms.*", "email.*")})
    lin = browser()
    lin.sign_in("lin")
    fields = {"role_admin": "1", "lanes_admin": "sms.*", "reason": "trial"}
    answers = [
        lin.post(f"/people/{number}/roles", **fields),
        lin.post(f"/people/{number}/state", state="DISABLED", reason="trial"),
    ]
    assert [one.status_code for one in answers] == [422, 422]
    assert "last admin" in answers[0].text
    assert lin.get("/people").status_code == 200
    everywhere = {"role_admin": "1", "lanes_admin": "", "reason": "trial"}
    assert lin.post(f"/people/{other}/roles", **everywhere).status_code == 303
    assert lin.post(f"/people/{number}/roles", **fields).status_code == 303


def test_an_admin_of_some_lanes_is_no_admin_of_people(browser: Open, user: User) -> None:
    user("lin", {Role.ADMIN: ("sms.*",)})
    lin = browser()
    lin.sign_in("lin")
    assert lin.get("/people").status_code == 403


def test_what_a_person_typed_is_text(browser: Open, user: User) -> None:
    user("lin", ADMIN)
    lin = browser()
    lin.sign_in("lin")
    evil = "<script>alert(1)</script>'\"{{7*7}}"
    lin.post("/people", name="bo", password=PASSWORD, reason=evil)
    page = lin.get("/audit").text + lin.get("/audit", params={"subject": evil}).text
    assert "<script>alert" not in page
    assert "{{7*7}}" in page


def test_a_password_is_changed_by_its_owner_alone(browser: Open, user: User) -> None:
    user("lin", ADMIN)
    lin = browser()
    lin.sign_in("lin")
    new = "another password 2"
    wrong = lin.post("/account/password", old="wrong", new=new, again=new)
    short = lin.post("/account/password", old=PASSWORD, new="short", again="short")
    assert (wrong.status_code, short.status_code) == (422, 422)
    assert lin.post("/account/password", old=PASSWORD, new=new, again=new).status_code == 303
    assert lin.get("/").status_code == 200
    assert browser().sign_in("lin", PASSWORD).status_code == 401
    assert browser().sign_in("lin", new).status_code == 303


def test_a_whole_chain_has_no_fault(parts: ConsoleParts) -> None:
    assert parts.journal.check().faults == ()
    record(parts)
    assert parts.journal.check() == AuditCheck(5, ())


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE console_audit SET reason = 'other' WHERE number = 3",
        "UPDATE console_audit SET person = 'bo', subject = '' WHERE number = 1",
        "DELETE FROM console_audit WHERE number = 3",
        "DELETE FROM console_audit WHERE number = 1",
        "DELETE FROM console_audit WHERE number >= 4",
        "DELETE FROM console_audit",
        "UPDATE console_audit_head SET number = 4, digest = ''",
        "UPDATE console_audit_head SET number = 0, digest = ''",
    ],
)
def test_a_removed_or_changed_row_is_found(parts: ConsoleParts, statement: str) -> None:
    record(parts)
    without_guards(parts, statement)
    assert parts.journal.check().faults


@pytest.mark.parametrize(
    "statement", ["UPDATE console_audit SET reason = ''", "DELETE FROM console_audit"]
)
def test_the_database_refuses_to_change_the_audit(parts: ConsoleParts, statement: str) -> None:
    record(parts, 1)
    with (
        pytest.raises(DatabaseError, match="append-only"),
        parts.databases.primary.engine.begin() as one,
    ):
        one.execute(text(statement))
    assert parts.journal.check() == AuditCheck(1, ())


def test_without_the_secret_nobody_makes_the_chain_anew(parts: ConsoleParts) -> None:
    record(parts)
    stranger = Journal(
        parts.databases.primary, parts.databases.clock, "another secret of 32 characters"
    )
    assert stranger.check().faults


def test_an_action_that_fails_leaves_no_row(parts: ConsoleParts) -> None:
    def fail() -> None:
        with parts.databases.primary.begin() as connection:
            parts.journal.record(connection, person="lin", action="trial")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert parts.journal.check() == AuditCheck(0, ())
