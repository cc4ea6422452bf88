"""The local stack from the command line; `python3 -m deploy.local --help` lists what it does."""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, replace

from deploy.local.errors import StackError
from deploy.local.layout import from_environment
from deploy.local.simulator_server import to_paste
from deploy.local.stack import Stack, Status, reserved_base

EXAMPLES = """\
examples:
  make up                                  one broker, PostgreSQL and Redis
  BROKERS=3 make up                        three brokers: copies 3, in sync at least 2
  HONGYAN_STACK_DIR=/tmp/mine HONGYAN_STACK_PORT_BASE=21000 make up
                                           a second stack beside the first
  export $(python3 -m deploy.local env)    point hongyan at the stack
"""


def say(line: str) -> None:
    print(f"  {line}", file=sys.stderr, flush=True)


def up(stack: Stack, arguments: argparse.Namespace) -> int:
    played: bool = arguments.with_simulator
    if arguments.free_ports and not any(map(stack.running, stack.names)):
        with reserved_base(stack.layout.brokers) as base:  # until its servers have the ports
            layout = replace(stack.layout, port_base=base)
            return _up(Stack(layout, say, with_simulator=played), paste=played)
    return _up(stack, paste=played)


def _up(stack: Stack, *, paste: bool) -> int:
    failed = stack.up()
    stack.layout.started_by_tests.unlink(missing_ok=True)  # now a person wants it
    for name, why in failed.items():
        complain(f"{name} is not up: {why}")
    if paste and not failed:
        print("\n".join(["", "Now paste:", *to_paste(stack.layout)]))
    return 1 if failed else 0


def down(stack: Stack, arguments: argparse.Namespace) -> int:
    stopped = stack.down(wipe=arguments.wipe)
    say(f"stopped {', '.join(stopped)}" if stopped else "nothing of the stack was running")
    return 0


def status(stack: Stack, arguments: argparse.Namespace) -> int:
    services = stack.status()
    if arguments.json:
        print(json.dumps([asdict(service) for service in services], indent=2))
    else:
        print(table(services))
    return 0 if all(service.state == "running" for service in services) else 1


def table(services: list[Status]) -> str:
    head = ("SERVICE", "STATE", "ADDRESS", "PID", "MEMORY")
    rows = [head, *(cells(service) for service in services)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (zip(row, widths, strict=True) for row in rows)
    return "\n".join("  ".join(cell.ljust(w) for cell, w in line).rstrip() for line in lines)


def cells(service: Status) -> tuple[str, ...]:
    pid = str(service.pid or "-")
    memory = f"{service.memory / 2**20:.0f} MiB" if service.pid else "-"
    return service.service, service.state, service.address, pid, memory


def env(stack: Stack, _arguments: argparse.Namespace) -> int:
    for key, value in stack.layout.environment().items():
        print(f"{key}={value}")
    return 0


COMMANDS: dict[str, tuple[Callable[[Stack, argparse.Namespace], int], str]] = {
    "up": (up, "start what does not run, and wait until it answers"),
    "down": (down, "stop what runs; the data stays"),
    "status": (status, "what runs, and where; exit code 1 unless all does"),
    "env": (env, "the settings that point hongyan at the stack"),
}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python3 -m deploy.local",
        description="Real Kafka, PostgreSQL and Redis on loopback, without Docker.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    made = {name: commands.add_parser(name, help=text) for name, (_, text) in COMMANDS.items()}
    made["up"].add_argument(
        "--free-ports",
        action="store_true",
        help="on ports that are free; remembered until it is wiped",
    )
    made["up"].add_argument(
        "--with-simulator",
        action="store_true",
        help="and a simulated provider, with a hongyan.toml for all of it in the stack's folder",
    )
    made["down"].add_argument("--wipe", action="store_true", help="remove the data and logs too")
    made["status"].add_argument("--json", action="store_true", help="for a program to read")
    return top


def complain(sentence: str) -> None:
    print(f"hongyan: {sentence}", file=sys.stderr, flush=True)


def main() -> int:
    arguments = parser().parse_args()
    try:
        layout = from_environment()
        # Once it has been started, it is stopped and shown with the others.
        played = getattr(arguments, "with_simulator", False) or layout.config.exists()
        return COMMANDS[arguments.command][0](Stack(layout, say, with_simulator=played), arguments)
    except StackError as error:
        complain(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
