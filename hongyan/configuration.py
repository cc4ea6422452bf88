"""Checks a whole configuration without any server: settings, accounts, policy, templates, files.

Each problem is one text that begins with its key, or with file and line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

from backends.settings import Settings, SettingsError
from backends.toml_text import did_you_mean
from hongyan.setting_faults import Check, faults_of, missing_file

DATABASE: Final = "[database]"
"""A part of the configuration."""
_HEADER: Final = re.compile(r"[\w!#$%&'*+.^`|~-]+\s*=\s*\S.*", re.ASCII)


class Findings(NamedTuple):
    """The problems and warnings of one check."""

    problems: list[str]
    warnings: list[str]


def findings_of(settings: Settings) -> Findings:
    """Returns all problems and warnings. A part whose library is not installed is a warning."""
    from hongyan.process_checks import PROCESS_CHECKS

    options = {"[receipts.accounts] options": _receipt_options}
    problems, warnings = _problems(settings, {**_CHECKS, **options, **PROCESS_CHECKS})
    if settings.allow_literal_secrets:
        warnings.append(
            "allow_literal_secrets: is on, so the file may hold secrets: only for trials"
        )
    if not problems and not warnings:
        warnings += _unserved(settings)
    return Findings(problems, warnings)


def require_sound(settings: Settings, part: str = "") -> None:
    """Raises SettingsError for all problems, or those of one part. A worker and a recovery call it before
    they start."""
    checks = {name: check for name, check in _CHECKS.items() if not part or name == part}
    problems, _ = _problems(settings, checks)
    if problems:
        raise SettingsError(*problems)


def _problems(settings: Settings, checks: Mapping[str, Check]) -> tuple[list[str], list[str]]:
    """Returns the problems, and the parts that were not checked."""
    problems: list[str] = []
    skipped: list[str] = []
    for name, check in checks.items():
        try:
            problems += check(settings)
        except ModuleNotFoundError as exc:
            skipped.append(f"{name}: not checked, since {exc.name} is not installed")
    return list(dict.fromkeys(problems)), skipped


def _kafka(settings: Settings) -> Iterator[str]:
    from backends.kafka.config import check_client

    yield from faults_of(lambda: check_client(settings.kafka.client))


def _database(settings: Settings) -> Iterator[str]:
    from backends.sql.database import database_url
    from idempotency.payload_cipher import PayloadCipher

    yield from faults_of(lambda: database_url(settings.database.url, settings.base), "database.url")
    yield from faults_of(lambda: PayloadCipher(settings.database.payload_key))


def _redis(settings: Settings) -> Iterator[str]:
    from backends.redis.client import connect

    if settings.redis.url:
        yield from faults_of(lambda: connect(settings.redis).close(), "redis.url")


def _processes(settings: Settings) -> Iterator[str]:
    from backends.addresses import address_of
    from message.vocabulary import lanes_matching

    addresses = (
        ("worker.health_address", settings.worker.health_address, "127.0.0.1:9464"),
        ("recovery.health_address", settings.recovery.health_address, "127.0.0.1:9466"),
        ("receipts.listen", settings.receipts.listen, "127.0.0.1:9470"),
    )
    for key, text, example in addresses:
        yield from faults_of(partial(address_of, text, key, example))
    lanes = (("worker.lanes", settings.worker.lanes), ("recovery.lanes", settings.recovery.lanes))
    for key, patterns in lanes:
        if not patterns:
            yield f'{key}: is empty, so nothing would be served; write ["*"] for all lanes'
        for pattern in patterns:
            yield from faults_of(partial(lanes_matching, [pattern]), key)
    beat, lease = settings.worker.heartbeat_s, settings.worker.lease_s
    if beat is not None and beat >= lease:
        yield (
            f"worker.heartbeat_s: {beat:g} is not below lease_s {lease:g}, so a live worker would"
            " count as dead; leave it out, or lower it"
        )


def _accounts(settings: Settings) -> Iterator[str]:
    from channels.registry import load_accounts

    yield from faults_of(lambda: load_accounts(settings.accounts))


def _receipts(settings: Settings) -> Iterator[str]:
    for name in settings.receipts.accounts:
        if name not in settings.accounts:
            hint = did_you_mean(name, settings.accounts)
            yield f"receipts.accounts.{name}: there is no account of this name in [accounts]{hint}"


def _receipt_options(settings: Settings) -> Iterator[str]:
    """Yields the problems of options that `hongyan receipts` alone needs: others may lack its secrets."""
    from receipts.sources import load_sources

    if settings.receipts.accounts and not any(_receipts(settings)):
        faults = list(faults_of(lambda: load_sources(settings)))
        yield from (fault for fault in faults if fault.startswith("receipts."))


def _alerts(settings: Settings) -> Iterator[str]:
    from channels.endpoints import HTTP, BadEndpoint, endpoint_url

    if settings.alerts.webhook:
        try:
            endpoint_url(settings.alerts.webhook, HTTP)
        except BadEndpoint as exc:
            yield f"alerts.webhook: {exc}"


def _telemetry(settings: Settings) -> Iterator[str]:
    from channels.endpoints import BadEndpoint, endpoint_url

    if settings.telemetry.otlp_endpoint:
        try:
            endpoint_url(settings.telemetry.otlp_endpoint)
        except BadEndpoint as exc:
            yield f"telemetry.otlp_endpoint: {exc}"
    headers = [one for one in settings.telemetry.headers.split(",") if one.strip()]
    if not all(_HEADER.fullmatch(one.strip()) for one in headers):
        yield "telemetry.headers: must be NAME=VALUE, several separated by commas"


def _files(settings: Settings) -> Iterator[str]:
    for name in settings.__struct_fields__:
        path = getattr(getattr(settings, name), "ca_file", "")
        yield from missing_file(f"{name}.ca_file", path)
    for name, table in settings.accounts.items():
        yield from missing_file(f"accounts.{name}.ca_file", str(table.get("ca_file", "")))


def _policy(settings: Settings) -> Iterator[str]:
    from channels.accounts.lane_accounts import check_accounts
    from policy.loading import file_of, load_for

    path = file_of(settings)
    if path is not None and not path.is_file():
        yield f"policy.file: {path}: no such file; give one, or leave it out for the defaults"
        return
    faults = list(faults_of(lambda: load_for(settings)))
    yield from faults
    if path is not None and not faults:
        found: list[object] = []
        policy = load_for(settings)
        yield from faults_of(lambda: found.extend(check_accounts(settings, policy, path)))
        yield from map(str, found)


def _unserved(settings: Settings) -> Iterator[str]:
    """Yields lanes whose policy names accounts that do not serve them. Only a warning: no worker may
    serve these lanes."""
    from channels.accounts.lane_accounts import lane_accounts
    from message.vocabulary import LANES
    from policy.loading import load_for

    policy = load_for(settings)
    for lane in LANES:
        of_lane = policy.of(lane)
        if of_lane.account_names:
            yield from faults_of(partial(lane_accounts, lane, settings.accounts, of_lane))


def _templates(settings: Settings) -> Iterator[str]:
    from channels.template_support import TEMPLATE_SUPPORT
    from policy.templates.loading import file_of, load_for

    path = file_of(settings)
    if path is not None and not path.is_file():
        yield f"templates.file: {path}: no such file; give one, or leave it out"
        return
    yield from faults_of(lambda: load_for(settings, TEMPLATE_SUPPORT))


_CHECKS: Final[Mapping[str, Check]] = {
    "[kafka]": _kafka,
    DATABASE: _database,
    "[redis]": _redis,
    "[worker], [recovery], [receipts]": _processes,
    "[accounts]": _accounts,
    "[receipts.accounts]": _receipts,
    "[alerts]": _alerts,
    "[telemetry]": _telemetry,
    "ca_file": _files,
    "the policy": _policy,
    "the templates": _templates,
}
