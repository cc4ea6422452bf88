"""Forms of a template: one for all providers, and `[templates.NAME.providers.PROVIDER]` for single ones.

This package knows no provider. A caller that has adapters passes the providers and what each takes
(`channels.template_support.TEMPLATE_SUPPORT`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from backends.toml_text import did_you_mean
from message.vocabulary import CHANNELS
from policy.templates.page import Page, Place
from policy.templates.parts import Part, parts
from policy.templates.templates import PROVIDER_TEMPLATES, DeclaredTemplate, Form

_FORM: Final = ("template_id", "params", "content")
_ABOUT: Final = ("channel", "description", "variables", "providers")
"""Keys of the template as a whole."""


class Taker(NamedTuple):
    """A provider's channel, and the kinds of form that it takes."""

    channel: str
    templates: bool
    """Whether it has templates of its own, known by id."""
    contents: bool
    """Whether it takes contents."""

    def takes(self, form: Form) -> bool:
        """Whether the form is of a kind that it sends."""
        return self.templates if form.template_id else self.contents and bool(form.content)


Takers = Mapping[str, Taker]
"""All providers, by name."""


def form(page: Page, table: dict[str, Any], place: Place) -> Form:
    """Returns the form in a table. Reports its wrong parts."""
    return Form(
        template_id=page.string(table, "template_id", place),
        params=parts(page, page.table(table, (*place, "params")), (*place, "params")),
        content=_content(page, table, place),
    )


def providers(page: Page, table: dict[str, Any], place: Place) -> dict[str, Form]:
    """Returns a form for each provider that is named."""
    place = (*place, "providers")
    tables, found = page.table(table, place), {}
    if table.get("providers") == {}:
        page.report(place, "names none; write [templates.NAME.providers.PROVIDER]")
    for name in tables:
        before, where = len(page.problems), (*place, name)
        one = page.table(tables, where)
        for key in one.keys() & set(_ABOUT):
            page.report((*where, key), "belongs to the whole template, not to one provider")
        found[name] = form(page, one, where)
        if len(page.problems) == before:
            _check_kind(page, found[name], one, where)
    return found


def nothing(template: DeclaredTemplate, takers: Takers) -> dict[str, Form]:
    """Returns an empty form for each provider that does not take the form for all. None if the template
    has no forms for single providers."""
    if not template.providers:
        return {}
    channel = template.channel
    return {
        name: Form()
        for name, taker in takers.items()
        if taker.channel == channel and not taker.takes(template)
    }


def check(
    page: Page,
    template: DeclaredTemplate,
    table: dict[str, Any],
    place: Place,
    takers: Takers | None,
) -> None:
    """Reports problems of the form for all providers, and of the providers that the others are for."""
    _check_kind(page, template, table, place)
    if takers is not None and template.channel in CHANNELS:
        for name, one in template.providers.items():
            _check_taker(page, template.channel, name, one, (*place, "providers", name), takers)


def _content(page: Page, table: dict[str, Any], place: Place) -> dict[str, Part]:
    """Returns the content: keys that are not ours, and those in `content`, where all names are free."""
    top = {key: value for key, value in table.items() if key not in (*_FORM, *_ABOUT)}
    inner = page.table(table, (*place, "content"))
    for key in sorted(top.keys() & inner.keys()):
        page.report((*place, key), "is in content too; give it once")
    return {**parts(page, top, place), **parts(page, inner, (*place, "content"))}


def _check_kind(page: Page, form: Form, table: dict[str, Any], place: Place) -> None:
    """Reports a form that is not one of the two: a content, or a provider's template with parameters. It
    may be empty if the template has `providers`."""
    if not form.template_id and "params" in table:
        page.report((*place, "params"), "goes with template_id")
    elif form.empty and "providers" not in table:
        page.report(place, "says nothing: give subject, text, …, or template_id and params")
    elif form.template_id and form.content:
        odd = next(iter(form.content))
        page.report((*place, odd), "a provider's template (template_id) has params alone")
    elif isinstance(form, DeclaredTemplate) and form.template_id:
        _check_has_templates(page, form.channel, place)


def _check_has_templates(page: Page, channel: str, place: Place) -> None:
    if channel not in PROVIDER_TEMPLATES:
        page.report((*place, "template_id"), f"no provider of channel {channel} has templates")


def _check_taker(
    page: Page, channel: str, name: str, form: Form, place: Place, takers: Takers
) -> None:
    """Reports an unknown provider, one of another channel, or one that does not take the form."""
    taker, known = takers.get(name), sorted(n for n, t in takers.items() if t.channel == channel)
    if taker is None:
        hint = did_you_mean(name, known) or f"; {channel} has {', '.join(known)}"
        page.report(place, f"there is no provider {name!r}{hint}")
    elif taker.channel != channel:
        page.report(place, f"{name} does not serve {channel}; there are {', '.join(known)}")
    elif form.template_id and not taker.templates:
        page.report((*place, "template_id"), f"{name} has no templates of its own; give a content")
    elif form.content and not taker.contents:
        odd = next(iter(form.content))
        problem = f"{name} sends templates of its own alone; give template_id and params"
        page.report((*place, odd), problem)
