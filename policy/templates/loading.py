"""Loads templates.toml; reports every problem with file, line and key (docs/templates.md).

[templates."order-paid"]             channel, and the content's keys: subject, text, html, …
[templates."order-paid".variables]
[templates."login-code"]             channel, template_id, params: a provider's template
[templates."login-code".providers.NAME]   either of the two, for this provider alone
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from backends.settings import Settings
from backends.toml_text import did_you_mean
from message.envelope import MAX_RECEIVER
from message.vocabulary import CHANNELS
from policy.loading import Problem, digest
from policy.templates.declarations import variables
from policy.templates.page import Page, Place, TemplateSource
from policy.templates.parts import expanded, readers
from policy.templates.provider_forms import Takers, check, form, nothing, providers
from policy.templates.templates import DeclaredTemplate, Templates

DEFAULT_FILE: Final = "templates.toml"


class TemplateFileError(ValueError):
    """A template file that cannot be used; the text has the first problem, `problems` has all."""

    def __init__(self, problems: list[Problem]) -> None:
        count = len(problems) - 1
        more = f" (and {count} more; see `hongyan templates check`)" if count else ""
        super().__init__(f"{problems[0]}{more}")
        self.problems = problems


_READ_TAGS: Final = frozenset({"wecom", "dingtalk", "feishu"})
"""Channels whose texts mention members by tags. Not all of `message.receivers.CHATS`: the adapters of
channel `chat` disable mentions in a content themselves."""


def file_of(settings: Settings) -> Path | None:
    """Returns `templates.file`, else templates.toml beside hongyan.toml if it is there, else None."""
    base = Path(settings.base)
    if settings.templates.file:
        return base / settings.templates.file
    default = base / DEFAULT_FILE
    return default if default.is_file() else None


def load_for(settings: Settings, takers: Takers | None = None) -> Templates:
    """Returns the templates that `settings` names. Without `takers` names under `providers` are not
    checked. Raises TemplateFileError."""
    return load(file_of(settings), takers)


def load(path: str | Path | None, takers: Takers | None = None) -> Templates:
    """Returns the compiled templates in `path`; none for None. Raises TemplateFileError. See `load_for`."""
    if path is None:
        return Templates()
    return load_source(path, takers)[0]


def load_source(path: str | Path, takers: Takers | None = None) -> tuple[Templates, TemplateSource]:
    """Returns the compiled templates in `path`, and the texts read. Raises TemplateFileError."""
    page = Page(Path(path))
    templates = _checked(page, takers)
    return Templates(templates, page.version()), TemplateSource(page.text, page.files)


def parse(
    name: str, source: TemplateSource, takers: Takers | None = None, *, version: str
) -> Templates:
    """Returns the templates in these texts, known as `version`; problems call them `name`. Reads no file.
    Raises TemplateFileError."""
    return Templates(_checked(Page(Path(name), source), takers), version)


def _checked(page: Page, takers: Takers | None) -> dict[str, DeclaredTemplate]:
    """Returns the page's templates. Raises TemplateFileError."""
    templates = _templates(page, takers)
    if page.problems:
        raise TemplateFileError(sorted(set(page.problems)))
    return templates


def _templates(page: Page, takers: Takers | None) -> dict[str, DeclaredTemplate]:
    """Returns every template without a problem; reports the others."""
    for key in page.data:
        if key != "templates":
            page.report((key,), f"unknown table{did_you_mean(key, ['templates'])}")
    tables = page.table(page.data, ("templates",))
    found = [_template(page, name, tables, takers) for name in tables]
    return {template.name: template for template in found if template is not None}


def _template(
    page: Page, name: str, tables: dict[str, Any], takers: Takers | None
) -> DeclaredTemplate | None:
    """Returns one template; None if it has a problem, which is reported."""
    before, place = len(page.problems), ("templates", name)
    table = page.table(tables, place)
    if not 0 < len(name) <= MAX_RECEIVER or not name.isprintable():
        page.report(place, f"a name has 1 to {MAX_RECEIVER} printable characters")
    declared = (*place, "variables")
    channel = _channel(page, table, place)
    page.chat = channel in _READ_TAGS
    template = DeclaredTemplate(
        name=name,
        channel=channel,
        description=page.string(table, "description", place),
        variables=variables(page, page.table(table, declared), declared),
        providers=providers(page, table, place),
        **msgspec.structs.asdict(form(page, table, place)),
    )
    check(page, template, table, place, takers)
    _check_names(page, template, place)
    if len(page.problems) > before:
        return None
    content = msgspec.json.encode(expanded(page, table), order="deterministic")
    forms = {**nothing(template, takers or {}), **template.providers}
    return msgspec.structs.replace(template, version=digest(content), providers=forms)


def _channel(page: Page, table: dict[str, Any], place: Place) -> str:
    channel = page.string(table, "channel", place)
    if channel not in CHANNELS:
        problem = f"{channel!r} is no channel" if channel else "is missing"
        hint = did_you_mean(channel, CHANNELS) or f"; write one of {', '.join(CHANNELS)}"
        page.report((*place, "channel"), f"{problem}{hint}")
    return channel


def _check_names(page: Page, template: DeclaredTemplate, place: Place) -> None:
    """Reports variables that are read and not declared: each would fail every notification."""
    known = template.variables
    reading = [*readers(template.params, ("params",)), *readers(template.content)]
    for provider, one in template.providers.items():
        at = ("providers", provider)
        reading += [*readers(one.params, (*at, "params")), *readers(one.content, at)]
    for where, names in reading:
        for name in sorted(names - known.keys()):
            problem = f"reads {name}, which is not among its variables{did_you_mean(name, known)}"
            page.report((*place, *where), problem)
