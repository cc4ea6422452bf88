"""`/policy/draft`: a text, its problems or its effects, and its way into force."""

from __future__ import annotations

from collections.abc import Sequence

from litestar import get, post
from litestar.params import FromQuery
from sqlalchemy import Connection

from admin.access import Person, Role, needs
from admin.parts import READ_STATEMENT_MS, ConsoleParts
from admin.web.errors import Missing
from admin.web.forms import LONGEST_TEXT, Conflict, SentForm, WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.view import Page, View
from backends.problems import Problem, SettingsError
from idempotency.error_mapping import errors
from policy.active import ActivePolicy, in_force
from policy.diff import grouped
from policy.problems import PolicyError
from policy.versions import Overtaken, Version, Versions, difference
from sending.policy_change import PolicyPlan, PolicyRefused, apply, plan

FILE = "policy.toml"
"""Name of a draft in its problems."""


@get("/policy/draft", opt=needs(Role.POLICY_ADMIN), sync_to_thread=True)
def draft_page(view: GivenView, parts: GivenParts, version: FromQuery[int] = 0) -> Page:
    """An editor of the text in force, or of an old version, which is shown against the one in force."""
    now = policy_now(parts)
    if not version:
        return editor(view, now.text, now.number)
    with errors():
        old = Versions(parts.ledger.database).numbered(version)
    if old is None:
        raise Missing(str(version))
    return checked(view, parts, old.text, now.number)


@post("/policy/draft", opt=needs(Role.POLICY_ADMIN), status_code=200, sync_to_thread=True)
def check_draft(view: GivenView, parts: GivenParts, form: GivenForm) -> Page:
    """Shows the effects of a text, or its problems by line. Raises Conflict, WrongForm."""
    return checked(view, parts, text_of(form), form.number("base"))


@post("/policy/apply", opt=needs(Role.POLICY_ADMIN), status_code=200, sync_to_thread=True)
def apply_draft(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """Puts a text in force. Raises WrongForm, Conflict, Forbidden."""
    reason, base = form.reason(), form.number("base")
    try:
        planned = planned_for(parts, text_of(form), base)
    except (PolicyError, SettingsError) as exc:
        raise WrongForm("policy.wrong_text", "text", cause=str(exc)) from exc
    if not planned.wanted:
        raise WrongForm("policy.same")
    for lane in planned.lanes:
        person.require(Role.POLICY_ADMIN, lane.name)

    def record(connection: Connection, version: Version) -> None:
        parts.journal.record(
            connection,
            person=person.name,
            action="policy.apply",
            subject=version.name,
            reason=reason,
            address=view.address,
        )

    drops = bool(form.text("drops"))
    try:
        apply(parts.ledger, planned, person.name, drops=drops, record=record)
    except PolicyRefused as exc:
        raise WrongForm("policy.refused", cause=str(exc)) from exc
    except Overtaken as exc:
        raise Conflict("policy.overtaken", cause=str(exc)) from exc
    return view.redirect("/policy")


def policy_now(parts: ConsoleParts) -> ActivePolicy:
    """Returns the policy in force by the primary. Raises WrongForm for an unreadable file, LedgerError."""
    try:
        with errors():
            return in_force(parts.settings, Versions(parts.ledger.database))
    except PolicyError as exc:
        raise WrongForm("policy.wrong_file", cause=str(exc)) from exc


def planned_for(parts: ConsoleParts, content: str, base: int) -> PolicyPlan:
    """Returns the plan of a text. Raises PolicyError, SettingsError, Conflict, LedgerError."""
    policy_now(parts)  # a file that cannot be read has its own sentence
    try:
        return plan(parts.settings, parts.ledger, FILE, content, base, count_ms=READ_STATEMENT_MS)
    except Overtaken as exc:
        raise Conflict("policy.overtaken", cause=str(exc)) from exc


def checked(view: View, parts: ConsoleParts, content: str, base: int) -> Page:
    """Returns the page of a text: its effects, or the editor with its problems. Raises Conflict."""
    try:
        planned = planned_for(parts, content, base)
    except PolicyError as exc:
        return editor(view, content, base, problems=exc.problems)
    except SettingsError as exc:
        return editor(view, content, base, problems=[Problem(FILE, 0, "", str(exc))])
    assert view.person is not None
    return view.page(
        "policy/draft.html",
        plan=planned,
        groups=grouped(planned.changes),
        diff=difference(planned.now.text, content, f"v{base}" if base else FILE, "draft"),
        foreign=foreign_lanes(view.person, planned),
        text=content,
        base=base,
    )


def foreign_lanes(person: Person, planned: PolicyPlan) -> list[str]:
    """Returns the changed lanes for which the person is no policy admin."""
    return [one.name for one in planned.lanes if not person.may(Role.POLICY_ADMIN, one.name)]


def editor(
    view: View,
    content: str,
    base: int,
    *,
    problems: Sequence[Problem] = (),
    note: str = "",
) -> Page:
    """Returns the editor of a whole text; `note` is a sentence above it."""
    return view.page(
        "policy/edit.html",
        status=422 if problems else 200,
        text=content,
        base=base,
        problems=problems,
        note=note,
        lines=content.splitlines(),
    )


def text_of(form: SentForm) -> str:
    """Returns the text of a form, with line ends as files have them. Raises WrongForm."""
    return form.exactly("text", longest=LONGEST_TEXT).replace("\r\n", "\n")


HANDLERS = [draft_page, check_draft, apply_draft]
