"""Families that campaigns alone show."""

from __future__ import annotations

from functools import partial
from typing import Final

from backends.metrics import families

_BY: Final = (families.CAMPAIGNS,)

ROWS: Final = families.counter(
    "campaign_rows",
    "Settled rows of crowd files: `sent` (in Kafka), `bad`, `repeated`.",
    "end",
    by=_BY,
    watch="`bad` beside `sent`: the file does not fit its template",
)
_gauge = partial(families.gauge, by=_BY)
OPEN: Final = _gauge("campaigns_open", "Campaigns by state, `SCHEDULED` or `RUNNING`.", "state")
SENDING: Final = _gauge("campaigns_sending", "Runs that this process sends.")
LATE: Final = _gauge(
    "campaigns_late_seconds",
    "Time for which a due or an open run has waited longest for a process that sends it.",
    watch="above a minute: more runs are due than all processes have places for",
)
PAUSED: Final = _gauge(
    "campaigns_paused",
    "1 for each campaign that paused itself.",
    "campaign",
    watch="any: `hongyan campaign show CAMPAIGN` has the reason",
)

FAMILIES: Final = tuple(one for one in list(vars().values()) if isinstance(one, families.Family))
"""All of the above, in their order."""
