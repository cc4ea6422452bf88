"""Login by OpenID Connect."""

from __future__ import annotations

from backends.settings import Settings
from backends.sql.database import Database
from idempotency.transactions import Clock


class OidcLogin:
    """Login at one provider."""


def oidc_of(settings: Settings, database: Database, clock: Clock) -> OidcLogin | None:
    """Returns the login of `console.oidc_issuer`; None without one."""
    del settings, database, clock
    return None
