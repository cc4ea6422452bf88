"""Tencent Cloud's signature v3, TC3-HMAC-SHA256.

    canonical request  method, path, query, content-type and host, hex SHA-256 of the exact body
    string to sign     algorithm, timestamp, date/service/tc3_request, hex SHA-256 of the canonical request
    key                HMAC chain: "TC3" + secret → UTC date → service → "tc3_request"

Source: https://cloud.tencent.com/document/product/213/30654 and, the same in English,
https://www.tencentcloud.com/document/api/215/38340
"""

from __future__ import annotations

import hmac
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

ALGORITHM: Final = "TC3-HMAC-SHA256"
JSON: Final = "application/json; charset=utf-8"
_SIGNED: Final = "content-type;host"


def authorization(
    *, secret_id: str, secret: str, service: str, host: str, path: str, body: bytes, now_s: int
) -> str:
    """Returns the Authorization field of a POST of JSON; `now_s` is the X-TC-Timestamp."""
    date = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%d")
    scope = f"{date}/{service}/tc3_request"
    lines = f"content-type:{JSON}\nhost:{host}\n"
    canonical = "\n".join(("POST", path, "", lines, _SIGNED, sha256(body).hexdigest()))
    to_sign = "\n".join(
        (ALGORITHM, str(now_s), scope, sha256(canonical.encode()).hexdigest())
    ).encode()
    key = b"TC3" + secret.encode()
    for part in (date, service, "tc3_request"):
        key = hmac.new(key, part.encode(), sha256).digest()
    made = hmac.new(key, to_sign, sha256).hexdigest()
    return f"{ALGORITHM} Credential={secret_id}/{scope}, SignedHeaders={_SIGNED}, Signature={made}"
