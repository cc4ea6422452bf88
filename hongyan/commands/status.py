"""`hongyan status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from hongyan.errors import WrongUsage
from hongyan.terminal import explained, print_json, settings_of

if TYPE_CHECKING:
    from backends.settings import Settings
    from hongyan.output.status import ShownStatus
    from idempotency.fleet.held_lines import LinesOfLane
    from idempotency.fleet.status import LaneStatus
    from idempotency.sql_ledger import SqlLedger

HELP: Final = explained(
    "Show on one screen which processes live and which are missing, what waits in each lane, which alerts "
    "are open, and which ordering keys wait for the head of their line. Relays are looked for in the "
    "database of relay.outbox_url, too. Redis may be away. Kafka is asked, for a second at most, about the "
    "lag of lanes that no worker reads.",
    "hongyan status",
    "hongyan status --lane 'sms.*' --limit 50",
    "hongyan status --json",
)


def status(
    context: typer.Context,
    lane: Annotated[
        list[str] | None,
        typer.Option("--lane", "-l", metavar="PATTERN", help="Only these lanes; repeat it."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, metavar="N", help="Ordering keys of one lane.")
    ] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    settings = settings_of(context)
    from hongyan.database import opened_ledger
    from hongyan.flags import patterns
    from hongyan.output.status import as_builtins, show
    from message.vocabulary import lanes_matching

    lanes = [one.name for one in lanes_matching(patterns(lane) or ["*"])]
    if not lanes:
        raise WrongUsage(f"--lane {', '.join(lane or [])}: it matches no lane")
    with opened_ledger(settings) as ledger:
        found = read_status(ledger, settings, lanes, limit, every=not lane)
    if as_json:
        print_json(as_builtins(found))
    else:
        show(found)


def read_status(
    ledger: SqlLedger, settings: Settings, lanes: list[str], limit: int, *, every: bool
) -> ShownStatus:
    """Reads the status; `every`: with the alerts of no lane."""
    from hongyan.output.lanes import lane_rows
    from hongyan.output.status import ShownStatus
    from policy.versions import Versions
    from producer.fleet import FleetReader

    fleet, pauses = ledger.fleet_status(), ledger.controls().pauses()
    states = fleet.lanes(lanes)
    view = FleetReader(settings, ledger.database, ledger.clock).read()
    alerts = ledger.alert_book().alerts()
    return ShownStatus(
        now=view.now_ms,
        policy=Versions(ledger.database).newest(),
        fleet=view,
        live=lane_rows(lanes, view.processes, pauses, settings),
        lanes=states,
        lines=_lines(ledger, states, limit),
        alerts=[one for one in alerts if every or one.lane in lanes],
        outcomes=fleet.outcomes_waiting(),
    )


def _lines(ledger: SqlLedger, states: list[LaneStatus], limit: int) -> list[LinesOfLane]:
    """Returns the held lines of each lane with sleeping rows, or with so many later rows that some may."""
    from idempotency.fleet.status import BOUND

    asked = [one.lane for one in states if one.behind or one.later >= BOUND]
    found = [ledger.held_lines().lines_waiting(lane, limit) for lane in asked]
    return [one for one in found if one.held]
