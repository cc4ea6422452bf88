"""Words for an outcome: the reaction of a worker."""

from __future__ import annotations

from channels.channel import Channel
from message.outcomes import Accepted, AnyOutcome, NotSent, Rejected


def meaning(outcome: AnyOutcome, channel: Channel) -> str:
    """Returns a worker's reaction to the outcome, in one sentence."""
    if isinstance(outcome, Accepted) and outcome.queued:
        return (
            "the provider took a task and says later whom it reached; a worker would settle it UNKNOWN"
            " (queued), and recovery would ask by that name"
        )
    if isinstance(outcome, Accepted):
        return f"the provider has it; a worker would settle it SENT. Receipts: {channel.promises.receipts}"
    whose = "; it is about the account, whose breaker would open" if _accounts(outcome) else ""
    if isinstance(outcome, Rejected):
        return f"it was not sent and never will be: a worker would settle it REJECTED{whose}"
    if isinstance(outcome, NotSent):
        wait = outcome.retry_after_ms
        when = "after the lane's own pause" if wait is None else f"after {wait / 1_000:g} s"
        return f"it was not sent; a worker would try again {when}{whose}"
    return (
        "it may have been sent: a worker would never repeat it blindly. "
        f"How it is settled: {channel.promises.resolve}"
    )


def _accounts(outcome: AnyOutcome) -> bool:
    return isinstance(outcome, Rejected | NotSent) and outcome.account
