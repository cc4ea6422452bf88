"""`hongyan templates`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hongyan.errors import WrongUsage
from hongyan.flags import pairs
from hongyan.terminal import DONE, PROBLEMS, err, explained, out, print_json, settings_of

if TYPE_CHECKING:
    from message.delivery import Rendered
    from policy.templates import Template, Templates
    from policy.templates_variables import Variable

app = typer.Typer(name="templates", help="Named texts and their variables.", no_args_is_help=True)

CHECK = explained(
    "Say everything that is wrong with the templates, with file, line and key. Exits 1 if anything is.",
    "hongyan templates check",
    "hongyan templates check draft.toml --json",
)
SHOW = explained(
    "List the templates, or show one with its variables.",
    "hongyan templates show",
    "hongyan templates show order-paid",
    "hongyan templates show --json",
)
RENDER = explained(
    "Fill a template in, as a worker would, and show what would be sent. Lists and tables are given as "
    "JSON. Exits 1 when a variable is missing, too much or of another type.",
    "hongyan templates render login-code --var code=4711",
    'hongyan templates render order-paid --var order=o-1 --var \'lines=[{"name":"tea","price":12}]\'',
    "hongyan templates render order-paid --vars order.json --part html > order.html",
)
_FILE = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE", help="Instead of templates.file of hongyan.toml.", show_default=False
    ),
]
_FROM = Annotated[
    Path | None,
    typer.Option(
        "--file", "-f", help="Instead of templates.file of hongyan.toml.", show_default=False
    ),
]
_JSON = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]


@app.command("check", help=CHECK)
def check(context: typer.Context, file: _FILE = None, as_json: _JSON = False) -> None:
    """See CHECK."""
    settings = settings_of(context)
    from policy.templates_loading import TemplateFileError, file_of, load

    path = file or file_of(settings)
    try:
        templates, problems = load(path), []
    except TemplateFileError as exc:
        templates, problems = None, exc.problems
    if as_json:
        version = templates.version if templates is not None else None
        print_json({"version": version, "problems": problems})
    elif templates is not None:
        count = f"{len(templates):,} template{'' if len(templates) == 1 else 's'}"
        said = f"{path}  {count}  ({templates.version})" if path else "no template file"
        out().print(f"[green]ok[/] {said}")
    else:
        for problem in problems:
            out().print(f"[bold]{problem.file}:{problem.line}[/]  {problem.key}: ", end="")
            out().print(problem.text, markup=False)
        err().print(
            f"{len(problems)} problem{'s' if problems[1:] else ''}; no worker starts with it"
        )
    raise typer.Exit(PROBLEMS if problems else DONE)


@app.command("show", help=SHOW)
def show(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only this one.", show_default=False)
    ] = None,
    file: _FROM = None,
    as_json: _JSON = False,
) -> None:
    """See SHOW."""
    templates = _templates(context, file)
    chosen = [_named(templates, name)] if name else sorted(templates, key=lambda one: one.name)
    if as_json:
        print_json({one.name: _described(one) for one in chosen})
    elif name:
        _page(chosen[0])
    elif chosen:
        _table(chosen)
    else:
        err().print("there are no templates; docs/templates.md says how to write one")


@app.command("render", help=RENDER)
def render(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    var: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Repeat it.")] = None,
    variables: Annotated[
        Path | None, typer.Option("--vars", metavar="FILE", help="A JSON object of variables.")
    ] = None,
    part: Annotated[
        str | None, typer.Option(metavar="KEY", help="Only this part, as it is.")
    ] = None,
    file: _FROM = None,
    as_json: _JSON = False,
) -> None:
    """See RENDER."""
    template = _named(_templates(context, file), name)
    from policy.templates import TemplateError

    try:
        rendered = template.render({**_read(variables), **template.parsed(pairs("--var", var))})
    except TemplateError as exc:
        if as_json:
            print_json({"code": exc.code, "detail": exc.detail})
        else:
            err().print(f"[bold red]error:[/] {exc.code}: ", end="")
            err().print(exc.detail, markup=False)
        raise typer.Exit(PROBLEMS) from exc
    if part is not None:
        print(_part(rendered, part))
    elif as_json:
        print_json(rendered)
    else:
        _shown(template, rendered)


def _templates(context: typer.Context, file: Path | None) -> Templates:
    settings = settings_of(context)
    from policy.templates_loading import file_of, load

    return load(file or file_of(settings))


def _named(templates: Templates, name: str) -> Template:
    from policy.templates import TemplateError

    try:
        return templates.named(name)
    except TemplateError as exc:
        raise WrongUsage(f"{exc}; `hongyan templates show` lists them") from exc


def _read(file: Path | None) -> dict[str, Any]:
    """The variables in a file of JSON."""
    if file is None:
        return {}
    import msgspec

    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except OSError as exc:
        raise WrongUsage(f"--vars {file}: {exc.strerror}") from exc
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise WrongUsage(f"--vars {file}: must hold one JSON object: {exc}") from exc


def _described(template: Template) -> dict[str, Any]:
    return {
        "channel": template.channel,
        "version": template.version,
        "description": template.description,
        "template_id": template.template_id or None,
        "makes": _makes(template),
        "variables": {name: _variable(one) for name, one in template.variables.items()},
    }


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


def _makes(template: Template) -> list[str]:
    return list(template.params if template.template_id else template.content)


def _table(templates: list[Template]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("TEMPLATE", "CHANNEL", "MAKES", "VARIABLES", "VERSION"):
        table.add_column(title, no_wrap=title in ("TEMPLATE", "CHANNEL", "VERSION"))
    for one in templates:
        variables = (
            name if v.required else f"[dim]{name}?[/]" for name, v in one.variables.items()
        )
        made = f"{one.template_id}: " if one.template_id else ""
        table.add_row(
            escape(one.name),
            one.channel,
            escape(made + ", ".join(_makes(one))),
            ", ".join(variables),
            f"[dim]{one.version}[/]",
        )
    out().print(table)


def _page(template: Template) -> None:
    """One template, a variable a line."""
    from rich.markup import escape
    from rich.table import Table

    out().print(f"[bold]{escape(template.name)}[/]  {template.channel}  [dim]{template.version}[/]")
    if template.description:
        out().print(template.description, markup=False)
    made = f"template {template.template_id} with " if template.template_id else ""
    out().print(f"makes {made}{', '.join(_makes(template)) or 'no parameters'}\n", markup=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("VARIABLE", "TYPE", ""):
        table.add_column(title)
    _rows(table, template.variables, "")
    out().print(table)


def _rows(table: Any, variables: dict[str, Variable], indent: str) -> None:
    from rich.markup import escape

    for name, one in variables.items():
        said = _variable(one)
        kind = f"list of {said['items']}" if "items" in said else one.type
        table.add_row(f"{indent}{name}", kind, escape(_when(said)))
        _rows(table, one.fields, f"{indent}  ")


def _when(said: dict[str, Any]) -> str:
    if said["required"]:
        return "required"
    return f"default {said['default']!r}" if "default" in said else "optional"


def _part(rendered: Rendered, key: str) -> str:
    """One part; a text as it is, anything else as JSON."""
    import msgspec

    parts = rendered.content or (rendered.template.params if rendered.template else {})
    if key not in parts:
        raise WrongUsage(f"--part {key!r}: it makes {', '.join(parts) or 'none'}")
    value = parts[key]
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _shown(template: Template, rendered: Rendered) -> None:
    """Each part under its name."""
    if rendered.template is not None:
        out().print("[bold]template[/]  ", end="")
        out().print(rendered.template.id, markup=False)
    parts = rendered.content or (rendered.template.params if rendered.template else {})
    for key in parts:
        text = _part(rendered, key)
        out().print(key, style="bold", markup=False, end="\n" if "\n" in text else "  ")
        out().print(text, markup=False, soft_wrap=True)
    out().print(f"{template.channel}, version {template.version}", style="dim")
