"""One lane's reliability policy. Data only; decisions are pure functions elsewhere."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from message.vocabulary import DEFAULT_TTL_MS, LANES, Lane
from policy.gates import ContentDedup, FrequencyCap, QuietHours

Positive = Annotated[int, msgspec.Meta(ge=1)]
Weight = Annotated[int, msgspec.Meta(ge=0, le=1_000)]
_HOUR_MS = 3_600_000


class Guarantee(StrEnum):
    """The delivery guarantee of a lane."""

    BEST_EFFORT = "best_effort"
    AT_MOST_ONCE = "at_most_once"
    AT_LEAST_ONCE = "at_least_once"


class Ordering(StrEnum):
    """Whether deliveries of one ordering key keep their order."""

    NONE = "none"
    KEY = "key"


class InDoubt(StrEnum):
    """Handling of a delivery in doubt that no query and no dedup window can settle."""

    RESEND = "resend"
    PARK = "park"


class WhenLost(StrEnum):
    """Handling of a delivery that was surely lost before any worker claimed it (docs/recovery.md#lost)."""

    RESEND = "resend"
    ASK = "ask"
    """A person orders it by `hongyan lost resend`."""


class TraceLevel(StrEnum):
    """Extent of a lane's trace."""

    ALL = "all"
    TROUBLE = "trouble"
    """All but SENT and duplicates."""
    NONE = "none"


class OutcomeTarget(StrEnum):
    """Where the ends of a lane's deliveries are announced (docs/outcomes.md)."""

    NONE = "none"
    TOPIC = "topic"
    """The topic `<prefix>.outcomes`."""
    WEBHOOK = "webhook"
    """Posts to `outcomes.webhook`."""


class BreakerPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The circuit breaker of an account; times in milliseconds."""

    window_ms: Annotated[int, msgspec.Meta(ge=100, le=600_000)] = 10_000
    """Calls that ended within this window are judged together."""
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.5
    """Share of failed calls in the window that opens the breaker."""
    min_calls: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 20
    """Fewer calls in the window never open the breaker."""
    open_ms: Annotated[int, msgspec.Meta(ge=10, le=3_600_000)] = 5_000
    """First time for which it stays open; doubled each time that the probes fail."""
    max_open_ms: Annotated[int, msgspec.Meta(ge=10, le=3_600_000)] = 60_000
    probes: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 3
    """Deliveries that may try a half-open account at once; as many successes close the breaker."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Retries after a definite non-send; times in milliseconds."""

    attempts: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 10
    """Provider calls of one delivery, the first included; then it is parked. Calls that the provider
    refused for pace alone do not count."""
    immediate: Annotated[int, msgspec.Meta(ge=0, le=5)] = 0
    """Of these, calls that the pool's thread repeats at once, within a second and while none waits."""
    base_ms: Annotated[int, msgspec.Meta(ge=1, le=86_400_000)] = 5_000
    """Wait after the first call, if the provider named no time."""
    factor: Annotated[float, msgspec.Meta(ge=1, le=100)] = 2.0
    """Factor from one wait to the next."""
    cap_ms: Annotated[int, msgspec.Meta(ge=1, le=86_400_000)] = 600_000
    """The longest wait."""
    jitter: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5
    """Random share of each wait: deliveries that failed together do not return together."""
    horizon_ms: Positive = 7 * 24 * _HOUR_MS
    """Age of a notification past which nothing is tried again, whatever its TTL."""
    patience: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.9
    """Share of the TTL within which refusals for pace alone are tried again; then the delivery is parked.
    Such refusals spend none of the `attempts`."""


StepLimit = Annotated[int, msgspec.Meta(ge=10, le=3_600_000)]


class SmtpPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Time limits of the steps of a call over SMTP, in milliseconds. The built-in values are those of
    RFC 5321 §4.5.3.2, or above. A call that is cut off after the dot is in doubt and may be sent twice.
    One that is cut off before it never gets out to a slow server."""

    connect_ms: StepLimit = 30_000
    """The TCP connection. No document limits it; a live server answers within a few of TCP's repeats."""
    greeting_ms: StepLimit = 300_000
    """The server's first word (§4.5.3.2.1: 5 minutes)."""
    command_ms: StepLimit = 300_000
    """The reply to any command but DATA, and the TLS handshake (§4.5.3.2.2, §4.5.3.2.3: 5 minutes)."""
    data_ms: StepLimit = 180_000
    """The reply to DATA, then the writing of the content (§4.5.3.2.4: 2 minutes, §4.5.3.2.5: 3)."""
    final_ms: StepLimit = 600_000
    """The reply to the dot that ends the message (§4.5.3.2.6: 10 minutes)."""
    total_ms: StepLimit = 1_200_000
    """The whole call. The dot is written only while `final_ms` of it is left, for the reply to it."""


class LanePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The policy of one lane; times in milliseconds."""

    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    accounts: list[str] | dict[str, Weight] = []
    """Names in hongyan.toml, or a table of names and weights (0: a reserve); none: every account whose
    provider serves the channel, equal weights."""
    breaker: BreakerPolicy = BreakerPolicy()
    """The breaker of each account in this lane."""
    threads: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 16
    queue: Annotated[int, msgspec.Meta(ge=0, le=10_000)] | None = None
    """Deliveries claimed and waiting for a thread; None: as many as threads."""
    batch: Annotated[int, msgspec.Meta(ge=1, le=1_000)] | None = None
    """Deliveries that may share a provider call; None: as many as the account's provider takes."""
    linger_ms: Annotated[int, msgspec.Meta(ge=0, le=1_000)] = 5
    """Wait of a delivery for others to share its call, if the provider takes several."""
    max_in_flight: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 5_000
    """Records taken from Kafka and not yet done, per lane and worker: bounds memory and replay."""
    timeout_ms: Annotated[int, msgspec.Meta(ge=10, le=600_000)] = 5_000
    """One provider call over HTTP, with connecting."""
    smtp: SmtpPolicy = SmtpPolicy()
    """The limits of calls over SMTP, in place of `timeout_ms`."""
    ttl_ms: Positive = DEFAULT_TTL_MS["notice"]
    max_ttl_ms: Positive = 7 * 24 * _HOUR_MS
    ordering: Ordering = Ordering.NONE
    release_per_s: Annotated[float, msgspec.Meta(gt=0, le=100_000)] = 500.0
    """First sends a second by one recovery, after quiet hours, a receiver's limit or a wait in line."""
    retry: RetryPolicy = RetryPolicy()
    unknown: InDoubt | None = None
    """None: as the guarantee says."""
    lost: WhenLost | None = None
    """None: as the guarantee says."""
    receipt_lag_ms: Positive = 24 * _HOUR_MS
    """Time after SENT within which a receipt may come; a delivery without one is silent then."""
    quiet_hours: QuietHours = QuietHours()
    frequency: FrequencyCap = FrequencyCap()
    dedup: ContentDedup = ContentDedup()
    trace: TraceLevel = TraceLevel.ALL
    outcomes: OutcomeTarget = OutcomeTarget.NONE
    retention_days: Annotated[int, msgspec.Meta(ge=1, le=3_650)] = 90
    """Days for which the ledger keeps settled deliveries."""

    @property
    def resends_unproven(self) -> bool:
        """Whether a delivery in doubt is sent again if no query and no dedup window helps."""
        if self.unknown is None:
            return self.guarantee is Guarantee.AT_LEAST_ONCE
        return self.unknown is InDoubt.RESEND

    @property
    def resends_lost(self) -> bool:
        """Whether recovery itself sends a delivery that was surely lost; False: a person orders it."""
        if self.lost is None:
            return self.guarantee is Guarantee.AT_LEAST_ONCE
        return self.lost is WhenLost.RESEND

    @property
    def queue_size(self) -> int:
        """`queue`, or its default: as many as threads."""
        return self.threads if self.queue is None else self.queue

    @property
    def account_names(self) -> list[str]:
        """The accounts named, in the order of the file; empty: every one that serves the channel."""
        return list(self.accounts)

    def weight(self, account: str) -> int:
        """Returns the account's share of deliveries that name none; 0: only when no other may send."""
        return self.accounts.get(account, 0) if isinstance(self.accounts, dict) else 1

    def lifetime_ms(self, own_ttl_ms: int | None) -> int:
        """Returns a notification's lifetime: its own ttl, capped, else the lane's."""
        return min(own_ttl_ms or self.ttl_ms, self.max_ttl_ms)


DEFAULTS_BY_KIND = {
    "verification": LanePolicy(
        threads=16,
        timeout_ms=3_000,
        ttl_ms=DEFAULT_TTL_MS["verification"],
        max_ttl_ms=_HOUR_MS,
        retry=RetryPolicy(immediate=2, base_ms=1_000, cap_ms=60_000),
        quiet_hours=QuietHours(exempt=True),
        frequency=FrequencyCap(exempt=True),
        dedup=ContentDedup(exempt=True),
    ),
    "notice": LanePolicy(),
    "marketing": LanePolicy(threads=8, retry=RetryPolicy(base_ms=30_000, cap_ms=_HOUR_MS)),
}


class Policy(msgspec.Struct, frozen=True):
    """Every lane's policy and the version they are known by."""

    version: str = "default"
    lanes: dict[str, LanePolicy] = {}

    def of(self, lane: Lane) -> LanePolicy:
        """Returns this lane's policy; its kind's defaults if the file has none."""
        return self.lanes.get(lane.name) or DEFAULTS_BY_KIND[lane.kind]

    @property
    def announced(self) -> dict[str, str]:
        """Returns the lanes whose ends are announced, each with its target."""
        return {
            name: policy.outcomes.value
            for name, policy in {**DEFAULTS, **self.lanes}.items()
            if policy.outcomes is not OutcomeTarget.NONE
        }

    @property
    def retention_days(self) -> int:
        """Days that the ledger keeps: the longest of all lanes, since a day's rows leave together."""
        kept = {**DEFAULTS, **self.lanes}
        return max(policy.retention_days for policy in kept.values())


DEFAULTS = {lane.name: DEFAULTS_BY_KIND[lane.kind] for lane in LANES}
