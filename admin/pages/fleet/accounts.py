"""`/accounts`: logins at providers, their lanes, and their state in every process; pauses of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from litestar import get, post
from litestar.params import FromPath

from admin.access import OF_ROW, Person, Role, needs
from admin.live.spec import BoardSpec
from admin.pages.fleet.followed import PolicyFollower, lanes_of
from admin.pages.fleet.orders import TIMES, ordered, time_ms
from admin.pages.live import board_text
from admin.parts import ConsoleParts
from admin.web.errors import Missing
from admin.web.forms import Conflict, WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.view import Page
from channels.registry import PROVIDERS
from idempotency.fleet.account_pauses import AccountPause, AccountPauses, not_holding
from idempotency.fleet.controls import OBEYS_WITHIN_MS
from idempotency.fleet.snapshots import AccountSnapshot, ReceiptSnapshot
from idempotency.fleet.status import FleetStatus, Process
from message.vocabulary import KINDS

EVERY_S: Final = 2.0
_HISTORY: Final = 200
_ANY_CHANNEL: Final = "*"


class AccountInProcess(NamedTuple):
    """One account as one process reports it."""

    process: str
    shown: AccountSnapshot
    heartbeat_at: int


class ReceiptsInProcess(NamedTuple):
    """The receipts of one account as one receipts process reports them."""

    process: str
    shown: ReceiptSnapshot
    heartbeat_at: int


class AccountRow(NamedTuple):
    """One configured account over the whole fleet."""

    name: str
    provider: str
    channel: str
    endpoint: str
    lanes: Mapping[str, int]
    """Lanes that use it, with its weight in each; 0: a reserve."""
    reports: Sequence[AccountInProcess]
    pauses: Sequence[AccountPause]
    not_obeying: Sequence[str]
    late: bool
    """Whether those had more than five seconds to obey."""
    receipts: Sequence[ReceiptsInProcess] = ()
    """Of each receipts process that takes its receipts."""

    @property
    def last_receipt_s(self) -> int | None:
        """Seconds since its newest receipt; None: none came since the processes' start."""
        return min(
            (s for one in self.receipts if (s := one.shown.last_s) is not None), default=None
        )

    @property
    def receipt_lag_s(self) -> float | None:
        """Longest time from a provider's event to its storage, in the newest batch of each process."""
        return max((s for one in self.receipts if (s := one.shown.lag_s) is not None), default=None)

    @property
    def breaker(self) -> int:
        """Its worst breaker: 0 closed, 1 half open, 2 open."""
        return max((one.shown.breaker for one in self.reports), default=0)

    @property
    def rate(self) -> float:
        """Deliveries that its provider took a second, over the fleet."""
        return sum(one.shown.rate for one in self.reports)

    @property
    def limit(self) -> float | None:
        """Deliveries a second that the fleet may send; None: any."""
        limits = [one.shown.limit for one in self.reports if one.shown.limit is not None]
        return min(limits) if limits else None

    @property
    def shut_s(self) -> float:
        """Longest pause that its provider asked for, in seconds."""
        return max((one.shown.shut_s for one in self.reports), default=0.0)

    @property
    def token_age_s(self) -> int | None:
        """Age of the oldest token."""
        ages = [one.shown.token_age_s for one in self.reports if one.shown.token_age_s is not None]
        return max(ages) if ages else None

    @property
    def login_refused(self) -> bool:
        """Whether its provider refused its login in some process."""
        return any(one.shown.login_refused for one in self.reports)


class AccountBoard(NamedTuple):
    """The content of `/accounts`."""

    rows: Sequence[AccountRow]
    now_ms: int


def _reader(parts: ConsoleParts) -> Callable[[], AccountBoard]:
    reads, clock = parts.databases.reads, parts.databases.reads_clock
    fleet, held, policy = (
        FleetStatus(reads, clock),
        AccountPauses(reads, clock),
        PolicyFollower(parts),
    )

    def read() -> AccountBoard:
        followed, processes, pauses = policy.now(), fleet.processes(), held.pauses()
        history, now = held.history(_HISTORY), fleet.now_ms()
        rows = []
        for name, table in sorted(parts.settings.accounts.items()):
            lanes = lanes_of(name, followed, parts.settings.accounts)
            rows.append(account_row(name, table, lanes, processes, pauses, history, now))
        return AccountBoard(rows, now)

    return read


def account_row(
    name: str,
    table: Mapping[str, Any],
    lanes: Mapping[str, int],
    processes: Sequence[Process],
    pauses: Sequence[AccountPause],
    history: Sequence[AccountPause],
    now: int,
) -> AccountRow:
    """Returns one account of the configuration; its table may be wrong, and no secret is read."""
    provider = str(table.get("provider", ""))
    adapter = PROVIDERS.get(provider)
    late = not_holding(name, processes, pauses)
    return AccountRow(
        name=name,
        provider=provider,
        channel=adapter.channel if adapter is not None else "",
        endpoint=_endpoint(table),
        lanes=lanes,
        reports=[
            AccountInProcess(one.id, shown, one.heartbeat_at)
            for one in processes
            if not one.lost and one.snapshot and (shown := one.snapshot.accounts.get(name))
        ],
        receipts=[
            ReceiptsInProcess(one.id, taken, one.heartbeat_at)
            for one in processes
            if not one.lost and one.snapshot and (taken := one.snapshot.receipts.get(name))
        ],
        pauses=[one for one in pauses if one.account == name],
        not_obeying=late,
        late=bool(late) and now - _ordered_at(name, history, now) > OBEYS_WITHIN_MS,
    )


def _endpoint(table: Mapping[str, Any]) -> str:
    """Returns scheme and host alone: a path or query may hold a secret."""
    written = table.get("endpoint")
    if not isinstance(written, str) or "://" not in written:
        return ""
    scheme, _, rest = written.partition("://")
    return f"{scheme}://{rest.partition('/')[0].partition('?')[0].rpartition('@')[2]}"


def _ordered_at(account: str, history: Sequence[AccountPause], now: int) -> int:
    """Returns the time of the account's last order."""
    times = [0]
    for one in history:
        if one.account == account:
            times += [one.paused_at, one.over_at(now) or 0]
    return max(times)


def may_see(row: AccountRow, person: Person) -> bool:
    """Returns whether the person may see a lane that uses the account, or one of its channel."""
    return bool(person.among(lanes_for(row)))


def lanes_for(row: AccountRow) -> list[str]:
    """Returns the lanes that use the account; for an unused one, those of its channel."""
    if row.lanes or row.channel in ("", _ANY_CHANNEL):
        return list(row.lanes) or [_ANY_CHANNEL]
    return [f"{row.channel}.{kind}" for kind in KINDS]


def _shown(value: AccountBoard, person: Person) -> AccountBoard:
    return value._replace(rows=[row for row in value.rows if may_see(row, person)])


BOARD: Final = BoardSpec("accounts", EVERY_S, _reader, "live/accounts.html", shown=_shown)


@get("/accounts", opt=needs(Role.VIEWER), sync_to_thread=True)
def accounts(view: GivenView, parts: GivenParts, person: GivenPerson) -> Page:
    """The accounts, live."""
    value = parts.boards[BOARD.name].now()
    return view.page("fleet/accounts.html", live=board_text(BOARD, value, view, person))


@get("/accounts/{account:str}", opt=needs(Role.VIEWER, OF_ROW), sync_to_thread=True)
def account_page(
    view: GivenView, parts: GivenParts, person: GivenPerson, account: FromPath[str]
) -> Page:
    """One account: processes, pauses, test send. Raises Missing."""
    row = found(parts, person, account)
    pauses = AccountPauses(parts.databases.primary, parts.databases.clock)
    return view.page("fleet/account.html", **page_values(parts, person, row, pauses))


def page_values(
    parts: ConsoleParts, person: Person, row: AccountRow, pauses: AccountPauses
) -> dict[str, Any]:
    """Returns the values of an account's page."""
    status = FleetStatus(parts.databases.primary, parts.databases.clock)
    serving = [one.id for one in status.processes() if not one.lost and {*one.lanes} & {*row.lanes}]
    return {
        "row": row,
        "processes": serving,
        "history": [one for one in pauses.history(_HISTORY) if one.account == row.name],
        "now": pauses.now_ms(),
        "may_pause": all(person.may(Role.OPERATOR, lane) for lane in lanes_for(row)),
        "test_lanes": person.among(test_lanes(row), Role.OPERATOR),
        "alone": [lane for lane in row.lanes if _is_alone(parts, row.name, lane)],
        "times": TIMES,
    }


def test_lanes(row: AccountRow) -> list[str]:
    """Returns the lanes under whose limits a test send may go."""
    return list(row.lanes) or [lane for lane in lanes_for(row) if lane != _ANY_CHANNEL]


def _is_alone(parts: ConsoleParts, account: str, lane: str) -> bool:
    """Returns whether no other account serves the lane: one that the whole fleet leaves out does not."""
    board: AccountBoard | None = parts.boards[BOARD.name].now().value
    return board is not None and not any(
        lane in row.lanes and row.name != account and all(one.worker for one in row.pauses)
        for row in board.rows
    )


def found(parts: ConsoleParts, person: Person, name: str) -> AccountRow:
    """Returns the account as it is now, read from the primary. Raises Missing."""
    table = parts.settings.accounts.get(name)
    if table is None:
        raise Missing(name)
    primary, clock = parts.databases.primary, parts.databases.clock
    held, status = AccountPauses(primary, clock), FleetStatus(primary, clock)
    lanes = lanes_of(name, PolicyFollower(parts).now(), parts.settings.accounts)
    states = (status.processes(), held.pauses(), held.history(_HISTORY), held.now_ms())
    row = account_row(name, table, lanes, *states)
    if not may_see(row, person):
        raise Missing(name)
    return row


def _operated(parts: ConsoleParts, person: Person, name: str) -> AccountRow:
    """Returns the account; a pause is for all of its lanes. Raises Missing, Forbidden."""
    row = found(parts, person, name)
    for lane in lanes_for(row):
        person.require(Role.OPERATOR, lane)
    return row


@post(
    "/accounts/{account:str}/pause",
    opt=needs(Role.OPERATOR, OF_ROW),
    status_code=200,
    sync_to_thread=True,
)
def pause(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    form: GivenForm,
    account: FromPath[str],
) -> Page:
    """Pauses the account, in the fleet or in one process. Raises Missing, Forbidden, WrongForm."""
    row = _operated(parts, person, account)
    reason, for_ms, worker = form.reason(), time_ms(form), form.text("worker")
    if len(worker) > 200:
        raise WrongForm("frame.field_long", "worker")
    pauses = AccountPauses(parts.databases.primary, parts.databases.clock)
    listed, subject = ", ".join(row.lanes), f"{account} on {worker}" if worker else account
    ordering = ordered(view, parts, person, "account.pause", subject, reason=reason, lanes=listed)
    with ordering as order:
        pauses.pause_in(order, account, worker, for_ms, author=person.name, reason=reason)
    return view.redirect("/accounts")


@post(
    "/accounts/{account:str}/resume",
    opt=needs(Role.OPERATOR, OF_ROW),
    status_code=200,
    sync_to_thread=True,
)
def resume(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    form: GivenForm,
    account: FromPath[str],
) -> Page:
    """Ends one pause of the account. Raises Missing, Forbidden, WrongForm; Conflict if it is over."""
    row = _operated(parts, person, account)
    reason, worker = form.reason(), form.text("worker")
    pauses = AccountPauses(parts.databases.primary, parts.databases.clock)
    listed, subject = ", ".join(row.lanes), f"{account} on {worker}" if worker else account
    ordering = ordered(view, parts, person, "account.resume", subject, reason=reason, lanes=listed)
    with ordering as order:
        if pauses.resume_in(order, account, worker, author=person.name, reason=reason) is None:
            raise Conflict("fleet.not_paused", name=subject)
    return view.redirect("/accounts")


HANDLERS = [accounts, account_page, pause, resume]
BOARDS = [BOARD]
