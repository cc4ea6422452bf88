"""Output of `hongyan status`. Ordering keys may be personal, so they are masked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from backends.metrics.families import CAMPAIGNS, GATEWAY, LOOKBACK, RELAY
from hongyan.output.lanes import as_fields, show_lanes
from hongyan.tables import age, listing, local_time
from hongyan.terminal import out
from idempotency.claims.rows import GIVEN_BACK
from idempotency.fleet.held_lines import MOST_BEHIND
from idempotency.fleet.status import BOUND
from idempotency.ledger import RECOVERY, WORKER
from idempotency.lines import ASLEEP_AT
from message.foreign_text import shown
from message.states import State

if TYPE_CHECKING:
    from idempotency.alerts.book import AlertShown
    from idempotency.fleet.held_lines import HeldLine, LinesOfLane
    from idempotency.fleet.served_lanes import ServedLane
    from idempotency.fleet.status import LaneStatus, Process
    from idempotency.outcomes.outbox import OutcomesWaiting
    from policy.versions import Version
    from producer.fleet import FleetView

_MOST_KEY: Final = 48
"""Characters of an ordering key that are shown."""
_CALLED_FOR: Final = {
    GATEWAY: "there are API keys; start one: hongyan gateway",
    RELAY: "relay.outbox_url names an outbox; start one: hongyan relay",
    CAMPAIGNS: "campaigns are scheduled or under way; start one: hongyan campaign run",
    LOOKBACK: "lookback.biz_types names kinds; start one: hongyan lookback",
}
"""Reasons for which a process of each kind is missing."""
_DECIDE: Final = (
    "hongyan resend {} --arrived | --not-arrived | --accept-risk | --discard --reason TEXT"
)


class ShownStatus(NamedTuple):
    """The contents of the screen."""

    now: int
    """Epoch milliseconds by the database's clock."""
    policy: Version | None
    """None: no policy was applied, so the file's is in force."""
    fleet: FleetView
    live: Sequence[ServedLane]
    lanes: Sequence[LaneStatus]
    lines: Sequence[LinesOfLane]
    alerts: Sequence[AlertShown]
    outcomes: Sequence[OutcomesWaiting]
    """Outcome events that are not published."""


def as_builtins(status: ShownStatus) -> dict[str, Any]:
    """Returns the status for JSON."""
    policy = status.policy
    lost = _lost(status)
    return {
        "now": status.now,
        "policy": policy and {"name": policy.name, "author": policy.author, "at": policy.at},
        "processes": [process._asdict() for process in status.fleet.processes],
        "absent": list(status.fleet.absent),
        "outbox_trouble": status.fleet.outbox_trouble,
        "live": [as_fields(row) for row in status.live],
        "lanes": [lane._asdict() for lane in status.lanes],
        "count_bound": BOUND,
        "lines": [
            {
                "lane": one.lane,
                "held": one.held,
                "complete": one.complete,
                "lines": [_line(line, status.now, lost) for line in one.lines],
            }
            for one in status.lines
        ],
        "alerts": [msgspec.to_builtins(alert) for alert in status.alerts],
        "outcomes_waiting": [one._asdict() for one in status.outcomes],
    }


def show(status: ShownStatus) -> None:
    """Prints the status for people."""
    _heading(status)
    _processes(status)
    _live(status)
    _lanes(status)
    _outcomes(status)
    _alerts(status)
    _lines(status)


def next_step(line: HeldLine, now: int, lost: frozenset[str]) -> str:
    """Returns the head's next step and what a person may do. `lost`: processes without heartbeat."""
    if line.state is State.UNKNOWN:
        asked = "recovery asks about it or decides by policy"
        if line.next_at is not None and line.next_at > now:
            asked += f", next at {local_time(line.next_at)}"
        return f"{asked}; to decide by hand: {_DECIDE.format(line.delivery_key)}"
    if line.state is State.IN_FLIGHT:
        if line.owner in lost:
            return f"its process {line.owner} is lost: the next sweep puts it in doubt"
        return f"under way at {line.owner}"
    if line.next_at == ASLEEP_AT:
        return "recovery wakes it within 30 looks: is one running?"
    if line.reason == GIVEN_BACK and line.next_at is not None and line.next_at > now:
        at = local_time(line.next_at)
        return f"a worker sends it when it reads its Kafka record again, recovery at {at}"
    if line.next_at is not None and line.next_at > now:
        return f"sent at {local_time(line.next_at)}; now: hongyan resend {line.delivery_key}"
    return "due: recovery sends it; is one running for this lane?"


def _lost(status: ShownStatus) -> frozenset[str]:
    return frozenset(process.id for process in status.fleet.processes if process.lost)


def _line(line: HeldLine, now: int, lost: frozenset[str]) -> dict[str, Any]:
    return line._asdict() | {
        "ordering_key": shown(line.ordering_key, most=_MOST_KEY),
        "state": line.state.value,
        "behind": min(line.behind, MOST_BEHIND),
        "more_behind": line.behind > MOST_BEHIND,
        "next": next_step(line, now, lost),
    }


def _heading(status: ShownStatus) -> None:
    policy = status.policy
    text = (
        f"policy {policy.name}, applied {local_time(policy.at)} by {policy.author}"
        if policy
        else "the policy file's: none was applied"
    )
    out().print(f"{local_time(status.now)}  {text}", markup=False)


def _processes(status: ShownStatus) -> None:
    fleet = status.fleet
    if not fleet.processes:
        out().print("\nno process has a heartbeat: no worker, recovery or receipts process runs")
    else:
        for kind in (WORKER, RECOVERY):
            if not any(one.kind == kind and not one.lost for one in fleet.processes):
                out().print(f"\nno {kind} lives")
    for kind in fleet.absent:
        out().print(f"\nno {kind} lives: {_CALLED_FOR[kind]}", markup=False)
    if fleet.outbox_trouble:
        text = f"\nthe outbox cannot be asked for its relays: {fleet.outbox_trouble}"
        out().print(text, markup=False)
    if fleet.processes:
        _process_table(status)


def _process_table(status: ShownStatus) -> None:
    rows = [
        (
            one.id,
            one.kind,
            "LOST" if one.lost else one.state,
            f"{age(status.now - one.heartbeat_at)} ago",
            age(status.now - one.started_at),
            one.program or "-",
            _backlog(one),
            ", ".join(one.lanes),
        )
        for one in status.fleet.processes
    ]
    titles = ("PROCESS", "KIND", "STATE", "BEAT", "UP", "VERSION", "BACKLOG", "LANES")
    _table(titles, rows, wrapped=("LANES",))


def _backlog(process: Process) -> str:
    """Returns what waits in a process without lanes, and the oldest age."""
    found = process.snapshot.backlog if process.snapshot is not None else None
    if found is None:
        return "-"
    parked = f", {found.parked:,} parked" if found.parked else ""
    oldest = f", {age(int(found.oldest_s * 1_000))}" if found.oldest_s else ""
    return f"{found.waiting:,}{oldest}{parked}"


def _live(status: ShownStatus) -> None:
    rows = [row for row in status.live if not row.idle]
    if rows:
        out().print()
        show_lanes(rows, status.now)


def _lanes(status: ShownStatus) -> None:
    busy = [one for one in status.lanes if not one.idle]
    if not busy:
        out().print("\nnothing is open or parked", markup=False)
        return
    rows = [
        (
            one.lane,
            _with_age(one.due, one.oldest_due_ms),
            _count(one.later),
            f"in {age(one.next_at - status.now)}" if one.next_at is not None else "-",
            _count(one.behind),
            _count(one.given_back),
            _with_age(one.doubted, one.oldest_doubt_ms),
            _count(one.in_flight),
            _with_age(one.parked, one.oldest_parked_ms),
        )
        for one in busy
    ]
    titles = ("LANE", "DUE", "LATER", "NEXT", "BEHIND", "BACK", "DOUBT", "FLIGHT", "PARKED")
    _table(titles, rows, wrapped=titles)


def _outcomes(status: ShownStatus) -> None:
    for one in status.outcomes:
        oldest = age(one.oldest_ms)
        out().print(
            f"\n{one.ends:,} outcome events wait for the {one.target}, the oldest for {oldest}"
        )


def _alerts(status: ShownStatus) -> None:
    from sending.alerts.notifier import runbook

    if not status.alerts:
        out().print("\nno open alerts")
        return
    rows = [
        (local_time(one.since), one.rule, one.subject or "-", one.text, runbook(one.rule))
        for one in status.alerts
    ]
    _table(("ALERT SINCE", "RULE", "SUBJECT", "TEXT", "RUNBOOK"), rows, wrapped=("TEXT",))


def _lines(status: ShownStatus) -> None:
    lost = _lost(status)
    for one in status.lines:
        more = "" if one.complete else " or more"
        of_all = f", the first {len(one.lines)}" if one.held > len(one.lines) else ""
        text = f"\n{one.lane}: {one.held:,}{more} ordering keys wait for the head of their line{of_all}"
        out().print(text, markup=False)
        for line in one.lines:
            key = shown(line.ordering_key, most=_MOST_KEY)
            behind = f"{MOST_BEHIND:,}+" if line.behind > MOST_BEHIND else f"{line.behind:,}"
            through = f" through {line.account}" if line.account else ""
            reason = f" ({line.reason})" if line.reason else ""
            head = f"{line.message_id} {line.state.value}{reason}{through}"
            since = age(status.now - line.since)
            out().print(f"  {key}: {head} for {since}, {behind} behind", markup=False)
            out().print(f"      {next_step(line, status.now, lost)}", markup=False)


def _table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], *, wrapped: Sequence[str] = ()
) -> None:
    from rich.text import Text

    table = listing(titles, whole=set(titles).difference(wrapped))
    for row in rows:
        table.add_row(*map(Text, row))
    out().print()
    out().print(table)


def _count(rows: int) -> str:
    return f"{rows:,}+" if rows >= BOUND else f"{rows:,}"


def _with_age(rows: int, age_ms: int) -> str:
    return f"{_count(rows)}, {age(age_ms)}" if rows else "0"
