"""The words of `hongyan send`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from hongyan.terminal import complain, err, out

if TYPE_CHECKING:
    from rich.text import Text

    from hongyan.enqueue import EnqueueOutcome
    from hongyan.submission.outcome_wait import DeliveryEnd

_SHOWN: Final = 20
_STYLES: Final = {"SENT": "green", "DELIVERED": "green", "RETRY": "yellow", "IN_FLIGHT": "cyan"}


def show_sent(outcome: EnqueueOutcome, *, check: bool) -> None:
    """Prints problems, then the ids of notifications and deliveries; of many only their number."""
    from rich.text import Text

    show_problems(outcome)
    if check:
        out().print(f"{outcome.sent:,} good, {len(outcome.bad):,} bad; nothing was sent")
        return
    if not 0 < outcome.sent <= len(outcome.notifications) <= _SHOWN:
        out().print(f"{outcome.sent:,} sent")
        return
    for one in outcome.notifications:
        place = f"{one.topic}/{one.partition}/{one.offset}"
        out().print(Text.assemble("sent ", (one.id, "bold"), f"  {place}"))
        for delivery in one.deliveries[:_SHOWN]:
            out().print(f"  → {delivery.receiver}  {delivery.delivery_key}", markup=False)
        if (more := len(one.deliveries) - _SHOWN) > 0:
            out().print(f"  and {more:,} more; --json has them all")


def show_problems(outcome: EnqueueOutcome) -> None:
    """Prints warnings and errors to standard error."""
    for warning in outcome.warnings:
        err().print("warning:", style="yellow", end=" ")
        err().print(warning, markup=False)
    for bad in outcome.bad[:_SHOWN]:
        err().print(f"line {bad.line}: {bad.path}: {bad.detail}", markup=False)
    for failed in outcome.failed[:_SHOWN]:
        err().print(f"{failed.id} to {failed.topic}: {failed.cause}", markup=False)
    if outcome.bad:
        complain(f"{_lines(len(outcome.bad))} bad and not sent")
    if outcome.failed:
        complain(f"{len(outcome.failed):,} not taken by Kafka")
    if outcome.in_doubt:
        complain(
            f"{outcome.in_doubt:,} not acknowledged in time: they may be in Kafka or not; sending "
            "them again under the same ids doubles nothing"
        )


def show_ends(ends: Sequence[DeliveryEnd], timeout_s: float, failure: str) -> None:
    """Prints what became of each delivery; of many, those that did not arrive."""
    left = [end for end in ends if not end.arrived]
    shown = ends if len(ends) <= _SHOWN else left
    for end in shown[:_SHOWN]:
        out().print(_line(end))
    if len(shown) > _SHOWN:
        states = Counter(end.state or "not in the ledger" for end in left)
        counts = ", ".join(f"{state} {count:,}" for state, count in states.most_common())
        out().print(f"  and more; of all that did not arrive: {counts}")
    out().print(f"{len(ends) - len(left):,} of {len(ends):,} arrived")
    _explain([end for end in left if not end.ended], timeout_s, failure)


def _explain(still_open: Sequence[DeliveryEnd], timeout_s: float, failure: str) -> None:
    if not still_open:
        return
    if failure:
        complain(f"the ledger did not answer at the end: {failure}")
        return
    unseen = sorted({end.lane for end in still_open if end.state is None})
    if unseen:
        complain(
            f"no worker has taken up {', '.join(unseen)} within {timeout_s:g} s: see `hongyan status`"
        )
    if len(still_open) > sum(end.state is None for end in still_open):
        complain(
            f"not decided within {timeout_s:g} s: `hongyan trace {still_open[0].id}` shows it later"
        )


def _line(end: DeliveryEnd) -> Text:
    from rich.text import Text

    line = Text.assemble(("  → ", "dim"), end.receiver)
    line.append(f"  {end.state or 'not in the ledger'}", _STYLES.get(end.state or "", "red"))
    if end.reason:
        line.append(f" ({end.reason})")
    if end.provider_id:
        line.append(f"  provider id {end.provider_id}")
    line.append(f"  {end.delivery_key}", "dim")
    return line


def _lines(count: int) -> str:
    return "1 line is" if count == 1 else f"{count:,} lines are"
