"""Output of `hongyan templates`: templates and their renderings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hongyan.errors import WrongUsage
from hongyan.tables import listing
from hongyan.terminal import out

if TYPE_CHECKING:
    from message.delivery import Rendered
    from policy.templates.templates import DeclaredTemplate, Form
    from policy.templates.variables import Variable

_OTHERS = "others"
"""Label of the form for providers without one of their own."""


def described(template: DeclaredTemplate) -> dict[str, Any]:
    """Returns the template for JSON."""
    return {
        "channel": template.channel,
        "version": template.version,
        "description": template.description,
        **_form(template),
        "providers": {name: _form(one) for name, one in template.providers.items()},
        "variables": {name: _variable(one) for name, one in template.variables.items()},
    }


def table(templates: list[DeclaredTemplate]) -> None:
    """Prints one template a line."""
    from rich.text import Text

    titles = ("TEMPLATE", "CHANNEL", "MAKES", "VARIABLES", "VERSION")
    shown = listing(titles, whole=("TEMPLATE", "CHANNEL", "VERSION"))
    for one in templates:
        variables = (
            Text(name) if v.required else Text(f"{name}?", "dim")
            for name, v in one.variables.items()
        )
        made = (f"{name} {_short(form)}".lstrip() for name, form in _forms(one) if not form.empty)
        shown.add_row(
            one.name,
            one.channel,
            "; ".join(made),
            Text(", ").join(variables),
            Text(one.version, "dim"),
        )
    out().print(shown)


def page(template: DeclaredTemplate) -> None:
    """Prints one template: its providers, if any, and its variables, one a line."""
    from rich.text import Text

    parts = ((template.name, "bold"), f"  {template.channel}  ", (template.version, "dim"))
    out().print(Text.assemble(*parts))
    if template.description:
        out().print(template.description, markup=False)
    if template.providers:
        forms = listing(("PROVIDER", "MAKES"))
        for name, form in _forms(template):
            forms.add_row(name or _OTHERS, _long(form))
        out().print(forms)
        out().print()
    else:
        out().print(f"makes {_long(template)}\n", markup=False)
    shown = listing(("VARIABLE", "TYPE", ""))
    _rows(shown, template.variables, "")
    out().print(shown)


def as_json(rendered: Rendered) -> dict[str, Any]:
    """Returns template and content for JSON, with the providers' own forms if there are any."""
    forms = {name: as_json(one) for name, one in rendered.providers.items()}
    made = {"template": rendered.template, "content": rendered.content}
    return {**made, "providers": forms} if forms else made


def part_of(rendered: Rendered, key: str) -> str:
    """Returns one part: a text as it is, anything else as JSON. Raises WrongUsage."""
    import msgspec

    if rendered.empty:
        raise WrongUsage(f"--part {key!r}: it has only forms for single providers; add --provider")
    parts = _parts(rendered)
    if key not in parts:
        raise WrongUsage(f"--part {key!r}: it makes {', '.join(parts) or 'none'}")
    value = parts[key]
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def filled_in(template: DeclaredTemplate, rendered: Rendered) -> None:
    """Prints each part under its name, and under its provider's if there are several."""
    if not rendered.providers:
        _print_parts(rendered)
    else:
        for name, one in {**rendered.providers, _OTHERS: rendered}.items():
            if not one.empty:
                out().print(name, style="bold cyan")
                _print_parts(one)
    out().print(f"{template.channel}, version {template.version}", style="dim")


def _form(form: Form) -> dict[str, Any]:
    return {"template_id": form.template_id or None, "makes": _makes(form)}


def _makes(form: Form) -> list[str]:
    return list(form.params if form.template_id else form.content)


def _forms(template: DeclaredTemplate) -> Iterator[tuple[str, Form]]:
    """Yields each provider's own form by its name, and the form for all others under no name."""
    yield from template.providers.items()
    if not (template.empty and template.providers):
        yield "", template


def _short(form: Form) -> str:
    return ": ".join(filter(None, (form.template_id, ", ".join(_makes(form)))))


def _long(form: Form) -> str:
    if form.empty:
        return "nothing"
    made = f"template {form.template_id} with " if form.template_id else ""
    return f"{made}{', '.join(_makes(form)) or 'no parameters'}"


def _variable(variable: Variable) -> dict[str, Any]:
    import msgspec

    fields = {"fields": {name: _variable(one) for name, one in variable.fields.items()}}
    default = {} if variable.default is msgspec.UNSET else {"default": variable.default}
    items = {"items": variable.items} if variable.type == "list" and not variable.anything else {}
    return {
        "type": variable.type,
        "required": variable.required,
        **default,
        **(fields if variable.fields else items),
    }


def _rows(shown: Any, variables: dict[str, Variable], indent: str) -> None:
    for name, one in variables.items():
        described = _variable(one)
        kind = f"list of {described['items']}" if "items" in described else one.type
        shown.add_row(f"{indent}{name}", kind, _when(described))
        _rows(shown, one.fields, f"{indent}  ")


def _when(variable: dict[str, Any]) -> str:
    if variable["required"]:
        return "required"
    return f"default {variable['default']!r}" if "default" in variable else "optional"


def _parts(rendered: Rendered) -> dict[str, Any]:
    return rendered.content or (rendered.template.params if rendered.template else {})


def _print_parts(rendered: Rendered) -> None:
    if rendered.template is not None:
        out().print("template", style="bold", end="  ")
        out().print(rendered.template.id, markup=False)
    for key in _parts(rendered):
        text = part_of(rendered, key)
        out().print(key, style="bold", markup=False, end="\n" if "\n" in text else "  ")
        out().print(text, markup=False, soft_wrap=True)
