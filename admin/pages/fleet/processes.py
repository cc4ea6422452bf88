"""`/fleet`: all processes by their heartbeats, the kinds that are missing, and orders to drain one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from litestar import get, post
from litestar.params import FromPath

from admin.access import ANY_LANE, OF_ROW, Person, Role, needs
from admin.live.spec import BoardSpec
from admin.pages.fleet.accounts import account_row
from admin.pages.fleet.accounts import may_see as account_seen
from admin.pages.fleet.followed import PolicyFollower, TemplatesFollower, lanes_of
from admin.pages.fleet.orders import ordered
from admin.pages.live import board_text
from admin.parts import ConsoleParts
from admin.web.errors import Missing
from admin.web.forms import Conflict
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.view import Page
from idempotency.fleet.account_pauses import AccountPauses
from idempotency.fleet.controls import Controls
from idempotency.fleet.snapshots import ReceiptSnapshot
from idempotency.fleet.status import FleetStatus, Process
from idempotency.ledger import RECEIPTS, RECOVERY, WORKER
from producer.fleet import FleetReader

EVERY_S: Final = 2.0
FOLLOWERS: Final = (WORKER, RECOVERY, RECEIPTS)
"""Kinds whose snapshot has the number of their policy."""


class ProcessRow(NamedTuple):
    """One process as the table shows it."""

    process: Process
    in_flight: int
    lag: int | None
    """Over its lanes; None: it knows none."""
    open: Sequence[str]
    """Lane and account of each breaker that is not closed."""
    paused: Sequence[str]
    """Lanes and accounts whose pause it obeys."""
    behind: int
    """Policy versions that are newer than the one it follows."""
    outside: bool = False
    """Whether it has no row in the ledger: a relay without one."""
    templates_behind: int = 0
    """Versions of the templates that are newer than the one it follows."""


class FleetBoard(NamedTuple):
    """The content of `/fleet`."""

    rows: Sequence[ProcessRow]
    policy: int
    """Number of the newest version; 0: none was ever applied."""
    templates: int
    """Likewise of the templates."""
    now_ms: int
    absent: Sequence[str] = ()
    """Kinds that configuration or open work call for, and of which none lives."""
    outbox_trouble: str = ""
    """Why relays could not be looked for in the business's database."""

    @property
    def lost(self) -> int:
        """Number of lost processes."""
        return sum(row.process.lost for row in self.rows)


def _reader(parts: ConsoleParts) -> Callable[[], FleetBoard]:
    reads, clock = parts.databases.reads, parts.databases.reads_clock
    fleet, policy, templates = (
        FleetReader(parts.settings, reads, clock),
        PolicyFollower(parts),
        TemplatesFollower(parts),
    )

    def read() -> FleetBoard:
        newest, texts, found = policy.now().number, templates.now(), fleet.read()
        rows = [
            process_row(one, newest, texts)._replace(outside=one.id in found.outside)
            for one in found.processes
        ]
        return FleetBoard(rows, newest, texts, found.now_ms, found.absent, found.outbox_trouble)

    return read


def process_row(process: Process, newest: int, templates: int = 0) -> ProcessRow:
    """Returns the sums over the lanes of a process. `newest` and `templates` are the numbers in force."""
    shown = process.snapshot
    if shown is None:
        return ProcessRow(process, 0, None, (), (), 0)
    lags = [one.lag for one in shown.lanes.values() if one.lag is not None]
    lanes = [lane for lane, one in shown.lanes.items() if one.paused]
    return ProcessRow(
        process,
        in_flight=sum(one.in_flight for one in shown.lanes.values()),
        lag=sum(lags) if lags else None,
        open=[f"{lane} {name}" for lane, one in shown.lanes.items() for name in one.open],
        paused=[*lanes, *(name for name, one in shown.accounts.items() if one.paused)],
        behind=_behind(process, newest, shown.policy) if process.kind in FOLLOWERS else 0,
        templates_behind=_behind(process, templates, shown.templates),
    )


def _behind(process: Process, newest: int, followed: int | None) -> int:
    """Returns how many versions it is behind; 0 for a lost process, or one that follows none."""
    return 0 if process.lost or followed is None else max(0, newest - followed)


def may_see(process: Process, person: Person) -> bool:
    """Returns whether the process serves a lane that the person may see."""
    return bool(person.among(process.lanes)) or not process.lanes


def _shown(value: FleetBoard, person: Person) -> FleetBoard:
    return value._replace(rows=[row for row in value.rows if may_see(row.process, person)])


BOARD: Final = BoardSpec("fleet", EVERY_S, _reader, "live/fleet.html", shown=_shown)


@get("/fleet", opt=needs(Role.VIEWER), sync_to_thread=True)
def fleet(view: GivenView, parts: GivenParts, person: GivenPerson) -> Page:
    """The processes, live."""
    value = parts.boards[BOARD.name].now()
    return view.page("fleet/fleet.html", live=board_text(BOARD, value, view, person))


@get("/fleet/{process:str}", opt=needs(Role.VIEWER, OF_ROW), sync_to_thread=True)
def process_page(
    view: GivenView, parts: GivenParts, person: GivenPerson, process: FromPath[str]
) -> Page:
    """One process: its lanes and accounts, and the order to drain it. Raises Missing."""
    found = _found(parts, person, process)
    pauses = AccountPauses(parts.databases.primary, parts.databases.clock)
    sends = found.kind != RECEIPTS
    held = [one for one in pauses.pauses() if sends and one.holds_for(process)]
    shown = found.snapshot.accounts if found.snapshot is not None else {}
    seen = _seen_accounts(parts, person, [*shown, *(one.account for one in held)])
    lanes = found.snapshot.lanes if found.snapshot is not None else {}
    return view.page(
        "fleet/process.html",
        process=found,
        lanes={lane: one for lane, one in lanes.items() if person.may(Role.VIEWER, lane)},
        accounts={name: one for name, one in shown.items() if name in seen},
        receipts=_receipts(parts, person, found),
        held=[one for one in held if one.account in seen],
        now=pauses.now_ms(),
        may=may_drain(found, person),
    )


def may_drain(process: Process, person: Person) -> bool:
    """Returns whether the person operates each lane of the process; all lanes, if it has none."""
    return all(person.may(Role.OPERATOR, lane) for lane in process.lanes or [ANY_LANE])


def _receipts(parts: ConsoleParts, person: Person, process: Process) -> dict[str, ReceiptSnapshot]:
    """Returns the receipts of the accounts that the person may see."""
    if process.snapshot is None:
        return {}
    seen = _seen_accounts(parts, person, process.snapshot.receipts)
    return {name: one for name, one in process.snapshot.receipts.items() if name in seen}


def _seen_accounts(parts: ConsoleParts, person: Person, names: Iterable[str]) -> set[str]:
    """Returns those of the accounts that the person may see."""
    tables, policy = parts.settings.accounts, PolicyFollower(parts).now()
    rows = (
        account_row(name, tables.get(name, {}), lanes_of(name, policy, tables), [], [], [], 0)
        for name in dict.fromkeys(names)
    )
    return {row.name for row in rows if account_seen(row, person)}


@post(
    "/fleet/{process:str}/drain",
    opt=needs(Role.OPERATOR, OF_ROW),
    status_code=200,
    sync_to_thread=True,
)
def drain(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    form: GivenForm,
    process: FromPath[str],
) -> Page:
    """Orders a process to drain. Needs the role for each of its lanes, or for all lanes where it has
    none. Raises Missing, WrongForm, Forbidden, Conflict."""
    found, reason = _found(parts, person, process), form.reason()
    for lane in found.lanes or [ANY_LANE]:
        person.require(Role.OPERATOR, lane)
    controls = Controls(parts.databases.primary, parts.databases.clock)
    with ordered(view, parts, person, "worker.drain", process, reason=reason) as order:
        if not controls.drain_in(order, process, author=person.name, reason=reason):
            raise Conflict("fleet.not_alive", name=process)
    return view.redirect("/fleet")


def _found(parts: ConsoleParts, person: Person, name: str) -> Process:
    """Returns the process, read from the primary. Raises Missing."""
    status = FleetStatus(parts.databases.primary, parts.databases.clock)
    for one in status.processes():
        if one.id == name and may_see(one, person):
            return one
    raise Missing(name)


HANDLERS = [fleet, process_page, drain]
BOARDS = [BOARD]
