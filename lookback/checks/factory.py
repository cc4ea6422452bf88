"""The checkers of a configuration, by the name of their endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from backends.check_settings import CheckSettings, check_settings
from channels.engine import Sender
from lookback.check import Checker
from lookback.checks.addresses import GRPC, address_of
from lookback.checks.guarded import CheckQuestion, GuardedCheck
from lookback.checks.http_check import HttpCheck


def open_checks(
    checks: Mapping[str, Mapping[str, Any]], sender: Sender, stack: ExitStack
) -> dict[str, Checker]:
    """Returns the checkers of `[lookback.checks.NAME]`; `stack` closes their connections. Connects to
    nobody. Raises SettingsError."""
    found: dict[str, Checker] = {}
    for name, table in checks.items():
        settings = check_settings(name, table)
        found[name] = GuardedCheck(_opened(name, settings, sender, stack), settings.concurrency)
    return found


def _opened(name: str, settings: CheckSettings, sender: Sender, stack: ExitStack) -> CheckQuestion:
    url = address_of(name, settings)
    if url.scheme not in GRPC:
        return HttpCheck(url, settings, sender)
    from lookback.checks.grpc_check import GrpcCheck

    check = GrpcCheck(url, settings)
    stack.callback(check.close)
    return check
