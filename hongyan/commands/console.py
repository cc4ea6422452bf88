"""`hongyan console`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from backends.signals import stopped_by_signals
from hongyan.author import author_of
from hongyan.errors import NotDone, WrongUsage
from hongyan.serving import serving
from hongyan.tables import listing, local_time
from hongyan.terminal import Options, explained, out, print_json, settings_of

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from admin.parts import ConsoleParts
    from admin.people.users import ConsoleUser, Roles
    from hongyan.demo.console import DemoOperator

app = typer.Typer(name="console", help="The web console, its users and its audit.")
user = typer.Typer(name="user", help="Users of the console.", no_args_is_help=True)
audit = typer.Typer(name="audit", help="The audit of the console.", no_args_is_help=True)
app.add_typer(user)
app.add_typer(audit)

HELP = explained(
    "Serve the web console until SIGTERM or Ctrl-C. The first user comes from `console user add`.",
    "hongyan console",
    "hongyan console --listen 127.0.0.1:9480      behind a proxy that speaks TLS",
    "hongyan console --demo                       on the data that `hongyan demo` left",
    "hongyan console user add lin --role admin",
)
ADD = explained(
    "Add a user. The password is asked for, or read from standard input or a file.",
    "hongyan console user add lin --role admin",
    "hongyan console user add bo --role operator:sms.* --role viewer --password-file /run/secrets/bo",
    "hongyan console user add bo@example.com --oidc --role viewer      signs in at the provider alone",
)
ROLE = explained(
    "Replace a user's roles: viewer, operator, approver, policy_admin, admin; with lanes after a colon. "
    "The user's sessions end.",
    "hongyan console user role bo operator:sms.*,email.notice viewer",
)
DISABLE = explained(
    "Disable a user, or enable it again. The user's sessions end.",
    "hongyan console user disable bo",
    "hongyan console user disable bo --undo",
)
PASSWORD = explained(
    "Set a user's password. The user's sessions end.",
    "hongyan console user password bo",
    "pass show hongyan/bo | hongyan console user password bo --password-file -",
)
LIST = explained("List users and their roles.", "hongyan console user list --json")
VERIFY = explained(
    "Check that no row of the audit was removed or changed. Exits 1 if one was.",
    "hongyan console audit verify",
)
REKEY = explained(
    "Begin the audit's rows under console.secret, once it was set or changed. A row says how the rows "
    "before were found, and holds their digest. If nobody changed the secret, find out first who changed "
    "the audit.",
    "hongyan console audit verify                                      with the secret of before",
    "hongyan console audit rekey --reason 'console.secret is set'      with the new one",
)
_NAME = Annotated[str, typer.Argument(metavar="NAME")]
_AUTHOR = Annotated[
    str, typer.Option("--author", metavar="NAME", help="Who orders it.", show_default="user@host")
]
_FILE = Annotated[
    str,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="Read the password from FILE, or - for standard input; default: ask for it.",
    ),
]
_DEMO_LISTEN: Final = "127.0.0.1:9480"
_MAY: Final = {
    "viewer": "see everything",
    "operator": "act on deliveries and lanes",
    "approver": "agree to what the operator asked for",
    "policy_admin": "change policy and templates",
    "admin": "change people, and read the audit",
}
_JSON = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]


@app.callback(invoke_without_command=True, help=HELP)
def console(
    context: typer.Context,
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Address that browsers, or the proxy before them, reach; port 0: any free one. "
            "Default: console.listen of hongyan.toml.",
            show_default=False,
        ),
    ] = "",
    demo: Annotated[
        bool,
        typer.Option(
            "--demo",
            help="Serve the ledger that `hongyan demo` left, with a provider, a worker and recovery beside "
            "it, and users of every role; their passwords are printed. On loopback alone.",
            metavar="",
        ),
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="With --demo: the demo's folder."),
    ] = None,
) -> None:
    if context.invoked_subcommand is not None:
        return
    if demo:
        raise typer.Exit(_serve_demo(context, folder, listen))
    if folder is not None:
        raise WrongUsage("--folder goes with --demo alone")
    with serving(context, "console") as (settings, stop):
        from admin.process import run_console
        from backends.interpreter import tune_interpreter

        tune_interpreter()
        raise typer.Exit(run_console(settings, stop, listen))


def _serve_demo(context: typer.Context, folder: Path | None, listen: str) -> int:
    """Serves the demo's ledger; neither --config nor the environment may name another one."""
    options: Options = context.find_root().obj
    if options.config is not None:
        raise WrongUsage("--config: --demo serves the demo's own ledger alone; leave --config out")
    with stopped_by_signals() as stop:
        from backends import logs
        from backends.settings import LogSettings
        from hongyan.demo.console import serve_demo
        from hongyan.demo.folder import FOLDER

        logs.configure(LogSettings(), quiet=True)
        return serve_demo(folder or FOLDER, listen or _DEMO_LISTEN, stop, _show_operators)


def _show_operators(address: str, operators: Sequence[DemoOperator]) -> None:
    """Prints the address and the passwords: they are kept nowhere, and each start makes new ones."""
    out().print(f"The console is at http://{address}; Ctrl-C ends it.\n", markup=False)
    table = listing(("NAME", "PASSWORD", "MAY"))
    for one in operators:
        table.add_row(one.name, one.password, _MAY[one.role])
    out().print(table)
    sys.stdout.flush()


@user.command("add", help=ADD)
def add(
    context: typer.Context,
    name: _NAME,
    role: Annotated[
        list[str] | None, typer.Option("--role", metavar="ROLE[:LANES]", help="May be repeated.")
    ] = None,
    password_file: _FILE = "",
    oidc: Annotated[
        bool,
        typer.Option(
            "--oidc",
            help="No password: NAME is the e-mail address that the provider of console.oidc_issuer gives.",
            metavar="",
        ),
    ] = False,
    author: _AUTHOR = "",
) -> None:
    if oidc and password_file:
        raise WrongUsage("--oidc: a user of the provider has no password; drop --password-file")
    by, roles = author_of(author), " ".join(role or [])
    with _opened(context) as parts:
        from admin.people.users import written

        wanted = _wanted(roles)
        password = "" if oidc else _new_password(password_file, name)
        name = name.lower() if oidc else name
        with _changing(parts) as connection:
            number = parts.people.users.add(connection, name, by=by, password=password)
            parts.people.users.set_roles(connection, number, wanted)
            parts.journal.record(
                connection, person=by, action="user.add", subject=name, reason=written(wanted)
            )
    out().print(f"added {name}" + ("" if wanted else "; it has no role yet: `console user role`"))


@user.command("role", help=ROLE)
def role(
    context: typer.Context,
    name: _NAME,
    roles: Annotated[list[str], typer.Argument(metavar="ROLE[:LANES]...")],
    author: _AUTHOR = "",
) -> None:
    by = author_of(author)
    with _opened(context) as parts, _changing(parts) as connection:
        from admin.people.users import written

        wanted = _wanted(" ".join(roles))
        found = _existing(parts, connection, name)
        parts.people.users.set_roles(connection, found.id, wanted)
        parts.journal.record(
            connection, person=by, action="user.role", subject=name, reason=written(wanted)
        )
    out().print(f"{name}: {written(wanted)}")


@user.command("disable", help=DISABLE)
def disable(
    context: typer.Context,
    name: _NAME,
    undo: Annotated[bool, typer.Option("--undo", help="Enable it again.", metavar="")] = False,
    author: _AUTHOR = "",
) -> None:
    by = author_of(author)
    with _opened(context) as parts, _changing(parts) as connection:
        from admin.people.users import UserState

        state = UserState.ACTIVE if undo else UserState.DISABLED
        found = _existing(parts, connection, name)
        parts.people.users.set_state(connection, found.id, state)
        action = "user.enable" if undo else "user.disable"
        parts.journal.record(connection, person=by, action=action, subject=name)
    out().print(f"{name}: {state}")


@user.command("password", help=PASSWORD)
def password(
    context: typer.Context, name: _NAME, password_file: _FILE = "", author: _AUTHOR = ""
) -> None:
    by = author_of(author)
    with _opened(context) as parts:
        with _changing(parts) as connection:
            _existing(parts, connection, name)
        new = _new_password(password_file, name)
        with _changing(parts) as connection:
            found = _existing(parts, connection, name)
            parts.people.users.set_password(connection, found.id, new)
            parts.journal.record(connection, person=by, action="user.password", subject=name)
    out().print(f"{name}: the password is set")


@user.command("list", help=LIST)
def list_(context: typer.Context, as_json: _JSON = False) -> None:
    from admin.people.users import written

    with _opened(context) as parts:
        found: list[ConsoleUser] = []
        while page := parts.people.users.page(found[-1].name if found else ""):
            found += page
    if as_json:
        print_json(
            [
                {"name": one.name, "state": one.state, "roles": one.roles, "added": one.created_at}
                for one in found
            ]
        )
        return
    table = listing(("NAME", "STATE", "ROLES", "ADDED"))
    for one in found:
        table.add_row(one.name, one.state, written(one.roles), local_time(one.created_at))
    out().print(table)


@audit.command("verify", help=VERIFY)
def verify(context: typer.Context, as_json: _JSON = False) -> None:
    with _opened(context) as parts:
        found = parts.journal.check()
    key_row = found.key_row
    if as_json:
        print_json(found._asdict() | {"key_row": key_row._asdict() if key_row else None})
    elif not found.faults:
        out().print(f"{found.rows} rows, none removed or changed")
    if key_row and not as_json:
        out().print(
            f"rows up to {key_row.number - 1} are as they were when {key_row.person} wrote row"
            f" {key_row.number}, {local_time(key_row.at)}; whether they were changed before, this check"
            f" cannot tell. That row says: {key_row.reason}",
            markup=False,
        )
    if found.faults:
        raise NotDone("; ".join(found.faults))


@audit.command("rekey", help=REKEY)
def rekey(
    context: typer.Context,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Kept in the row.", show_default=False)
    ],
    author: _AUTHOR = "",
) -> None:
    if not reason.strip():
        raise WrongUsage("--reason: say why the secret is another one")
    with _opened(context) as parts, _refusing():
        row = parts.journal.rekey(person=author_of(author), reason=reason.strip())
    if row is None:
        out().print("every row is under this console.secret: nothing to do")
    else:
        out().print(
            f"row {row.number} begins the rows under console.secret: {row.reason}", markup=False
        )


@contextmanager
def _opened(context: typer.Context) -> Iterator[ConsoleParts]:
    settings = settings_of(context)
    from contextlib import ExitStack

    from admin.parts import open_parts
    from hongyan.database import existing

    existing(settings).close()  # raises before `open_ledger` makes a missing SQLite file
    with ExitStack() as stack:
        yield open_parts(settings, stack)


@contextmanager
def _changing(parts: ConsoleParts) -> Iterator[Connection]:
    """Yields a transaction on people and audit. Raises NotDone for a change that is refused."""
    from idempotency.error_mapping import errors

    with _refusing(), errors(), parts.databases.primary.begin() as connection:
        yield connection


@contextmanager
def _refusing() -> Iterator[None]:
    """Raises NotDone for a change that people or audit refuse."""
    from admin.audit.journal import AuditRefused
    from admin.people.users import UserRefused
    from admin.web.languages import texts_of

    try:
        yield
    except (AuditRefused, UserRefused) as exc:
        raise NotDone(texts_of("en")(str(exc)).rstrip(".")) from exc


def _existing(parts: ConsoleParts, connection: Connection, name: str) -> ConsoleUser:
    found = parts.people.users.named(connection, name)
    if found is None:
        raise NotDone(f"there is no user {name!r}: `hongyan console user list` shows all")
    return found


def _wanted(roles: str) -> Roles:
    """Returns the roles that were typed. Raises WrongUsage."""
    from admin.people.users import roles_of

    try:
        return roles_of(roles)
    except ValueError as exc:
        raise WrongUsage(f"--role: {exc}") from exc


def _new_password(file: str, name: str) -> str:
    """Returns the new password: typed twice, or the first line of a file. Raises WrongUsage."""
    from admin.people.passwords import problem_of
    from admin.web.languages import texts_of

    if file == "-":
        new = sys.stdin.readline().rstrip("\n")
    elif file:
        try:
            new = Path(file).read_text().partition("\n")[0]
        except (OSError, UnicodeDecodeError) as exc:
            raise WrongUsage(f"--password-file: {file}: it cannot be read") from exc
    elif sys.stdin.isatty():
        new = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        raise WrongUsage(
            "no terminal to ask at: give --password-file FILE, or - for standard input"
        )
    if problem := problem_of(new, name):
        raise WrongUsage(texts_of("en")(problem).rstrip("."))
    return str(new)
