"""Lanes as commands show them: what the processes report, the pauses, and the lag where no worker reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hongyan.tables import age, listing, local_time
from hongyan.terminal import out

if TYPE_CHECKING:
    from backends.settings import Settings
    from idempotency.fleet.controls import LanePause
    from idempotency.fleet.served_lanes import ServedLane
    from idempotency.fleet.status import Process

_ASK_S: Final = 1.0
"""Longest wait for one answer of the broker."""
_NUMBERS: Final = ("PARTS", "LAG", "FLIGHT", "WAITING", "/S")
_TITLES: Final = ("LANE", *_NUMBERS, "BREAKER", "PAUSED")


def lane_rows(
    lanes: Sequence[str],
    processes: Iterable[Process],
    pauses: Iterable[LanePause],
    settings: Settings | None,
) -> list[ServedLane]:
    """Returns a row for each lane. Asks the broker of `settings` about lanes that no worker reads, since
    none lives or the lane is paused. Their lag is unknown if it does not answer."""
    from idempotency.fleet.served_lanes import served_lanes

    rows = served_lanes(lanes, processes, pauses)
    unread = [lane for lane, row in rows.items() if row.lag is None or row.pause is not None]
    if settings is not None and unread:
        for lane, (lag, partitions) in _asked(settings, unread).items():
            rows[lane] = rows[lane]._replace(lag=lag, partitions=partitions)
    return list(rows.values())


def as_fields(row: ServedLane) -> dict[str, Any]:
    """Returns the row for JSON."""
    pause, fields = row.pause, row._asdict()
    del fields["obeying"]
    return fields | {"pause": pause._asdict() if pause is not None else None}


def show_lanes(rows: Sequence[ServedLane], now: int) -> None:
    """Prints the lanes, and a line for each pause."""
    from rich.text import Text

    table = listing(_TITLES, right=_NUMBERS, whole=_TITLES[1:])
    for row in rows:
        cells = (
            *(row.lane, str(row.partitions or "-"), _number(row.lag)),
            *(_number(row.in_flight), _number(row.waiting), f"{row.rate:,.0f}"),
            f"{len(row.open)} open" if row.open else "-",
            age(now - row.pause.paused_at) if row.pause else "-",
        )
        table.add_row(*map(Text, cells))
    out().print(table)
    for row in rows:
        show_notes(row)


def show_notes(row: ServedLane) -> None:
    """Prints the pause of a lane, its open breakers, and the processes that do not obey yet."""
    if row.open:
        out().print(
            f"{row.lane}: the breaker is not closed for {', '.join(row.open)}", markup=False
        )
    if row.pause is not None:
        out().print(pause_line(row.pause), markup=False)
    if row.not_obeying:
        what = "has not reported that it obeys" if row.pause else "still obeys the ended pause"
        out().print(f"{row.lane}: {', '.join(row.not_obeying)} {what}", markup=False)


def pause_line(pause: LanePause) -> str:
    """Returns who paused the lane, when, until when, and why."""
    until = f" until {local_time(pause.until)}" if pause.until is not None else ""
    since = local_time(pause.paused_at)
    return f"{pause.lane} is paused since {since}{until} by {pause.author}: {pause.reason}"


def _asked(settings: Settings, lanes: Sequence[str]) -> Mapping[str, tuple[int, int]]:
    from backends.kafka.clients import KafkaTrouble
    from backends.kafka.group_lag import GroupLagQuery
    from message.vocabulary import lane_named

    prefix = settings.kafka.topic_prefix
    topics = {one.topic(prefix): lane for lane in lanes if (one := lane_named(lane)) is not None}
    try:
        found = GroupLagQuery(settings.kafka, _ASK_S).lag(topics)
    except KafkaTrouble:
        return {}
    return {topics[topic]: measured for topic, measured in found.items()}


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"
