"""Configuration: `hongyan.toml`. The environment overrides every key but Spark's properties; the file holds
no secret.

`HONGYAN_KAFKA__BOOTSTRAP` overrides `[kafka] bootstrap`. A secret comes from the environment, or from
`KEY_file = "/path"` in place of KEY (docs/configuration.md).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from backends.environment import CONFIG_VARIABLE
from backends.literal_secrets import FileText as FileText
from backends.literal_secrets import no_literal as no_literal
from backends.lookback_settings import LookbackSettings
from backends.problems import SettingsError as SettingsError
from backends.settings_reader import SettingsReader

DEFAULT_FILE: Final = "hongyan.toml"
_LITERAL: Final = (
    ("alerts", "secret"),
    ("console", "oidc_client_secret"),
    ("console", "secret"),
    ("database", "payload_key"),
    ("outcomes", "hash_key"),
    ("outcomes", "webhook_secret"),
    ("telemetry", "headers"),
)
"""Secrets outside of accounts."""
_CLIENT_SECRETS: Final = (
    "sasl.password",
    "ssl.key.password",
    "ssl.keystore.password",
    "ssl.key.pem",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.oauthbearer.assertion.private.key.passphrase",
)
"""Properties of `kafka.client` that are secret."""
SECRETS: Final = (*_LITERAL, *(("kafka", "client", name) for name in _CLIENT_SECRETS))
"""Paths of all secrets outside of accounts."""
LOGINS: Final = (
    ("console", "database_url"),
    ("database", "url"),
    ("redis", "url"),
    ("relay", "outbox_url"),
    ("spark", "ledger_url"),
)
"""URLs that may hold a password."""

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class KafkaSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Addresses, group and client properties for Kafka."""

    bootstrap: str = "127.0.0.1:9092"
    group_id: str = "hongyan"
    group_protocol: Literal["auto", "consumer", "classic"] = "auto"
    group_instance_id: str = ""
    """Name for static membership; empty: none."""
    assignor: str = ""
    """The assignor that shares the partitions out; empty: `range` under KIP-848, else `roundrobin`."""
    session_timeout_s: Annotated[float, msgspec.Meta(ge=1, le=1_800)] = 15.0
    """After this time a killed worker's partitions go to others. Classic protocol only: under
    KIP-848 the broker decides (`group.consumer.session.timeout.ms`, 45 s)."""
    topic_prefix: str = "hongyan"
    connect_timeout_s: Seconds = 60.0
    """Longest wait of a starting worker for the first broker."""
    client: dict[str, str | int | float | bool] = {}
    """Further librdkafka properties (TLS, SASL), except those that safety depends on."""


class DatabaseSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ledger's database."""

    url: str = "sqlite:///hongyan.db"
    payload_key: str = ""
    """Base64 of 32 bytes: encrypts stored payloads (AES-256-GCM); empty: no encryption."""


class RedisSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pre-filter; an empty url means none."""

    url: str = ""
    prefix: str = "hongyan"
    timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 200


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One worker process."""

    id: str = ""
    """Empty: host name, pid and a random part."""
    lanes: list[str] = msgspec.field(default_factory=lambda: ["*"])
    lease_s: Seconds = 30.0
    heartbeat_s: Seconds | None = None
    """None: a sixth of the lease."""
    drain_s: Seconds = 30.0
    max_in_flight_bytes: Annotated[int, msgspec.Meta(ge=1 << 20)] = 256 << 20
    """Bytes of notifications taken from Kafka and not yet done, shared evenly by the lanes."""
    health_address: str = "127.0.0.1:9464"


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The policy file; empty: policy.toml beside hongyan.toml, or the defaults."""

    file: str = ""


class TemplatesSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The template file; empty: templates.toml beside hongyan.toml, or none."""

    file: str = ""


class TraceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sinks of trace events."""

    kafka: bool = True
    database: bool = True
    buffer: Annotated[int, msgspec.Meta(ge=100, le=10_000_000)] = 20_000
    """Events kept while a sink is slow; more are dropped and counted."""
    keep_days: Annotated[int, msgspec.Meta(ge=1, le=3_650)] = 14
    """Days for which the database keeps trace events; workers remove older ones once a day."""


class TelemetrySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """OpenTelemetry spans of worker and recovery (docs/trace.md)."""

    otlp_endpoint: str = ""
    """A collector that takes OTLP over HTTP, such as http://127.0.0.1:4318; empty: no spans."""
    service_name: str = "hongyan"
    sample_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    """Share of the traces that begin here. A sender's `traceparent` decides for its own."""
    headers: str = ""
    """Headers of each request: `NAME=VALUE`, separated by commas."""
    timeout_s: Seconds = 5.0
    """Time limit of one batch, repeats included."""
    ca_file: str = ""
    """A PEM file of authorities to trust beside the public ones."""


class SparkSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The jobs of `hongyan spark` (docs/spark.md)."""

    master: str = "local[2]"
    """Spark's master; empty: as spark-submit says."""
    warehouse: str = "warehouse"
    """Folder of the Delta tables, or a URL such as s3a://bucket/hongyan; a relative folder is beside
    hongyan.toml."""
    jars: list[str] = []
    """Jar files, or Maven coordinates as GROUP:NAME:VERSION; none: the pinned ones, fetched once."""
    ledger_url: str = ""
    """A replica of the ledger for the jobs; empty: `database.url`."""
    connections: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    """Most connections of one job to the ledger."""
    open_days: Annotated[int, msgspec.Meta(ge=1, le=60)] = 3
    """Newest days that each rebuild reads whole."""
    properties: dict[str, str | int | float | bool] = {}
    """Further Spark properties, such as "spark.driver.memory"."""


class ReceiptsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Providers' receipts (docs/receipts.md)."""

    listen: str = "127.0.0.1:9470"
    match_s: Seconds = 5.0
    """Interval between two looks at receipts without a delivery, or with one that was not ready."""
    pull_s: Seconds = 10.0
    """Interval between two pulls from a provider, once it has no more receipts."""
    keep_days: Annotated[int, msgspec.Meta(ge=1, le=365)] = 14
    """Days for which receipts are kept, applied or not."""
    accounts: dict[str, dict[str, Any]] = {}
    """`[receipts.accounts.NAME]`: keys that check the receipts of this account."""


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP gateway (docs/gateway.md)."""

    listen: str = "127.0.0.1:9484"
    timeout_s: Annotated[float, msgspec.Meta(ge=1, le=30)] = 10.0
    """Time for Kafka's acknowledgement; then the answer is 503, and the client repeats."""
    access_log: bool = True
    """Whether each request is an event in the log: route, status, key and time."""
    health_address: str = "127.0.0.1:9486"


class RecoverySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One recovery process (docs/recovery.md)."""

    id: str = ""
    """Empty: host name, pid and a random part."""
    lanes: list[str] = msgspec.field(default_factory=lambda: ["*"])
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.25
    """Share of a lane's threads for calls that recovery repeats, at least one."""
    rate_per_s: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    """Deliveries a second that one recovery sends again in one lane, at most; None: 50, and up to 200 while
    more is due than goes."""
    poll_s: Seconds = 1.0
    """Interval between two looks for deliveries that are due or in doubt."""
    lease_s: Seconds = 30.0
    drain_s: Seconds = 30.0
    archive: bool = True
    """Whether past days leave the ledger (docs/archive.md)."""
    archive_dir: str = ""
    """Folder of SQLite's archive files; empty: `archive` beside the database."""
    topic_days: Annotated[int, msgspec.Meta(ge=0, le=3_650)] = 0
    """Days for which Kafka keeps the lanes' topics; 0: the archive asks the broker."""
    health_address: str = "127.0.0.1:9466"


class RelaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One relay of an outbox (docs/outbox.md)."""

    outbox_url: str = ""
    """The business's database: postgresql://…, mysql://… or sqlite:///FILE."""
    table: str = "hongyan_outbox"
    batch: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 500
    """Rows of one claim."""
    poll_s: Seconds = 0.5
    """Interval between two looks while nothing is due and nobody notifies."""
    lease_s: Annotated[float, msgspec.Meta(ge=5, le=3_600)] = 60.0
    """Time after which the rows of a relay that ended go to another."""
    keep_hours: Annotated[int, msgspec.Meta(ge=0, le=8_760)] = 24
    """Hours for which rows stay after their end. 0: the mark of an acknowledged row deletes it, which
    costs the database half as much."""
    late_s: Annotated[float, msgspec.Meta(ge=0, le=604_800)] = 60.0
    """Age of the oldest unpublished row from which an alert goes out; 0: never."""
    drain_s: Seconds = 30.0
    health_address: str = "127.0.0.1:9474"


class ConsoleSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The web console (docs/console.md)."""

    listen: str = "127.0.0.1:9480"
    url: str = ""
    """Address by which browsers reach it, as https://console.example.com; empty: that of the
    request. With https, cookies are sent over TLS alone."""
    database_url: str = ""
    """A replica of the ledger for pages; empty: `database.url`. Actions and sessions ask the ledger."""
    secret: str = ""
    """Key that signs the audit, 32 characters or more; empty: its rows are chained without a key."""
    session_idle_s: Annotated[float, msgspec.Meta(ge=60, le=604_800)] = 3_600.0
    """Time without a request after which a session ends."""
    session_s: Annotated[float, msgspec.Meta(ge=60, le=2_592_000)] = 43_200.0
    """Time after which a session ends in any case."""
    oidc_issuer: str = ""
    """An OpenID Connect provider at which people sign in, as https://id.example.com; empty: none."""
    oidc_client_id: str = ""
    """The console's id at the provider."""
    oidc_client_secret: str = ""
    """The console's secret at the provider; empty: a public client."""
    oidc_name: str = ""
    """The provider's name on the login page; empty: its host."""
    oidc_roles_claim: str = ""
    """Claim of the ID token that gives roles, such as `groups`; empty: only users whom an admin added."""
    oidc_roles: dict[str, str] = {}
    """Roles by the claim's values, such as sre = "operator:sms.* viewer"."""
    oidc_ca_file: str = ""
    """A PEM file of authorities to trust beside the public ones."""
    proxies: list[str] = []
    """Addresses of proxies whose X-Forwarded-For is believed."""
    spool_dirs: list[str] = []
    """Folders of clients' spools on the console's host, such as /var/lib/shop/spool: for the page Spools
    and for doctor."""
    health_address: str = "127.0.0.1:9482"


class ResendSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of resend jobs, taken over at a job's creation (docs/resend-jobs.md)."""

    canary: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 50
    """Deliveries that go first, and whose ends are awaited."""
    rate_per_s: Annotated[float, msgspec.Meta(gt=0, le=1e4)] = 50.0
    """Deliveries a second that a job hands over, at most; a job may ask for less."""
    error_rate: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.1
    """Share of deliveries that failed or are in doubt from which a job pauses itself."""
    approve_above: Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)] = 1_000
    """Deliveries above which a second person must approve the start."""
    preview_s: Annotated[float, msgspec.Meta(ge=10, le=86_400)] = 900.0
    """Time for which a preview may be started, and a start be approved."""


class CampaignSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Campaigns, and the process that sends them (docs/campaigns.md)."""

    id: str = ""
    """Empty: host name, pid and a random part."""
    folder: str = "campaigns"
    """Folder of the crowd files that the console takes; a relative one is beside hongyan.toml. The process
    that sends campaigns reads it under the same path."""
    upload_mb: Annotated[int, msgspec.Meta(ge=1, le=64)] = 32
    """Largest crowd file that the console takes, MiB."""
    rate_per_s: Annotated[float, msgspec.Meta(gt=0, le=1e5)] = 200.0
    """Rows a second that a campaign sends, at most; a campaign may ask for less."""
    error_rate: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.1
    """Share of bad rows from which a run pauses itself."""
    late_s: Annotated[float, msgspec.Meta(ge=60, le=604_800)] = 3_600.0
    """Age from which a cron's time that nobody ran is passed over."""
    lease_s: Annotated[float, msgspec.Meta(ge=1, le=600)] = 15.0
    """After this time another process goes on with a killed one's campaigns."""
    health_address: str = "127.0.0.1:9468"


class DeadLetterSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limit on the dead letters that one worker writes per lane and reason (docs/dead-letters.md)."""

    burst: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 5_000
    """Most dead letters at once; then the lane is paused until it earns permits."""
    rate_per_s: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 50.0
    """Permits earned per second."""


class AlertSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Thresholds and webhook of alerts (docs/alerts.md). A threshold of 0 switches its rule off."""

    window_s: Seconds = 300.0
    """Period within which the whole fleet sends the same alert once, with the count of those held back."""
    webhook: str = ""
    """URL to which alerts are posted as JSON; empty: the log and the metric alone."""
    secret: str = ""
    """Key that signs each post (HMAC-SHA256)."""
    timeout_s: Seconds = 5.0
    """Time limit of one post."""
    ca_file: str = ""
    """A PEM file of authorities to trust beside the public ones."""
    uncommitted_s: Annotated[float, msgspec.Meta(ge=0, le=604_800)] = 300.0
    """Age of a lane's oldest uncommitted record."""
    lag: Annotated[int, msgspec.Meta(ge=0)] = 100_000
    """Records that a lane of one worker is behind."""
    breaker_s: Annotated[float, msgspec.Meta(ge=0, le=604_800)] = 60.0
    """Time for which an account's breaker has been open without a break."""
    unknown_s: Annotated[float, msgspec.Meta(ge=0, le=604_800)] = 600.0
    """Age of a delivery in doubt."""
    overdue_s: Annotated[float, msgspec.Meta(ge=0, le=604_800)] = 120.0
    """Time for which no recovery takes a row that is due or to be asked about."""
    paused_s: Annotated[float, msgspec.Meta(ge=0, le=604_800)] = 3_600.0
    """Time for which a lane has been paused by a person."""
    outcomes_s: Annotated[float, msgspec.Meta(ge=0, le=604_800)] = 60.0
    """Age of the oldest outcome event that is not published."""
    lookback_s: Annotated[float, msgspec.Meta(ge=0, le=604_800)] = 60.0
    """Age of the oldest committed message that look-back has not forwarded."""


class OutcomeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Outcome events, which recovery publishes (docs/outcomes.md)."""

    hash_key: str = ""
    """Key of the receivers' hashes (HMAC-SHA256), 32 characters or more. Lanes with outcomes need it."""
    webhook: str = ""
    """URL to which the events of lanes with `outcomes = "webhook"` are posted."""
    webhook_secret: str = ""
    """Signs each post (Standard Webhooks): `whsec_` and the base64 of 24 to 64 bytes. Two secrets with a
    blank between them give two signatures, while they are exchanged."""
    timeout_s: Seconds = 10.0
    """Time limit of one post."""
    ca_file: str = ""
    """A PEM file of authorities to trust beside the public ones."""
    keep_days: Annotated[int, msgspec.Meta(ge=1, le=365)] = 7
    """Days after which an event that no target took is deleted."""


class LogSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Logging to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = "auto"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything in hongyan.toml."""

    kafka: KafkaSettings = KafkaSettings()
    database: DatabaseSettings = DatabaseSettings()
    redis: RedisSettings = RedisSettings()
    worker: WorkerSettings = WorkerSettings()
    policy: PolicySettings = PolicySettings()
    templates: TemplatesSettings = TemplatesSettings()
    trace: TraceSettings = TraceSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    spark: SparkSettings = SparkSettings()
    recovery: RecoverySettings = RecoverySettings()
    resend: ResendSettings = ResendSettings()
    receipts: ReceiptsSettings = ReceiptsSettings()
    relay: RelaySettings = RelaySettings()
    gateway: GatewaySettings = GatewaySettings()
    lookback: LookbackSettings = LookbackSettings()
    campaigns: CampaignSettings = CampaignSettings()
    console: ConsoleSettings = ConsoleSettings()
    dead_letters: DeadLetterSettings = DeadLetterSettings()
    alerts: AlertSettings = AlertSettings()
    outcomes: OutcomeSettings = OutcomeSettings()
    log: LogSettings = LogSettings()
    accounts: dict[str, dict[str, Any]] = {}
    """`[accounts.NAME]`: provider, endpoint and the keys of the provider's adapter."""
    allow_literal_secrets: bool = False
    """Whether the file itself may hold secrets: to try things out, never in production."""
    base: str = "."
    """Folder of the file read; relative paths start here. Not a key of the file."""
    origins: dict[str, str] = {}
    """The place that gave each table and key: `hongyan.toml:12`, or a variable. Not a key of the file."""


def load(path: str | Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Returns the settings from `path`, else $HONGYAN_CONFIG, else ./hongyan.toml if it is there, with the
    environment on top. Raises SettingsError for all problems, each with its place and key."""
    environ = os.environ if environ is None else environ
    file = file_of(path, environ)
    reader = SettingsReader(Settings, file, environ)
    settings = reader.read(SECRETS, LOGINS)
    base = str(file.parent if file else Path())
    return msgspec.structs.replace(settings, base=base, origins=reader.origins)


def file_of(path: str | Path | None, environ: Mapping[str, str]) -> Path | None:
    """Returns the file that is read; None: there is none. Raises SettingsError for a missing one."""
    named = path or environ.get(CONFIG_VARIABLE)
    if named:
        file = Path(named)
        if not file.is_file():
            what = "it is no regular file" if file.exists() else "no such file"
            raise SettingsError(f"{file}: {what}; give --config or {CONFIG_VARIABLE} a file")
        return file
    default = Path(DEFAULT_FILE)
    return default if default.is_file() else None
