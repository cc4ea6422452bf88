"""`hongyan dev`."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from backends.signals import stopped_by_signals
from hongyan.errors import WrongUsage
from hongyan.terminal import err, explained, out, print_json

if TYPE_CHECKING:
    from threading import Event

    from hongyan.dev.environment import World
    from hongyan.dev.process_tree import ProcessTree

HELP = explained(
    "Run the whole platform here until Ctrl-C, to try things with: an embedded Kafka, SQLite, a simulated "
    "provider for SMS, e-mail and webhooks, a worker, recovery and receipts. Other commands in other "
    "terminals work with it; the lines to paste are printed. Ledger and topics begin empty at each start. "
    "With --with-stack it uses the servers that `make up` started. Listens on loopback alone.",
    "hongyan dev",
    "hongyan dev --folder shop",
    "hongyan dev --with-stack",
)
FOLDER: Final = Path("hongyan-dev")
_FAILING: Final = '{"rules":[{"codes":{"isv.BUSINESS_LIMIT_CONTROL":1}}]}'
_OWN: Final = ("kafka", "database", "redis")
"""Tables of hongyan.toml that this command sets."""


def dev(
    folder: Annotated[
        Path, typer.Option("--folder", metavar="DIR", help="For configuration, ledger and logs.")
    ] = FOLDER,
    with_stack: Annotated[
        bool, typer.Option("--with-stack", help="Use the servers of `make up`.", metavar="")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the addresses as one JSON line.", metavar="")
    ] = False,
) -> None:
    began = time.monotonic()
    with stopped_by_signals() as stop:
        _refuse_overrides()
        try:
            from hongyan.dev.environment import EmbeddedWorld, StackWorld
            from hongyan.dev.process_tree import ProcessTree
        except ModuleNotFoundError as exc:
            raise WrongUsage(f"{exc}; install hongyan[worker,simulator]") from exc
        logs = folder.absolute() / "logs"
        try:
            logs.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise WrongUsage(f"--folder {folder}: {exc.strerror}; give another folder") from exc
        world = StackWorld(os.environ) if with_stack else EmbeddedWorld(folder.absolute())
        with world, ProcessTree(logs, world.config, os.environ) as tree:
            environment = _write_environment(folder.absolute(), world)
            _serve(world, tree, environment, stop, began, as_json=as_json)


def _serve(
    world: World, tree: ProcessTree, environment: Path, stop: Event, began: float, *, as_json: bool
) -> None:
    from hongyan.dev.supervision import Supervision

    supervision = Supervision(world, tree, lambda text: err().print(f"▸ {text}", markup=False))
    if not supervision.start(stop):
        return
    seconds = round(time.monotonic() - began, 1)
    if as_json:
        shown = {"config": str(world.config), "control": world.control, "ready_s": seconds}
        print_json(shown | {"logs": str(tree.folder), "environment": str(environment)})
        sys.stdout.flush()
    else:
        _say_what_to_paste(world, environment, seconds, tree.folder)
    supervision.run(stop)
    err().print("▸ ending; calls under way end first", markup=False)


def _refuse_overrides() -> None:
    from hongyan.dev.process_tree import overrides

    if found := overrides(_OWN, os.environ):
        raise WrongUsage(
            f"{', '.join(found)}: set, and would send commands elsewhere; unset and try again"
        )


def _write_environment(folder: Path, world: World) -> Path:
    """Writes the file that other terminals source. Returns its path."""
    file = folder / "env"
    lines = [f"export HONGYAN_CONFIG={shlex.quote(str(world.config))}"]
    program = Path(sys.executable).with_name("hongyan")
    if program.exists():
        lines.append(f'export PATH={shlex.quote(str(program.parent))}:"$PATH"')
    if world.control:
        lines.append(f"export SIMULATOR={world.control}")
    file.write_text("\n".join(lines) + "\n")
    return file


def _say_what_to_paste(world: World, environment: Path, seconds: float, logs: Path) -> None:
    lines = [
        f"▸ ready after {seconds} s: worker, recovery, receipts; logs in {logs}; Ctrl-C ends all",
        "",
        "In another terminal:",
        f"  export HONGYAN_CONFIG={shlex.quote(str(world.config))}",
        f"  export SIMULATOR={world.control}          # both lines: . {shlex.quote(str(environment))}",
        "  hongyan send --lane sms.verification --to +8613800000001 \\",
        "      --template login-code --param code=4711 --biz-id order-1001",
        "  hongyan trace order-1001 --wait 30",
        "  hongyan status",
        "",
        f"The provider's page:  {world.control}/",
        f"Let it fail:          curl -d '{_FAILING}' $SIMULATOR/_control",
        "Let it recover:       curl -d '{\"rules\":[]}' $SIMULATOR/_control",
    ]
    for line in lines:
        out().print(line, markup=False, soft_wrap=True)
