"""A person's decisions about findings: resend or dismiss. Recovery acts on the ordered ones."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from idempotency.lost.findings import (
    AlsoDecided,
    Finding,
    FindingStatus,
    LostFindings,
    nothing_else,
)
from recovery.lost.rules import order_refusal
from recovery.operator_rules import AUTHOR_AT_MOST, WHY_AT_MOST
from tracing.masks import masked_text

UNDECIDED: Final = (FindingStatus.NEW, FindingStatus.ASKED)
"""Statuses of findings that may be dismissed."""


class FindingOrder(StrEnum):
    """A person's orders."""

    RESEND = "resend"
    DISMISS = "dismiss"


_DONE: Final = {FindingOrder.RESEND: "ordered", FindingOrder.DISMISS: "dismissed"}
_WOULD: Final = {FindingOrder.RESEND: "would_order", FindingOrder.DISMISS: "would_dismiss"}
CHOOSABLE: Final = {
    FindingOrder.RESEND: (FindingStatus.ASKED,),
    FindingOrder.DISMISS: UNDECIDED,
}
"""Statuses of the findings that an order by filter selects."""


class OrderResult(NamedTuple):
    """The result of an order for one finding."""

    finding: Finding
    result: str
    """`ordered`, `dismissed`, `would_order`, `would_dismiss`, `refused` or `overtaken`."""
    why: str = ""

    @property
    def failed(self) -> bool:
        """Whether nothing was done about it."""
        return self.result in ("refused", "overtaken")


def refusal_of(order: FindingOrder, finding: Finding) -> str:
    """Returns the reason for which nobody may give this order; empty if one may."""
    if order is FindingOrder.RESEND:
        return order_refusal(finding)
    return "" if finding.status in UNDECIDED else f"it is {finding.status.value} already"


def order_findings(
    findings: LostFindings,
    order: FindingOrder,
    some: Sequence[Finding],
    *,
    who: str,
    why: str,
    dry_run: bool = False,
    also: AlsoDecided = nothing_else,
) -> list[OrderResult]:
    """Gives the order for each finding that allows it. Returns the result of each. `why` is kept, with
    numbers and addresses masked. `also` writes in the same transaction. Raises LedgerError."""
    refused = {one.id: reason for one in some if (reason := refusal_of(order, one))}
    able = [one.id for one in some if one.id not in refused]
    give = findings.order if order is FindingOrder.RESEND else findings.dismiss
    note = who[:AUTHOR_AT_MOST], masked_text(why.strip()[:WHY_AT_MOST])
    done = set(able) if dry_run or not able else give(able, *note, also)
    word = (_WOULD if dry_run else _DONE)[order]
    return [
        OrderResult(one, "refused", refused[one.id])
        if one.id in refused
        else OrderResult(one, word if one.id in done else "overtaken")
        for one in some
    ]
