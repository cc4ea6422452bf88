"""Addresses of checks: they come from the configuration alone, never from a message."""

from __future__ import annotations

from typing import Final

from backends.check_settings import CheckSettings
from backends.settings import SettingsError
from channels.endpoints import HTTP, BadEndpoint, Endpoint, endpoint_url

GRPC: Final = ("grpc", "grpcs")
_SAFE: Final = ("https", "grpcs")
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


def address_of(name: str, settings: CheckSettings) -> Endpoint:
    """Returns the endpoint's address. Raises SettingsError."""
    key = f"lookback.checks.{name}.url"
    try:
        url = endpoint_url(settings.url, (*HTTP, *GRPC))
    except BadEndpoint as exc:
        raise SettingsError(f"{key}: {exc}") from exc
    if url.scheme not in _SAFE and url.host not in _LOOPBACK and not settings.plaintext:
        raise SettingsError(
            f"{key}: must begin with https:// or grpcs://; set plaintext = true"
            " if the network itself is encrypted"
        )
    if url.scheme in GRPC and (url.port is None or url.path.strip("/") or url.query):
        raise SettingsError(f"{key}: a check over gRPC has a host and a port alone")
    return url
