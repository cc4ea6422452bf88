"""From the books of a run, the broken promises. Pure.

The sources know nothing of one another: the business's own committed rows, and the provider's synced file.
The ledger's states are looked at beside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.chaos.producing.extent import Extent, name_of

_SHOWN = 5
_ENDED = frozenset({"SENT", "DELIVERED"})
_OUTBOX_ENDED = frozenset({"SENT"})
_LOOKBACK_ENDED = frozenset({"FORWARDED", "ROLLED_BACK"})


class Acceptance(NamedTuple):
    """One acceptance in the provider's book."""

    message_id: str
    receiver: str


@dataclass(frozen=True)
class ProducingBooks:
    """All that is known at the end of a run."""

    extent: Extent
    orders: Mapping[int, str | None]
    """The business's committed orders: number to the id of its message."""
    refused: Collection[int]
    """Numbers that the business rolled back."""
    accepted: Collection[Acceptance]
    ledger: Mapping[str, int]
    """Deliveries by state."""
    outbox: Mapping[str, int]
    lookback: Mapping[str, int]
    kills: Mapping[str, int]
    troubles: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ProducingVerdict:
    """Figures, and the broken promises."""

    committed: int
    refused: int
    lost: int
    doubled: int
    invented: int
    problems: list[str]


def judge(books: ProducingBooks) -> ProducingVerdict:
    """Returns the verdict; `problems` is empty when every promise was kept."""
    wanted = {one: number for number, one in books.orders.items() if one is not None}
    counts = Counter(one.message_id for one in books.accepted)
    lost = sorted(wanted[one] for one in wanted.keys() - counts.keys())
    doubled = sorted(one for one, count in counts.items() if count > 1)
    invented = sorted(one.receiver for one in books.accepted if one.message_id not in wanted)
    problems = [
        *_business_problems(books),
        *_named("committed, and never sent: orders", lost),
        *_named("sent more than once:", doubled),
        *_named("sent, and not committed:", invented),
        *_receiver_problems(books, wanted),
        *_left("ledger", books.ledger, _ENDED),
        *_left("outbox", books.outbox, _OUTBOX_ENDED),
        *_left("look-back", books.lookback, _LOOKBACK_ENDED),
        *(f"nothing of this kind was killed: {name}" for name, n in books.kills.items() if not n),
        *books.troubles,
    ]
    figures = (len(books.orders), len(books.refused), len(lost), len(doubled), len(invented))
    return ProducingVerdict(*figures, problems)


def _business_problems(books: ProducingBooks) -> Iterator[str]:
    """The business must have done what its deals say: without that the run proves nothing."""
    deals = list(books.extent.deals())
    commits = {deal.number for deal in deals if deal.commits}
    if set(books.orders) != commits:
        yield from _named("orders that the deals do not have:", _apart(books.orders, commits))
    if set(books.refused) != {deal.number for deal in deals} - commits:
        yield "the business did not roll back what its deals say"
    unanswered = sorted(number for number, one in books.orders.items() if one is None)
    yield from _named("orders without an answer of a gateway:", unanswered)


def _apart(found: Collection[int], wanted: Collection[int]) -> list[int]:
    return sorted(set(found) ^ set(wanted))


def _receiver_problems(books: ProducingBooks, wanted: Mapping[str, int]) -> Iterator[str]:
    """Each message went to the receiver of its own order."""
    wrong = [
        one.receiver
        for one in books.accepted
        if one.message_id in wanted and one.receiver != name_of(wanted[one.message_id])
    ]
    yield from _named("sent to another receiver:", wrong)


def _left(where: str, states: Mapping[str, int], ended: Collection[str]) -> Iterator[str]:
    left = {state: count for state, count in states.items() if state not in ended and count}
    if left:
        yield f"{where}: not at a good end: {left}"


def _named(what: str, items: Collection[object]) -> Iterator[str]:
    if items:
        shown = ", ".join(str(one) for one in list(items)[:_SHOWN])
        yield f"{what} {shown} ({len(items)} in all)"
