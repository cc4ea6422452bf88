"""Families that a worker alone shows."""

from __future__ import annotations

from functools import partial
from typing import Final

from backends.metrics import families

_BY: Final = (families.WORKER,)
_counter = partial(families.counter, by=_BY)
_gauge = partial(families.gauge, by=_BY)
_histogram = partial(families.histogram, by=_BY)

# ---- Kafka -----------------------------------------------------------------------------------

RECEIVED: Final = _counter("received", "Notifications read from Kafka.", "lane")
LAG: Final = _gauge(
    "lag",
    "Records between this worker's position and the end of its partitions.",
    "lane",
    watch="growth; `hongyan_group_lag` shows the lag also without a worker",
)
OLDEST_UNCOMMITTED_SECONDS: Final = _gauge(
    "oldest_uncommitted_seconds",
    "Age of the oldest record that was read and whose offset cannot pass.",
    "lane",
    watch="above 300",
)
LANE_PAUSED: Final = _gauge(
    "lane_paused", "1 while a person's pause of the lane is obeyed.", "lane", watch="1 for hours"
)
COMMITS: Final = _counter(
    "commits", "Offset commits, by `result`.", "result", watch="`failed`, `unanswered`"
)
PAUSES: Final = _counter("pauses", "Times that a lane's partitions were paused.", "lane")
DEAD_LETTERS: Final = _counter(
    "dead_letters",
    "Poison records passed on to the dead-letter topic.",
    "reason",
    watch="any rise: a producer has a fault",
)
DEAD_LETTERS_HELD: Final = _gauge(
    "dead_letters_held",
    "Poison records that wait for a permit; their lane is paused.",
    "lane",
    "reason",
    watch="above 0",
)
RECORDS_REMOVED: Final = _counter(
    "records_removed",
    "Offsets that Kafka removed before they were read.",
    "lane",
    watch="any rise: they were never sent",
)
LOGS_BEGUN_ANEW: Final = _counter(
    "logs_begun_anew",
    "Partitions whose log ended below the committed offset.",
    "lane",
    watch="any rise: a topic was made anew",
)

# ---- deliveries ------------------------------------------------------------------------------

SETTLED: Final = _counter(
    "settled",
    "Deliveries that ended in this worker, by the state they got; `fenced`: another process had the row."
    " `account` is empty if no account was chosen.",
    "lane",
    "account",
    "outcome",
    watch="PARKED, REJECTED, UNKNOWN, EXPIRED beside SENT",
)
DUPLICATES: Final = _counter(
    "duplicates", "Deliveries that the ledger or Redis had already, by `by`.", "lane", "by"
)
PREFILTER_HITS: Final = _counter("prefilter_hits", "Deliveries that Redis knew to be settled.")
CLAIM_BATCH: Final = _histogram("claim_batch", "Deliveries in one claim statement.")
CLAIM_SECONDS: Final = _histogram(
    "claim_seconds",
    "Time of one claim statement.",
    watch="0.99 quantile above 0.1: the database is slow",
)
SETTLE_BATCH: Final = _histogram("settle_batch", "Outcomes in one settle statement.")
SETTLE_SECONDS: Final = _histogram(
    "settle_seconds",
    "Time of one settle statement.",
    watch="0.99 quantile above 0.1: the database is slow",
)
SETTLE_ABANDONED: Final = _counter(
    "settle_abandoned",
    "Outcomes left unwritten at the end; they become UNKNOWN.",
    watch="any rise: the database was away during a drain",
)

# ---- calls and capacity ----------------------------------------------------------------------

CALL_SECONDS: Final = _histogram(
    "call_seconds",
    "Time of one provider call, counted for each of its deliveries.",
    "lane",
    "account",
    watch="an account's 0.95 quantile near the lane's `timeout_ms`",
)
AT_PROVIDER: Final = _gauge("at_provider", "Calls under way.", "lane")
QUEUED_CALLS: Final = _gauge("queued_calls", "Calls that wait for a thread of the lane.", "lane")
LANE_CAPACITY: Final = _gauge(
    "lane_capacity",
    "Deliveries that the lane may hold at once, under way and queued.",
    "lane",
    watch="`hongyan_in_flight` at it for minutes: add threads or workers",
)
LANE_RATE: Final = _gauge(
    "lane_rate_per_s",
    "Deliveries a second that the fleet may send through the lane's accounts; absent: one has no limit.",
    "lane",
    watch="what comes in beside it",
)
REPEATED: Final = _counter(
    "repeated", "Deliveries that went through the same account again at once.", "lane"
)
FAILOVERS: Final = _counter("failovers", "Deliveries that another account took over.", "lane")
THREADS_REPLACED: Final = _counter(
    "threads_replaced", "Threads of the lane that died.", "lane", watch="any rise: a fault of ours"
)

# ---- accounts --------------------------------------------------------------------------------

BREAKER_STATE: Final = _gauge(
    "breaker_state", "0 closed, 1 half open, 2 open.", "lane", "account", watch="2 for a minute"
)
BREAKER_OPENED: Final = _counter("breaker_opened", "Times that it opened.", "lane", "account")
LOGIN_REFUSED: Final = _gauge(
    "login_refused", "1 while the provider refuses the account's login.", "account", watch="1"
)
RATES_SHARED: Final = _gauge(
    "rates_shared",
    "1 while the fleet's token buckets answer, 0 while this worker keeps to its share; absent without"
    " `redis.url`, and until they were asked.",
    watch="0: Redis is away",
)
RATE_TOKENS: Final = _gauge(
    "rate_tokens", "Deliveries that may go without a question to Redis.", "account"
)
RATE_WORKERS: Final = _gauge("rate_workers", "Live workers that share the account.", "account")
RATE: Final = _gauge(
    "rate_per_s",
    "Deliveries a second that the fleet may send: the account's own rate, or the one that refusals taught.",
    "account",
)
RATE_SHUT_SECONDS: Final = _gauge(
    "rate_shut_seconds", "Time for which the provider asked for no calls.", "account"
)
PACED: Final = _counter(
    "paced",
    "Calls that the provider refused for the account's pace.",
    "account",
    watch="a steady rise: the account's rate is set too high",
)
RECEIVERS_HELD: Final = _counter(
    "receivers_held",
    "Deliveries that had to wait for the limit of their receiver, or of the robot.",
    "account",
)

# ---- gates -----------------------------------------------------------------------------------

GATES_ALONE: Final = _counter(
    "gates_alone",
    "Deliveries that gates judged without the fleet's marks.",
    watch="any rise: Redis is away",
)
GATES_HELD: Final = _counter(
    "gates_held", "Deliveries that were put off to the end of quiet hours."
)
GATES_DROPPED: Final = _counter("gates_dropped", "Deliveries that a gate dropped.", "reason")

# ---- lease -----------------------------------------------------------------------------------

LEASE_VALID: Final = _gauge("lease_valid", "1 while the worker may send.", watch="0")
LEASE_LAPSES: Final = _counter(
    "lease_lapses", "Times that the lease lapsed.", watch="any rise: it slept, or the database did"
)
SWEPT: Final = _counter("swept", "Deliveries of dead workers that this one put in doubt.")
LEDGER_AWAY: Final = _gauge("ledger_away", "1 while the database is away.", watch="1")

FAMILIES: Final = tuple(one for one in list(vars().values()) if isinstance(one, families.Family))
"""All of the above, in their order."""
