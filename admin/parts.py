"""The things that pages use, opened once a process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import URL

from admin.action_desk import ActionDesk
from admin.audit.journal import Journal
from admin.live.board import LiveBoard
from admin.oidc.logins import OidcLogins
from admin.oidc.members import OidcMembers
from admin.oidc.provider import OidcProvider
from admin.oidc.settings import oidc_settings
from admin.people.login_limits import LoginLimits
from admin.people.sessions import SessionLimits, Sessions
from admin.people.users import Users
from backends.settings import ConsoleSettings, Settings, SettingsError
from backends.sql.database import Database, database_url
from channels.json_fetch import JsonFetch
from channels.transports import TransportRouter
from idempotency.sql_ledger import SqlLedger, clock_of, open_ledger
from idempotency.transactions import Clock

READ_STATEMENT_MS: Final = 2_000
"""Longest time of a statement of a page."""
_OIDC_S: Final = 5.0
"""Longest time of one request to the OIDC provider."""
_POOL: Final = 8
_SHORTEST_SECRET: Final = 32


@dataclass(frozen=True, slots=True)
class Databases:
    """The console's own connections, without the ledger's fixed plans. Those for pages keep theirs."""

    primary: Database
    """For actions, people and audit."""
    reads: Database
    """For pages; a replica if `console.database_url` names one. Statements end after READ_STATEMENT_MS."""
    clock: Clock
    reads_clock: Clock


@dataclass(frozen=True, slots=True)
class PeopleParts:
    """Users and their sessions."""

    users: Users
    sessions: Sessions
    limits: LoginLimits


@dataclass(frozen=True, slots=True)
class OidcParts:
    """Sign-in at the provider of the configuration."""

    provider: OidcProvider
    logins: OidcLogins
    members: OidcMembers


@dataclass(frozen=True, slots=True)
class ConsoleParts:
    """Everything that a page may use. Redis and Kafka are opened by the page that needs them."""

    settings: Settings
    ledger: SqlLedger
    """The primary, with the ledger's own pool: for actions by the ledger's classes."""
    databases: Databases
    people: PeopleParts
    journal: Journal
    desk: ActionDesk
    """For actions on deliveries; opened by the first of them."""
    oidc: OidcParts | None = None
    """None: no provider is configured."""
    boards: Mapping[str, LiveBoard] = field(default_factory=dict)
    wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000

    @property
    def secure(self) -> bool:
        """Whether browsers reach the console by TLS."""
        return self.settings.console.url.startswith("https://")


def open_parts(settings: Settings, stack: ExitStack) -> ConsoleParts:
    """Opens the ledger and the console's pools; `stack` closes them. Raises SettingsError, LedgerError."""
    check_console(settings.console)
    ledger = open_ledger(settings)
    stack.callback(ledger.close)
    databases = _databases(settings, ledger, stack)
    limits = SessionLimits(
        int(settings.console.session_idle_s * 1_000), int(settings.console.session_s * 1_000)
    )
    primary, clock = databases.primary, databases.clock
    people = PeopleParts(
        Users(primary, clock),
        Sessions(primary, clock, limits),
        LoginLimits(primary, clock),
    )
    journal = Journal(primary, clock, settings.console.secret)
    oidc = _oidc(settings, databases, people, journal, stack)
    desk = ActionDesk(settings, ledger, stack)
    return ConsoleParts(settings, ledger, databases, people, journal, desk, oidc)


def _oidc(
    settings: Settings,
    databases: Databases,
    people: PeopleParts,
    journal: Journal,
    stack: ExitStack,
) -> OidcParts | None:
    found = oidc_settings(settings.console)
    if found is None:
        return None
    sender = TransportRouter()
    stack.callback(sender.close)
    fetch = JsonFetch(sender, timeout_s=_OIDC_S, ca_file=found.ca_file)
    return OidcParts(
        OidcProvider(found, fetch),
        OidcLogins(databases.primary, databases.clock),
        OidcMembers(found, people.users, journal),
    )


def check_console(console: ConsoleSettings) -> None:
    """Raises SettingsError for a secret or an address that the console cannot use."""
    secret, url = console.secret, console.url
    if secret and len(secret) < _SHORTEST_SECRET:
        raise SettingsError(f"console.secret: it has {len(secret)} characters; give it 32 or more")
    if url and not url.startswith(("https://", "http://")):
        raise SettingsError(f"console.url: {url!r}: write https://HOST or http://HOST:PORT")


def reads_url(settings: Settings) -> URL:
    """Returns the URL of the database that pages read. Raises SettingsError."""
    try:
        return database_url(settings.console.database_url or settings.database.url, settings.base)
    except ValueError as exc:
        raise SettingsError(f"console.database_url: {exc}") from exc


def _databases(settings: Settings, ledger: SqlLedger, stack: ExitStack) -> Databases:
    primary = Database(ledger.database.url, pool_size=_POOL)
    stack.callback(primary.close)
    reads = Database(
        reads_url(settings), pool_size=_POOL, statement_ms=READ_STATEMENT_MS, keeps_plans=True
    )
    stack.callback(reads.close)
    return Databases(primary, reads, clock_of(primary), clock_of(reads))
