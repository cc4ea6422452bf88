"""`/campaigns/new`: the form of a new campaign, with its crowd file."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote

import msgspec
from litestar import get, post

from admin.access import Person, Role, needs
from admin.pages.campaigns.orders import actions_of
from admin.pages.campaigns.uploads import kept_upload
from admin.pages.templates.draft import templates_now
from admin.parts import ConsoleParts
from admin.web.forms import SentForm, WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.view import Page, View
from message.vocabulary import LANES
from producer.campaigns.contract import CampaignRefused, CampaignSchedule, CrowdColumns
from producer.campaigns.creation import CampaignDraft, limits_from
from producer.campaigns.row_checks import row_checks
from producer.campaigns.schedule import once_at, zone_of

MOST_UPLOAD: Final = 65 << 20
"""Bytes of a request; `campaigns.upload_mb` is 64 at most."""


class CampaignForm(msgspec.Struct, frozen=True, kw_only=True):
    """The form as it is filled in, without its file."""

    lane: str = ""
    template: str = ""
    receiver: str = "receiver"
    biz_id: str = ""
    variables: str = ""
    """`VARIABLE=COLUMN`, one a line."""
    constants: str = ""
    """`VARIABLE=TEXT`, one a line."""
    when: str = "now"
    """`now`, `at` or `cron`."""
    at: str = ""
    cron: str = ""
    zone: str = "Asia/Shanghai"
    hours: str = ""
    rate: str = ""
    once_per_receiver: bool = False
    encoding: str = "utf-8"
    reason: str = ""
    once: str = ""
    """Made with the form: the same form sent twice is one campaign."""


@get("/campaigns/new", opt=needs(Role.OPERATOR), sync_to_thread=True)
def new_campaign(view: GivenView, parts: GivenParts, person: GivenPerson) -> Page:
    """The form."""
    return _page(view, parts, person, CampaignForm())


@post(
    "/campaigns",
    opt=needs(Role.OPERATOR, "lane"),
    status_code=200,
    sync_to_thread=True,
    request_max_body_size=MOST_UPLOAD,
)
def make_campaign(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """Makes the campaign; nothing is sent. A form that is refused comes back without its file."""
    filled = _filled(form)
    try:
        draft = _draft(parts, person, form, filled)
        checks = row_checks(parts.settings, templates_now(parts).templates)
        actions = actions_of(parts, person, view, "make", form.reason())
        made = actions.make(draft, checks)
    except WrongForm as wrong:
        refused = view.refusal(wrong.key, wrong.arguments)
        return _page(view, parts, person, filled, refused=refused)
    except CampaignRefused as exc:
        return _page(view, parts, person, filled, refused=str(exc))
    return view.redirect(f"/campaigns/{quote(made.campaign.id, safe='')}")


def _page(
    view: View, parts: ConsoleParts, person: Person, form: CampaignForm, *, refused: str = ""
) -> Page:
    if not form.once:
        form = msgspec.structs.replace(form, once=secrets.token_urlsafe(9))
    context: dict[str, Any] = {
        "lanes": person.among([lane.name for lane in LANES], Role.OPERATOR),
        "templates": sorted(one.name for one in templates_now(parts).templates),
        "most_rate": parts.settings.campaigns.rate_per_s,
        "most_mb": parts.settings.campaigns.upload_mb,
        "approve_above": parts.settings.resend.approve_above,
    }
    status = 422 if refused else 200
    return view.page("campaigns/new.html", status=status, form=form, refused=refused, **context)


def _filled(form: SentForm) -> CampaignForm:
    """Returns the form as it was sent. Raises WrongForm for a field that is too long."""
    when = form.text("when", "now")
    return CampaignForm(
        lane=form.text("lane"),
        template=form.text("template"),
        receiver=form.text("receiver") or "receiver",
        biz_id=form.text("biz_id"),
        variables=form.text("variables"),
        constants=form.text("constants"),
        when=when if when in ("at", "cron") else "now",
        at=form.text("at"),
        cron=form.text("cron"),
        zone=form.text("zone") or "Asia/Shanghai",
        hours=form.text("hours"),
        rate=form.text("rate"),
        once_per_receiver=bool(form.text("once_per_receiver")),
        encoding="gb18030" if form.text("encoding") == "gb18030" else "utf-8",
        reason=form.text("reason"),
        once=form.text("once"),
    )


def _draft(
    parts: ConsoleParts, person: Person, form: SentForm, filled: CampaignForm
) -> CampaignDraft:
    """Returns the draft, with its file kept. Raises WrongForm, CampaignRefused."""
    if not (filled.lane and filled.template):
        raise WrongForm("campaigns.no_lane", "lane")
    file = form.file("file")
    if file is None:
        raise WrongForm("campaigns.no_file", "file")
    columns = CrowdColumns(
        receiver=filled.receiver,
        biz_id=filled.biz_id,
        variables=_pairs(filled.variables.splitlines(), "variables"),
        constants=_pairs(filled.constants.splitlines(), "constants"),
    )
    limits = limits_from(
        parts.settings,
        rate_per_s=_rate(filled.rate),
        hours=filled.hours,
        once_per_receiver=filled.once_per_receiver,
    )
    schedule = _schedule(filled)
    path = kept_upload(file, parts.settings)
    content = msgspec.json.encode([person.id, filled, path.name])
    return CampaignDraft(
        path=str(path),
        lane=filled.lane,
        template=filled.template,
        columns=columns,
        schedule=schedule,
        limits=limits,
        author=person.name,
        reason=filled.reason,
        encoding="gb18030" if filled.encoding == "gb18030" else "utf-8",
        campaign_id=f"cm-{sha256(content).hexdigest()[:10]}",
    )


def _schedule(form: CampaignForm) -> CampaignSchedule:
    """Returns the times. Raises WrongForm, CampaignRefused."""
    if form.when == "cron":
        if not form.cron:
            raise WrongForm("campaigns.no_cron", "cron")
        return CampaignSchedule(cron=form.cron, zone=form.zone)
    if form.when == "at":
        if not form.at:
            raise WrongForm("campaigns.no_at", "at")
        return CampaignSchedule(at=once_at(form.at, zone_of(form.zone)), zone=form.zone)
    return CampaignSchedule(zone=form.zone)


def _pairs(lines: Iterable[str], field: str) -> dict[str, str]:
    """Returns `NAME=VALUE`, one a line. Raises WrongForm."""
    found = {}
    for line in filter(None, map(str.strip, lines)):
        name, equals, value = line.partition("=")
        if not (name.strip() and equals and value.strip()):
            raise WrongForm("campaigns.bad_pair", field, text=line[:40])
        found[name.strip()] = value.strip()
    return found


def _rate(text: str) -> float | None:
    """Returns the campaign's own rate; None for that of the settings. Raises WrongForm."""
    if not text:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0.01 <= rate <= 1e6:
        raise WrongForm("campaigns.bad_rate", "rate")
    return rate


HANDLERS = [new_campaign, make_campaign]
