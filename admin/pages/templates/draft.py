"""`/templates/draft`: texts, their problems or their changes, and their way into force."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Final

from litestar import get, post
from litestar.params import FromQuery
from sqlalchemy import Connection

from admin.access import Role, needs
from admin.parts import ConsoleParts
from admin.web.errors import Missing
from admin.web.forms import LONGEST_TEXT, Conflict, SentForm, WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.view import Page, View
from backends.problems import Problem, SettingsError
from channels.template_support import TEMPLATE_SUPPORT
from idempotency.error_mapping import errors
from policy.templates.active import ActiveTemplates, templates_in_force
from policy.templates.loading import TemplateFileError
from policy.templates.page import TemplateSource
from policy.templates.versions import TemplateVersion, TemplateVersions, source_difference
from policy.versions import Overtaken
from sending.template_change import (
    TemplatePlan,
    TemplatesRefused,
    apply_templates,
    plan_templates,
)

FILE: Final = "templates.toml"


@get("/templates/draft", opt=needs(Role.POLICY_ADMIN), sync_to_thread=True)
def draft_page(view: GivenView, parts: GivenParts, version: FromQuery[int] = 0) -> Page:
    """An editor of the texts in force, or an old version, shown against those in force."""
    now = templates_now(parts)
    if not version:
        return _editor(view, now.source, now.number)
    with errors():
        old = TemplateVersions(parts.ledger.database).numbered(version)
    if old is None:
        raise Missing(str(version))
    return _checked(view, parts, old.source, now.number)


@post("/templates/draft", opt=needs(Role.POLICY_ADMIN), status_code=200, sync_to_thread=True)
def check_draft(view: GivenView, parts: GivenParts, form: GivenForm) -> Page:
    """Shows what texts change, or their problems by line. Raises Conflict, WrongForm."""
    return _checked(view, parts, source_of(form), form.number("base"))


@post("/templates/apply", opt=needs(Role.POLICY_ADMIN), status_code=200, sync_to_thread=True)
def apply_draft(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """Puts texts in force. Raises WrongForm, Conflict, Forbidden."""
    reason, base = form.reason(), form.number("base")
    try:
        planned = _planned(parts, source_of(form), base)
    except (TemplateFileError, SettingsError) as exc:
        raise WrongForm("templates.wrong_text", "text", cause=str(exc)) from exc
    if not planned.wanted:
        raise WrongForm("templates.same")
    for lane in planned.lanes:
        person.require(Role.POLICY_ADMIN, lane.name)

    def record(connection: Connection, version: TemplateVersion) -> None:
        parts.journal.record(
            connection,
            person=person.name,
            action="templates.apply",
            subject=version.name,
            reason=reason,
            address=view.address,
        )

    removes = bool(form.text("removes"))
    database = parts.databases.primary
    try:
        apply_templates(database, planned, person.name, removes=removes, record=record)
    except TemplatesRefused as exc:
        raise WrongForm("templates.removed_unmeant", names=str(exc)) from exc
    except Overtaken as exc:
        raise Conflict("templates.overtaken", cause=str(exc)) from exc
    return view.redirect("/templates")


def templates_now(parts: ConsoleParts) -> ActiveTemplates:
    """Returns the templates in force. Raises WrongForm for an unreadable file, LedgerError."""
    versions = TemplateVersions(parts.databases.primary)
    try:
        with errors():
            return templates_in_force(parts.settings, versions, TEMPLATE_SUPPORT)
    except TemplateFileError as exc:
        raise WrongForm("templates.wrong_file", cause=str(exc)) from exc


def source_of(form: SentForm) -> TemplateSource:
    """Returns the texts of a form, with line ends as files have them. Raises WrongForm."""
    files: dict[str, str] = {}
    for number in count():
        name = form.text(f"file_name_{number}")
        if not name:  # the fields of a new file are the last ones
            break
        files[name] = _lines(form.exactly(f"file_text_{number}", longest=LONGEST_TEXT))
    return TemplateSource(_lines(form.exactly("text", longest=LONGEST_TEXT)), files)


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n")


def _planned(parts: ConsoleParts, source: TemplateSource, base: int) -> TemplatePlan:
    templates_now(parts)  # a file that cannot be read has its own sentence
    try:
        return plan_templates(parts.settings, parts.databases.primary, FILE, source, base)
    except Overtaken as exc:
        raise Conflict("templates.overtaken", cause=str(exc)) from exc


def _checked(view: View, parts: ConsoleParts, source: TemplateSource, base: int) -> Page:
    try:
        planned = _planned(parts, source, base)
    except TemplateFileError as exc:
        return _editor(view, source, base, problems=exc.problems)
    except SettingsError as exc:
        return _editor(view, source, base, problems=[Problem(FILE, 0, "", str(exc))])
    assert view.person is not None
    person = view.person
    foreign = [one.name for one in planned.lanes if not person.may(Role.POLICY_ADMIN, one.name)]
    diff = source_difference(planned.now.source, source, f"t{base}" if base else "file", "draft")
    return view.page(
        "templates/draft.html", plan=planned, diff=diff, foreign=foreign, source=source, base=base
    )


def _editor(
    view: View, source: TemplateSource, base: int, *, problems: Sequence[Problem] = ()
) -> Page:
    return view.page(
        "templates/edit.html",
        status=422 if problems else 200,
        source=source,
        base=base,
        problems=problems,
        lines=source.text.splitlines(),
    )


HANDLERS = [draft_page, check_draft, apply_draft]
