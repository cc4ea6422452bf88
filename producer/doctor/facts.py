"""What doctor knows of an installation, as data. The rules see nothing else."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from backends.kafka.inspection import ClusterState
from backends.kafka.topic_demands import TopicPlan
from backends.redis.inspection import RedisState

Source = Literal["cluster", "database", "redis", "outbox"]
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"


class ClientFacts(msgspec.Struct, frozen=True):
    """The effective configuration of one Kafka client, under librdkafka's names."""

    name: str
    config: dict[str, str]
    writes: list[str] = []
    """Topics that the producer writes."""
    sources: dict[str, str] = {}
    """Place that gave a key; others are from `source`."""
    source: str = "backends/kafka/config.py"
    other: ClientFacts | None = None
    """The same file as the other client reads it, if it shows neither; None: the client is known."""

    def value(self, key: str) -> str:
        """Returns the value; empty for a key without one."""
        return self.config.get(key, "")

    def number(self, key: str) -> int:
        """Returns the value as a number; 0 for a key without one."""
        text = self.config.get(key, "")
        return int(float(text)) if text.replace(".", "", 1).lstrip("-").isdigit() else 0

    def origin(self, key: str) -> str:
        """Returns the place that gave the key."""
        return self.sources.get(key, self.source)


class LaneFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a lane's policy that rules compare."""

    name: str
    topic: str
    ttl_ms: int
    max_ttl_ms: int
    timeout_ms: int
    immediate: int
    ordered: bool
    best_effort: bool
    smtp_ms: int = 0
    """Longest call over SMTP; 0: the lane goes over HTTP."""


class DatabaseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger's database."""

    kind: Literal["postgresql", "sqlite"]
    version: str
    settings: dict[str, str]
    sources: dict[str, str] = {}
    schema: str
    """Its migration; empty: none."""
    program_schema: str
    runs: bool
    """Whether this program runs on that schema."""
    now_ms: int = 0


class OutboxFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The business's database of `relay.outbox_url`, and the relay's terms."""

    kind: Literal["postgresql", "mysql", "mariadb", "sqlite"]
    version: str
    settings: dict[str, str]
    """The server's own, as other programs' sessions get them."""
    sources: dict[str, str] = {}
    lease_s: float
    late_s: float

    @property
    def is_mysql(self) -> bool:
        """Whether it is MySQL or MariaDB."""
        return self.kind in ("mysql", "mariadb")

    def number(self, key: str) -> int:
        """Returns a setting as a number; 0 for one without a number."""
        text = self.settings.get(key, "")
        return int(text) if text.lstrip("-").isdigit() else 0


class LookbackKindFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of one kind of transaction. Times in seconds."""

    name: str
    check: str
    """The endpoint's name; empty: the business is never asked."""
    check_timeout_s: float
    immunity_s: float
    check_s: float
    longest_pause_s: float
    max_checks: int
    deadline_s: float
    longest_transaction_s: float

    @property
    def span_s(self) -> float:
        """The time from the first check to the last one, each pause twice the one before."""
        pauses = (self.check_s * 2.0**number for number in range(min(self.max_checks - 1, 64)))
        return sum(min(pause, self.longest_pause_s) for pause in pauses)


class LookbackFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of look-back."""

    topic: str
    kinds: list[LookbackKindFacts]
    lease_s: float
    keep_days: int


class SpoolFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A spool's folder on this host."""

    path: str
    filesystem: str
    """Its type, as the kernel names it; empty: not known."""
    free_bytes: int
    used_bytes: int
    """Size of the spool's files."""
    max_bytes: int
    """Records that it may hold, as doctor was told."""
    refusal: str = ""
    """Why it could not be looked at; empty: it could."""


class ClockFacts(msgspec.Struct, frozen=True):
    """One clock against this host's; the difference is known to within `within_ms`."""

    name: str
    ahead_ms: int | None
    within_ms: int = 0
    reason: str = ""
    """Why it is not known."""


class DeploymentFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Times of our processes and of what runs them."""

    worker_drain_s: float
    recovery_drain_s: float
    grace_s: float | None = None
    """The orchestrator's time between SIGTERM and SIGKILL; None: not given."""
    lease_s: float
    heartbeat_s: float
    keep_days: int
    """Days for which the policy wants lanes' topics to be kept."""
    outage_days: int
    ledger_days: int
    longest_ttl_ms: int
    topic_days: int = 0
    """`recovery.topic_days`; 0: the topics decide."""
    relay_drain_s: float | None = None
    """None: no outbox is configured."""
    lookback_drain_s: float | None = None
    """None: look-back is not used."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was read."""

    cluster: ClusterState | None
    plans: dict[str, TopicPlan]
    """Our topics as they are wanted."""
    lanes: list[LaneFacts]
    producers: list[ClientFacts]
    consumer: ClientFacts
    database: DatabaseFacts | None
    redis: RedisState | None
    """None: no Redis is configured."""
    clocks: list[ClockFacts]
    deployment: DeploymentFacts
    outbox: OutboxFacts | None = None
    """None: no outbox is configured."""
    lookback: LookbackFacts | None = None
    """None: look-back is not used."""
    spools: list[SpoolFacts] = []
    partitions_before: dict[str, int] = {}
    """Partitions of each topic at the run before."""
    missing: dict[Source, str] = {}
    """Sources that could not be read, with the reason."""

    @property
    def one_broker(self) -> bool:
        """Whether the cluster has one broker, as for development."""
        return self.cluster is not None and len(self.cluster.brokers) == 1
