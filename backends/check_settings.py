"""Settings of one endpoint that look-back asks about a business's transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from backends.literal_secrets import FileText, no_literal
from backends.problems import SettingsError


class CheckSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[lookback.checks.NAME]`: an endpoint that business types name."""

    url: str
    """https://… for a check over HTTP, grpcs://host:port for one over gRPC. http:// and grpc:// are taken
    for addresses on this machine, or with `plaintext`."""
    secret: str = ""
    """Key that signs each question (HMAC-SHA256); empty: unsigned."""
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=60)] = 5.0
    """Time limit of one check, from the name's look-up to the last byte."""
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 8
    """Checks of this endpoint under way at once, in one process."""
    ca_file: str = ""
    """A PEM file of authorities; over HTTP beside the public ones, over gRPC in their place."""
    plaintext: bool = False
    """Whether an address without TLS may be on another machine: in a network that is encrypted itself."""


def check_settings(name: str, table: Mapping[str, Any]) -> CheckSettings:
    """Returns the settings in a table. Raises SettingsError."""
    path = ("lookback", "checks", name)
    secret = table.get("secret")
    if isinstance(secret, FileText) and secret:
        key = (*path, "secret")
        raise SettingsError(f"{'.'.join(key)}: {no_literal(key)}")
    plain = {key: str(one) if isinstance(one, FileText) else one for key, one in table.items()}
    try:
        return msgspec.convert(plain, CheckSettings, strict=False)
    except msgspec.ValidationError as exc:
        raise SettingsError(f"{'.'.join(path)}: {exc}; see docs/lookback-business.md") from exc
