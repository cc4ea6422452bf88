"""`hongyan console --demo`: the console on the ledger that `hongyan demo` left, with operators to try.

A provider, a worker and a recovery run beside it, so that a delivery that is sent again arrives. Everything
listens on loopback, and ends with the console.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Final, NamedTuple

from admin.access import ANY_LANE, Role
from admin.parts import ConsoleParts, open_parts
from admin.process import run_console
from backends.addresses import address_of
from backends.kafka.clients import KafkaTrouble
from backends.settings import Settings
from hongyan.demo.environment import DemoEnvironment
from hongyan.demo.folder import last_folder
from hongyan.errors import NotDone, WrongUsage
from idempotency.error_mapping import errors
from simulator import SimulatorError

WORKER: Final = "worker-of-the-console"
RECOVERY: Final = "recovery-of-the-console"
AUTHOR: Final = "hongyan console --demo"
_PASSWORD_BYTES: Final = 12


class DemoOperator(NamedTuple):
    """A user of the demo's console."""

    name: str
    role: Role
    password: str


Ready = Callable[[str, Sequence[DemoOperator]], None]
"""Takes the address and the operators."""


def serve_demo(folder: Path, listen: str, stop: Event, ready: Ready) -> int:
    """Serves the console until `stop` is set. Returns the exit code. Raises NotDone, WrongUsage."""
    _check_loopback(listen)
    with last_folder(folder), ExitStack() as stack:
        try:
            environment = stack.enter_context(DemoEnvironment(folder.absolute()))
        except (KafkaTrouble, SimulatorError) as exc:
            raise NotDone(f"the demo's provider or Kafka did not start: {exc}") from exc
        environment.start_worker(WORKER)
        environment.start_recovery(RECOVERY)
        operators = make_operators(environment.settings)
        return run_console(
            environment.settings, stop, listen, started=lambda address: ready(address, operators)
        )


def make_operators(settings: Settings) -> list[DemoOperator]:
    """Makes one operator a role, for all lanes, with new passwords. Returns them."""
    with ExitStack() as stack:
        parts = open_parts(settings, stack)
        return [_operator(parts, role) for role in Role]


def _operator(parts: ConsoleParts, role: Role) -> DemoOperator:
    made = DemoOperator(role.value, role, secrets.token_urlsafe(_PASSWORD_BYTES))
    users = parts.people.users
    with errors(), parts.databases.primary.begin() as connection:
        found = users.named(connection, made.name)
        if found is None:
            number = users.add(connection, made.name, by=AUTHOR, password=made.password)
        else:
            number = found.id
            users.set_password(connection, number, made.password)
        users.set_roles(connection, number, {role: (ANY_LANE,)})
        action = "user.password" if found else "user.add"
        parts.journal.record(connection, person=AUTHOR, action=action, subject=made.name)
    return made


def _check_loopback(listen: str) -> None:
    wanted = address_of(listen, "--listen", "127.0.0.1:9480")
    try:
        is_loopback = ipaddress.ip_address(wanted.host).is_loopback
    except ValueError:
        is_loopback = wanted.host == "localhost"
    if not is_loopback:
        raise WrongUsage(
            f"--listen {listen}: the demo's passwords are on the terminal; "
            "it listens on loopback alone, as 127.0.0.1:9480"
        )
