"""The provider that the configuration names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from admin.access import Role
from admin.people.users import roles_of
from backends.settings import ConsoleSettings, SettingsError
from channels.endpoints import BadEndpoint
from channels.json_fetch import check_secure

CALLBACK: Final = "/login/oidc/callback"


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """One provider."""

    issuer: str
    client_id: str
    client_secret: str
    redirect_uri: str
    name: str
    """Name on the login page."""
    roles_claim: str
    """Empty: roles are given on the page People alone."""
    roles: Mapping[str, dict[Role, tuple[str, ...]]]
    """Roles by the claim's values."""
    ca_file: str


def oidc_settings(console: ConsoleSettings) -> OidcSettings | None:
    """Returns the provider; None without one. Raises SettingsError."""
    if not console.oidc_issuer:
        return None
    try:
        check_secure(console.oidc_issuer)
    except BadEndpoint as exc:
        raise SettingsError(f"console.oidc_issuer: {exc}") from exc
    if not console.oidc_client_id:
        raise SettingsError("console.oidc_client_id: it is missing; the provider gave it to you")
    if not console.url:
        raise SettingsError("console.url: the provider sends browsers back to it; set it")
    if console.oidc_roles_claim and not console.oidc_roles:
        raise SettingsError("console.oidc_roles: it is empty; name roles for the claim's values")
    return OidcSettings(
        issuer=console.oidc_issuer,
        client_id=console.oidc_client_id,
        client_secret=console.oidc_client_secret,
        redirect_uri=console.url.rstrip("/") + CALLBACK,
        name=console.oidc_name or urlsplit(console.oidc_issuer).hostname or "",
        roles_claim=console.oidc_roles_claim,
        roles={group: _roles(group, text) for group, text in console.oidc_roles.items()},
        ca_file=console.oidc_ca_file,
    )


def _roles(group: str, text: str) -> dict[Role, tuple[str, ...]]:
    try:
        return roles_of(text)
    except ValueError as exc:
        raise SettingsError(f"console.oidc_roles: {group}: {exc}") from exc
