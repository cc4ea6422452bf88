"""Configuration: `hongyan.toml`. The environment overrides every key; the file holds no secret.

`HONGYAN_KAFKA__BOOTSTRAP` overrides `[kafka] bootstrap`. A secret comes from the environment, or from
`KEY_file = "/path"` in place of KEY (docs/configuration.md).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_type_hints

import msgspec

from backends.toml_text import MAX_DEPTH, TomlTrouble, did_you_mean, parsed

PREFIX: Final = "HONGYAN_"
_ALIKE: Final = 0.9
"""Least likeness of a misspelt variable to the right one."""
CONFIG_VARIABLE: Final = "HONGYAN_CONFIG"
DEFAULT_FILE: Final = "hongyan.toml"
_NOT_SETTINGS: Final = frozenset({"HONGYAN_CONFIG", "HONGYAN_DEBUG"})
_OF_TOOLS: Final = ("HONGYAN_REQUIRE_", "HONGYAN_STACK_", "HONGYAN_TEST_", "HONGYAN_BENCH_")
"""Prefixes of variables for this repository's own tests and stack."""
_BY_NAME: Final = ("accounts",)
"""Tables of tables that people name."""
_LITERAL: Final = (("alerts", "secret"), ("database", "payload_key"))
"""Secrets outside of accounts."""

_PATHS: Final = frozenset({"ca_file"})
"""Keys that hold a path and end like a reference to a secret."""
_UNSPELT = re.compile(r"[^a-z0-9]")
_UNKNOWN = re.compile(r"unknown field `(.+?)`")

Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class SettingsError(ValueError):
    """A configuration that cannot be used; the text has the place and the remedy."""


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
    recovery: RecoverySettings = RecoverySettings()
    receipts: ReceiptsSettings = ReceiptsSettings()
    dead_letters: DeadLetterSettings = DeadLetterSettings()
    alerts: AlertSettings = AlertSettings()
    log: LogSettings = LogSettings()
    accounts: dict[str, dict[str, Any]] = {}
    """`[accounts.NAME]`: provider, endpoint and the keys of the provider's adapter."""
    base: str = "."
    """Folder of the file read; relative paths start here. Not a key of the file."""


def load(path: str | Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Returns the settings from `path`, else $HONGYAN_CONFIG, else ./hongyan.toml if it is there, with the
    environment on top. Raises SettingsError, which names the file or variable and the key."""
    environ = os.environ if environ is None else environ
    file = _file(path, environ)
    data = _read(file) if file else {}
    data.pop("base", None)
    _check_literals(data, file)
    _apply_environment(data, environ)
    _resolve_secret_files(data, file.parent if file else Path())
    try:
        settings = msgspec.convert(data, Settings, strict=False)
    except msgspec.ValidationError as exc:
        raise SettingsError(_explained(exc, file, environ)) from exc
    except (OverflowError, RecursionError, ValueError) as exc:
        raise SettingsError(f"the environment: a value is out of all bounds ({exc})") from exc
    return msgspec.structs.replace(settings, base=str(file.parent if file else Path()))


def _explained(exc: msgspec.ValidationError, file: Path | None, environ: Mapping[str, str]) -> str:
    """Returns source, key and problem of the wrong value."""
    text, _, where = str(exc).partition(" - at `$.")
    key = where.rstrip("`")
    if unknown := _UNKNOWN.search(text):
        text = f"unknown key{did_you_mean(unknown[1], _keys_of(key))}"
        key = f"{key}.{unknown[1]}".lstrip(".")
    variable = PREFIX + key.upper().replace(".", "__")
    source = variable if variable in environ else str(file or "the settings")
    text = text.replace("`", "")
    return f"{source}: {key}: {text[:1].lower()}{text[1:]}"


def _keys_of(table: str) -> list[str]:
    """The keys that `table` (a dotted path, empty: the top level) may hold."""
    struct: Any = Settings
    for part in filter(None, table.split(".")):
        struct = get_type_hints(struct).get(part) if hasattr(struct, "__struct_fields__") else None
    return [name for name in getattr(struct, "__struct_fields__", ()) if name != "base"]


def _file(path: str | Path | None, environ: Mapping[str, str]) -> Path | None:
    named = path or environ.get(CONFIG_VARIABLE)
    if named:
        file = Path(named)
        if not file.is_file():
            raise SettingsError(f"{file}: no such file; give --config or {CONFIG_VARIABLE} a file")
        return file
    default = Path(DEFAULT_FILE)
    return default if default.is_file() else None


def _read(file: Path) -> dict[str, Any]:
    try:
        return parsed(file.read_text("utf-8"))
    except UnicodeDecodeError as exc:
        raise SettingsError(f"{file}: is not UTF-8") from exc
    except OSError as exc:
        raise SettingsError(f"{file}: {exc.strerror or exc}") from exc
    except TomlTrouble as exc:
        raise SettingsError(f"{file}: {exc}") from exc


def _check_literals(data: dict[str, Any], file: Path | None) -> None:
    """Marks the texts of accounts as the file's, which may hold no secret. Raises SettingsError for another
    secret in the file."""
    for table, key in _LITERAL:
        around = data.get(table)
        if isinstance(around, dict) and isinstance(around.get(key), str) and around[key]:
            raise SettingsError(f"{file}: {table}.{key}: {no_literal(f'{table}.{key}')}")
    for around in (data, data.get("receipts")):
        accounts = around.get("accounts") if isinstance(around, dict) else None
        for account in accounts.values() if isinstance(accounts, dict) else ():
            if isinstance(account, dict):
                texts = {k: v for k, v in account.items() if isinstance(v, str)}
                account |= {key: FileText(text) for key, text in texts.items()}


class FileText(str):
    """A text from hongyan.toml itself, which may hold no secret."""


def no_literal(path: str) -> str:
    """Returns the error text for a secret in the file."""
    variable = PREFIX + path.upper().replace(".", "__").replace("-", "_")
    key = path.rpartition(".")[2]
    return f'a secret must not be in the file; write {key}_file = "/path", or set {variable}'


def _apply_environment(data: dict[str, Any], environ: Mapping[str, str]) -> None:
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in _NOT_SETTINGS or name.startswith(_OF_TOOLS):
            continue
        *parents, key = name[len(PREFIX) :].lower().split("__")
        if not parents:
            if meant := meant_by(name):
                raise SettingsError(f"{name}: no such setting; did you mean {meant}?")
            continue
        if len(parents) > MAX_DEPTH:
            raise SettingsError(f"{name[:40]}…: is nested deeper than {MAX_DEPTH}")
        table = data
        for place, parent in enumerate(parents):
            named = place and parents[place - 1] in _BY_NAME
            parent = _as_named(parent, table) if named else parent
            table = table.setdefault(parent, {})
            if not isinstance(table, dict):
                raise SettingsError(f"{name}: {parent} is a value, not a table")
        table[key] = _list_or_text(environ[name]) if key == "lanes" else environ[name]


def _as_named(found: str, tables: Mapping[str, Any]) -> str:
    """Returns the file's name, `main-sms` or `Main.SMS`, that a variable can only spell as `main_sms`."""
    if found in tables:
        return found
    alike = [name for name in tables if _UNSPELT.sub("_", name.lower()) == found]
    return alike[0] if len(alike) == 1 else found


def meant_by(name: str) -> str:
    """Returns the setting that a variable without two underscores most likely means, such as
    HONGYAN_DATABASE_URL; empty: none. Kubernetes makes variables with our prefix, too."""
    spelt = [
        f"{PREFIX}{table}__{key}".upper()
        for table, of_table in get_type_hints(Settings).items()
        for key in getattr(of_table, "__struct_fields__", ())
    ]
    flat = {one.replace("__", "_"): one for one in sorted(spelt)}
    bare, file = (name.removesuffix("_FILE"), "_FILE") if name.endswith("_FILE") else (name, "")
    close = get_close_matches(bare, flat, n=1, cutoff=_ALIKE)
    return f"{flat[close[0]]}{file}" if close else ""


def _list_or_text(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _resolve_secret_files(table: dict[str, Any], base: Path) -> None:
    """Replaces every `KEY_file = path` by KEY with that file's text, at any depth."""
    for key, value in list(table.items()):
        if isinstance(value, dict):
            _resolve_secret_files(value, base)
        elif key.endswith("_file") and key not in _PATHS and isinstance(value, str):
            try:
                table[key.removesuffix("_file")] = (base / value).read_text("utf-8").strip()
            except (OSError, UnicodeDecodeError) as exc:
                reason = exc.strerror if isinstance(exc, OSError) else "is not UTF-8"
                raise SettingsError(f"{key}: {base / value}: {reason}") from exc
            del table[key]
