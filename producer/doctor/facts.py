"""What doctor knows of an installation, as data. The rules see nothing else."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from backends.kafka.inspection import ClusterState
from backends.kafka.topic_demands import TopicPlan
from backends.redis.inspection import RedisState

Source = Literal["cluster", "database", "redis"]
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
    partitions_before: dict[str, int] = {}
    """Partitions of each topic at the run before."""
    missing: dict[Source, str] = {}
    """Sources that could not be read, with the reason."""

    @property
    def one_broker(self) -> bool:
        """Whether the cluster has one broker, as for development."""
        return self.cluster is not None and len(self.cluster.brokers) == 1
