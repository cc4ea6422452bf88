"""Families that several processes show."""

from __future__ import annotations

from typing import Final

from backends.metrics.families import (
    PROCESSES,
    RECOVERY,
    TRACERS,
    WORKER,
    Family,
    MetricType,
    counter,
    gauge,
    histogram,
)

_SENDERS: Final = (WORKER, RECOVERY)

DELIVERY_SECONDS: Final = histogram(
    "delivery_seconds",
    "Time from `created_at` of a notification until the provider accepted the delivery.",
    "lane",
    by=_SENDERS,
    watch="the promise to the business: its 0.95 quantile beside the lane's TTL",
)
THREADS: Final = gauge(
    "threads",
    "Threads that make the lane's calls.",
    "lane",
    by=_SENDERS,
    watch="`hongyan_at_provider` near it: the lane is full",
)
IN_FLIGHT: Final = gauge("in_flight", "Deliveries claimed and not settled.", "lane", by=_SENDERS)
POLICY_NUMBER: Final = gauge(
    "policy_number",
    "Applied policy version that is followed; 0: the file.",
    by=_SENDERS,
    watch="different numbers for more than a minute",
)
POLICY_REFUSED: Final = gauge(
    "policy_refused",
    "1 while the newest applied version is one that this process cannot follow.",
    by=_SENDERS,
    watch="1",
)
POLICY_LANES_KEPT: Final = gauge(
    "policy_lanes_kept",
    "Lanes that follow the newest version only after a restart.",
    by=_SENDERS,
    watch="above 0",
)
ALERTS: Final = counter(
    "alerts", "Times that an alert came up, sent or not.", "rule", "lane", by=_SENDERS
)
ALERTS_NOT_POSTED: Final = counter(
    "alerts_not_posted",
    "Posts to the alerts' webhook that failed.",
    "rule",
    by=_SENDERS,
    watch="any rise: nobody may hear of an alert",
)
OVERDUE_SECONDS: Final = gauge(
    "recovery_overdue_seconds",
    "Time for which a lane's oldest row waits for recovery, by `about`: due, doubt. One process of the"
    " fleet shows it.",
    "lane",
    "about",
    by=_SENDERS,
    watch="above 120: no recovery takes it",
)
OUTCOMES_WAITING: Final = gauge(
    "outcomes_waiting",
    "Outcome events that are not published, in the oldest 10,000 batches. One process of the fleet shows"
    " it.",
    "target",
    by=_SENDERS,
    watch="growth",
)
OUTCOMES_OLDEST_SECONDS: Final = gauge(
    "outcomes_oldest_seconds",
    "Age of the oldest outcome event that is not published. One process of the fleet shows it.",
    "target",
    by=_SENDERS,
    watch="above 60",
)
LOST_FINDINGS: Final = gauge(
    "lost_findings",
    "Deliveries found lost: undecided ones, and those of the last `alerts.window_s` that were sent again or"
    " came too late; counted up to 10,000. One process of the fleet shows it.",
    "lane",
    "cause",
    "status",
    by=_SENDERS,
    watch="above 0; ASKED waits for a person",
)
TRACE_DROPPED: Final = counter(
    "trace_dropped",
    "Trace events lost.",
    "sink",
    "reason",
    by=TRACERS,
    watch="any rise: `hongyan trace` has gaps",
)
BUILD_INFO: Final = gauge(
    "build_info",
    "1; the labels have the versions of the program and of Python.",
    "process",
    "version",
    "python",
    by=PROCESSES,
    watch="two versions for longer than a deployment takes",
)


def _foreign(name: str, kind: MetricType, text: str, *labels: str, watch: str = "") -> Family:
    """Returns a family of prometheus_client's own collectors."""
    return Family(name, kind, labels, text, watch, PROCESSES)


_C, _G = MetricType.COUNTER, MetricType.GAUGE
PROCESS: Final = (
    _foreign("process_cpu_seconds_total", _C, "CPU time of the process.", watch="near 1 a second"),
    _foreign(
        "process_resident_memory_bytes", _G, "Memory of the process.", watch="growth over days"
    ),
    _foreign("process_virtual_memory_bytes", _G, "Address space of the process."),
    _foreign(
        "process_start_time_seconds", _G, "Unix time of the start.", watch="a young one: a restart"
    ),
    _foreign("process_open_fds", _G, "Open files and sockets.", watch="near `process_max_fds`"),
    _foreign("process_max_fds", _G, "Most open files and sockets."),
    _foreign(
        "python_info",
        _G,
        "1; the labels have Python's version.",
        *("implementation", "major", "minor", "patchlevel", "version"),
    ),
    _foreign(
        "python_gc_objects_collected_total", _C, "Objects that collections freed.", "generation"
    ),
    _foreign(
        "python_gc_objects_uncollectable_total",
        _C,
        "Objects that no collection could free.",
        "generation",
    ),
    _foreign("python_gc_collections_total", _C, "Collections.", "generation"),
)
"""Of prometheus_client's collectors; on Linux."""
FAMILIES: Final = (
    DELIVERY_SECONDS,
    THREADS,
    IN_FLIGHT,
    POLICY_NUMBER,
    POLICY_REFUSED,
    POLICY_LANES_KEPT,
    ALERTS,
    ALERTS_NOT_POSTED,
    OVERDUE_SECONDS,
    OUTCOMES_WAITING,
    OUTCOMES_OLDEST_SECONDS,
    LOST_FINDINGS,
    TRACE_DROPPED,
    BUILD_INFO,
    *PROCESS,
)
