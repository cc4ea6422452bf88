"""Volcengine's signature V4, HMAC-SHA256.

    canonical request  method, path, sorted query, signed fields, their names, hex SHA-256 of the body
    string to sign     algorithm, X-Date, date/region/service/request, hex SHA-256 of the canonical request
    key                HMAC chain: secret → UTC date → region → service → "request"

A signature holds for 15 minutes (X-Expires, which defaults to 900 s).

Sources, read 2026-11-22: https://www.volcengine.com/docs/6469/1121980 (another product's page; the gateway
is the same), https://www.volcengine.com/docs/6500/1285432 (X-Expires, the same), and Volcengine's own SDK:
volcengine 1.0.229 (PyPI), auth/SignerV4.py
"""

from __future__ import annotations

import hmac
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

ALGORITHM: Final = "HMAC-SHA256"
JSON: Final = "application/json;charset=utf-8"
_SIGNED: Final = "content-type;host;x-content-sha256;x-date"


def signed_fields(
    *,
    key_id: str,
    secret: str,
    region: str,
    service: str,
    host: str,
    path: str,
    query: str,
    body: bytes,
    now_s: float,
) -> list[tuple[str, str]]:
    """Returns the fields of a signed POST of JSON, Authorization last; `query` is sorted and quoted."""
    date = datetime.fromtimestamp(now_s, UTC).strftime("%Y%m%dT%H%M%SZ")
    digest = sha256(body).hexdigest()
    fields = [
        ("content-type", JSON),
        ("host", host),
        ("x-content-sha256", digest),
        ("x-date", date),
    ]
    lines = "".join(f"{name}:{value}\n" for name, value in fields)
    canonical = "\n".join(("POST", path, query, lines, _SIGNED, digest))
    scope = f"{date[:8]}/{region}/{service}/request"
    to_sign = "\n".join((ALGORITHM, date, scope, sha256(canonical.encode()).hexdigest()))
    key = secret.encode()
    for part in (date[:8], region, service, "request"):
        key = hmac.new(key, part.encode(), sha256).digest()
    made = hmac.new(key, to_sign.encode(), sha256).hexdigest()
    shown = f"{ALGORITHM} Credential={key_id}/{scope}, SignedHeaders={_SIGNED}, Signature={made}"
    return [*fields, ("authorization", shown)]
