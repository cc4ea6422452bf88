"""`/lanes`: lanes with their guarantee, accounts and pauses; who obeys an order, and who does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from litestar import get, post
from litestar.params import FromPath

from admin.access import OF_ROW, Person, Role, needs
from admin.live.spec import BoardSpec
from admin.pages.fleet.followed import FollowedPolicy, PolicyFollower
from admin.pages.fleet.orders import TIMES, ordered, time_ms
from admin.pages.live import board_text
from admin.parts import ConsoleParts
from admin.web.errors import Missing
from admin.web.forms import Conflict, SentForm, WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.view import Page
from idempotency.fleet.account_pauses import AccountPause, AccountPauses
from idempotency.fleet.controls import OBEYS_WITHIN_MS, Controls, LanePause
from idempotency.fleet.expiries import Expiries, LaneExpiries
from idempotency.fleet.served_lanes import ServedLane, served_lanes
from idempotency.fleet.status import FleetStatus
from message.vocabulary import LANES, Lane, lane_named

EVERY_S: Final = 1.0
_HISTORY: Final = 200
"""Pauses among which the board looks for those that ended just now, and that a lane's page lists."""


class LaneAccount(NamedTuple):
    """One account of a lane."""

    name: str
    weight: int
    open: bool
    """Whether its breaker is not closed in some process."""
    paused: bool
    """Whether it is paused in the fleet or in some process."""


class LaneBoardRow(NamedTuple):
    """One lane as its page shows it."""

    served: ServedLane
    guarantee: str
    ttl_ms: int | None
    accounts: Sequence[LaneAccount]
    late: bool
    """Whether the processes that do not obey yet had more than five seconds to do so."""
    expiries: LaneExpiries | None
    """Of a paused lane alone: a pause stops no TTL."""

    @property
    def idle(self) -> bool:
        """Whether nobody serves it and nothing holds for it."""
        return self.served.idle


class LaneBoard(NamedTuple):
    """The content of `/lanes`."""

    rows: Sequence[LaneBoardRow]
    now_ms: int
    unserved: int = 0
    """Lanes that are left out, since nobody serves them."""


def _reader(parts: ConsoleParts) -> Callable[[], LaneBoard]:
    reads, clock = parts.databases.reads, parts.databases.reads_clock
    fleet, controls = FleetStatus(reads, clock), Controls(reads, clock)
    held, expiries = AccountPauses(reads, clock), Expiries(reads, clock)
    policy = PolicyFollower(parts)

    def read() -> LaneBoard:
        pauses, ended = controls.pauses(), controls.history(_HISTORY)
        served = served_lanes([lane.name for lane in LANES], fleet.processes(), pauses)
        waiting = expiries.of([pause.lane for pause in pauses])
        followed, accounts, now = policy.now(), held.pauses(), fleet.now_ms()
        rows = []
        for lane in LANES:
            of_lane = served[lane.name]
            rows.append(
                LaneBoardRow(
                    served=of_lane,
                    guarantee=followed.guarantee(lane),
                    ttl_ms=followed.ttl_ms(lane),
                    accounts=_accounts(parts, followed, lane, of_lane, accounts),
                    late=bool(of_lane.not_obeying) and is_late(of_lane, ended, now),
                    expiries=waiting.get(lane.name),
                )
            )
        return LaneBoard(rows, now)

    return read


def is_late(served: ServedLane, history: Sequence[LanePause], now: int) -> bool:
    """Returns whether the lane's last order is older than the time within which everybody obeys it."""
    if served.pause is not None:
        return now - served.pause.paused_at > OBEYS_WITHIN_MS
    ends = [one.over_at(now) for one in history if one.lane == served.lane]
    return now - max((end for end in ends if end is not None), default=0) > OBEYS_WITHIN_MS


def _accounts(
    parts: ConsoleParts,
    followed: FollowedPolicy,
    lane: Lane,
    served: ServedLane,
    pauses: Sequence[AccountPause],
) -> list[LaneAccount]:
    paused = {one.account for one in pauses}
    weights = followed.weights(lane, parts.settings.accounts)
    return [
        LaneAccount(name, weight, name in served.open, name in paused)
        for name, weight in weights.items()
    ]


def _shown(value: LaneBoard, person: Person) -> LaneBoard:
    mine = [row for row in value.rows if person.may(Role.VIEWER, row.served.lane)]
    busy = [row for row in mine if not row.idle]
    return LaneBoard(busy, value.now_ms, len(mine) - len(busy))


BOARD: Final = BoardSpec("lanes", EVERY_S, _reader, "live/lanes.html", shown=_shown)


@get("/lanes", opt=needs(Role.VIEWER), sync_to_thread=True)
def lanes(view: GivenView, parts: GivenParts, person: GivenPerson) -> Page:
    """The lanes, live, and the orders."""
    value = parts.boards[BOARD.name].now()
    names = person.among([lane.name for lane in LANES], Role.OPERATOR)
    controls = Controls(parts.databases.primary, parts.databases.clock)
    paused = {pause.lane for pause in controls.pauses()}
    return view.page(
        "fleet/lanes.html",
        live=board_text(BOARD, value, view, person),
        mine=names,
        paused=[name for name in names if name in paused],
        idle=person.among([lane.name for lane in LANES]),
        times=TIMES,
    )


@get("/lanes/{lane:str}", opt=needs(Role.VIEWER, OF_ROW), sync_to_thread=True)
def lane_page(view: GivenView, parts: GivenParts, person: GivenPerson, lane: FromPath[str]) -> Page:
    """One lane: its state, its orders and the history of its pauses. Raises Missing."""
    found = lane_named(lane)
    if found is None or not person.may(Role.VIEWER, lane):
        raise Missing(lane)
    board: LaneBoard | None = parts.boards[BOARD.name].now().value
    row = next((one for one in board.rows if one.served.lane == lane), None) if board else None
    controls = Controls(parts.databases.primary, parts.databases.clock)
    return view.page(
        "fleet/lane.html",
        lane=lane,
        row=row,
        pause=next((one for one in controls.pauses() if one.lane == lane), None),
        history=[one for one in controls.history(_HISTORY) if one.lane == lane],
        now=controls.now_ms(),
        may=person.may(Role.OPERATOR, lane),
        times=TIMES,
    )


@post("/lanes/pause", opt=needs(Role.OPERATOR, "lane"), status_code=200, sync_to_thread=True)
def pause(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """Pauses lanes. Raises WrongForm, Forbidden."""
    names, reason, for_ms = _named(form), form.reason(), time_ms(form)
    controls = Controls(parts.databases.primary, parts.databases.clock)
    listed = ", ".join(names)
    with ordered(view, parts, person, "lane.pause", listed, reason=reason, lanes=listed) as order:
        controls.pause_in(order, names, for_ms, author=person.name, reason=reason)
    return view.redirect("/lanes")


@post("/lanes/resume", opt=needs(Role.OPERATOR, "lane"), status_code=200, sync_to_thread=True)
def resume(view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm) -> Page:
    """Ends pauses. Raises WrongForm, Forbidden; Conflict if none of them is in force any more."""
    names, reason = _named(form), form.reason()
    controls = Controls(parts.databases.primary, parts.databases.clock)
    listed = ", ".join(names)
    with ordered(view, parts, person, "lane.resume", listed, reason=reason, lanes=listed) as order:
        if not controls.resume_in(order, names, author=person.name, reason=reason):
            raise Conflict("fleet.not_paused", name=listed)
    return view.redirect("/lanes")


def _named(form: SentForm) -> list[str]:
    """Returns the lanes that are ticked. Raises WrongForm."""
    names = list(dict.fromkeys(form.every("lane")))
    if not names or any(lane_named(name) is None for name in names):
        raise WrongForm("fleet.no_lane", "lane")
    return names


HANDLERS = [lanes, lane_page, pause, resume]
BOARDS = [BOARD]
