"""Families that a recovery alone shows."""

from __future__ import annotations

from functools import partial
from typing import Final

from backends.metrics import families

_BY: Final = (families.RECOVERY,)
_counter = partial(families.counter, by=_BY)
_gauge = partial(families.gauge, by=_BY)
_histogram = partial(families.histogram, by=_BY)

RESENT: Final = _counter(
    "recovery_resent",
    "Deliveries sent again, by the state they got; `fenced`: another process had the row.",
    "lane",
    "account",
    "outcome",
)
RESOLVED: Final = _counter("recovery_resolved", "Doubts ended, by their result.", "lane", "as")
ASKED_AGAIN: Final = _counter(
    "recovery_asked_again",
    "Doubts that nobody could end yet.",
    "lane",
    watch="a rise without `hongyan_recovery_resolved_total`: the provider's query is down",
)
POSSIBLE_DUPLICATES: Final = _counter(
    "recovery_possible_duplicates",
    "Deliveries sent again without proof, by policy or by a person.",
    "lane",
    watch="a receiver may have got these twice",
)
ENDED: Final = _counter(
    "recovery_ended",
    "Due rows that were not sent, by state and reason.",
    "lane",
    "state",
    "reason",
    watch="PARKED, EXPIRED",
)
CALL_SECONDS: Final = _histogram(
    "recovery_call_seconds",
    "Time of one provider call, counted for each of its deliveries.",
    "lane",
    "account",
)
WOKEN: Final = _counter(
    "recovery_woken",
    "Rows that slept without a head before them. 0 is normal.",
    "lane",
    watch="any rise, unless workers of an older version run",
)
DUE: Final = _gauge(
    "recovery_due",
    "Deliveries due and not taken; counted up to 10,000. Absent: not measured.",
    "lane",
    watch="growth",
)
UNKNOWN: Final = _gauge(
    "recovery_unknown", "Deliveries in doubt; counted up to 10,000.", "lane", watch="growth"
)
OLDEST_DUE_SECONDS: Final = _gauge(
    "recovery_oldest_due_seconds", "Time for which the oldest is due.", "lane", watch="above 120"
)
OLDEST_UNKNOWN_SECONDS: Final = _gauge(
    "recovery_oldest_unknown_seconds", "Age of the doubt that comes next.", "lane"
)
BEHIND: Final = _gauge(
    "recovery_behind",
    "Ordering keys whose head has held others for a minute; counted up to 10,000.",
    "lane",
    watch="above 0; `hongyan status` names them",
)
GROUP_LAG: Final = _gauge(
    "group_lag",
    "Records between the group's committed offsets and the ends of the lane's partitions. One recovery of"
    " the fleet measures it, also without a worker.",
    "lane",
    "group",
    watch="growth; absent: no recovery runs, or the broker does not answer",
)
OUTCOMES_PUBLISHED: Final = _counter(
    "outcomes_published", "Outcome events that their target acknowledged.", "target"
)
OUTCOMES_FAILURES: Final = _counter(
    "outcomes_failures",
    "Batches of outcome events that their target did not take; they are tried again.",
    "target",
    watch="a steady rise: the topic or the webhook is away",
)
OUTCOMES_GIVEN_UP: Final = _counter(
    "outcomes_given_up",
    "Outcome events deleted unpublished, since they are older than `outcomes.keep_days`.",
    "target",
    watch="any rise: the business never gets them",
)
LOST_DECIDED: Final = _counter(
    "lost_decided",
    "Decisions of recovery about deliveries that a Spark job found lost.",
    "lane",
    "cause",
    "status",
    watch="any rise of RESENT or EXPIRED: find out why they were lost",
)
RESEND_JOB_ITEMS: Final = _counter(
    "resend_job_items",
    "Items of resend jobs, counted at each new fate.",
    "fate",
    watch="FAILED",
)
RESEND_JOBS_OPEN: Final = _gauge(
    "resend_jobs_open", "Resend jobs that are not over; the recovery that runs them shows it."
)
RESEND_JOBS_PAUSED: Final = _gauge(
    "resend_jobs_paused",
    "1 for each resend job that paused itself; the recovery that runs the jobs shows it.",
    "job",
    watch="any: `hongyan resend jobs show JOB` has the reason",
)

FAMILIES: Final = tuple(one for one in list(vars().values()) if isinstance(one, families.Family))
"""All of the above, in their order."""
