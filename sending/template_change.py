"""Plans a change of the templates, and puts it in force by compare-and-set, as policy_change does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from backends.settings import Settings
from backends.sql.database import Database
from channels.registry import load_accounts
from channels.template_support import TEMPLATE_SUPPORT, unsendable
from idempotency.error_mapping import errors
from message.vocabulary import LANES, Lane
from policy.templates.active import ActiveTemplates, templates_in_force
from policy.templates.loading import parse
from policy.templates.page import TemplateSource
from policy.templates.templates import Templates
from policy.templates.versions import TemplateVersion, TemplateVersions
from policy.versions import Overtaken, overtaken


class TemplatePlan(NamedTuple):
    """The effects of applying templates."""

    now: ActiveTemplates
    source: TemplateSource
    added: Sequence[str]
    changed: Sequence[str]
    removed: Sequence[str]
    channels: frozenset[str]
    """Channels of all of these."""
    unsendable: Sequence[str]
    """Templates that no account could send, a sentence each."""

    @property
    def wanted(self) -> bool:
        """Whether the texts differ from those in force, or none were ever applied."""
        return self.source != self.now.source or self.now.number == 0

    @property
    def lanes(self) -> list[Lane]:
        """The lanes of the channels."""
        return [lane for lane in LANES if lane.channel in self.channels]


class TemplatesRefused(Exception):
    """Templates would be removed, and nobody agreed; the text names them."""


def plan_templates(
    settings: Settings,
    database: Database,
    name: str,
    source: TemplateSource,
    expected: int | None = None,
) -> TemplatePlan:
    """Returns the effects of texts; problems call them `name`.

    Raises TemplateFileError, SettingsError, LedgerError, and Overtaken if not `expected` is in force.
    """
    templates = parse(name, source, TEMPLATE_SUPPORT, version=name)
    versions = TemplateVersions(database)
    with errors():
        now = templates_in_force(settings, versions, TEMPLATE_SUPPORT)
        if expected is not None and now.number != expected:
            raise Overtaken(overtaken(versions.newest(), expected, "templates"))
    return _plan(settings, now, templates, source)


def apply_templates(
    database: Database,
    planned: TemplatePlan,
    author: str,
    *,
    removes: bool = False,
    record: Callable[[Connection, TemplateVersion], object] | None = None,
) -> TemplateVersion:
    """Puts the plan's texts in force, after the version that it was made against.

    `removes` agrees to removed templates. `record` writes in the same transaction. Raises TemplatesRefused,
    Overtaken, LedgerError.
    """
    if planned.removed and not removes:
        raise TemplatesRefused(", ".join(planned.removed))
    now = planned.now
    with errors():
        return TemplateVersions(database).add(
            planned.source, author, base=now.number, before=now.source, record=record
        )


def _plan(
    settings: Settings, now: ActiveTemplates, templates: Templates, source: TemplateSource
) -> TemplatePlan:
    old = {one.name: one for one in now.templates}
    new = {one.name: one for one in templates}
    differ = [name for name in old.keys() & new.keys() if old[name].version != new[name].version]
    removed, added = old.keys() - new.keys(), new.keys() - old.keys()
    touched = [
        *(old[name] for name in (*removed, *differ)),
        *(new[name] for name in (*added, *differ)),
    ]
    accounts = load_accounts(settings.accounts).values()
    never = [f"{one.name}: {why}" for one in templates if (why := unsendable(one, accounts))]
    channels = frozenset(one.channel for one in touched)
    return TemplatePlan(
        now, source, sorted(added), sorted(differ), sorted(removed), channels, never
    )
