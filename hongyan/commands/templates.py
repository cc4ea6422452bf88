"""`hongyan templates`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from hongyan.commands import template_versions
from hongyan.errors import WrongUsage
from hongyan.flags import pairs
from hongyan.output import templates as template_pages
from hongyan.terminal import DONE, PROBLEMS, err, explained, out, print_json, settings_of

if TYPE_CHECKING:
    from backends.settings import Settings
    from message.delivery import Rendered
    from policy.templates.templates import DeclaredTemplate, Templates

app = typer.Typer(name="templates", help="Named texts and their variables.", no_args_is_help=True)

CHECK = explained(
    "Report every problem of the templates with file, line and key, and the accounts that a template has "
    "nothing for. Exits 1 if there is a problem, or no account could send a template.",
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
    "Fill a template in, as a worker would, and show the result. Lists and tables are given as JSON. Exits "
    "1 when a variable is missing, too much or of another type, or there is nothing for the provider.",
    "hongyan templates render login-code --var code=4711",
    'hongyan templates render order-paid --var order=o-1 --var \'lines=[{"name":"tea","price":12}]\'',
    "hongyan templates render order-paid --vars order.json --part html > order.html",
    "hongyan templates render login-code --var code=4711 --provider tencent_sms",
)
_FILE = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE", help="Instead of templates.file of hongyan.toml.", show_default=False
    ),
]
_FROM = Annotated[
    Path | None,
    typer.Option("--file", "-f", help="Instead of the templates in force.", show_default=False),
]
_JSON = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]


app.command("apply", help=template_versions.APPLY)(template_versions.apply)
app.command("history", help=template_versions.HISTORY)(template_versions.history)


@app.command("check", help=CHECK)
def check(context: typer.Context, file: _FILE = None, as_json: _JSON = False) -> None:
    settings = settings_of(context)
    from channels.template_support import TEMPLATE_SUPPORT
    from policy.templates.loading import TemplateFileError, file_of, load

    path = file or file_of(settings)
    try:
        templates, problems = load(path, TEMPLATE_SUPPORT), []
    except TemplateFileError as exc:
        templates, problems = None, exc.problems
    left_out = _left_out(settings, templates) if templates else _LeftOut([], [])
    if as_json:
        version = templates.version if templates is not None else None
        print_json({"version": version, "problems": problems, **left_out._asdict()})
    elif templates is not None:
        count = f"{len(templates):,} template{'' if len(templates) == 1 else 's'}"
        summary = f"{path}  {count}  ({templates.version})" if path else "no template file"
        out().print("ok", style="green", end=" ")
        out().print(summary)
        for warning in (*left_out.unsendable, *left_out.warnings):
            out().print("warning", style="yellow", end=" ")
            out().print(warning, markup=False, soft_wrap=True)
    else:
        for problem in problems:
            out().print(f"{problem.file}:{problem.line}", style="bold", end="  ")
            out().print(f"{problem.key}: {problem.text}")
        err().print(
            f"{len(problems)} problem{'s' if problems[1:] else ''}; no worker starts with it"
        )
    raise typer.Exit(PROBLEMS if problems or left_out.unsendable else DONE)


@app.command("show", help=SHOW)
def show(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only this one.", show_default=False)
    ] = None,
    file: _FROM = None,
    as_json: _JSON = False,
) -> None:
    templates = _templates(context, file)
    chosen = [_named(templates, name)] if name else sorted(templates, key=lambda one: one.name)
    if as_json:
        print_json({one.name: template_pages.described(one) for one in chosen})
    elif name:
        template_pages.page(chosen[0])
    elif chosen:
        template_pages.table(chosen)
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
    provider: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only for this one.", show_default="all of them"),
    ] = None,
    file: _FROM = None,
    as_json: _JSON = False,
) -> None:
    template = _named(_templates(context, file), name)
    if provider is not None:
        _check_provider(template, provider)
    from policy.templates.templates import TemplateError

    try:
        rendered = template.render({**_read(variables), **template.parsed(pairs("--var", var))})
        if provider is not None:
            rendered = _of(template, rendered, provider)
    except TemplateError as exc:
        if as_json:
            print_json({"code": exc.code, "detail": exc.detail})
        else:
            err().print("error:", style="bold red", end=" ")
            err().print(f"{exc.code}: {exc.detail}")
        raise typer.Exit(PROBLEMS) from exc
    if part is not None:
        print(template_pages.part_of(rendered, part))
    elif as_json:
        print_json(template_pages.as_json(rendered))
    else:
        template_pages.filled_in(template, rendered)


class _LeftOut(NamedTuple):
    """Sentences on templates that no account, or not every account, could send."""

    unsendable: list[str]
    warnings: list[str]


def _left_out(settings: Settings, templates: Templates) -> _LeftOut:
    """Compares the templates with the accounts, and with the lanes under the policy in force."""
    from backends.settings import SettingsError
    from channels.accounts.lane_accounts import lane_accounts
    from channels.registry import load_accounts
    from channels.template_support import gaps, unsendable
    from hongyan.policy_source import policy_in_force
    from message.vocabulary import lanes_matching
    from policy.loading import PolicyError

    try:
        accounts, policy = load_accounts(settings.accounts).values(), policy_in_force(settings)
        lanes = {
            lane: lane_accounts(lane, settings.accounts, policy.of(lane))
            for lane in lanes_matching(["*"])
        }
    except (SettingsError, PolicyError) as exc:
        err().print(f"the accounts that could send them were not checked: {exc}", markup=False)
        return _LeftOut([], [])
    never = {one.name: why for one in templates if (why := unsendable(one, accounts))}
    sometimes = (gap for gap in gaps(templates, lanes) if gap.template.name not in never)
    return _LeftOut([f"{name}: {why}" for name, why in never.items()], list(map(str, sometimes)))


def _templates(context: typer.Context, file: Path | None) -> Templates:
    settings = settings_of(context)
    from channels.template_support import TEMPLATE_SUPPORT
    from hongyan.template_source import templates_now
    from policy.templates.loading import load

    return load(file, TEMPLATE_SUPPORT) if file else templates_now(settings, TEMPLATE_SUPPORT)


def _check_provider(template: DeclaredTemplate, provider: str) -> None:
    from channels.template_support import TEMPLATE_SUPPORT

    known = [name for name, taker in TEMPLATE_SUPPORT.items() if taker.channel == template.channel]
    if provider not in known:
        there = ", ".join(sorted(known))
        raise WrongUsage(f"--provider {provider!r}: {template.channel} has {there}")


def _of(template: DeclaredTemplate, rendered: Rendered, provider: str) -> Rendered:
    """Returns the provider's rendering. Raises TemplateError, in an adapter's words, if it is empty."""
    import msgspec

    from policy.templates.templates import TemplateError

    found = rendered.of(provider)
    if found.empty:
        raise TemplateError("no_template", f"template {template.name} has nothing for {provider}")
    return msgspec.structs.replace(found, providers={})


def _named(templates: Templates, name: str) -> DeclaredTemplate:
    from policy.templates.templates import TemplateError

    try:
        return templates.named(name)
    except TemplateError as exc:
        raise WrongUsage(f"{exc}; `hongyan templates show` lists them") from exc


def _read(file: Path | None) -> dict[str, Any]:
    """Returns the variables in a file of JSON; none without a file. Raises WrongUsage."""
    if file is None:
        return {}
    import msgspec

    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except OSError as exc:
        raise WrongUsage(f"--vars {file}: {exc.strerror}") from exc
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise WrongUsage(f"--vars {file}: must hold one JSON object: {exc}") from exc
