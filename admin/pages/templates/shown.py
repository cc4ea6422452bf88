"""`/templates`: what is in force, one template and its preview, the versions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from litestar import get, post
from litestar.params import FromPath, FromQuery

from admin.access import Person, Role, needs
from admin.pages.fleet.trials import TrialWay, trial_ways
from admin.pages.templates.draft import templates_now
from admin.parts import ConsoleParts
from admin.web.errors import Missing
from admin.web.forms import SentForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.paging import keys_of, page_of
from admin.web.view import Page, View
from channels.template_support import TEMPLATE_SUPPORT
from idempotency.error_mapping import errors
from message.delivery import Rendered
from message.vocabulary import LANES
from policy.templates.templates import DeclaredTemplate
from policy.templates.variables import TemplateError, Variable
from policy.templates.versions import TemplateVersions

PER_PAGE: Final = 20
LONGEST_PART: Final = 20_000
"""Characters of a part in a preview."""
_SAMPLES: Final = {"int": "42", "number": "12.5", "bool": "true", "date": "2026-11-21"}


class PreviewPart(NamedTuple):
    """One part of a rendering."""

    name: str
    text: str
    cut: bool


class Preview(NamedTuple):
    """A rendering for one provider."""

    provider: str
    template_id: str
    """The provider's template; empty: a content is sent."""
    parts: Sequence[PreviewPart]
    """None: there is nothing for this provider."""


@get("/templates", opt=needs(Role.VIEWER), sync_to_thread=True)
def list_page(
    view: GivenView, parts: GivenParts, person: GivenPerson, before: FromQuery[str] = ""
) -> Page:
    """The templates of the person's channels, and the newest versions."""
    now = templates_now(parts)
    with errors():
        found = TemplateVersions(parts.databases.reads).history(PER_PAGE + 1, keys_of(before, int))
    return view.page(
        "templates/list.html",
        now=now,
        templates=sorted(
            (one for one in now.templates if sees(person, one)), key=lambda one: one.name
        ),
        versions=page_of(found, PER_PAGE, lambda one: one.number),
        whole=sees_texts(person),
    )


@get("/templates/one", opt=needs(Role.VIEWER), sync_to_thread=True)
def one_page(
    view: GivenView, parts: GivenParts, person: GivenPerson, name: FromQuery[str] = ""
) -> Page:
    """One template: its variables and the parts by provider. Raises Missing."""
    template = template_of(parts, person, name)
    samples = {key: sample(key, one) for key, one in template.variables.items()}
    return _shown(view, template, samples, trial_ways(parts, person, template.channel))


@post("/templates/one", opt=needs(Role.VIEWER), status_code=200, sync_to_thread=True)
def preview(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """Renders a template with the form's variables; sends nothing. Raises Missing."""
    template = template_of(parts, person, form.text("name"))
    ways = trial_ways(parts, person, template.channel)
    return _shown(view, template, sent_values(template, form), ways)


@get("/templates/versions/{number:int}", opt=needs(Role.VIEWER), sync_to_thread=True)
def version_page(
    number: FromPath[int], view: GivenView, parts: GivenParts, person: GivenPerson
) -> Page:
    """One version: what it changed, its texts, and the way back to it. Raises Missing."""
    with errors():
        found = TemplateVersions(parts.databases.reads).numbered(number)
    if found is None or not sees_texts(person):
        raise Missing(str(number))
    return view.page("templates/version.html", version=found, now=templates_now(parts))


def sees(person: Person, template: DeclaredTemplate) -> bool:
    """Returns whether the person may see a lane of the template's channel."""
    return any(
        person.may(Role.VIEWER, lane.name) for lane in LANES if lane.channel == template.channel
    )


def sees_texts(person: Person) -> bool:
    """Returns whether the person may see whole texts, which are of all channels."""
    return person.everywhere(Role.VIEWER) or person.may(Role.POLICY_ADMIN)


def sample(name: str, variable: Variable) -> str:
    """Returns a value with which a preview begins."""
    if variable.type == "list":
        row = {key: sample(key, one) for key, one in variable.fields.items()}
        return json.dumps([row] if row else ["a", "b"], ensure_ascii=False)
    return _SAMPLES.get(variable.type, name)


def template_of(parts: ConsoleParts, person: Person, name: str) -> DeclaredTemplate:
    """Returns the template of that name as it is in force. Raises Missing."""
    template = templates_now(parts).templates.get(name)
    if template is None or not sees(person, template):
        raise Missing(name)
    return template


def sent_values(template: DeclaredTemplate, form: SentForm) -> dict[str, str]:
    """Returns the form's text of each variable."""
    return {key: form.exactly(f"var_{key}") for key in template.variables}


def given_values(template: DeclaredTemplate, texts: Mapping[str, str]) -> dict[str, str]:
    """Returns the texts without empty ones of optional variables."""
    return {key: text for key, text in texts.items() if text or template.variables[key].required}


def _shown(
    view: View, template: DeclaredTemplate, texts: Mapping[str, str], ways: Sequence[TrialWay]
) -> Page:
    problem, previews = "", []
    try:
        given = given_values(template, texts)
        previews = previews_of(template, template.render(template.parsed(given)))
    except TemplateError as exc:
        problem = f"{exc.code}: {exc.detail}"
    return view.page(
        "templates/one.html",
        status=422 if problem else 200,
        declared=template,
        texts=texts,
        previews=previews,
        problem=problem,
        ways=[] if problem else ways,
    )


def previews_of(template: DeclaredTemplate, rendered: Rendered) -> list[Preview]:
    """Returns the rendering of each provider of the channel."""
    providers = [
        name for name, taker in TEMPLATE_SUPPORT.items() if taker.channel == template.channel
    ]
    found = []
    for name in sorted(providers):
        form, one = template.of(name), rendered.of(name)
        fits = TEMPLATE_SUPPORT[name].takes(form)
        found.append(_preview(name, one) if fits else Preview(name, "", []))
    return found


def _preview(provider: str, one: Rendered) -> Preview:
    values: Mapping[str, Any] = one.template.params if one.template else one.content or {}
    some = []
    for name, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        some.append(PreviewPart(name, text[:LONGEST_PART], len(text) > LONGEST_PART))
    return Preview(provider, one.template.id if one.template else "", some)


HANDLERS = [list_page, one_page, preview, version_page]
