"""Rules between parts: times of processes, topics, ledger and providers."""

from __future__ import annotations

from typing import Final

from backends.kafka.topic_demands import alter
from producer.doctor.facts import DeploymentFacts, Facts
from producer.doctor.rule import NotKnown, RuleBook, Said, Seen, Severity

BOOK: Final = RuleBook("cross")
_DAY_MS: Final = 86_400_000
_MARGIN_S: Final = 5.0


@BOOK.rule(
    "drain-grace",
    Severity.ERROR,
    "A process drains within the orchestrator's grace",
    "The orchestrator kills the worker while calls are at providers: each of them is in doubt, and is"
    " parked or sent twice.",
)
def drain(facts: Facts) -> Said:
    """The drain times against the grace."""
    times = facts.deployment
    drains = (
        ("worker.drain_s", times.worker_drain_s),
        ("recovery.drain_s", times.recovery_drain_s),
        ("relay.drain_s", times.relay_drain_s),
        ("lookback.drain_s", times.lookback_drain_s),
    )
    if times.grace_s is None:
        fix = "hongyan doctor --grace SECONDS, or HONGYAN_GRACE_S"
        why = "only the deployment knows it"
        wanted = "the grace"
        yield Seen("workers", "grace not given", "--grace", wanted, fix, Severity.INFO, why)
        return
    for key, drain_s in drains:
        if drain_s is not None and drain_s + _MARGIN_S > times.grace_s:
            yield Seen(
                key.partition(".")[0],
                f"{key}={drain_s:g}, grace {times.grace_s:g} s",
                "--grace",
                f"grace ≥ {drain_s + _MARGIN_S:g} s",
                f"terminationGracePeriodSeconds: {drain_s + 3 * _MARGIN_S:g}",
            )


@BOOK.rule(
    "ledger-retention",
    Severity.ERROR,
    "The ledger outlives the topics",
    "Offsets are reset, and Kafka repeats a record whose row has left the ledger: it is sent again.",
    needs=("cluster",),
)
def ledger(facts: Facts) -> Said:
    """retention_days against the topics, their segments and the longest TTL."""
    times, days = facts.deployment, facts.deployment.topic_days
    for lane in facts.lanes if not days else ():
        state = facts.cluster.topics.get(lane.topic) if facts.cluster else None
        if state is None or not state.partitions:
            continue
        if state.refusal:
            yield NotKnown(lane.topic, state.refusal)
            continue
        kept_ms = int(state.value("retention.ms") or -1)
        if kept_ms < 0:
            fix = alter(lane.topic, "retention.ms", str(times.keep_days * _DAY_MS))
            source = state.config["retention.ms"].source if "retention.ms" in state.config else ""
            yield Seen(lane.topic, "records are kept for ever", source, "a retention", fix)
            continue
        days = max(days, -(-(kept_ms + int(state.value("segment.ms") or 0)) // _DAY_MS))
    least = least_ledger_days(times, days)
    if times.ledger_days < least:
        seen = f"retention_days={times.ledger_days}; topics keep records for up to {days} days"
        fix = f"policy.toml: [defaults] retention_days = {least}"
        yield Seen("ledger", seen, "the policy", f"≥ {least} days", fix)


def least_ledger_days(times: DeploymentFacts, topic_days: int) -> int:
    """Returns the days that the ledger must keep: a record of the last day may live for its whole TTL."""
    return max(topic_days, times.keep_days) + -(-times.longest_ttl_ms // _DAY_MS) + 1


@BOOK.rule(
    "lease-timeout",
    Severity.ERROR,
    "A delivery's calls end within the lease",
    "The worker dies in a call. Its lease ends before the provider's answer: recovery asks while the call"
    " is under way, hears `not sent`, and sends it a second time.",
)
def lease(facts: Facts) -> Said:
    """timeout_ms times immediate calls against worker.lease_s; calls over SMTP are named alone."""
    lease_ms = facts.deployment.lease_s * 1_000
    for lane in facts.lanes:
        longest = lane.timeout_ms * (1 + lane.immediate)
        if lane.smtp_ms:
            if lane.smtp_ms >= lease_ms:
                why = "SMTP's limits are the RFC's; the lease is renewed while a call runs (docs/doctor.md)"
                seen, fix = (
                    f"a call may take {lane.smtp_ms / 1_000:g} s",
                    "policy.toml: smtp.total_ms",
                )
                wanted = f"below the lease of {facts.deployment.lease_s:g} s"
                yield Seen(lane.name, seen, "the policy", wanted, fix, Severity.INFO, why)
        elif longest >= lease_ms:
            seen = f"{lane.timeout_ms} ms × {1 + lane.immediate} calls"
            wanted = f"below the lease of {facts.deployment.lease_s:g} s"
            fix = f"hongyan.toml: [worker] lease_s = {2 * longest / 1_000:g}"
            yield Seen(lane.name, seen, "the policy", wanted, fix)


@BOOK.rule(
    "lease-heartbeat",
    Severity.ERROR,
    "The lease lasts three heartbeats at least",
    "One heartbeat is late, and a worker that lives counts as dead: its deliveries become UNKNOWN while"
    " they are at providers.",
)
def heartbeat(facts: Facts) -> Said:
    """worker.heartbeat_s against worker.lease_s."""
    times = facts.deployment
    if times.heartbeat_s * 3 > times.lease_s:
        seen = f"lease {times.lease_s:g} s, heartbeat {times.heartbeat_s:g} s"
        fix = f"hongyan.toml: [worker] lease_s = {3 * times.heartbeat_s:g}"
        yield Seen(
            "worker", seen, "worker.heartbeat_s", f"lease ≥ {3 * times.heartbeat_s:g} s", fix
        )
