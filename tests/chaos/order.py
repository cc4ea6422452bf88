"""Whether the provider got each key's notifications in their order. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from simulator import KeyReport
from tests.harness.wire import Sent


class Order(NamedTuple):
    """How keys fared: judged ones had no delivery in doubt."""

    judged: int
    broken: list[str]
    excused: int
    broken_though_excused: list[str]


def order(
    sent: Iterable[Sent], topic: str, seen: Mapping[str, KeyReport], doubted: Collection[str]
) -> Order:
    """Each key's notifications by their offsets, against the provider's calls. Where a call is in doubt
    the one behind it may have to go before it is known: such a key is told apart."""
    lines: dict[str, list[Sent]] = defaultdict(list)
    for record in sent:
        one = record.notification
        if record.place.topic == topic and one is not None and one.ordering_key is not None:
            lines[one.ordering_key].append(record)
    broken: list[str] = []
    excused: list[str] = []
    for key, line in lines.items():
        if any(k in doubted for record in line for k in record.keys):
            excused.append(key)
        if not _in_order(line, seen):
            broken.append(key)
    return Order(
        judged=len(lines) - len(excused),
        broken=[key for key in broken if key not in excused],
        excused=len(excused),
        broken_though_excused=[key for key in broken if key in excused],
    )


def problems(found: Order) -> list[str]:
    """Keys that nothing excuses."""
    return [f"{key}: its notifications reached the provider out of order" for key in found.broken]


def _in_order(line: Sequence[Sent], seen: Mapping[str, KeyReport]) -> bool:
    """The last call of each notification comes before the first call of the next."""
    reached = 0
    for record in sorted(line, key=lambda s: s.offset):
        calls = [seen[key] for key in record.keys if key in seen]
        if any(call.first_seq < reached for call in calls):
            return False
        reached = max([reached, *(call.last_seq for call in calls)])
    return True
