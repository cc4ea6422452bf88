"""`/resend/new`: a new job, by filter or by ids. A link may fill the form in:

`/resend/new?states=PARKED,REJECTED&lanes=sms.notice&since=2h&until=…&account=…&template=…&code=…`
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote

import msgspec
from litestar import get, post
from litestar.params import FromQuery

from admin.access import Person, Role, needs
from admin.pages.resend.moments import moment_ms
from admin.pages.resend.names import ERRORS_SHOWN, GivenNames, decoded, read_names
from admin.pages.resend.orders import actions_of
from admin.parts import ConsoleParts
from admin.web.forms import SentForm, WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.view import Page, View
from idempotency.recovery.selection import ENDED
from idempotency.resend_jobs.contract import JobFilter, ResendMode
from message.vocabulary import LANES
from recovery.resend_jobs.errors import ResendJobRefused
from recovery.resend_jobs.factory import limits_of

LONGEST_LIST: Final = 8 << 20
"""Characters of pasted ids."""
STATES: Final = tuple(state.value for state in ENDED)
"""States that the form offers: rows in the others are never eligible."""


class JobForm(msgspec.Struct, frozen=True, kw_only=True):
    """The form as it is filled in."""

    by: str = "filter"
    """`filter` or `names`."""
    mode: str = ResendMode.AGAIN.value
    states: Sequence[str] = ("PARKED",)
    lanes: Sequence[str] = ()
    since: str = "1h"
    until: str = ""
    account: str = ""
    template: str = ""
    code: str = ""
    in_doubt: bool = False
    expired: bool = False
    rate: str = ""
    reason: str = ""
    names: str = ""
    once: str = ""
    """Made with the form: the same form sent twice is one job."""


@get("/resend/new", opt=needs(Role.OPERATOR), sync_to_thread=True)
def new_job(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    states: FromQuery[str] = "",
    lanes: FromQuery[str] = "",
    since: FromQuery[str] = "",
    until: FromQuery[str] = "",
    account: FromQuery[str] = "",
    template: FromQuery[str] = "",
    code: FromQuery[str] = "",
    by: FromQuery[str] = "filter",
) -> Page:
    """The form, filled in as the link says."""
    wanted = [one.strip().upper() for one in states.split(",")]
    form = JobForm(
        by="names" if by == "names" else "filter",
        states=[one for one in wanted if one in STATES] or ["PARKED"],
        lanes=[one.strip() for one in lanes.split(",")],
        since=since or "1h",
        until=until,
        account=account,
        template=template,
        code=code,
    )
    return _page(view, parts, person, form)


@post("/resend", opt=needs(Role.OPERATOR, "lane"), status_code=200, sync_to_thread=True)
def make_job(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """Makes the job; recovery lists its deliveries. A form that is refused comes back as it was."""
    filled = _filled(form)
    try:
        given = _names(form) if filled.by == "names" else GivenNames([], [])
        if given.wrong:
            return _page(view, parts, person, filled, given=given)
        job = actions_of(parts, person, view, "make", form.reason()).make(
            ResendMode.COPY if filled.mode == ResendMode.COPY else ResendMode.AGAIN,
            _filter(filled, person, parts),
            limits_of(parts.settings.resend, _rate(filled.rate)),
            who=person.name,
            reason=filled.reason,
            names=given.names,
            job_id=_job_id(filled, person, given.names),
        )
    except WrongForm as wrong:
        refused = view.refusal(wrong.key, wrong.arguments)
        return _page(view, parts, person, filled, refused=refused)
    except ResendJobRefused as exc:
        return _page(view, parts, person, filled, refused=str(exc))
    return view.redirect(f"/resend/{quote(job.id, safe='')}")


def _page(
    view: View,
    parts: ConsoleParts,
    person: Person,
    form: JobForm,
    *,
    given: GivenNames | None = None,
    refused: str = "",
) -> Page:
    if not form.once:
        form = msgspec.structs.replace(form, once=secrets.token_urlsafe(9))
    context: dict[str, Any] = {
        "states": STATES,
        "lanes": person.among([lane.name for lane in LANES], Role.OPERATOR),
        "accounts": sorted(parts.settings.accounts),
        "most_rate": parts.settings.resend.rate_per_s,
        "approve_above": parts.settings.resend.approve_above,
        "wrong": given.wrong[:ERRORS_SHOWN] if given else [],
        "wrong_count": len(given.wrong) if given else 0,
    }
    status = 422 if refused or context["wrong"] else 200
    return view.page("resend/new.html", status=status, form=form, refused=refused, **context)


def _filled(form: SentForm) -> JobForm:
    """Returns the form as it was sent. Raises WrongForm for a field that is too long."""
    return JobForm(
        by="names" if form.text("by") == "names" else "filter",
        mode=form.text("mode", ResendMode.AGAIN),
        states=[one for one in form.every("state") if one],
        lanes=[one for one in form.every("lane") if one],
        since=form.text("since"),
        until=form.text("until"),
        account=form.text("account"),
        template=form.text("template"),
        code=form.text("code"),
        in_doubt=bool(form.text("in_doubt")),
        expired=bool(form.text("expired")),
        rate=form.text("rate"),
        reason=form.text("reason"),
        names=form.exactly("names", longest=LONGEST_LIST),
        once=form.text("once"),
    )


def _names(form: SentForm) -> GivenNames:
    """Returns the ids of the file, else the pasted ones. Raises WrongForm."""
    sent = form.file("file")
    text = decoded(sent.content) if sent else form.exactly("names", longest=LONGEST_LIST)
    if text is None:
        raise WrongForm("resend.no_text", "file")
    given = read_names(text)
    if not given.names and not given.wrong:
        raise WrongForm("resend.no_names", "names")
    return given


def _filter(form: JobForm, person: Person, parts: ConsoleParts) -> JobFilter:
    """Returns the selection. A job by ids keeps to the lanes that the person operates. Raises WrongForm."""
    both: dict[str, Any] = {"in_doubt": form.in_doubt, "expired": form.expired}
    if form.by == "names":
        everywhere = person.everywhere(Role.OPERATOR)
        known = person.among([lane.name for lane in LANES], Role.OPERATOR)
        return JobFilter(lanes=[] if everywhere else known, **both)
    if not form.states or not form.lanes:
        raise WrongForm("resend.no_filter", "state")
    if not form.since:
        raise WrongForm("resend.no_since", "since")
    now = parts.ledger.now_ms()
    return JobFilter(
        states=list(dict.fromkeys(form.states)),
        lanes=list(dict.fromkeys(form.lanes)),
        since=moment_ms(form.since, now, "since"),
        until=moment_ms(form.until, now, "until"),
        account=form.account,
        reason=form.code,
        template=form.template,
        **both,
    )


def _rate(text: str) -> float | None:
    """Returns the job's own rate; None for that of the settings. Raises WrongForm."""
    if not text:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0.01 <= rate <= 1e6:
        raise WrongForm("resend.bad_rate", "rate")
    return rate


def _job_id(form: JobForm, person: Person, names: Sequence[str]) -> str:
    """Returns an id that is the same for the same form, sent twice."""
    content = msgspec.json.encode([person.id, msgspec.structs.replace(form, names=""), names])
    return f"rj-{sha256(content).hexdigest()[:10]}"


HANDLERS = [new_job, make_job]
