"""Alibaba Cloud's signature V3, ACS3-HMAC-SHA256.

    canonical request  method, path, sorted query, host, content-type and every x-acs-*, body hash
    string to sign     "ACS3-HMAC-SHA256\\n" + hex SHA-256 of the canonical request
    signature          hex HMAC-SHA256 under the raw secret

Source: https://help.aliyun.com/zh/sdk/product-overview/v3-request-structure-and-signature
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final
from urllib.parse import quote

ALGORITHM: Final = "ACS3-HMAC-SHA256"
FORM: Final = "application/x-www-form-urlencoded"


def quoted(text: str) -> str:
    """Percent-encodes all but unreserved characters (RFC 3986), a blank as %20."""
    return quote(text, safe="-_.~")


def encoded(fields: Mapping[str, str]) -> str:
    """Returns a query or form in canonical order, to sign and send."""
    return "&".join(f"{quoted(name)}={quoted(fields[name])}" for name in sorted(fields))


def stamp(now_s: float) -> str:
    """Returns `x-acs-date` for a time in epoch seconds: ISO 8601, UTC, to the second."""
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def signature(
    secret: str, method: str, path: str, query: str, fields: Sequence[tuple[str, str]], digest: str
) -> tuple[str, str]:
    """Returns the names of the signed fields, and the signature. `fields` are lower-case and sorted;
    `digest` is the body's SHA-256 in hex."""
    names = ";".join(name for name, _ in fields)
    lines = "".join(f"{name}:{value.strip()}\n" for name, value in fields)
    canonical = "\n".join((method, path, query, lines, names, digest))
    to_sign = f"{ALGORITHM}\n{sha256(canonical.encode()).hexdigest()}"
    return names, hmac.new(secret.encode(), to_sign.encode(), sha256).hexdigest()


def signed_fields(
    *,
    key_id: str,
    secret: str,
    host: str,
    path: str,
    query: str,
    body: bytes,
    action: str,
    version: str,
    now_s: float,
    nonce: str,
) -> list[tuple[str, str]]:
    """Returns all header fields of a signed POST, Authorization last."""
    digest = sha256(body).hexdigest()
    fields = [
        *([("content-type", FORM)] if body else []),
        ("host", host),
        ("x-acs-action", action),
        ("x-acs-content-sha256", digest),
        ("x-acs-date", stamp(now_s)),
        ("x-acs-signature-nonce", nonce),
        ("x-acs-version", version),
    ]
    names, made = signature(secret, "POST", path, query, fields, digest)
    shown = f"{ALGORITHM} Credential={key_id},SignedHeaders={names},Signature={made}"
    return [*fields, ("authorization", shown)]
