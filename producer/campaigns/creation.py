"""A new campaign: looks through its crowd file, and checks that file, template and times fit.

The look takes the fingerprint, counts the rows, and gathers the columns' names. Then the first rows are
read again, built and checked as a run does it. No row is kept.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, Final, Literal, NamedTuple

from backends.settings import Settings
from message.envelope import EnvelopeError
from message.foreign_text import shown_name
from message.vocabulary import lane_named
from policy.templates.templates import DeclaredTemplate
from producer.campaigns.contract import (
    BadRow,
    Campaign,
    CampaignLimits,
    CampaignRefused,
    CampaignSchedule,
    CampaignState,
    CrowdColumns,
    CrowdSource,
    RunPlace,
)
from producer.campaigns.crowd_file import (
    CrowdReader,
    CrowdUnusable,
    CrowdWatch,
    fingerprint,
    opened_crowd,
)
from producer.campaigns.crowd_names import MOST_NAMES, CrowdNames, names_of_crowd
from producer.campaigns.crowd_rows import CrowdRow
from producer.campaigns.notifications import DETAIL_AT_MOST, RowBuilder, RowChecks
from producer.campaigns.schedule import next_due, zone_of
from producer.campaigns.sending_pace import minutes_in

CHECKED_ROWS: Final = 1_000
"""Rows that are built and checked before the campaign is made."""
SHOWN_BAD_ROWS: Final = 20
_LISTED_NAMES: Final = 50
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_GZIP: Final = b"\x1f\x8b"
_TABS: Final = ".tsv"
_FORMATS: Final[Mapping[str, Literal["csv", "jsonl"]]] = {
    ".csv": "csv",
    _TABS: "csv",
    ".txt": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}


class CampaignDraft(NamedTuple):
    """What a person orders."""

    path: str
    lane: str
    template: str
    columns: CrowdColumns
    schedule: CampaignSchedule
    limits: CampaignLimits
    author: str
    reason: str
    encoding: Literal["utf-8", "gb18030"] = "utf-8"
    separator: str = ","
    campaign_id: str = ""
    """A name: the same order under it is one campaign. Empty: one is made."""


def limits_from(
    settings: Settings,
    *,
    rate_per_s: float | None = None,
    hours: str = "",
    ttl_ms: int | None = None,
    account: str = "",
    once_per_receiver: bool = False,
) -> CampaignLimits:
    """Returns the limits of a new campaign; its own rate is bounded by that of the settings."""
    terms = settings.campaigns
    return CampaignLimits(
        rate_per_s=min(rate_per_s or terms.rate_per_s, terms.rate_per_s),
        hours=hours,
        error_rate=terms.error_rate,
        approve_above=settings.resend.approve_above,
        once_per_receiver=once_per_receiver,
        ttl_ms=ttl_ms,
        account=account or None,
        late_s=terms.late_s,
    )


class SurveyedCampaign(NamedTuple):
    """A campaign to make, and what the first rows of its file showed."""

    campaign: Campaign
    checked: int
    bad: int
    """Of the checked rows."""
    shown: Sequence[BadRow]


def surveyed(draft: CampaignDraft, checks: RowChecks, now_ms: int) -> SurveyedCampaign:
    """Returns the campaign that a draft describes, not yet written. Raises CampaignRefused."""
    _check_name(draft.campaign_id)
    if lane_named(draft.lane) is None:
        raise CampaignRefused(f"there is no lane {draft.lane!r}: write CHANNEL.KIND")
    _check_times(draft, now_ms)
    template = checks.templates.get(draft.template)
    try:
        source = _source(draft)
        names = names_of_crowd(source, _wanted(draft.columns, template))
        source = _counted(source, names.rows)
        columns = _columns(draft, names, template)
        campaign = _campaign(draft, source, columns, now_ms)
        return _checked(campaign, checks, now_ms)
    except CrowdUnusable as exc:
        raise CampaignRefused(str(exc)) from exc


def _check_name(name: str) -> None:
    """Names are parts of the names of runs, of paths of the console, and of command lines."""
    if name and not _NAME.fullmatch(name):
        raise CampaignRefused(
            f"{shown_name(name)!r} is no name of a campaign: write at most 64 letters, digits, `.`, `_` and"
            " `-`, with a letter or a digit first"
        )


def _check_times(draft: CampaignDraft, now_ms: int) -> None:
    zone_of(draft.schedule.zone)
    if draft.limits.hours:
        minutes_in(draft.limits.hours)
    if draft.schedule.cron and next_due(draft.schedule, now_ms) is None:
        raise CampaignRefused(f"cron {draft.schedule.cron!r} never comes")
    if draft.schedule.at and draft.schedule.at <= now_ms:
        raise CampaignRefused("the time is over: give a later one, or none to run at the start")


def _source(draft: CampaignDraft) -> CrowdSource:
    """Returns the file's facts without its number of rows. Raises CampaignRefused, CrowdUnusable."""
    path = Path(draft.path).absolute()
    suffix = PurePath(path.name.lower().removesuffix(".gz")).suffix
    form = _FORMATS.get(suffix)
    if form is None:
        raise CampaignRefused(
            f"{path.name}: name it .csv or .jsonl (then .gz if it is packed), so that its format is known"
        )
    try:
        with path.open("rb") as file:
            packed = file.read(len(_GZIP)) == _GZIP
    except OSError as exc:
        raise CrowdUnusable(f"{path} cannot be read here: {exc.strerror}") from exc
    found = fingerprint(str(path))
    return CrowdSource(
        path=str(path),
        format=form,
        packed=packed,
        encoding=draft.encoding,
        separator="\t" if suffix == _TABS else draft.separator,
        size=found.size,
        sha256=found.sha256,
        rows=0,
    )


def _counted(source: CrowdSource, rows: int) -> CrowdSource:
    """Returns the source with its rows. Raises CampaignRefused, CrowdUnusable."""
    if not rows:
        raise CampaignRefused(f"{source.path}: it has no rows")
    CrowdWatch(source).check()  # nobody wrote to it while it was read
    fields: dict[str, Any] = {name: getattr(source, name) for name in source.__struct_fields__}
    return CrowdSource(**fields | {"rows": rows})


def _used(given: CrowdColumns) -> set[str]:
    """Returns the columns that a person named."""
    return {given.receiver, *filter(None, [given.biz_id]), *given.variables.values()}


def _wanted(given: CrowdColumns, template: DeclaredTemplate | None) -> set[str]:
    """Returns the columns to look for."""
    return _used(given) | set(template.variables if template is not None else ())


def _columns(
    draft: CampaignDraft, names: CrowdNames, template: DeclaredTemplate | None
) -> CrowdColumns:
    """Returns the use of the columns, with the variables that nobody named. Raises CampaignRefused."""
    given, titles = draft.columns, names.titles
    if missing := sorted(_used(given) - set(titles)):
        listed = ", ".join(titles[:_LISTED_NAMES]) or "none"
        more = ", …" if len(titles) > _LISTED_NAMES else ""
        raise CampaignRefused(f"the file has no column {missing[0]!r}; it has {listed}{more}")
    if template is None and not names.are_all:
        raise CampaignRefused(
            f"the file's rows have more than {MOST_NAMES:,} names, and a provider's template takes each:"
            " leave out those that are no variables"
        )
    if template is not None and template.channel != draft.lane.partition(".")[0]:
        raise CampaignRefused(f"template {draft.template!r} is for {template.channel}")
    variables = given.variables | _by_name(given, titles, template)
    columns = CrowdColumns(
        receiver=given.receiver,
        biz_id=given.biz_id,
        variables=variables,
        constants=given.constants,
    )
    if template is not None:
        _check_variables(columns, template)
    return columns


def _by_name(
    given: CrowdColumns, titles: Sequence[str], template: DeclaredTemplate | None
) -> dict[str, str]:
    """Returns the variables that are columns of the same name. A provider's template takes every column
    that has no other use."""
    named = {*given.variables, *given.constants}
    other = {given.receiver, given.biz_id, *given.variables.values()}
    if template is not None:
        return {name: name for name in template.variables if name in titles and name not in named}
    return {title: title for title in titles if title not in named and title not in other}


def _check_variables(columns: CrowdColumns, template: DeclaredTemplate) -> None:
    given = {*columns.variables, *columns.constants}
    if unknown := sorted(given - set(template.variables)):
        raise CampaignRefused(f"template {template.name!r} has no variable {unknown[0]!r}")
    for name, variable in template.variables.items():
        if variable.required and name not in given:
            raise CampaignRefused(
                f"template {template.name!r} wants {name!r}: give the file such a column, map another one"
                " to it, or set it for all rows"
            )


def _campaign(
    draft: CampaignDraft, source: CrowdSource, columns: CrowdColumns, now_ms: int
) -> Campaign:
    return Campaign(
        id=draft.campaign_id or f"cm-{secrets.token_hex(5)}",
        state=CampaignState.NEW,
        version=1,
        lane=draft.lane,
        template=draft.template,
        crowd=source,
        columns=columns,
        schedule=draft.schedule,
        limits=draft.limits,
        author=draft.author,
        reason=draft.reason,
        created_at=now_ms,
        since=now_ms,
    )


def _checked(campaign: Campaign, checks: RowChecks, now_ms: int) -> SurveyedCampaign:
    """Returns the campaign with the faults of its first rows. Raises CampaignRefused if all of them are
    bad, CrowdUnusable."""
    path, checked = campaign.crowd.path, min(campaign.crowd.rows, CHECKED_ROWS)
    bad, shown = 0, list[BadRow]()
    with opened_crowd(campaign.crowd) as file:
        reader = CrowdReader(file, campaign.crowd, RunPlace())
        for one in _bad_rows(campaign, islice(reader, CHECKED_ROWS), checks, now_ms):
            bad += 1
            if bad <= SHOWN_BAD_ROWS:
                shown.append(one)
    if bad == checked:
        raise CampaignRefused(
            f"{path}: all of the first {checked:,} rows are bad; line {shown[0].line}: {shown[0].detail}"
        )
    return SurveyedCampaign(campaign, checked, bad, shown)


def _bad_rows(
    campaign: Campaign, rows: Iterable[CrowdRow], checks: RowChecks, now_ms: int
) -> Iterator[BadRow]:
    builder = RowBuilder(campaign, campaign.id, checks, lambda: now_ms)
    for row in rows:
        try:
            if row.code:
                yield BadRow(row.line, row.code, row.detail)
            else:
                builder.build(row.number, row.fields)
        except EnvelopeError as exc:
            yield BadRow(row.line, exc.code, f"{exc.path}: {exc.detail}"[:DETAIL_AT_MOST])
