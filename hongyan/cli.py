"""`hongyan`: reads the command line, calls one command, turns expected errors into one sentence."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from hongyan.commands import (
    accounts,
    alerts,
    bench,
    campaign,
    completion,
    config,
    console,
    db,
    dead,
    deliveries,
    demo,
    dev,
    doctor,
    gateway,
    ids,
    keys,
    lanes,
    lookback,
    lost,
    outbox,
    policy,
    recall,
    receipts,
    recovery,
    relay,
    resend,
    schema,
    send,
    simulator,
    spark,
    status,
    templates,
    topics,
    trace,
    worker,
    workers,
)
from hongyan.errors import judged
from hongyan.flags import OptionalValues
from hongyan.resend.command import ResendCommand
from hongyan.terminal import PROBLEMS, USAGE, Options, complain, explained, placed, serves
from hongyan.usage.blank_options import refuse_blank_options
from hongyan.usage.command_line import PanelGroup, current_name, misuse, part_of
from hongyan.usage.extras import guard, sentence_for

INTERRUPTED = 130
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
DEBUG = "HONGYAN_DEBUG"
"""If set, an unforeseen error shows its traceback."""

app = typer.Typer(
    name="hongyan",
    cls=PanelGroup,
    help=explained(
        "Dispatch notifications, and prove what became of every one of them.",
        "hongyan db upgrade && hongyan topics apply && hongyan worker",
        "hongyan send --lane sms.notice --to +8613800000001 --template SMS_1",
        "hongyan trace order-1001",
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": current_name,
    },
)

# A command is registered here once it works.
_COMMANDS = (
    (demo.demo, demo.HELP, "See it lose nothing while a worker is killed."),
    (dev.dev, dev.HELP, "Run everything here, to try it."),
    (worker.worker, worker.HELP, "Send notifications from Kafka."),
    (send.send, send.HELP, "Hand notifications to Kafka."),
    (status.status, status.HELP, "Processes, lanes, alerts, held lines."),
    (doctor.doctor, doctor.HELP, "Find what could lose messages."),
    (trace.trace, trace.HELP, "Show what became of a message."),
    (gateway.gateway, gateway.HELP, "Take in notifications over HTTP."),
    (receipts.receipts, receipts.HELP, "Take in providers' receipts."),
    (relay.relay, relay.HELP, "Publish what waits in an outbox."),
    (recovery.recovery, recovery.HELP, "Send again, resolve, expire."),
    (resend.resend, resend.HELP, "Have deliveries sent again."),
    (recall.recall, recall.HELP, "Cancel or take back what was ordered."),
    (schema.schema, schema.HELP, "Print the JSON Schema of the envelope."),
)
"""Each command, its help, and its line in the list of commands."""
for _command, _help, _line in _COMMANDS:
    _cls = ResendCommand if _command is resend.resend else OptionalValues
    app.command(_command.__name__, cls=_cls, help=_help, short_help=_line)(_command)
app.add_typer(campaign.app)
app.add_typer(deliveries.app)
app.add_typer(lanes.app)
app.add_typer(lost.app)
app.add_typer(outbox.app)
app.add_typer(lookback.app)
app.add_typer(workers.app)
app.add_typer(topics.app)
app.add_typer(policy.app)
app.add_typer(templates.app)
app.add_typer(accounts.app)
app.add_typer(dead.app)
app.add_typer(alerts.app)
app.add_typer(keys.app)
app.add_typer(db.app)
app.add_typer(bench.app)
app.add_typer(config.app)
app.add_typer(ids.app)
app.add_typer(console.app)
app.add_typer(spark.app)
app.command("completion", help=completion.HELP, short_help="Completion for your shell.")(
    completion.completion
)
simulator.register(app)
guard(app)


def _say_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"hongyan {version('hongyan')}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="Configuration; default: $HONGYAN_CONFIG, else hongyan.toml in this folder.",
            show_default=False,
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version.", callback=_say_version, is_eager=True, metavar=""
        ),
    ] = False,
) -> None:
    context.obj = Options(config)


def _asked() -> Any:
    """Returns the part of the program that the command line names."""
    return get_command(part_of(app, sys.argv[1:]))


def main() -> None:
    """The program's entry."""
    try:
        program = _asked()
        refuse_blank_options(program, sys.argv[1:])
        sys.exit(program(prog_name="hongyan", standalone_mode=False))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as exc:
        text, code = _told(exc)
        complain(placed(text))
        sys.exit(code)


def _told(exc: Exception) -> tuple[str, int]:
    """Returns the error's text, one sentence a line, and the exit code."""
    found = misuse(exc, _asked) or judged(exc)
    if found is None and (missing := sentence_for(exc)):
        found = missing, USAGE
    if found is None and isinstance(exc, OSError) and exc.errno in _NO_ROOM:
        found = f"{exc.filename or 'the output'} cannot be written: {exc.strerror}", PROBLEMS
    return found or (_unforeseen(exc), PROBLEMS)


def _unforeseen(exc: Exception) -> str:
    """Returns a sentence for a bug. Writes the traceback to a serving process's log, or on demand."""
    if serves():
        import structlog

        structlog.get_logger(__name__).error("unforeseen", exc_info=exc)
    elif os.environ.get(DEBUG):
        traceback.print_exc()
    kind = type(exc).__name__
    return f"this is a fault of ours ({kind}); set {DEBUG}=1 to see where, and report it with that"
