"""Checks of settings that one kind of process alone reads at its start, by the functions that read them.

`hongyan config check` makes them all. A worker and a recovery do not: they start beside a console whose
settings are wrong. A process that is not configured is not checked, but for its addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Final

from msgspec.structs import replace

from backends.lookback_settings import LookbackSettings
from backends.settings import ConsoleSettings, Settings
from hongyan.setting_faults import Check, faults_of, missing_file


def _addresses(settings: Settings) -> Iterator[str]:
    from backends.addresses import address_of

    addresses = (
        ("gateway.listen", settings.gateway.listen, "127.0.0.1:9484"),
        ("gateway.health_address", settings.gateway.health_address, "127.0.0.1:9486"),
        ("console.listen", settings.console.listen, "127.0.0.1:9480"),
        ("console.health_address", settings.console.health_address, "127.0.0.1:9482"),
        ("relay.health_address", settings.relay.health_address, "127.0.0.1:9474"),
        ("campaigns.health_address", settings.campaigns.health_address, "127.0.0.1:9468"),
        ("lookback.health_address", settings.lookback.health_address, "127.0.0.1:9468"),
    )
    for key, text, example in addresses:
        yield from faults_of(partial(address_of, text, key, example))


def _console(settings: Settings) -> Iterator[str]:
    if settings.console == ConsoleSettings():
        return
    from admin.oidc.settings import oidc_settings
    from admin.parts import check_console, reads_url

    yield from faults_of(lambda: check_console(settings.console))
    yield from faults_of(lambda: reads_url(settings))
    yield from faults_of(lambda: oidc_settings(settings.console))
    yield from missing_file("console.oidc_ca_file", settings.console.oidc_ca_file)


def _relay(settings: Settings) -> Iterator[str]:
    from producer.relay.opening import open_outbox

    if settings.relay.outbox_url:
        yield from faults_of(lambda: open_outbox(settings).engine.dispose())


def _spark(settings: Settings) -> Iterator[str]:
    from hongyan.spark.wiring import jdbc_login

    if url := settings.spark.ledger_url:
        yield from faults_of(lambda: jdbc_login(url, settings.base, "spark.ledger_url"))


def _outcomes(settings: Settings) -> Iterator[str]:
    from channels.transports import TransportRouter
    from recovery.outcomes.webhook import OutcomeHook

    if settings.outcomes.webhook:
        sender = TransportRouter()
        yield from faults_of(lambda: OutcomeHook(settings.outcomes, sender))
        sender.close()


def _lookback(settings: Settings) -> Iterator[str]:
    from lookback.transaction import terms_of

    for name, one in settings.lookback.biz_types.items():
        only = replace(settings.lookback, biz_types={name: one})
        yield from faults_of(partial(terms_of, only))
    yield from _lookback_checks(settings.lookback)


def _lookback_checks(lookback: LookbackSettings) -> Iterator[str]:
    from channels.transports import TransportRouter
    from lookback.checks.factory import open_checks

    for name, table in lookback.checks.items():
        missing = missing_file(f"lookback.checks.{name}.ca_file", str(table.get("ca_file", "")))
        if found := list(missing):
            yield from found
            continue
        with ExitStack() as stack:
            sender = TransportRouter()
            stack.callback(sender.close)
            yield from faults_of(partial(open_checks, {name: table}, sender, stack))


PROCESS_CHECKS: Final[Mapping[str, Check]] = {
    "addresses": _addresses,
    "[console]": _console,
    "[relay]": _relay,
    "[spark]": _spark,
    "[outcomes]": _outcomes,
    "[lookback]": _lookback,
}
"""Part of the configuration to its check."""
